//! Many threads at once: in the end all counts agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tourbillon::scheduler::{Overflow, Overlap, Plan, Scheduler, Shutdown};
use tourbillon::time::MissedTickBehavior;

use crate::random::{Random, seed};
use crate::support::{eventually, manual, ms};

const KEYS: u64 = 20;

/// The events, counted by the jobs themselves.
#[derive(Default)]
struct JobTally {
    scheduled: AtomicU64,
    removed: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    aborted: AtomicU64,
    failed: AtomicU64,
    freed: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::SeqCst)
}

/// Counts the drop of a closure.
struct Closure(Arc<JobTally>);

impl Drop for Closure {
    fn drop(&mut self) {
        add(&self.0.freed);
    }
}

/// Counts whether a future ran to its end.
struct FutureEnd {
    tally: Arc<JobTally>,
    has_ended: bool,
}

impl Drop for FutureEnd {
    fn drop(&mut self) {
        add(if self.has_ended { &self.tally.ended } else { &self.tally.aborted });
    }
}

fn schedule(scheduler: &Scheduler<u64>, tally: &Arc<JobTally>, random: &mut Random) -> bool {
    let key = random.below(KEYS);
    let overlap = random.one_of([Overlap::Skip, Overlap::QueueOne, Overlap::Parallel]);
    let missed = random.one_of([MissedTickBehavior::Skip, MissedTickBehavior::Burst, MissedTickBehavior::Delay]);
    let times = random.one_of([1, 2, 7, u64::MAX]);
    let mut plan =
        Plan::every(Duration::from_micros(1 + random.below(3000))).overlap(overlap).missed(missed).times(times);
    if random.below(4) == 0 {
        plan = plan.first_at_once();
    }
    let closure = Closure(Arc::clone(tally));
    let fails = random.below(5) == 0;
    if random.below(3) == 0 {
        let job = move |_| {
            add(&closure.0.begun);
            let mut flight = FutureEnd { tally: Arc::clone(&closure.0), has_ended: false };
            async move {
                tourbillon::time::sleep(ms(1)).await;
                flight.has_ended = true;
                if fails {
                    add(&flight.tally.failed);
                    return Err("as planned");
                }
                Ok(())
            }
        };
        scheduler.schedule_async(key, plan, job).is_ok()
    } else {
        let job = move |_: &_| {
            let tally = &closure.0;
            add(&tally.begun);
            add(&tally.ended);
            if fails {
                add(&tally.failed);
                return Err("as planned");
            }
            Ok(())
        };
        scheduler.schedule(key, plan, job).is_ok()
    }
}

fn act(scheduler: &Scheduler<u64>, tally: &Arc<JobTally>, random: &mut Random) {
    let key = random.below(KEYS);
    match random.below(16) {
        0..6 => {
            if schedule(scheduler, tally, random) {
                add(&tally.scheduled);
            }
        }
        6..9 => {
            if scheduler.remove(&key) {
                add(&tally.removed);
            }
        }
        9 => _ = scheduler.pause(&key),
        10 => _ = scheduler.resume(&key),
        11 => _ = scheduler.reschedule(&key, Plan::every(Duration::from_micros(1 + random.below(3000)))),
        12 => scheduler.stop(),
        13 | 14 => scheduler.start(),
        _ => {
            let (_, _, _) = (scheduler.remaining(&key), scheduler.next_run(&key), scheduler.report(&key));
            assert!(scheduler.len() as u64 <= KEYS && scheduler.keys().len() as u64 <= KEYS);
        }
    }
}

