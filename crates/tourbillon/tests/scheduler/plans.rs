//! Invalid plans and rules are refused, and the job is returned; those at their limits are accepted.

use std::time::Duration;

use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler};

use crate::support::{manual, ms};
use crate::{Count, Story};

#[test]
fn g8_an_interval_or_a_number_of_zero_is_refused_and_the_job_is_returned() {
    let story = Story::new();
    let count = Count::default();
    let error = story.scheduler.schedule("zero", Duration::ZERO, count.job()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ZeroInterval, "zero"));
    let error = story.scheduler.schedule(error.key, Plan::every(ms(10)).times(0), error.job).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ZeroTimes, "zero"));
    assert!(story.scheduler.is_empty());
    story.scheduler.schedule(error.key, Plan::every(ms(10)).times(1), error.job).unwrap();
    story.pass(ms(50));
    assert_eq!(count.get(), 1);
}

#[test]
fn g8_an_async_job_is_returned_too() {
    let story = Story::new();
    let error = story.scheduler.schedule_async("zero", Duration::ZERO, |_| async {}).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ZeroInterval, "zero"));
    story.scheduler.schedule_async("zero", ms(10), error.job).unwrap();
    let error = story.scheduler.schedule_async("zero", ms(10), |_| async {}).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::Duplicate);
}

#[test]
fn g8_a_bad_plan_leaves_the_plan_of_a_job_unchanged() {
    let story = Story::new();
    story.add("tick", ms(10));
    assert_eq!(story.scheduler.reschedule("tick", Duration::ZERO), Err(ScheduleErrorKind::ZeroInterval));
    assert_eq!(story.scheduler.reschedule("tick", Plan::every(ms(1)).times(0)), Err(ScheduleErrorKind::ZeroTimes));
    story.pass(ms(20));
    assert_eq!(story.ms(), [10, 20]);
}

#[test]
fn g8_errors_say_what_to_do() {
    let story = Story::new();
    story.add("key", ms(10));
    let error = story.scheduler.schedule("key", ms(10), |_| ()).unwrap_err();
    assert!(error.to_string().contains("already") && format!("{error:?}").contains("Duplicate"));
    let source: Box<dyn std::error::Error> = Box::new(error.kind);
    assert!(source.to_string().contains("upsert it"));
    for (kind, says) in [
        (ScheduleErrorKind::ZeroInterval, "longer than zero"),
        (ScheduleErrorKind::ZeroTimes, "zero times"),
        (ScheduleErrorKind::Full { capacity: 7 }, "7"),
        (ScheduleErrorKind::ShutDown, "shut down"),
        (ScheduleErrorKind::Unknown, "no job"),
    ] {
        assert!(kind.to_string().contains(says), "{kind:?}");
    }
}

#[test]
fn g8_rules_at_their_limits_are_accepted_unchanged() {
    let engine = manual();
    let builder = Scheduler::builder().engine(&engine).threads(0);
    let scheduler = builder.queue(usize::MAX).capacity(usize::MAX).build().unwrap();
    let count = Count::default();
    scheduler.schedule("", ms(1), count.job()).unwrap();
    engine.advance(ms(3));
    assert_eq!(count.get(), 3);
    assert!(format!("{:?}", Scheduler::<u8>::builder().threads(3)).contains('3'));
}

#[test]
fn e5_a_plan_runs_once_at_an_instant_and_one_in_the_past_at_once() {
    let story = Story::new();
    story.pass(ms(100));
    story.add("later", Plan::once_at(story.instant(ms(130))));
    story.add("past", Plan::once_at(story.instant(ms(20))));
    story.pass(ms(29));
    assert_eq!(story.made_at_ms(), [("past", 100)]);
    story.pass(ms(1));
    assert_eq!(story.made_at_ms(), [("later", 130)]);
    assert!(story.scheduler.is_empty());
    assert_eq!(story.scheduler.stats().missed, 0);
}

#[test]
fn e7_a_scheduler_on_an_engine_follows_its_clock() {
    let engine = crate::support::manual();
    let scheduler = Scheduler::on(&engine).unwrap();
    let count = crate::Count::default();
    scheduler.schedule(0, Plan::once(ms(10)), count.job()).unwrap();
    engine.advance(ms(9));
    assert_eq!(count.get(), 0);
    engine.advance(ms(1));
    assert_eq!(count.get(), 1);
}
