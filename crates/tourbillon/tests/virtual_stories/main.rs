//! The same random stories run on Tokio's timers and on ours, in runtimes whose time is paused. (T9)
//!
//! Tokio's clock governs both (features `test-util` and `tokio`): a story in whole milliseconds must give the same log, instant for
//! instant (`exact`). With shorter durations, or when time runs for a while, each timer must be on time within Tokio's ticks (`rough`). A
//! story that fails is run again without some of its steps, until none of them can be left out, and printed.
#![cfg(all(feature = "test-util", feature = "tokio"))]

mod exact;
#[path = "../random/mod.rs"]
mod random;
mod rough;
mod timers;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use exact::{Event, Kind};
use random::{Random, seed};
use timers::{Late, Timers, Tokio, Tourbillon};

/// The number of stories of each kind.
const STORIES: u64 = 200;

/// In real time: a limit that no story of a few dozen steps reaches on any machine.
const BOUND: Duration = Duration::from_secs(60);

#[test]
fn t9_a_story_run_twice_on_tokio_gives_the_same_log() {
    let seed = seed();
    for kind in Kind::ALL {
        for number in 0..STORIES / 5 {
            compare::<Tokio>(kind, number, seed);
        }
    }
}

#[test]
fn t9_the_stories_detect_timers_that_differ_by_a_millisecond() {
    let seed = seed();
    for kind in Kind::ALL {
        let differs = |number| {
            let story = Arc::new(exact::make_up(kind, &mut Random(seed ^ number)));
            exact::run::<Tokio>(&story) != exact::run::<Late>(&story)
        };
        assert!((0..STORIES).any(differs), "{kind:?}");
    }
    let is_noticed = |number| {
        let story = Arc::new(rough::make_up(true, &mut Random(seed ^ number)));
        rough::run::<Late>(&story).check(Duration::from_millis(1)).is_err()
    };
    assert!((0..STORIES).any(is_noticed), "no story detects sleeps that are a millisecond late");
}

#[test]
fn t9_time_that_moves_by_itself_is_the_same_for_both() {
    compare_all(Kind::Auto);
}

#[test]
fn t9_time_stands_still_during_blocking_work_for_both() {
    compare_all(Kind::Blocking);
}

#[test]
fn t9_time_that_is_advanced_is_the_same_for_both() {
    compare_all(Kind::Advance);
}

#[test]
fn t9_two_runtimes_on_one_thread_have_each_its_own_time_for_both() {
    compare_all(Kind::TwoRuntimes);
}

#[test]
fn t9_timers_that_were_dropped_do_not_move_time_for_both() {
    compare_all(Kind::Outside);
}

#[test]
fn t9_sleeps_below_a_millisecond_are_never_early_in_order_and_on_time() {
    check_all(true);
}

#[test]
fn t9_timers_from_before_a_pause_and_from_while_time_runs_follow_it() {
    check_all(false);
}

fn compare_all(kind: Kind) {
    let seed = seed();
    for number in 0..STORIES {
        compare::<Tourbillon>(kind, number, seed);
    }
}

/// Runs a story on Tokio's timers and on others: the logs must be the same.
fn compare<T: Timers>(kind: Kind, number: u64, seed: u64) {
    let name = format!("story {number} of the kind {kind:?}, TOURBILLON_SEED={seed}");
    let story = exact::make_up(kind, &mut Random(seed ^ number));
    let Err(difference) = same_logs::<T>(&name, &story) else { return };
    let give_up = Instant::now() + BOUND;
    let smallest = exact::shrink(&story, |story| Instant::now() < give_up && same_logs::<T>(&name, story).is_err());
    let of_smallest = same_logs::<T>(&name, &smallest).err().unwrap_or_default();
    panic!("{name}:\n{difference}\nIts smallest form: {smallest:#?}\n{of_smallest}");
}

fn same_logs<T: Timers>(name: &str, story: &exact::Story) -> Result<(), String> {
    let story = Arc::new(story.clone());
    let again = story.clone();
    let theirs = in_time(name, move || exact::run::<Tokio>(&story));
    let others = in_time(name, move || exact::run::<T>(&again));
    if theirs == others { Ok(()) } else { Err(first_difference::<T>(&theirs, &others)) }
}

fn first_difference<T: Timers>(theirs: &[Event], others: &[Event]) -> String {
    let same = theirs.iter().zip(others).take_while(|(theirs, others)| theirs == others).count();
    let from = |events: &[Event]| events[same.min(events.len())..].iter().take(4).cloned().collect::<Vec<_>>();
    format!("after {same} events that are the same\nTokio: {:#?}\n{}: {:#?}", from(theirs), T::NAME, from(others))
}

fn check_all(starts_paused: bool) {
    let seed = seed();
    for number in 0..STORIES {
        let name = format!("story {number}, TOURBILLON_SEED={seed}");
        let story = Arc::new(rough::make_up(starts_paused, &mut Random(seed ^ number)));
        check::<Tokio>(&name, &story, Duration::from_millis(1));
        check::<Tourbillon>(&name, &story, Duration::ZERO);
    }
}

fn check<T: Timers>(name: &str, story: &Arc<rough::Story>, tick: Duration) {
    let again = story.clone();
    let result = in_time(name, move || rough::run::<T>(&again));
    if let Err(why) = result.check(tick) {
        panic!("{name}, on {}: {why}\n{story:#?}\n{result:#?}", T::NAME);
    }
}

/// Runs `call` on a thread of its own, and fails if it does not return in time.
fn in_time<R: Send + 'static>(name: &str, call: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, receive) = mpsc::channel();
    let run = move || send.send(catch_unwind(AssertUnwindSafe(call)));
    std::thread::spawn(run);
    match receive.recv_timeout(BOUND) {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) => {
            eprintln!("{name} panicked");
            resume_unwind(panic)
        }
        Err(_) => panic!("{name} has not ended after {BOUND:?}: a timer does not fire"),
    }
}
