//! A job is inserted or replaced in one step.

use std::sync::Arc;
use std::thread;

use tourbillon::scheduler::{Overlap, Plan, Remaining, Run, ScheduleErrorKind, Scheduler, Shutdown, Upserted};

use crate::support::{manual, ms};
use crate::{Count, Story};

#[test]
fn e5_an_upsert_inserts_and_then_replaces_plan_and_closure_of_the_same_job() {
    let story = Story::new();
    let (first, second) = (Count::default(), Count::default());
    let inserted = story.scheduler.upsert("job", ms(10), first.job()).unwrap();
    assert!(matches!(inserted, Upserted::Inserted(_)) && !inserted.is_replaced());
    story.pass(ms(25));
    let replaced = story.scheduler.upsert("job", Plan::every(ms(100)).times(3), second.job()).unwrap();
    assert!(replaced.is_replaced() && replaced.job() == inserted.job());
    assert_eq!(story.scheduler.remaining("job"), Some(Remaining::Runs(3)));
    story.pass(ms(1000));
    assert_eq!((first.get(), second.get()), (2, 3));
    assert!(story.scheduler.is_empty());
}

#[test]
fn e5_an_upsert_postpones_a_run_for_as_long_as_it_is_repeated() {
    let story = Story::new();
    for _ in 0..50 {
        let replaced = story.scheduler.upsert("index", Plan::once(ms(30)), story.writes()).unwrap();
        assert_eq!(replaced.is_replaced(), story.now() > ms(0));
        story.pass(ms(10));
    }
    story.pass(ms(100));
    assert_eq!(story.ms(), [520]);
}

#[test]
fn e5_d24_a_replaced_job_does_not_overlap_with_the_run_of_its_old_closure() {
    for (overlap, runs) in [(Overlap::Skip, vec![10, 60]), (Overlap::QueueOne, vec![10, 50, 60])] {
        let story = Story::new();
        story.add_slow("job", Plan::once(ms(10)), ms(40));
        story.pass(ms(20));
        let plan = Plan::every(ms(20)).times(2).overlap(overlap);
        story.scheduler.upsert("job", plan, story.writes()).unwrap();
        story.pass(ms(42));
        assert_eq!(story.ms(), runs, "{overlap:?}");
    }
}

#[test]
fn p7_the_closure_that_is_replaced_is_freed_at_once() {
    let story = Story::new();
    let owned = Arc::new(());
    let held = Arc::clone(&owned);
    story.scheduler.upsert("job", ms(10), move |_: &_| _ = &held).unwrap();
    assert_eq!(Arc::strong_count(&owned), 2);
    story.scheduler.upsert_async("job", ms(10), |_| async {}).unwrap();
    assert_eq!(Arc::strong_count(&owned), 1);
}

#[test]
fn e5_g8_an_upsert_that_is_refused_gives_back_its_job_and_leaves_the_old_one() {
    let story = Story::with(|builder| builder.capacity(1));
    story.add("job", ms(10));
    let error = story.scheduler.upsert("job", Plan::every(ms(5)).times(0), |_| ()).unwrap_err();
    assert_eq!((error.kind, error.key), (ScheduleErrorKind::ZeroTimes, "job"));
    let error = story.scheduler.upsert("other", ms(10), |_| ()).unwrap_err();
    assert_eq!(error.kind, ScheduleErrorKind::Full { capacity: 1 });
    assert!(story.scheduler.upsert("job", ms(20), story.writes()).unwrap().is_replaced(), "a full one can replace");
    story.pass(ms(50));
    assert_eq!(story.ms(), [20, 40]);
    drop(story.scheduler.shutdown(Shutdown::Abort));
    assert_eq!(story.scheduler.upsert("job", ms(10), |_| ()).unwrap_err().kind, ScheduleErrorKind::ShutDown);
}

#[test]
fn e5_d18_of_many_threads_that_upsert_one_key_exactly_one_inserts() {
    for _ in 0..200 {
        let scheduler: Scheduler<u8> = Scheduler::builder().engine(&manual()).threads(0).build().unwrap();
        let inserted = Count::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    if !scheduler.upsert(0, ms(10), |_| ()).unwrap().is_replaced() {
                        inserted.add();
                    }
                });
            }
        });
        assert_eq!((inserted.get(), scheduler.len()), (1, 1));
    }
}

/// Two jobs are due together: the run of the first changes the second, whose run is queued.
#[test]
fn e5_a_queued_run_of_the_old_plan_is_not_made_after_an_upsert_or_a_reschedule() {
    type Change = fn(&Scheduler<&'static str>, Count);
    let changes: [(&str, Change, usize); 3] = [
        ("upsert", |jobs, new| _ = jobs.upsert("second", Plan::once(ms(100)), new.job()).unwrap(), 1),
        (
            "upsert_async",
            |jobs, new| {
                let job = move |_| {
                    new.add();
                    async {}
                };
                _ = jobs.upsert_async("second", Plan::once(ms(100)), job).unwrap();
            },
            1,
        ),
        ("reschedule", |jobs, _| jobs.reschedule("second", Plan::once(ms(100))).unwrap(), 0),
    ];
    for (name, change, new_runs) in changes {
        let (story, old, new) = (Story::new(), Count::default(), Count::default());
        let given = new.clone();
        let first = move |run: &Run<&'static str>| change(&run.scheduler().unwrap(), given.clone());
        story.scheduler.schedule("first", Plan::once(ms(10)), first).unwrap();
        story.scheduler.schedule("second", Plan::every(ms(10)), old.job()).unwrap();
        story.pass(ms(109));
        assert_eq!((old.get(), new.get()), (0, 0), "{name}: the new plan has its first run at 110");
        assert_eq!(story.scheduler.remaining("second"), Some(Remaining::Runs(1)), "{name}");
        assert_eq!(story.scheduler.stats().waiting, 0, "{name}");
        story.pass(ms(1));
        assert_eq!((old.get(), new.get()), (1 - new_runs, new_runs), "{name}");
        assert!(story.scheduler.is_empty(), "{name}");
    }
}

#[test]
fn e5_a_queued_run_that_an_upsert_withdrew_neither_overlaps_nor_takes_a_place_in_the_queue() {
    for overlap in [Overlap::Skip, Overlap::QueueOne] {
        let story = Story::with(|builder| builder.overlap(overlap));
        let writes = story.writes();
        let first = move |run: &Run<&'static str>| {
            let jobs = run.scheduler().unwrap();
            assert_eq!(jobs.stats().waiting, 1);
            jobs.upsert("second", Plan::every(ms(100)).first_at_once(), writes.clone()).unwrap();
            assert_eq!(jobs.stats().waiting, 0);
        };
        story.scheduler.schedule("first", Plan::once(ms(10)), first).unwrap();
        story.scheduler.schedule("second", ms(10), |_: &Run<_>| -> () { panic!("the old closure") }).unwrap();
        story.pass(ms(150));
        assert_eq!(story.ms(), [10, 110], "{overlap:?}");
        let stats = story.scheduler.stats();
        assert_eq!((stats.overlapped, stats.failed, stats.runs), (0, 0, 3), "{overlap:?}");
    }
}
