//! Start, stop and capacity.

use std::time::Duration;

use tourbillon::Engine;
use tourbillon::scheduler::{Plan, Remaining, Run, ScheduleErrorKind, Scheduler};

use crate::support::ms;
use crate::{Count, Story};

#[test]
fn g5_it_can_be_started_and_stopped_any_number_of_times() {
    let story = Story::new();
    assert!(story.scheduler.is_running());
    story.add("tick", ms(10));
    story.scheduler.start();
    story.pass(ms(10));
    story.scheduler.stop();
    story.scheduler.stop();
    assert!(!story.scheduler.is_running());
    story.pass(ms(35));
    assert_eq!(story.ms(), [10]);
    story.scheduler.start();
    story.scheduler.start();
    assert!(story.scheduler.is_running());
    story.pass(ms(15));
    // The runs of 20, 30 and 40 are skipped; the grid is kept.
    assert_eq!(story.ms(), [50, 60]);
    assert_eq!(story.scheduler.report("tick").unwrap().missed, 3);
}

#[test]
fn g5_a_run_due_after_the_start_is_on_time_though_others_were_skipped() {
    let story = Story::new();
    story.add("in time", ms(10));
    story.add("went by", Plan::every(ms(20)).first_at(story.instant(ms(5))));
    story.pass(ms(1));
    story.scheduler.stop();
    story.pass(ms(6));
    story.scheduler.start();
    story.pass(ms(20));
    assert_eq!(story.made_at_ms(), [("in time", 10), ("in time", 20), ("went by", 25)]);
}

#[test]
fn g5_runs_that_have_begun_continue_after_a_stop() {
    let story = Story::new();
    let ended = Count::default();
    let count = ended.clone();
    let job = move |_| {
        let count = count.clone();
        async move {
            tourbillon::time::sleep(ms(20)).await;
            count.add();
        }
    };
    story.scheduler.schedule_async("slow", Plan::once(ms(10)), job).unwrap();
    story.pass(ms(15));
    story.scheduler.stop();
    story.pass(ms(20));
    assert_eq!((ended.get(), story.scheduler.contains("slow")), (1, false));
}

#[test]
fn g5_a_job_scheduled_while_the_scheduler_is_stopped_runs_after_the_start() {
    let story = Story::new();
    story.scheduler.stop();
    story.add("tick", ms(10));
    story.add("soon", Plan::every(ms(50)).first_at_once());
    assert!(story.scheduler.contains("tick"));
    story.pass(ms(25));
    assert_eq!(story.made(), []);
    story.scheduler.start();
    story.pass(ms(30));
    assert_eq!(story.made_at_ms(), [("tick", 30), ("tick", 40), ("soon", 50), ("tick", 50)]);
}

#[test]
fn g4_g5_the_next_run_is_never_one_that_was_skipped() {
    let story = Story::new();
    story.add("job", ms(10));
    let next = || story.scheduler.next_run("job").unwrap() - story.instant(ms(0));
    assert_eq!(next(), ms(10));
    story.scheduler.stop();
    story.pass(ms(25));
    assert_eq!(next(), ms(30));
    story.pass(ms(80));
    assert_eq!(next(), ms(110));
    story.scheduler.start();
    assert_eq!(next(), ms(110), "the scheduler has not been driven since");
    story.pass(ms(10));
    assert_eq!((story.ms(), next()), (vec![110], ms(120)));
}

#[test]
fn g5_all_other_calls_work_while_the_scheduler_is_stopped() {
    let story = Story::new();
    story.add("a", ms(10));
    story.add("b", ms(10));
    story.scheduler.stop();
    assert!(story.scheduler.remove("a") && story.scheduler.pause("b"));
    assert_eq!(story.scheduler.reschedule("b", ms(7)), Ok(()));
    assert!(story.scheduler.resume("b"));
    assert_eq!((story.scheduler.len(), story.scheduler.keys()), (1, vec!["b"]));
    story.scheduler.start();
    story.pass(ms(20));
    assert_eq!(story.made_at_ms(), [("b", 7), ("b", 14)]);
}

#[test]
fn p7_a_capacity_is_kept_and_a_job_beyond_it_is_returned() {
    let story = Story::with(|builder| builder.capacity(2));
    story.add("a", Plan::once(ms(10)));
    story.add("b", ms(10));
    let error = story.scheduler.schedule("c", ms(10), story.writes()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::Full { capacity: 2 }, "c"));
    // An error about an existing key comes first: it is more helpful.
    assert_eq!(story.scheduler.schedule("a", ms(10), |_| ()).unwrap_err().kind, ScheduleErrorKind::Duplicate);
    story.pass(ms(10));
    story.scheduler.schedule(error.key, ms(10), error.job).unwrap();
    assert_eq!(story.scheduler.len(), 2);
    let none = Story::with(|builder| builder.capacity(0));
    assert_eq!(none.scheduler.schedule("a", ms(1), |_| ()).unwrap_err().kind, ScheduleErrorKind::Full { capacity: 0 });
}

#[test]
fn p7_d64_a_scheduler_on_an_engine_that_is_full_runs_its_jobs_on_time() {
    let engine = Engine::builder().clock(tourbillon::Clock::manual()).capacity(1).build().unwrap();
    let _taken = engine.try_sleep(Duration::from_secs(3600)).unwrap();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let count = Count::default();
    scheduler.schedule("tick", Plan::every(ms(10)).times(2), count.job()).unwrap();
    engine.advance(ms(9));
    assert_eq!(count.get(), 0);
    engine.advance(ms(1));
    assert_eq!((count.get(), scheduler.contains("tick")), (1, true));
    engine.advance(ms(10));
    assert_eq!((count.get(), scheduler.contains("tick")), (2, false));
}

/// Two jobs are due together: the run of the first pauses the second, whose run is queued.
#[test]
fn e5_g4_a_single_run_that_a_pause_withdrew_from_the_queue_is_due_at_once_after_the_resume() {
    let story = Story::new();
    let pauses = |run: &Run<&'static str>| assert!(run.scheduler().unwrap().pause("once"));
    story.scheduler.schedule("first", Plan::once(ms(50)), pauses).unwrap();
    story.add("once", Plan::once(ms(50)));
    story.pass(ms(60));
    assert_eq!((story.made(), story.scheduler.remaining("once")), (vec![], Some(Remaining::Runs(1))));
    assert!(story.scheduler.resume("once"));
    story.turn();
    assert_eq!(story.ms(), [60]);
    assert!(story.scheduler.is_empty());
}

#[test]
fn e5_g4_a_single_run_that_a_pause_kept_from_following_the_active_run_is_due_at_once_after_the_resume() {
    let story = Story::new();
    story.add_slow("once", Plan::once(ms(50)), ms(20));
    story.pass(ms(40));
    story.scheduler.run_now("once").unwrap();
    story.pass(ms(15));
    assert!(story.scheduler.pause("once"));
    story.pass(ms(15));
    assert!(story.scheduler.resume("once"));
    story.turn();
    assert_eq!(story.ms(), [40, 70]);
}
