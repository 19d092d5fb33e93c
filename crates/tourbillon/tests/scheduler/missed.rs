//! Runs whose time passed before they could be made.

use std::time::Duration;

use tourbillon::Time;
use tourbillon::scheduler::{Builder, Overflow, Overlap, Plan, Remaining, Run};
use tourbillon::time::MissedTickBehavior::{self, Burst, Delay, Skip};

use crate::Story;
use crate::random::{Random, seed};
use crate::support::ms;

const OVERLAPS: [Overlap; 3] = [Overlap::Skip, Overlap::QueueOne, Overlap::Parallel];

/// A job every 10 ms; the engine is not driven from 10 until 115.
fn stalled(missed: MissedTickBehavior, overlap: Overlap) -> Story {
    let story = Story::with(|builder| builder.missed(missed).overlap(overlap));
    story.add("tick", ms(10));
    story.pass(ms(10));
    story.stall(ms(105));
    story.pass(ms(24));
    story
}

#[test]
fn d23_by_default_one_run_is_made_for_all_missed_ones_and_the_grid_is_kept() {
    for overlap in OVERLAPS {
        let story = stalled(Skip, overlap);
        assert_eq!(story.ms(), [10, 115, 120, 130], "{overlap:?}");
        assert_eq!(story.scheduler.report("tick").unwrap().missed, 9, "{overlap:?}");
        assert_eq!(story.scheduler.stats().missed, 9, "{overlap:?}");
    }
}

