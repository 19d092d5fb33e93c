//! When jobs run, and queries about them.

use std::sync::Arc;
use std::time::Duration;

use tourbillon::scheduler::{Plan, Remaining, Scheduler};

use crate::support::{eventually, manual, ms};
use crate::{Count, Story};

#[test]
fn g3_g9_a_job_runs_every_interval_and_is_given_its_key_and_its_number() {
    let story = Story::new();
    story.add("tick", ms(10));
    story.pass(ms(9));
    assert_eq!(story.made(), []);
    story.pass(ms(31));
    let made = story.made();
    assert_eq!(made.len(), 4);
    for (index, run) in made.into_iter().enumerate() {
        let number = index as u64 + 1;
        assert_eq!((run.key, run.number, run.due, run.at), ("tick", number, number * 10_000_000, number * 10_000_000));
    }
    assert_eq!(story.scheduler.remaining("tick"), Some(Remaining::ForEver));
}

#[test]
fn g3_a_job_runs_the_given_number_of_times_and_then_ends() {
    let story = Story::new();
    story.add("three", Plan::every(ms(10)).times(3));
    for left in [2, 1] {
        story.pass(ms(10));
        assert_eq!(story.scheduler.remaining("three"), Some(Remaining::Runs(left)));
    }
    story.pass(ms(10));
    assert!(!story.scheduler.contains("three"));
    assert_eq!(story.scheduler.remaining("three"), None);
    story.pass(ms(100));
    assert_eq!(story.ms(), [10, 20, 30]);
    story.add("three", Plan::once(ms(5)));
    story.pass(ms(5));
    assert_eq!(story.ms(), [135]);
}

#[test]
fn g3_the_first_run_is_due_at_once_or_after_an_interval_or_at_an_instant() {
    let story = Story::new();
    story.add("in time", Plan::every(ms(10)).times(2));
    story.add("at once", Plan::every(ms(10)).times(2).first_at_once());
    story.add("at 7", Plan::every(ms(10)).times(2).first_at(story.instant(ms(7))));
    story.add("once", Plan::once(ms(3)));
    story.pass(ms(100));
    assert_eq!(
        story.made_at_ms(),
        [("at once", 0), ("once", 3), ("at 7", 7), ("in time", 10), ("at once", 10), ("at 7", 17), ("in time", 20)]
    );
}

#[test]
fn g3_a_plan_given_as_a_duration_runs_for_ever() {
    let story = Story::new();
    story.scheduler.schedule("tick", ms(1), story.writes()).unwrap();
    story.pass(ms(1000));
    assert_eq!(story.made().len(), 1000);
}

/// The wheel's slots are powers of 64 nanoseconds wide.
#[test]
fn d12_an_interval_that_is_a_whole_turn_of_a_wheel_is_not_early() {
    for level in 1..=8 {
        let span = Duration::from_nanos(64_u64.pow(level));
        for interval in [span, span * 2, span - Duration::from_nanos(1), span + Duration::from_nanos(1)] {
            let story = Story::new();
            story.pass(Duration::from_nanos(12_345));
            let begin = story.now().as_nanos() as u64;
            story.add("turn", Plan::every(interval).times(5));
            story.pass(interval * 5);
            let at: Vec<_> = story.made().into_iter().map(|made| made.at - begin).collect();
            let expected: Vec<_> = (1..=5).map(|number| number * interval.as_nanos() as u64).collect();
            assert_eq!(at, expected, "every {interval:?}");
        }
    }
}

#[test]
fn d13_d14_p1_thousands_of_runs_later_each_is_due_to_the_nanosecond() {
    for nanos in [1_500_000, 1_500_001, 999_983, 1_048_576, 3_333_333] {
        let story = Story::new();
        story.add("tick", Duration::from_nanos(nanos));
        // Time advances in steps unrelated to the interval.
        for step in 0..5000 {
            story.pass(Duration::from_nanos(700_000 + step * 97));
        }
        let made = story.made();
        assert!(made.len() > 1000);
        for (index, run) in made.into_iter().enumerate() {
            let due = (index as u64 + 1) * nanos;
            assert_eq!((run.number, run.due, run.at), (index as u64 + 1, due, due), "every {nanos} ns");
        }
    }
}

#[test]
fn d14_lateness_does_not_accumulate() {
    let story = Story::new();
    story.add("tick", ms(10));
    for late in [3, 9, 1, 7, 5, 8] {
        // Until this long after the next run is due.
        let over = story.now().as_millis() as u64 % 10;
        story.stall(ms(10 - over + late));
    }
    let made = story.made();
    for (index, run) in made.iter().enumerate() {
        assert_eq!(run.due, (index as u64 + 1) * 10_000_000);
        assert!(run.at >= run.due && run.at < run.due + 10_000_000);
    }
    assert_eq!(made.len(), 6);
}

