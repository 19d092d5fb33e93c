//! Keys: of any type, unique, with equal hashes, unknown.

use tourbillon::scheduler::{Plan, Remaining, ScheduleErrorKind, Scheduler};

use crate::support::{manual, ms};
use crate::{Count, Story};

#[test]
fn g2_keys_can_be_of_any_type_and_be_looked_up_by_a_borrowed_form() {
    let engine = manual();
    let scheduler: Scheduler<String> = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    scheduler.schedule("alice".to_owned(), ms(10), |_| ()).unwrap();
    assert!(scheduler.contains("alice"));
    assert_eq!(scheduler.remaining("alice"), Some(Remaining::ForEver));
    assert!(scheduler.next_run("alice").is_some() && scheduler.report("alice").is_some());
    assert!(scheduler.pause("alice") && scheduler.resume("alice"));
    assert_eq!(scheduler.reschedule("alice", ms(20)), Ok(()));
    assert!(scheduler.remove("alice") && !scheduler.contains("alice"));

    let scheduler: Scheduler<(u8, Vec<u8>)> = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    scheduler.schedule((1, vec![2, 3]), ms(10), |_| ()).unwrap();
    assert!(scheduler.contains(&(1, vec![2, 3])) && !scheduler.contains(&(1, vec![2])));

    // A key need not be `Clone`, nor `Debug`.
    #[derive(PartialEq, Eq, Hash)]
    struct Own(&'static str);
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let count = Count::default();
    scheduler.schedule(Own("x"), ms(10), count.job()).unwrap();
    scheduler.schedule(Own(""), ms(10), count.job()).unwrap();
    engine.advance(ms(10));
    assert!(scheduler.remove(&Own("x")) && scheduler.contains(&Own("")));
    assert_eq!(count.get(), 2);

    let scheduler: Scheduler<()> = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    scheduler.schedule((), ms(10), |_| ()).unwrap();
    assert_eq!(scheduler.schedule((), ms(10), |_| ()).unwrap_err().kind, ScheduleErrorKind::Duplicate);
}

#[test]
fn g2_keys_with_equal_hashes_are_distinguished() {
    #[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
    struct Alike(u32);
    impl std::hash::Hash for Alike {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            state.write_u32(7);
        }
    }
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    for key in 0..200 {
        scheduler.schedule(Alike(key), ms(10), |_| ()).unwrap();
    }
    for key in (0..200).step_by(2) {
        assert!(scheduler.remove(&Alike(key)));
    }
    let mut keys = scheduler.keys();
    keys.sort();
    assert_eq!(keys, (0..200).skip(1).step_by(2).map(Alike).collect::<Vec<_>>());
}

#[test]
fn g2_a_second_job_under_a_key_is_returned_and_the_first_keeps_running() {
    let story = Story::new();
    story.add("key", ms(10));
    let count = Count::default();
    let error = story.scheduler.schedule("key", ms(1), count.job()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::Duplicate, "key"));
    story.pass(ms(10));
    assert_eq!((story.ms(), count.get()), (vec![10], 0));
    // Also while the first job is paused, and during its last run.
    story.scheduler.pause("key");
    let error = story.scheduler.schedule(error.key, ms(1), error.job).unwrap_err();
    story.add_slow("slow", Plan::once(ms(1)), ms(50));
    story.pass(ms(5));
    assert_eq!(story.scheduler.schedule("slow", ms(1), error.job).unwrap_err().kind, ScheduleErrorKind::Duplicate);
}

#[test]
fn g8_an_unknown_key_is_harmless() {
    let story = Story::new();
    let scheduler = &story.scheduler;
    assert!(!scheduler.remove("unknown") && !scheduler.contains("unknown"));
    assert!(!scheduler.pause("unknown") && !scheduler.resume("unknown"));
    assert_eq!((scheduler.remaining("unknown"), scheduler.next_run("unknown")), (None, None));
    assert_eq!(scheduler.report("unknown"), None);
    assert_eq!(scheduler.reschedule("unknown", ms(10)), Err(ScheduleErrorKind::Unknown));
}

#[test]
fn p6_a_key_that_panics_when_it_is_compared_leaves_the_scheduler_intact() {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    struct PanicsWhenCompared(u8);
    impl std::hash::Hash for PanicsWhenCompared {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for PanicsWhenCompared {
        fn eq(&self, other: &PanicsWhenCompared) -> bool {
            assert!(self.0 != 7 && other.0 != 7, "not comparable");
            self.0 == other.0
        }
    }
    impl Eq for PanicsWhenCompared {}
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let count = Count::default();
    scheduler.schedule(PanicsWhenCompared(7), ms(10), count.job()).unwrap();
    for _ in 0..3 {
        assert!(catch_unwind(AssertUnwindSafe(|| scheduler.contains(&PanicsWhenCompared(7)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| scheduler.schedule(PanicsWhenCompared(7), ms(1), |_| ()))).is_err());
    }
    scheduler.schedule(PanicsWhenCompared(1), ms(10), count.job()).unwrap();
    assert!(scheduler.contains(&PanicsWhenCompared(1)));
    engine.advance(ms(10));
    assert_eq!((count.get(), scheduler.len()), (2, 2));
}