#[test]
fn d23_a_burst_makes_up_for_each_missed_run() {
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
fn d23_a_first_run_in_the_past_counts_as_missed() {
    let cases = [
        (Skip, vec![100, 105], 9),
        (Burst, vec![100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 105], 0),
        (Delay, vec![100, 110], 0),
    ];
    for (missed, made, count) in cases {
        let story = Story::with(|builder| builder.missed(missed));
        story.pass(ms(100));
        // The runs of 5, 15 .. 95 are in the past.
        story.add("late", Plan::every(ms(10)).first_at(story.instant(ms(5))));
        assert_eq!(story.made(), [], "no run is made within the call that schedules");
        story.pass(ms(13));
        assert_eq!(story.ms(), made, "{missed:?}");
        assert_eq!(story.scheduler.report("late").unwrap().missed, count, "{missed:?}");
    }
}

#[test]
fn d23_p5_a_first_run_long_ago_is_harmless() {
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
    // A burst makes as many runs as it may, and no more.
    let story = Story::with(|builder| builder.missed(Burst));
    story.pass(Duration::from_secs(300 * 365 * 24 * 60 * 60));
    story.add("late", Plan::every(Duration::from_nanos(3)).times(1000).first_at(story.instant(ms(0))));
    story.turn();
    assert_eq!(story.made().len(), 1000);
    assert!(!story.scheduler.contains("late"));
}

#[test]
fn d23_an_instant_before_the_clocks_origin_is_harmless() {
    for missed in [Skip, Delay] {
        let story = Story::with(|builder| builder.missed(missed));
        let mut instant = story.instant(ms(0));
        // The earliest instant that there is.
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
fn d23_only_runs_use_up_the_times_of_a_plan_not_missed_ones() {
    for (missed, left) in [(Skip, 19), (Burst, 10), (Delay, 19)] {
        let story = Story::with(|builder| builder.missed(missed));
        story.add("tick", Plan::every(ms(10)).times(20));
        story.stall(ms(100));
        assert_eq!(story.scheduler.remaining("tick"), Some(Remaining::Runs(left)), "{missed:?}");
    }
}

#[test]
fn d23_the_policy_of_a_plan_comes_before_that_of_the_scheduler() {
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
    // The run of 40 overlaps the last of them.
    assert_eq!(made, [(10, 35), (20, 37), (30, 39), (50, 50)]);
}

#[test]
fn d23_a_past_first_run_after_a_stop_and_a_start_is_not_skipped() {
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
fn p5_more_missed_runs_than_a_counter_can_hold_are_harmless() {
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
fn g5_a_past_first_run_before_a_stop_and_a_start_is_skipped() {
    for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let story = Story::new();
        story.scheduler.stop();
        story.pass(ms(20));
        story.scheduler.start();
        story.add("late", Plan::every(ms(10)).first_at(story.instant(ms(5))).missed(missed));
        // The engine has not been driven yet.
        story.scheduler.stop();
        story.pass(ms(30));
        story.scheduler.start();
        assert_eq!(story.scheduler.next_run("late"), Some(story.instant(ms(55))), "{missed:?}");
        story.pass(ms(15));
        assert_eq!(story.made_at_ms(), [("late", 55), ("late", 65)], "{missed:?}");
    }
}

// ---- which runs count as missed ----

const POLICIES: [MissedTickBehavior; 3] = [Skip, Burst, Delay];

/// Returns the runs of a plan that were due and were not made, by both counters, which must agree.
fn missed(story: &Story) -> u64 {
    story.scheduler.stats().missed
}

#[test]
fn d60_a_single_run_misses_nothing_however_late_it_is() {
    for policy in POLICIES {
        for overlap in OVERLAPS {
            for after in [Duration::ZERO, Duration::from_nanos(1), Duration::from_nanos(7), ms(3)] {
                let story = Story::with(|builder| builder.missed(policy).overlap(overlap));
                story.add("once", Plan::once(after));
                story.stall(ms(100));
                story.pass(ms(100));
                assert_eq!(story.made().len(), 1, "{policy:?} {overlap:?} {after:?}");
                assert_eq!(missed(&story), 0, "{policy:?} {overlap:?} {after:?}");
                assert_eq!(story.scheduler.stats().overlapped, 0, "{policy:?} {overlap:?} {after:?}");
                assert!(!story.scheduler.contains("once"));
            }
        }
    }
}

#[test]
fn d60_a_plan_of_some_runs_misses_those_before_its_last_run_and_none_after_it() {
    // The runs of 10, 20 .. 100 are late; then each of the others is made on time.
    for (policy, before_last, at_once) in [(Skip, 9, 1), (Burst, 0, 10), (Delay, 0, 1)] {
        for overlap in OVERLAPS {
            for times in 1..=12 {
                let story = Story::with(|builder| builder.missed(policy).overlap(overlap));
                story.add("some", Plan::every(ms(10)).times(times));
                story.stall(ms(105));
                assert_eq!(story.made().len() as u64, at_once.min(times), "{policy:?} {overlap:?} {times}");
                // When its last run is made late, the plan ends: it has no run after that.
                let expected = if times == 1 { 0 } else { before_last };
                assert_eq!(missed(&story), expected, "{policy:?} {overlap:?} {times}");
                story.pass(ms(1000));
                assert_eq!(missed(&story), expected, "{policy:?} {overlap:?} {times}");
                assert_eq!(story.scheduler.stats().runs, times);
                assert_eq!(story.scheduler.stats().overlapped, 0, "{policy:?} {overlap:?} {times}");
                assert!(!story.scheduler.contains("some"));
            }
        }
    }
}

#[test]
fn d60_a_last_run_after_late_ones_misses_nothing() {
    let story = Story::new();
    story.add("two", Plan::every(ms(10)).times(2));
    story.stall(ms(35));
    assert_eq!(missed(&story), 2, "the runs of 20 and 30");
    story.stall(ms(500));
    assert_eq!((missed(&story), story.scheduler.stats().runs), (2, 2));
    assert!(!story.scheduler.contains("two"));
}

#[test]
fn d60_a_last_run_that_finds_no_room_is_not_the_last_and_the_skipped_runs_count() {
    let story = Story::with(|builder| builder.queue(0).overflow(Overflow::Skip));
    story.add("first", Plan::once(ms(10)));
    story.add("other", Plan::every(ms(10)).times(1));
    // Both jobs are due, and there is room for one. The other also misses its runs of 20, 30 and 40.
    story.stall(ms(45));
    let stats = story.scheduler.stats();
    assert_eq!((stats.runs, stats.overflowed, stats.missed), (1, 1, 3));
    story.pass(ms(5));
    let stats = story.scheduler.stats();
    assert_eq!((stats.runs, stats.overflowed, stats.missed, stats.jobs), (2, 1, 3, 0));
}

#[test]
fn d60_a_removed_job_misses_nothing_more() {
    for policy in POLICIES {
        let story = Story::with(|builder| builder.missed(policy));
        story.add("tick", ms(10));
        story.stall(ms(35));
        let before = missed(&story);
        assert!(story.scheduler.remove("tick"));
        story.stall(ms(1000));
        assert_eq!(missed(&story), before, "{policy:?}");
    }
}

#[test]
fn d60_a_reschedule_to_a_single_run_counts_no_missed_run_of_the_old_plan() {
    for policy in POLICIES {
        let story = Story::with(|builder| builder.missed(policy));
        story.add("tick", ms(10));
        story.pass(ms(10));
        story.engine.clock().advance(ms(500));
        // The engine has not been driven since; the runs in between belong to a plan that was replaced.
        story.scheduler.reschedule("tick", Plan::once(Duration::ZERO)).unwrap();
        story.stall(ms(500));
        assert_eq!((missed(&story), story.made().len()), (0, 2), "{policy:?}");
        assert!(!story.scheduler.contains("tick"));
    }
}

#[test]
fn d60_a_single_run_due_during_a_stop_or_a_pause_is_made_afterwards_and_none_is_missed() {
    for after in [Duration::ZERO, ms(10)] {
        let story = Story::new();
        story.scheduler.stop();
        story.add("once", Plan::once(after));
        story.pass(ms(100));
        assert_eq!(story.made(), []);
        story.scheduler.start();
        assert_eq!(story.scheduler.next_run("once"), Some(story.instant(ms(100))));
        story.turn();
        assert_eq!(story.ms(), [100]);
        assert_eq!(missed(&story), 0, "{after:?}");

        let story = Story::new();
        story.add("once", Plan::once(after));
        assert!(story.scheduler.pause("once"));
        story.pass(ms(100));
        assert!(story.scheduler.resume("once"));
        story.turn();
        assert_eq!(story.ms(), [100]);
        assert_eq!(missed(&story), 0, "{after:?}");
    }
}

#[test]
fn d60_a_job_that_reschedules_itself_for_a_single_run_makes_it_and_overlaps_nothing() {
    for overlap in OVERLAPS {
        let story = Story::with(|builder| builder.overlap(overlap));
        let writes = story.writes();
        let job = move |run: Run<&'static str>| {
            writes(&run);
            let (scheduler, number) = (run.scheduler().unwrap(), run.number());
            async move {
                if number < 3 {
                    scheduler.reschedule("again", Plan::once(Duration::ZERO)).unwrap();
                }
                tourbillon::time::sleep(ms(5)).await;
            }
        };
        story.scheduler.schedule_async("again", Plan::once(ms(1)), job).unwrap();
        story.pass(ms(50));
        let stats = story.scheduler.stats();
        assert_eq!((stats.runs, stats.missed, stats.overlapped, stats.jobs), (3, 0, 0, 0), "{overlap:?}");
    }
}

#[test]
fn d60_a_last_run_that_waits_for_the_run_before_it_leaves_no_run_to_overlap() {
    let story = Story::with(|builder| builder.overlap(Overlap::QueueOne));
    story.add_slow("slow", Plan::every(ms(10)).times(2), ms(35));
    // The run of 20 waits for that of 10; 30 and 40 are no runs of a plan of two.
    story.pass(ms(200));
    assert_eq!(story.due_ms(), [10, 20]);
    let stats = story.scheduler.stats();
    assert_eq!((stats.runs, stats.overlapped, stats.missed, stats.jobs), (2, 0, 0, 0));

    let story = Story::with(|builder| builder.missed(Burst));
    story.add_slow("slow", Plan::every(ms(10)).times(3), ms(35));
    // All three runs are late and made up for, one after the other: there is no fourth that could overlap.
    story.stall(ms(35));
    story.pass(ms(200));
    assert_eq!(story.due_ms(), [10, 20, 30]);
    let stats = story.scheduler.stats();
    assert_eq!((stats.runs, stats.overlapped, stats.missed, stats.jobs), (3, 0, 0, 0));
}

#[test]
fn d60_the_runs_made_and_those_counted_as_missed_add_up_to_those_due() {
    let seed = seed();
    for story in 0..200 {
        let mut random = Random(seed ^ story);
        let overlap = random.one_of(OVERLAPS);
        let interval = 1 + random.below(20);
        let rules = |builder: Builder<&'static str>| builder.missed(Skip).overlap(overlap);
        let story = Story::with(rules);
        story.add("tick", Plan::every(Duration::from_nanos(interval)));
        let mut now = 0;
        for _ in 0..50 {
            let by = random.below(100);
            now += by;
            story.stall(Duration::from_nanos(by));
        }
        let stats = story.scheduler.stats();
        assert_eq!(stats.runs + stats.missed + stats.overlapped, now / interval, "every {interval} ns for {now} ns");
    }
}