#[test]
fn d15_d16_intervals_below_a_microsecond_run_each_time_and_no_more_often() {
    let story = Story::new();
    story.add("one", Duration::from_nanos(1));
    story.add("seven", Duration::from_nanos(7));
    story.add("half", Duration::from_nanos(500));
    story.pass(Duration::from_nanos(3500));
    let made = story.made();
    for (key, interval, count) in [("one", 1, 3500), ("seven", 7, 500), ("half", 500, 7)] {
        let at: Vec<_> = made.iter().filter(|run| run.key == key).map(|run| run.at).collect();
        assert_eq!(at, (1..=count).map(|number| number * interval).collect::<Vec<_>>(), "{key}");
    }
}

#[test]
fn d31_p5_an_interval_beyond_all_time_is_never_due_and_disturbs_no_other_job() {
    let story = Story::new();
    story.add("never", Duration::MAX);
    story.add("tick", Plan::every(ms(10)).times(3));
    story.add("once, and then never", Plan::every(Duration::MAX).first_at_once());
    story.add("centuries", Plan::every(Duration::from_secs(400 * 365 * 24 * 60 * 60)).first_at_once());
    assert_eq!(story.scheduler.next_run("never"), None);
    story.pass(ms(100));
    assert_eq!(
        story.made_at_ms(),
        [("once, and then never", 0), ("centuries", 0), ("tick", 10), ("tick", 20), ("tick", 30)]
    );
    assert!(story.scheduler.contains("never"));
    assert_eq!(story.scheduler.next_run("once, and then never"), None);
    assert!(story.scheduler.remove("never"));
}

#[test]
fn d31_the_largest_number_of_times_is_for_ever() {
    let story = Story::new();
    story.add("for ever", Plan::every(ms(1)).times(u64::MAX));
    story.add("nearly", Plan::every(ms(1)).times(u64::MAX - 1));
    story.pass(ms(10));
    assert_eq!(story.scheduler.remaining("for ever"), Some(Remaining::ForEver));
    assert_eq!(story.scheduler.remaining("nearly"), Some(Remaining::Runs(u64::MAX - 11)));
}

#[test]
fn d33_p3_the_job_due_first_begins_first_and_of_equals_the_one_scheduled_first() {
    let story = Story::new();
    let keys = ["a", "b", "c", "d", "e", "f"];
    let dues = [5, 3, 5, 1, 3, 5];
    for (key, due) in keys.into_iter().zip(dues) {
        story.add(key, Plan::once(ms(due)));
    }
    // All jobs at once, and late.
    story.stall(ms(50));
    let order: Vec<_> = story.made().into_iter().map(|run| (run.due / 1_000_000, run.key)).collect();
    assert_eq!(order, [(1, "d"), (3, "b"), (3, "e"), (5, "a"), (5, "c"), (5, "f")]);
}

#[test]
fn d33_many_late_jobs_begin_in_their_order() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    for key in 0..5000_u64 {
        let log = Arc::clone(&log);
        let after = Duration::from_micros(1 + key * 7919 % 5000);
        scheduler.schedule(key, Plan::once(after), move |run| log.lock().unwrap().push((after, *run.key()))).unwrap();
    }
    engine.clock().advance(ms(100));
    while engine.turn().more {}
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 5000);
    assert!(log.is_sorted());
}

#[test]
fn g4_the_state_of_a_job_can_be_queried() {
    let story = Story::new();
    assert!(story.scheduler.is_empty() && story.scheduler.keys().is_empty());
    story.add("a", ms(10));
    story.add("b", Plan::every(ms(20)).times(5));
    let mut keys = story.scheduler.keys();
    keys.sort_unstable();
    assert_eq!((keys, story.scheduler.len()), (vec!["a", "b"], 2));
    assert_eq!(story.scheduler.next_run("a"), Some(story.instant(ms(10))));
    assert_eq!(story.scheduler.next_run("b"), Some(story.instant(ms(20))));
    story.pass(ms(25));
    assert_eq!(story.scheduler.next_run("a"), Some(story.instant(ms(30))));
    assert_eq!(story.scheduler.next_run("b"), Some(story.instant(ms(40))));
    assert_eq!(story.scheduler.remaining("b"), Some(Remaining::Runs(4)));
    assert_eq!(story.scheduler.report("a").map(|report| report.runs), Some(2));
    let stats = story.scheduler.stats();
    assert_eq!((stats.jobs, stats.runs, stats.waiting, stats.running), (2, 3, 0, 0));
    assert_eq!((stats.failed, stats.missed, stats.overlapped, stats.overflowed, stats.late), (0, 0, 0, 0, 0));
    assert!(format!("{:?}", story.scheduler).contains("runs: 3"));
}

