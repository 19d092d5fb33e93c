//! The counts of one surface on one thread. Threads share nothing while they count; tallies are added up at the end.

use std::time::Duration;

use hdrhistogram::Histogram;
use tourbillon::Outcome;

use super::promise::Promise;
use crate::clock::nanos;
use crate::text;

/// The counts of a surface: every timer that was armed, and how it ended.
#[derive(Clone)]
pub(crate) struct SurfaceTally {
    pub(crate) surface: String,
    pub(crate) armed: u64,
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    pub(crate) stopped: u64,
    /// Completions that were compared with the independent clock, and those of them that were early.
    pub(crate) checked: u64,
    pub(crate) early: u64,
    /// From the deadline to the call of the waker, for timers with adaptive slack.
    pub(crate) lateness: Histogram<u64>,
    pub(crate) complaints: Vec<Complaint>,
}

/// A broken promise, and how it was broken.
#[derive(Clone)]
pub(crate) struct Complaint {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

/// Most complaints of a surface that are kept.
const KEPT: usize = 8;

impl SurfaceTally {
    pub(crate) fn new(surface: impl Into<String>) -> SurfaceTally {
        SurfaceTally {
            surface: surface.into(),
            armed: 0,
            fired: 0,
            cancelled: 0,
            stopped: 0,
            checked: 0,
            early: 0,
            lateness: histogram(),
            complaints: Vec::new(),
        }
    }

    pub(crate) fn count(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Fired => self.fired += 1,
            Outcome::Cancelled => self.cancelled += 1,
            Outcome::Stopped => self.stopped += 1,
        }
    }

    /// Checks a completion at `seen` that must not come before `due`, by the clock that the timer follows.
    #[inline]
    pub(crate) fn check(&mut self, due: u64, seen: u64) {
        self.checked += 1;
        if seen < due {
            self.early += 1;
            let by = text::time(due - seen);
            self.complain(Promise::P1, format!("{}: a timer completed {by} early", self.surface));
        }
    }

    /// Adds a complaint about a timer that should have fired by `due` and fired at `seen` because of its driver.
    #[cold]
    pub(crate) fn stalled(&mut self, due: u64, seen: u64) {
        let by = text::time(seen.saturating_sub(due));
        self.complain(Promise::P4, format!("{}: a timer was stalled for {by}", self.surface));
    }

    pub(crate) fn complain(&mut self, promise: Promise, what: impl Into<String>) {
        if self.complaints.len() < KEPT {
            self.complaints.push(Complaint { promise, what: what.into() });
        }
    }

    /// Adds a complaint unless every armed timer has ended in one way.
    pub(crate) fn balance(&mut self) {
        if !self.is_balanced() {
            self.complain(Promise::P2, format!("{}: {}", self.surface, self.equation()));
        }
    }

    /// Returns whether every armed timer has ended in one way.
    pub(crate) fn is_balanced(&self) -> bool {
        self.armed == self.fired + self.cancelled + self.stopped
    }

    /// Formats the counts: `3 armed = 1 fired + 1 cancelled + 1 stopped`, or `is not` instead of `=`.
    pub(crate) fn equation(&self) -> String {
        let sign = if self.is_balanced() { "=" } else { "is not" };
        let [armed, fired, cancelled, stopped] =
            [self.armed, self.fired, self.cancelled, self.stopped].map(text::count);
        format!("{armed} armed {sign} {fired} fired + {cancelled} cancelled + {stopped} stopped")
    }

    /// Adds the counts of the same surface from another thread.
    pub(crate) fn add(&mut self, other: &SurfaceTally) {
        self.armed += other.armed;
        self.fired += other.fired;
        self.cancelled += other.cancelled;
        self.stopped += other.stopped;
        self.checked += other.checked;
        self.early += other.early;
        // Both histograms come from `histogram`, so their ranges are equal.
        let _ = self.lateness.add(&other.lateness);
        self.complaints.extend(other.complaints.iter().cloned());
    }
}

/// Returns a histogram from a nanosecond to ten minutes, with two digits.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, nanos(Duration::from_secs(600)), 2).expect("the bounds are in order")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p1_a_completion_at_its_deadline_is_not_early_and_one_a_nanosecond_before_is() {
        let mut tally = SurfaceTally::new("sleeps");
        tally.check(1_000, 1_000);
        assert_eq!((tally.checked, tally.early, tally.complaints.len()), (1, 0, 0));
        tally.check(1_000, 999);
        assert_eq!((tally.early, tally.complaints[0].promise), (1, Promise::P1));
    }

    #[test]
    fn p2_a_ledger_that_does_not_balance_is_a_complaint() {
        let mut tally = SurfaceTally { armed: 3, fired: 1, cancelled: 1, stopped: 1, ..SurfaceTally::new("sleeps") };
        tally.balance();
        assert!(tally.complaints.is_empty());
        tally.count(Outcome::Fired);
        tally.balance();
        assert_eq!(tally.complaints[0].promise, Promise::P2);
        assert_eq!(tally.equation(), "3 armed is not 2 fired + 1 cancelled + 1 stopped");
    }
}