/// Several threads make random calls while time passes.
fn stress(threads: usize, overflow: Overflow, how: Shutdown, seed: u64) {
    let engine = manual();
    let builder = Scheduler::builder().engine(&engine).threads(threads).queue(3).overflow(overflow);
    let scheduler = builder.build().unwrap();
    let tally = Arc::new(JobTally::default());
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let actors: Vec<_> = (0..3)
            .map(|number| {
                let (scheduler, tally) = (&scheduler, &tally);
                scope.spawn(move || {
                    let mut random = Random(seed ^ (number << 32));
                    (0..4000).for_each(|_| act(scheduler, tally, &mut random));
                })
            })
            .collect();
        let time = scope.spawn(|| {
            while !is_done.load(Ordering::SeqCst) {
                engine.advance(Duration::from_micros(100));
                thread::yield_now();
            }
        });
        for actor in actors {
            actor.join().unwrap();
        }
        is_done.store(true, Ordering::SeqCst);
        time.join().unwrap();
    });
    let left = scheduler.len() as u64;
    let ending = scheduler.shutdown(how);
    eventually("the scheduler has ended", || {
        engine.advance(ms(1));
        ending.is_over()
    });
    eventually("all jobs are freed", || get(&tally.freed) >= get(&tally.scheduled));
    let stats = scheduler.stats();
    let case = format!("{threads} threads, {overflow:?}, {how:?}");
    assert_eq!(stats.runs, get(&tally.begun), "{case}");
    assert_eq!(stats.failed, get(&tally.failed), "{case}");
    assert_eq!(get(&tally.begun), get(&tally.ended) + get(&tally.aborted), "{case}");
    assert!(stats.aborted >= get(&tally.aborted), "{case}");
    assert!(how == Shutdown::Abort || stats.aborted == 0, "{case}");
    assert_eq!((stats.jobs, stats.waiting, stats.running), (0, 0, 0), "{case}");
    // Of the scheduled jobs some were removed, some existed at the end, and the others had made all their runs.
    assert!(get(&tally.removed) + left <= get(&tally.scheduled), "{case}");
    assert!(overflow == Overflow::Skip || stats.overflowed == 0, "{case}");
}

#[test]
fn p2_p7_whatever_the_threads_do_the_counts_agree() {
    let seed = seed();
    let overflows = [Overflow::Wait, Overflow::Skip, Overflow::RunLate];
    for (index, threads) in [0, 1, 2].into_iter().enumerate() {
        for how in [Shutdown::Drain, Shutdown::Abort] {
            stress(threads, overflows[(index + seed as usize) % 3], how, seed + index as u64);
        }
    }
}

#[test]
fn d28_a_shutdown_in_the_middle_of_it_leaves_no_run_unfinished() {
    let mut random = Random(seed());
    for round in 0..60 {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(round % 3).build().unwrap();
        let tally = Arc::new(JobTally::default());
        let how = random.one_of([Shutdown::Drain, Shutdown::Abort]);
        let (seed, pause) = (random.below(u64::MAX), random.below(300));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(seed);
                for _ in 0..300 {
                    if schedule(&scheduler, &tally, &mut random) {
                        add(&tally.scheduled);
                    }
                    engine.advance(Duration::from_micros(20));
                }
            });
            scope.spawn(|| {
                (0..pause).for_each(|_| thread::yield_now());
                drop(scheduler.shutdown(how));
            });
        });
        let ending = scheduler.shutdown(how);
        eventually("the scheduler has ended", || {
            engine.advance(ms(1));
            ending.is_over()
        });
        eventually("all jobs are freed", || get(&tally.freed) >= get(&tally.scheduled));
        assert_eq!(scheduler.stats().runs, get(&tally.begun));
        assert_eq!(get(&tally.begun), get(&tally.ended) + get(&tally.aborted));
    }
}

/// After the end no thread is left waiting: a waiting thread would hold a reference to the shared state.
#[test]
fn d28_threads_that_are_about_to_wait_when_the_end_comes_end_too() {
    let owned = Arc::new(());
    let engine = manual();
    for round in 0..300 {
        let mine = Arc::clone(&owned);
        let builder = Scheduler::builder().engine(&engine).threads(3);
        let scheduler = builder.on_failure(move |_| _ = &mine).build().unwrap();
        for key in 0..3 {
            scheduler.schedule(key, Plan::once(ms(1)), |_| ()).unwrap();
        }
        engine.advance(ms(1));
        if round % 2 == 0 {
            scheduler.shutdown(Shutdown::Drain).wait();
        }
        drop(scheduler);
    }
    eventually("all threads have ended", || Arc::strong_count(&owned) == 1);
}