#[test]
fn g4_a_job_that_is_removed_does_not_run_again_and_its_key_is_free() {
    let story = Story::new();
    story.add("tick", ms(10));
    story.pass(ms(10));
    assert!(story.scheduler.remove("tick"));
    assert!(!story.scheduler.remove("tick"));
    story.pass(ms(100));
    assert_eq!(story.ms(), [10]);
    story.add("tick", ms(10));
    story.pass(ms(10));
    assert_eq!(story.made().first().map(|run| (run.number, run.at)), Some((1, 120_000_000)));
}

#[test]
fn g4_a_new_plan_applies_from_now_on_and_the_count_continues() {
    let story = Story::new();
    story.add("tick", ms(10));
    story.pass(ms(25));
    assert_eq!(story.scheduler.reschedule("tick", Plan::every(ms(7)).times(2)), Ok(()));
    assert_eq!(story.scheduler.next_run("tick"), Some(story.instant(ms(32))));
    story.pass(ms(100));
    let made: Vec<_> = story.made().into_iter().map(|run| (run.number, run.at / 1_000_000)).collect();
    assert_eq!(made, [(1, 10), (2, 20), (3, 32), (4, 39)]);
    assert!(!story.scheduler.contains("tick"));
}

#[test]
fn g4_a_new_plan_can_be_earlier_than_all_others() {
    let story = Story::new();
    story.add("far", Duration::from_secs(3600));
    story.add("near", ms(10));
    story.pass(ms(5));
    story.scheduler.reschedule("far", Plan::every(ms(100)).first_at_once()).unwrap();
    story.scheduler.reschedule("near", Plan::once(ms(1))).unwrap();
    story.pass(ms(5));
    assert_eq!(story.made_at_ms(), [("far", 5), ("near", 6)]);
    // A later plan.
    story.scheduler.reschedule("far", Plan::every(ms(1000))).unwrap();
    story.pass(ms(999));
    assert_eq!(story.made(), []);
    story.pass(ms(1));
    assert_eq!(story.made_at_ms(), [("far", 1010)]);
}

#[test]
fn g4_a_job_that_is_running_can_be_given_another_plan() {
    let story = Story::new();
    story.add_slow("slow", Plan::every(ms(10)).times(1), ms(30));
    story.pass(ms(15));
    assert_eq!(story.scheduler.remaining("slow"), Some(Remaining::Runs(0)));
    // The job is in its last run, and gets two more.
    story.scheduler.reschedule("slow", Plan::every(ms(50)).times(2)).unwrap();
    story.pass(ms(30));
    assert!(story.scheduler.contains("slow"));
    story.pass(ms(200));
    assert_eq!(story.ms(), [10, 65, 115]);
    assert!(!story.scheduler.contains("slow"));
}

#[test]
fn g4_a_paused_job_given_another_plan_stays_paused() {
    let story = Story::new();
    story.add("tick", ms(10));
    assert!(story.scheduler.pause("tick"));
    story.scheduler.reschedule("tick", Plan::every(ms(3)).first_at_once()).unwrap();
    story.pass(ms(20));
    assert_eq!((story.made(), story.scheduler.next_run("tick")), (vec![], None));
    assert!(story.scheduler.resume("tick"));
    assert_eq!(story.scheduler.next_run("tick"), Some(story.instant(ms(21))));
    story.pass(ms(5));
    assert_eq!(story.ms(), [21, 24]);
}

#[test]
fn g4_a_paused_job_keeps_its_grid() {
    let story = Story::new();
    story.add("tick", Plan::every(ms(10)).times(4));
    story.pass(ms(10));
    assert!(story.scheduler.pause("tick") && story.scheduler.pause("tick"));
    assert_eq!(story.scheduler.next_run("tick"), None);
    story.pass(ms(27));
    assert!(story.scheduler.contains("tick"));
    assert!(story.scheduler.resume("tick") && story.scheduler.resume("tick"));
    assert_eq!(story.scheduler.next_run("tick"), Some(story.instant(ms(40))));
    story.pass(ms(100));
    assert_eq!(story.ms(), [10, 40, 50, 60]);
    assert!(!story.scheduler.contains("tick"));
}

