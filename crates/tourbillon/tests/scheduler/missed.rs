//! Times that went by before anybody could make their runs.

use std::time::Duration;

use tourbillon::Time;
use tourbillon::scheduler::{Overlap, Plan, Remaining};
use tourbillon::time::MissedTickBehavior::{self, Burst, Delay, Skip};

use crate::Story;
use crate::by_hand::ms;

const OVERLAPS: [Overlap; 3] = [Overlap::Skip, Overlap::QueueOne, Overlap::Parallel];

/// Every 10 ms; nobody comes from 10 until 115.
fn stalled(missed: MissedTickBehavior, overlap: Overlap) -> Story {
    let story = Story::with(|builder| builder.missed(missed).overlap(overlap));
    story.add("tick", ms(10));
    story.pass(ms(10));
    story.stall(ms(105));
    story.pass(ms(24));
    story
}

#[test]
fn d23_by_default_one_run_is_made_for_all_that_went_by_and_the_grid_is_kept() {
    for overlap in OVERLAPS {
        let story = stalled(Skip, overlap);
        assert_eq!(story.ms(), [10, 115, 120, 130], "{overlap:?}");
        assert_eq!(story.scheduler.report("tick").unwrap().missed, 9, "{overlap:?}");
        assert_eq!(story.scheduler.stats().missed, 9, "{overlap:?}");
    }
}

#[test]
fn d23_a_burst_makes_up_for_each_of_them() {
    for overlap in OVERLAPS {
        let story = stalled(Burst, overlap);
        let made: Vec<_> = story.made().into_iter().map(|run| (run.due / 1_000_000, run.at / 1_000_000)).collect();
        let late = (2..=11).map(|number| (10 * number, 115));
        let expected: Vec<_> = [(10, 10)].into_iter().chain(late).chain([(120, 120), (130, 130)]).collect();
        assert_eq!(made, expected, "{overlap:?}");
        assert_eq!(story.scheduler.stats().missed, 0, "{overlap:?}");
    }
}

#[test]
fn d23_with_delay_the_next_is_due_one_interval_after_the_late_one() {
    for overlap in OVERLAPS {
        let story = stalled(Delay, overlap);
        assert_eq!(story.ms(), [10, 115, 125, 135], "{overlap:?}");
    }
}

#[test]
fn d23_a_first_time_in_the_past_counts_as_one_that_was_missed() {
    let cases = [
        (Skip, vec![100, 105], 9),
        (Burst, vec![100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 105], 0),
        (Delay, vec![100, 110], 0),
    ];
    for (missed, made, count) in cases {
        let story = Story::with(|builder| builder.missed(missed));
        story.pass(ms(100));
        // 5, 15 .. 95 have been.
        story.add("late", Plan::every(ms(10)).first_at(story.instant(ms(5))));
        assert_eq!(story.made(), [], "not within the call that schedules");
        story.pass(ms(13));
        assert_eq!(story.ms(), made, "{missed:?}");
        assert_eq!(story.scheduler.report("late").unwrap().missed, count, "{missed:?}");
    }
}

#[test]
fn d23_p5_a_first_time_that_is_ages_ago_is_no_trouble() {
    for missed in [Skip, Delay] {
        let story = Story::with(|builder| builder.missed(missed));
        story.pass(Duration::from_secs(300 * 365 * 24 * 60 * 60));
        story.add("late", Plan::every(Duration::from_nanos(3)).times(2).first_at(story.instant(ms(0))));
        story.turn();
        assert_eq!(story.made().len(), 1, "{missed:?}");
        story.pass(Duration::from_nanos(3));
        assert_eq!(story.made().len(), 1, "{missed:?}");
        assert!(!story.scheduler.contains("late"), "{missed:?}");
    }
    // As many as it may, and no more.
    let story = Story::with(|builder| builder.missed(Burst));
    story.pass(Duration::from_secs(300 * 365 * 24 * 60 * 60));
    story.add("late", Plan::every(Duration::from_nanos(3)).times(1000).first_at(story.instant(ms(0))));
    story.turn();
    assert_eq!(story.made().len(), 1000);
    assert!(!story.scheduler.contains("late"));
}

