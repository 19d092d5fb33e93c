//! What all surfaces say in the same way: outcomes, engines, slack, arm and disarm, times.

mod support;

use tourbillon::Outcome;

#[test]
fn e7_a_match_on_an_outcome_names_three_ways_and_each_is_written_as_a_word() {
    for outcome in [Outcome::Fired, Outcome::Cancelled, Outcome::Stopped] {
        let word = match outcome {
            Outcome::Fired => "fired",
            Outcome::Cancelled => "cancelled",
            Outcome::Stopped => "stopped",
        };
        assert_eq!(outcome.to_string(), word);
        assert_eq!(format!("{outcome:>10}"), format!("{word:>10}"));
    }
}