#[test]
fn g4_a_pause_that_ends_before_the_next_run_changes_nothing() {
    let story = Story::new();
    story.add("tick", ms(10));
    story.pass(ms(12));
    story.scheduler.pause("tick");
    story.pass(ms(8));
    // A run that is due exactly now has not been skipped.
    story.scheduler.resume("tick");
    story.pass(ms(10));
    assert_eq!(story.ms(), [10, 20, 30]);
}

#[test]
fn g4_a_job_paused_while_it_runs_ends_that_run_and_begins_no_other() {
    let story = Story::new();
    story.add_slow("slow", ms(10), ms(15));
    story.pass(ms(12));
    story.scheduler.pause("slow");
    assert_eq!(story.scheduler.stats().running, 1);
    story.pass(ms(100));
    assert_eq!((story.ms(), story.scheduler.stats().running), (vec![10], 0));
    story.scheduler.resume("slow");
    story.pass(ms(8));
    assert_eq!(story.ms(), [120]);
}

#[test]
fn g4_a_job_paused_while_its_run_is_queued_does_not_run() {
    let story = Story::new();
    let (scheduler, writes) = (story.scheduler.clone(), story.writes());
    story.scheduler.schedule("first", Plan::once(ms(10)), move |_| assert!(scheduler.pause("second"))).unwrap();
    story.scheduler.schedule("second", Plan::every(ms(10)).times(2), writes).unwrap();
    story.pass(ms(35));
    assert_eq!(story.made(), []);
    assert_eq!(story.scheduler.remaining("second"), Some(Remaining::Runs(2)));
    story.scheduler.resume("second");
    story.pass(ms(100));
    assert_eq!(story.ms(), [40, 50]);
}

#[test]
fn g4_a_queued_run_of_an_older_plan_adds_nothing_to_the_times_of_the_new_one() {
    for times in [5, u64::MAX] {
        let story = Story::new();
        let (scheduler, writes) = (story.scheduler.clone(), story.writes());
        let first = move |_: &_| {
            assert!(scheduler.pause("second"));
            scheduler.reschedule("second", Plan::every(ms(10)).times(3)).unwrap();
        };
        story.scheduler.schedule("first", Plan::once(ms(10)), first).unwrap();
        story.scheduler.schedule("second", Plan::every(ms(10)).times(times), writes).unwrap();
        story.pass(ms(35));
        assert_eq!((story.made(), story.scheduler.remaining("second")), (vec![], Some(Remaining::Runs(3))));
        story.scheduler.resume("second");
        story.pass(ms(100));
        assert_eq!(story.ms(), [40, 50, 60]);
    }
}

#[test]
fn p1_d42_on_the_real_clock_no_run_begins_before_it_is_due() {
    let engine = tourbillon::Engine::builder().build().unwrap();
    let scheduler = Scheduler::builder().engine(&engine).threads(2).build().unwrap();
    let (count, early) = (Count::default(), Count::default());
    for key in 0..200_u64 {
        let (made, too_early) = (count.clone(), early.clone());
        let job = move |run: &tourbillon::scheduler::Run<u64>| {
            if tourbillon::time::Instant::now() < run.due() {
                too_early.add();
            }
            made.add();
        };
        let interval = Duration::from_nanos(1_000_000 + key * 12_347);
        scheduler.schedule(key, Plan::every(interval).times(10), job).unwrap();
    }
    eventually("all runs are made", || scheduler.is_empty());
    assert_eq!((count.get(), early.get()), (2000, 0));
}

#[test]
fn b6_in_paused_time_the_threads_of_the_scheduler_are_waited_for() {
    let _paused = crate::support::Paused::new();
    if !crate::support::auto_advances() {
        return;
    }
    let scheduler = Scheduler::builder().threads(2).build().unwrap();
    let start = tourbillon::time::Instant::now();
    let log = Arc::new(std::sync::Mutex::new(Vec::new()));
    let writes = Arc::clone(&log);
    let hour = Duration::from_secs(3600);
    let job = move |run: &tourbillon::scheduler::Run<&'static str>| {
        writes.lock().unwrap().push((run.due() - start, start.elapsed()));
    };
    scheduler.schedule("hourly", hour, job).unwrap();
    futures_lite::future::block_on(tourbillon::time::sleep(hour * 7 / 2));
    assert_eq!(*log.lock().unwrap(), [(hour, hour), (hour * 2, hour * 2), (hour * 3, hour * 3)]);
}