#[test]
fn d23_an_instant_before_the_clocks_beginning_is_no_trouble() {
    for missed in [Skip, Delay] {
        let story = Story::with(|builder| builder.missed(missed));
        let mut instant = story.instant(ms(0));
        // As far back as it goes.
        while let Some(earlier) = instant.checked_sub(Duration::from_secs(3600)) {
            instant = earlier;
            if story.instant(ms(0)).saturating_duration_since(instant) > Duration::from_secs(1_000_000) {
                break;
            }
        }
        story.add("late", Plan::every(ms(10)).first_at(instant));
        story.turn();
        assert_eq!(story.made().len(), 1, "{missed:?}");
    }
}

#[test]
fn d23_times_that_went_by_are_used_up_only_by_runs() {
    for (missed, left) in [(Skip, 19), (Burst, 10), (Delay, 19)] {
        let story = Story::with(|builder| builder.missed(missed));
        story.add("tick", Plan::every(ms(10)).times(20));
        story.stall(ms(100));
        assert_eq!(story.scheduler.remaining("tick"), Some(Remaining::Runs(left)), "{missed:?}");
    }
}

#[test]
fn d23_a_plan_of_its_own_comes_before_the_schedulers() {
    let story = Story::with(|builder| builder.missed(Burst));
    story.add("skips", Plan::every(ms(10)).missed(Skip));
    story.add("bursts", Plan::every(ms(10)));
    story.stall(ms(50));
    let made = story.made_at_ms();
    assert_eq!(made.iter().filter(|run| run.0 == "skips").count(), 1);
    assert_eq!(made.iter().filter(|run| run.0 == "bursts").count(), 5);
}

#[test]
fn d23_a_burst_of_a_slow_job_is_made_one_after_the_other() {
    let story = Story::with(|builder| builder.missed(Burst));
    story.add_slow("slow", Plan::every(ms(10)).times(4), ms(2));
    story.stall(ms(35));
    story.pass(ms(50));
    let made: Vec<_> = story.made().into_iter().map(|run| (run.due / 1_000_000, run.at / 1_000_000)).collect();
    // That of 40 overlaps the last of them.
    assert_eq!(made, [(10, 35), (20, 37), (30, 39), (50, 50)]);
}

#[test]
fn d23_a_past_first_time_after_a_stop_and_a_start_is_not_passed_over() {
    for (missed, made) in [(Skip, vec![100, 105]), (Burst, vec![100, 100, 105]), (Delay, vec![100, 110])] {
        let story = Story::with(|builder| builder.missed(missed));
        story.scheduler.stop();
        story.pass(ms(99));
        story.scheduler.start();
        story.pass(ms(1));
        story.add("late", Plan::every(ms(10)).first_at(story.instant(ms(85))));
        story.pass(ms(12));
        assert_eq!(story.ms(), made, "{missed:?}");
    }
}

#[test]
fn p5_more_times_than_a_count_can_tell_are_no_trouble() {
    let story = Story::new();
    for key in ["a", "b", "c"] {
        story.add(key, Duration::from_nanos(1));
    }
    story.engine.clock().set(Time::from_nanos(u64::MAX - 1));
    story.turn();
    let stats = story.scheduler.stats();
    assert_eq!((stats.runs, stats.missed, story.engine.stats().callback_panics), (3, u64::MAX, 0));
}

#[test]
fn g5_a_past_first_time_before_a_stop_and_a_start_is_passed_over() {
    for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let story = Story::new();
        story.scheduler.stop();
        story.pass(ms(20));
        story.scheduler.start();
        story.add("late", Plan::every(ms(10)).first_at(story.instant(ms(5))).missed(missed));
        // Nobody has looked yet.
        story.scheduler.stop();
        story.pass(ms(30));
        story.scheduler.start();
        assert_eq!(story.scheduler.next_run("late"), Some(story.instant(ms(55))), "{missed:?}");
        story.pass(ms(15));
        assert_eq!(story.made_at_ms(), [("late", 55), ("late", 65)], "{missed:?}");
    }
}
