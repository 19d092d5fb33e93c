//! More runs are due than there are threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tourbillon::scheduler::{Overflow, Overlap, Plan, Scheduler, Shutdown};

use crate::support::{eventually, manual, ms};
use crate::{Count, Gate, Story, keep_busy};

const POLICIES: [Overflow; 3] = [Overflow::Wait, Overflow::Skip, Overflow::RunLate];

/// 1,000 jobs due at once; each run holds its thread for a moment.
#[test]
fn d17_of_a_thousand_runs_due_at_once_on_a_slow_pool_all_are_made_or_counted() {
    for overflow in POLICIES {
        for threads in [0, 1, 3] {
            let engine = manual();
            let scheduler =
                Scheduler::builder().engine(&engine).threads(threads).queue(20).overflow(overflow).build().unwrap();
            let (made, most, now) = (Count::default(), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            for key in 0..1000 {
                let (made, most, now) = (made.clone(), Arc::clone(&most), Arc::clone(&now));
                let job = move |_: &_| {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_micros(20));
                    now.fetch_sub(1, Ordering::SeqCst);
                    made.add();
                };
                scheduler.schedule(key, Plan::once(ms(10)), job).unwrap();
            }
            engine.advance(ms(10));
            let stats = || scheduler.stats();
            let case = format!("{overflow:?} on {threads} threads");
            eventually(&case, || stats().runs + stats().overflowed == 1000 && stats().running == 0);
            assert_eq!(stats().runs, made.get() as u64, "{case}");
            assert!(most.load(Ordering::SeqCst) <= threads.max(1), "{case}: the pool is bounded");
            match overflow {
                Overflow::Skip => assert!(stats().overflowed > 0 && stats().late == 0, "{case}"),
                Overflow::RunLate => assert!(stats().overflowed == 0 && stats().late > 0, "{case}"),
                _ => assert!(stats().overflowed == 0 && stats().late == 0, "{case}"),
            }
            // A skipped job is still there, and has used up none of its times.
            assert_eq!(scheduler.len() as u64, stats().overflowed, "{case}");
        }
    }
}

/// One busy thread, and a queue for two.
#[test]
fn d17_the_queue_is_as_long_as_configured() {
    for (overflow, made, overflowed, late) in
        [(Overflow::Wait, 10, 0, 0), (Overflow::Skip, 3, 7, 0), (Overflow::RunLate, 10, 0, 7)]
    {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(1).queue(2).overflow(overflow).build().unwrap();
        let (opener, count) = (keep_busy(&engine, &scheduler, 0), Count::default());
        (1..=10).for_each(|key| _ = scheduler.schedule(key, Plan::every(ms(10)).times(1), count.job()).unwrap());
        engine.advance(ms(10));
        drop(opener);
        eventually("all runs are made", || {
            let stats = scheduler.stats();
            stats.runs + stats.overflowed == 11 && stats.running == 0
        });
        let stats = scheduler.stats();
        assert_eq!((count.get(), stats.overflowed, stats.late), (made, overflowed, late), "{overflow:?}");
    }
}

#[test]
fn d17_without_a_queue_a_free_thread_still_makes_runs() {
    for overflow in POLICIES {
        for threads in [0, 1, 2] {
            let engine = manual();
            let scheduler =
                Scheduler::builder().engine(&engine).threads(threads).queue(0).overflow(overflow).build().unwrap();
            let count = Count::default();
            scheduler.schedule("tick", Plan::every(ms(10)), count.job()).unwrap();
            for round in 1..=20 {
                engine.advance(ms(10));
                eventually("the run is made", || count.get() == round && scheduler.stats().running == 0);
            }
        }
    }
}

#[test]
fn d17_runs_that_wait_for_room_are_made_in_order_and_those_due_meanwhile_are_missed() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).queue(0).build().unwrap();
    let (opener, count) = (keep_busy(&engine, &scheduler, "blocks"), Count::default());
    scheduler.schedule("tick", ms(10), count.job()).unwrap();
    for _ in 0..10 {
        engine.advance(ms(10));
    }
    assert_eq!(count.get(), 0);
    drop(opener);
    // The run of 11 is made late; each of the other nine is missed.
    eventually("one run is made", || count.get() == 1);
    eventually("the others are counted as missed", || scheduler.report("tick").unwrap().missed == 9);
    engine.advance(ms(10));
    eventually("the job keeps running", || count.get() == 2);
    assert_eq!(scheduler.report("tick").unwrap().missed, 9);
}

#[test]
fn p7_a_queue_that_runs_late_in_parallel_loses_nothing() {
    let engine = manual();
    let scheduler = Scheduler::builder()
        .engine(&engine)
        .threads(1)
        .queue(1)
        .overflow(Overflow::RunLate)
        .overlap(Overlap::Parallel)
        .missed(tourbillon::time::MissedTickBehavior::Burst)
        .build()
        .unwrap();
    let (opener, gate) = Gate::new();
    let count = Count::default();
    let made = count.clone();
    let job = move |_: &_| {
        gate.wait();
        made.add();
    };
    scheduler.schedule("tick", Plan::every(ms(1)), job).unwrap();
    for _ in 0..100 {
        engine.advance(ms(1));
    }
    drop(opener);
    eventually("each run is made", || count.get() == 100);
    assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
    assert_eq!((count.get() as u64, scheduler.stats().runs), (100, 100));
}

#[test]
fn d17_a_queued_run_whose_job_was_removed_takes_no_room() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).queue(2).overflow(Overflow::Skip).build().unwrap();
    let (others, time, count) = (scheduler.clone(), engine.clone(), Count::default());
    let made = count.clone();
    let first = move |_: &_| {
        assert_eq!(others.stats().waiting, 2);
        assert!(others.remove(&1) && others.remove(&2));
        assert_eq!(others.stats().waiting, 0);
        for key in 3..6 {
            others.schedule(key, Plan::once(ms(1)), made.job()).unwrap();
        }
        time.clock().advance(ms(1));
    };
    scheduler.schedule(0, Plan::once(ms(10)), first).unwrap();
    for key in 1..3 {
        scheduler.schedule(key, Plan::once(ms(10)), count.job()).unwrap();
    }
    engine.advance(ms(10));
    let stats = scheduler.stats();
    assert_eq!((count.get(), stats.runs, stats.overflowed, stats.waiting), (3, 4, 0, 0));
}

#[test]
fn d17_a_run_that_waited_behind_another_is_late_only_if_the_policy_is_to_run_late() {
    let late = |overflow| {
        let story = Story::with(|builder| builder.queue(0).overflow(overflow).overlap(Overlap::QueueOne));
        for key in ["a", "b", "c"] {
            story.add_slow(key, ms(10), ms(15));
        }
        story.pass(ms(200));
        story.scheduler.stats().late
    };
    assert_eq!((late(Overflow::Wait), late(Overflow::Skip)), (0, 0));
    assert!(late(Overflow::RunLate) > 0);
}
