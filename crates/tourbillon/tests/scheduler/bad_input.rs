//! What cannot be meant, and what becomes of it.

use std::time::Duration;

use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler};

use crate::by_hand::{manual, ms};
use crate::{Count, Story};

#[test]
fn g8_an_interval_or_a_number_of_zero_is_refused_and_the_job_comes_back() {
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
fn g8_an_async_job_comes_back_too() {
    let story = Story::new();
    let error = story.scheduler.schedule_async("zero", Duration::ZERO, |_| async {}).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ZeroInterval, "zero"));
    story.scheduler.schedule_async("zero", ms(10), error.job).unwrap();
    let error = story.scheduler.schedule_async("zero", ms(10), |_| async {}).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::Duplicate);
}

#[test]
fn g2_a_second_job_under_a_key_comes_back_and_the_first_goes_on() {
    let story = Story::new();
    story.add("key", ms(10));
    let count = Count::default();
    let error = story.scheduler.schedule("key", ms(1), count.job()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::Duplicate, "key"));
    story.pass(ms(10));
    assert_eq!((story.ms(), count.get()), (vec![10], 0));
    // Also while it is paused, and while it makes its last run.
    story.scheduler.pause("key");
    let error = story.scheduler.schedule(error.key, ms(1), error.job).unwrap_err();
    story.add_slow("slow", Plan::once(ms(1)), ms(50));
    story.pass(ms(5));
    assert_eq!(story.scheduler.schedule("slow", ms(1), error.job).unwrap_err().kind, ScheduleErrorKind::Duplicate);
}

#[test]
fn g8_a_key_that_is_not_there_is_no_trouble() {
    let story = Story::new();
    let scheduler = &story.scheduler;
    assert!(!scheduler.remove("nobody") && !scheduler.contains("nobody"));
    assert!(!scheduler.pause("nobody") && !scheduler.resume("nobody"));
    assert_eq!((scheduler.remaining("nobody"), scheduler.next_run("nobody")), (None, None));
    assert_eq!(scheduler.report("nobody"), None);
    assert_eq!(scheduler.reschedule("nobody", ms(10)), Err(ScheduleErrorKind::Unknown));
}

#[test]
fn g8_a_bad_plan_leaves_the_one_that_a_job_has() {
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
    assert!(source.to_string().contains("remove it first"));
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
fn g8_rules_at_their_limits_are_taken_as_they_are() {
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
fn p6_a_key_that_panics_when_it_is_compared_leaves_the_scheduler_whole() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct Touchy(u8);
    impl std::hash::Hash for Touchy {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Touchy {
        fn eq(&self, other: &Touchy) -> bool {
            assert!(self.0 != 7 && other.0 != 7, "not comparable");
            self.0 == other.0
        }
    }
    impl Eq for Touchy {}
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let count = Count::default();
    scheduler.schedule(Touchy(7), ms(10), count.job()).unwrap();
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| scheduler.contains(&Touchy(7)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| scheduler.schedule(Touchy(7), ms(1), |_| ()))).is_err());
    }
    scheduler.schedule(Touchy(1), ms(10), count.job()).unwrap();
    assert!(scheduler.contains(&Touchy(1)));
    engine.advance(ms(10));
    assert_eq!((count.get(), scheduler.len()), (2, 2));
}
