//! Values that jobs own are dropped when the jobs end, and not later.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tourbillon::scheduler::{Plan, Run, Scheduler, Shutdown};

use crate::support::{eventually, manual, ms};
use crate::{Count, Gate, Story};

/// Returns a job that owns a value, and a weak reference to that value.
fn owning() -> (impl Fn(&Run<&'static str>) + Send + Sync + 'static, Weak<()>) {
    let owned = Arc::new(());
    let seen = Arc::downgrade(&owned);
    (move |_: &Run<&'static str>| _ = &owned, seen)
}

fn is_free(seen: &Weak<()>) -> bool {
    seen.strong_count() == 0
}

#[test]
fn p7_a_job_that_is_removed_is_freed_at_once() {
    let story = Story::new();
    let (job, by_key) = owning();
    story.scheduler.schedule("key", ms(10), job).unwrap();
    let (job, by_id) = owning();
    let id = story.scheduler.schedule("id", ms(10), job).unwrap();
    story.pass(ms(25));
    assert!(!is_free(&by_key) && !is_free(&by_id));
    story.scheduler.remove("key");
    assert!(is_free(&by_key));
    story.scheduler.remove_job(id);
    assert!(is_free(&by_id));
}

#[test]
fn p7_a_job_that_has_made_all_its_runs_is_freed_at_once() {
    let story = Story::new();
    let (job, seen) = owning();
    story.scheduler.schedule("two", Plan::every(ms(10)).times(2), job).unwrap();
    story.pass(ms(10));
    assert!(!is_free(&seen));
    story.pass(ms(10));
    assert!(is_free(&seen));
}

#[test]
fn p7_a_job_that_is_removed_while_it_runs_is_freed_with_that_run() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).build().unwrap();
    let (opener, gate) = Gate::new();
    let (begun, owned) = (Count::default(), Arc::new(()));
    let (first, seen) = (begun.clone(), Arc::downgrade(&owned));
    scheduler
        .schedule("runs", ms(10), move |_| {
            let _owned = &owned;
            first.add();
            gate.wait();
        })
        .unwrap();
    engine.advance(ms(10));
    eventually("the run has begun", || begun.get() == 1);
    assert!(scheduler.remove("runs") && !is_free(&seen));
    drop(opener);
    eventually("the job is freed", || is_free(&seen));
}

#[test]
fn p7_shutdown_frees_everything() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        for threads in [0, 2] {
            let engine = manual();
            let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
            let owned = Arc::new(());
            for key in 0..100 {
                let mine = Arc::clone(&owned);
                scheduler.schedule(key, ms(10), move |_: &_| _ = &mine).unwrap();
            }
            scheduler.pause(&1);
            let mine = Arc::clone(&owned);
            let job = move |_| {
                let mine = Arc::clone(&mine);
                async move {
                    let _mine = mine;
                    tourbillon::time::sleep(ms(5)).await;
                }
            };
            scheduler.schedule_async(1000, ms(10), job).unwrap();
            engine.advance(ms(12));
            let ending = scheduler.shutdown(how);
            eventually("the scheduler has ended", || {
                engine.advance(ms(10));
                ending.is_over()
            });
            eventually("all jobs are freed", || Arc::strong_count(&owned) == 1);
        }
    }
}

#[test]
fn p7_a_dropped_scheduler_leaves_nothing_behind() {
    let engine = manual();
    let (owned, reports) = (Arc::new(()), Arc::new(()));
    for threads in [0, 1, 2] {
        let mine = Arc::clone(&reports);
        let builder = Scheduler::builder().engine(&engine).threads(threads);
        let scheduler = builder.on_failure(move |_| _ = &mine).build().unwrap();
        let mine = Arc::clone(&owned);
        scheduler.schedule(0, ms(10), move |_: &_| _ = &mine).unwrap();
        let mine = Arc::clone(&owned);
        let job = move |_| {
            let mine = Arc::clone(&mine);
            async move {
                let _mine = mine;
                tourbillon::time::sleep(Duration::from_secs(3600)).await;
            }
        };
        scheduler.schedule_async(1, ms(10), job).unwrap();
        engine.advance(ms(15));
        eventually("both jobs have run", || scheduler.stats().runs == 2);
        drop(scheduler);
        eventually("all jobs are freed", || {
            engine.turn();
            Arc::strong_count(&owned) == 1 && Arc::strong_count(&reports) == 1
        });
    }
    eventually("no timer is left", || engine.stats().pending == 0);
}

#[test]
fn p7_a_scheduler_dropped_with_its_engine_leaves_nothing_behind_without_another_turn() {
    for how in [None, Some(Shutdown::Drain), Some(Shutdown::Abort)] {
        let owned = Arc::new(());
        {
            let (engine, mine) = (manual(), Arc::clone(&owned));
            let builder = Scheduler::builder().engine(&engine).threads(0);
            let scheduler = builder.on_failure(move |_| _ = &mine).build().unwrap();
            let mine = Arc::clone(&owned);
            let job = move |_| {
                let mine = Arc::clone(&mine);
                async move {
                    let _mine = mine;
                    std::future::pending::<()>().await;
                }
            };
            scheduler.schedule_async(0, ms(10), job).unwrap();
            engine.advance(ms(10));
            assert_eq!(scheduler.stats().running, 1);
            if let Some(how) = how {
                drop(scheduler.shutdown(how));
            }
        }
        assert_eq!(Arc::strong_count(&owned), 1, "{how:?}");
    }
}

#[test]
fn p7_the_slots_of_ended_jobs_are_used_again() {
    let story = Story::with(|builder| builder.capacity(10));
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    for round in 0..1000 {
        for key in keys {
            story.scheduler.schedule(key, Plan::every(ms(10)).times(1 + round % 2), |_| ()).unwrap();
        }
        story.pass(ms(10));
        keys.iter().for_each(|key| _ = story.scheduler.remove(key));
        assert!(story.scheduler.is_empty());
    }
}

#[test]
fn p7_the_panic_payload_of_a_job_is_freed() {
    let story = Story::new();
    let thrown = Arc::new(());
    let kept = Arc::clone(&thrown);
    let job = move |_: &Run<&'static str>| -> () { std::panic::panic_any(Arc::clone(&kept)) };
    story.scheduler.schedule("throws", Plan::every(ms(10)).times(10), job).unwrap();
    story.pass(ms(1000));
    assert_eq!((story.scheduler.stats().failed, Arc::strong_count(&thrown)), (10, 1));
}
