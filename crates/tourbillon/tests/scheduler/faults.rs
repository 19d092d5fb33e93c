//! Faults of other schedulers, each with its id.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tourbillon::scheduler::{Overflow, Plan, Remaining, Run, ScheduleErrorKind, Scheduler, Shutdown};

use crate::support::{eventually, manual, ms};
use crate::{Count, Story, promptly};

#[test]
fn d18_of_many_threads_that_add_one_key_exactly_one_wins() {
    const THREADS: usize = 4;
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let barrier = Barrier::new(THREADS);
    let wins: Vec<_> = (0..1000).map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for (key, won) in wins.iter().enumerate() {
                    barrier.wait();
                    match scheduler.schedule(key, ms(10), |_| ()) {
                        Ok(_) => _ = won.fetch_add(1, Ordering::SeqCst),
                        Err(error) => assert_eq!((error.kind, error.key), (ScheduleErrorKind::Duplicate, key)),
                    }
                }
            });
        }
    });
    assert!(wins.iter().all(|won| won.load(Ordering::SeqCst) == 1));
    assert_eq!(scheduler.len(), 1000);
}

#[test]
fn d18_of_many_threads_that_remove_one_key_exactly_one_wins() {
    const THREADS: usize = 4;
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let barrier = Barrier::new(THREADS);
    let wins = AtomicUsize::new(0);
    (0..1000).for_each(|key| _ = scheduler.schedule(key, ms(10), |_| ()).unwrap());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for key in 0..1000 {
                    barrier.wait();
                    wins.fetch_add(usize::from(scheduler.remove(&key)), Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!((wins.load(Ordering::SeqCst), scheduler.len()), (1000, 0));
}

#[test]
fn d19_an_added_job_exists_at_once_and_a_removed_one_does_not() {
    for threads in [0, 2] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        for round in 0..1000 {
            let plan = if round % 2 == 0 {
                Plan::every(ms(10))
            } else {
                Plan::every(ms(10)).first_at(crate::now_on(&engine) + ms(1))
            };
            scheduler.schedule("key", plan, count.job()).unwrap();
            assert!(scheduler.contains("key") && scheduler.len() == 1);
            assert!(scheduler.remove("key"));
            assert!(!scheduler.contains("key") && !scheduler.remove("key") && scheduler.is_empty());
        }
        engine.advance(ms(100));
        assert!(scheduler.shutdown(Shutdown::Drain).wait_for(Duration::from_secs(60)));
        assert_eq!(count.get(), 0);
    }
}

#[test]
fn d20_the_id_of_an_older_job_removes_nothing() {
    let story = Story::new();
    let old = story.scheduler.schedule("key", ms(10), |_| ()).unwrap();
    assert!(story.scheduler.remove("key"));
    let new = story.scheduler.schedule("key", ms(10), story.writes()).unwrap();
    assert_ne!(old, new);
    assert!(!story.scheduler.remove_job(old));
    story.pass(ms(10));
    assert!(!story.scheduler.remove_job(old));
    assert_eq!(story.ms(), [10]);
    assert!(story.scheduler.remove_job(new) && !story.scheduler.remove_job(new));
    // Nor does it when the same slot is used again and again.
    for _ in 0..1000 {
        let id = story.scheduler.schedule("key", ms(10), |_| ()).unwrap();
        assert!(!story.scheduler.remove_job(old) && !story.scheduler.remove_job(new));
        assert!(story.scheduler.remove_job(id));
    }
}

/// In the first, the middle and the last of its runs.
#[test]
fn d21_a_job_exists_while_it_runs_and_knows_how_many_runs_remain() {
    for threads in [0, 1] {
        let engine = manual();
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let writes = Arc::clone(&log);
        let job = move |run: &Run<&'static str>| {
            let scheduler = run.scheduler().unwrap();
            let next = scheduler.next_run(run.key()).map(|next| next - run.due());
            writes.lock().unwrap().push((scheduler.contains(run.key()), scheduler.remaining(run.key()), next));
            assert_eq!(scheduler.schedule(run.key(), ms(1), |_| ()).unwrap_err().kind, ScheduleErrorKind::Duplicate);
        };
        scheduler.schedule("self", Plan::every(ms(10)).times(3), job).unwrap();
        for round in 1..=3 {
            engine.advance(ms(10));
            eventually("the job has run", || scheduler.stats().runs == round && scheduler.stats().running == 0);
        }
        assert_eq!(
            *log.lock().unwrap(),
            [
                (true, Some(Remaining::Runs(2)), Some(ms(10))),
                (true, Some(Remaining::Runs(1)), Some(ms(10))),
                (true, Some(Remaining::Runs(0)), None)
            ]
        );
        assert_eq!((scheduler.len(), scheduler.stats().failed), (0, 0));
    }
}

#[test]
fn d21_a_job_removes_itself_in_any_of_its_runs() {
    for in_run in 1..=3 {
        for by_id in [false, true] {
            let story = Story::new();
            let writes = story.writes();
            let job = move |run: &Run<&'static str>| {
                writes(run);
                if run.number() == in_run {
                    let scheduler = run.scheduler().unwrap();
                    assert!(if by_id { scheduler.remove_job(run.job()) } else { scheduler.remove(run.key()) });
                    assert!(!scheduler.contains(run.key()) && !scheduler.remove(run.key()));
                }
            };
            story.scheduler.schedule("self", Plan::every(ms(10)).times(3), job).unwrap();
            story.pass(ms(100));
            let stats = story.scheduler.stats();
            assert_eq!((story.made().len() as u64, stats.failed, stats.jobs), (in_run, 0, 0));
        }
    }
}

#[test]
fn d21_a_job_replaces_itself_in_any_of_its_runs() {
    for in_run in 1..=3 {
        let story = Story::new();
        let (writes, later) = (story.writes(), story.writes());
        let job = move |run: &Run<&'static str>| {
            writes(run);
            if run.number() == in_run {
                let scheduler = run.scheduler().unwrap();
                assert!(scheduler.remove(run.key()));
                let new = scheduler.schedule(run.key(), Plan::every(ms(7)).times(2), later.clone()).unwrap();
                assert!(new != run.job() && scheduler.contains(run.key()) && !scheduler.remove_job(run.job()));
            }
        };
        story.scheduler.schedule("self", Plan::every(ms(10)).times(3), job).unwrap();
        story.pass(ms(100));
        let expected: Vec<_> = (1..=in_run).map(|run| 10 * run).chain([10 * in_run + 7, 10 * in_run + 14]).collect();
        assert_eq!((story.ms(), story.scheduler.stats().failed), (expected, 0));
        assert!(story.scheduler.is_empty());
    }
}

#[test]
fn d21_a_job_reschedules_and_pauses_itself_in_any_of_its_runs() {
    for in_run in 1..=3 {
        let story = Story::new();
        let writes = story.writes();
        let job = move |run: &Run<&'static str>| {
            writes(run);
            if run.number() == in_run {
                let scheduler = run.scheduler().unwrap();
                assert!(scheduler.pause(run.key()));
                assert_eq!(scheduler.next_run(run.key()), None);
                assert_eq!(scheduler.reschedule(run.key(), Plan::every(ms(7)).times(2)), Ok(()));
                assert!(scheduler.resume(run.key()));
                assert_eq!(scheduler.remaining(run.key()), Some(Remaining::Runs(2)));
            }
        };
        story.scheduler.schedule("self", Plan::every(ms(10)).times(3), job).unwrap();
        story.pass(ms(100));
        let expected: Vec<_> = (1..=in_run).map(|run| 10 * run).chain([10 * in_run + 7, 10 * in_run + 14]).collect();
        assert_eq!((story.ms(), story.scheduler.stats().failed), (expected, 0));
        assert!(story.scheduler.is_empty());
    }
}

#[test]
fn d21_a_job_that_pauses_itself_in_its_last_run_ends_after_it() {
    let story = Story::new();
    let job = |run: &Run<&'static str>| assert!(run.scheduler().unwrap().pause(run.key()));
    story.scheduler.schedule("self", Plan::once(ms(10)), job).unwrap();
    story.pass(ms(10));
    assert!(!story.scheduler.contains("self"));
}

/// The longest wait of another thread is only printed: it depends on the machine.
#[test]
fn d26_a_million_jobs_due_at_once_lock_no_thread_out() {
    const JOBS: u32 = 1_000_000;
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(1).overflow(Overflow::RunLate).build().unwrap();
    let count = Count::default();
    for key in 0..JOBS {
        let count = count.clone();
        scheduler.schedule(key, Plan::once(ms(10)), move |_| count.add()).unwrap();
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut calls, mut longest) = (0, Duration::ZERO);
            while !done.load(Ordering::SeqCst) {
                let before = Instant::now();
                scheduler.schedule(u32::MAX, ms(1000), |_| ()).unwrap();
                assert!(scheduler.remove(&u32::MAX));
                longest = longest.max(before.elapsed());
                calls += 1;
            }
            (calls, longest)
        });
        engine.advance(ms(10));
        eventually("all runs are made", || count.get() == JOBS as usize);
        done.store(true, Ordering::SeqCst);
        let (calls, longest) = other.join().unwrap();
        println!("{calls} pairs of calls meanwhile, the longest took {longest:?}");
        assert!(calls > 0);
    });
    eventually("all jobs have ended", || scheduler.is_empty());
    assert_eq!(scheduler.stats().runs, u64::from(JOBS));
}

#[test]
fn d30_a_job_removes_a_hundred_thousand_others_and_schedules_as_many_on_one_thread() {
    const JOBS: u32 = 100_000;
    for threads in [0, 1] {
        let engine = manual();
        let scheduler: Scheduler<u32> = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let (old, new) = (Count::default(), Count::default());
        // They are all due at the same time as it, and behind it.
        let made = new.clone();
        let swap = move |run: &Run<u32>| {
            let scheduler = run.scheduler().unwrap();
            for key in 1..=JOBS {
                assert!(scheduler.remove(&key));
                let count = made.clone();
                scheduler.schedule(key, Plan::once(ms(5)), move |_| count.add()).unwrap();
            }
        };
        scheduler.schedule(0, Plan::once(ms(10)), swap).unwrap();
        for key in 1..=JOBS {
            let count = old.clone();
            scheduler.schedule(key, Plan::every(ms(10)), move |_| count.add()).unwrap();
        }
        promptly("a job that replaces many", move || {
            engine.advance(ms(10));
            eventually("the jobs are replaced", || scheduler.stats().runs == 1 && scheduler.stats().running == 0);
            assert_eq!((old.get(), new.get(), scheduler.len()), (0, 0, JOBS as usize));
            engine.advance(ms(5));
            eventually("the new jobs have run", || new.get() == JOBS as usize && scheduler.is_empty());
            assert_eq!((old.get(), scheduler.stats().failed), (0, 0));
        });
    }
}

#[test]
fn d35_p10_nothing_runs_within_the_call_that_schedules_it() {
    let story = Story::new();
    let past = story.instant(ms(0));
    story.pass(ms(50));
    let plans = [
        Plan::every(ms(10)).first_at_once(),
        Plan::every(ms(10)).first_at(past),
        Plan::once(Duration::ZERO),
        Plan::every(Duration::from_nanos(1)).times(3),
    ];
    for plan in plans {
        story.add("soon", plan.clone());
        assert_eq!(story.made(), [], "{plan:?}");
        story.scheduler.reschedule("soon", plan.clone()).unwrap();
        story.scheduler.pause("soon");
        story.scheduler.resume("soon");
        story.scheduler.stop();
        story.scheduler.start();
        assert_eq!(story.made(), [], "{plan:?}");
        // The runs in the past are skipped because the scheduler was stopped; the next is due within an interval.
        story.pass(ms(10));
        assert!(!story.made().is_empty(), "{plan:?}");
        story.scheduler.remove("soon");
    }
}

#[test]
fn d35_with_threads_nothing_runs_on_the_thread_that_schedules_nor_on_the_timing_thread() {
    let engine = manual();
    let scheduler = Scheduler::builder().engine(&engine).threads(2).build().unwrap();
    let threads = Arc::new(Mutex::new(Vec::new()));
    for key in 0..100 {
        let seen = Arc::clone(&threads);
        let job = move |_: &_| seen.lock().unwrap().push(thread::current().name().map(str::to_owned));
        scheduler.schedule(key, Plan::every(ms(10)).times(2).first_at_once(), job).unwrap();
    }
    eventually("the first runs are made", || threads.lock().unwrap().len() == 100 && scheduler.stats().running == 0);
    engine.advance(ms(10));
    eventually("all runs are made", || threads.lock().unwrap().len() == 200);
    assert!(threads.lock().unwrap().iter().all(|name| name.as_deref() == Some("tourbillon-jobs")));
}

#[test]
fn d28_g6_on_an_engine_with_a_thread_of_its_own_jobs_run_without_threads_too() {
    let engine = tourbillon::Engine::builder().build().unwrap();
    for threads in [0, 1] {
        let scheduler = Scheduler::builder().engine(&engine).threads(threads).build().unwrap();
        let count = Count::default();
        scheduler
            .schedule(
                "tick",
                Plan::every(ms(1)).times(5).missed(tourbillon::time::MissedTickBehavior::Burst),
                count.job(),
            )
            .unwrap();
        eventually("all runs are made", || count.get() == 5);
        eventually("the job has ended", || scheduler.is_empty());
        scheduler.shutdown(Shutdown::Drain).wait();
    }
}

/// A job that becomes due while the scheduler handles others: it must not be overlooked between two rounds.
#[test]
fn d19_p1_a_job_due_at_once_runs_however_busy_the_others_are() {
    let engine = tourbillon::Engine::builder().build().unwrap();
    let scheduler = Scheduler::builder().engine(&engine).threads(2).build().unwrap();
    for key in 1..=4_u32 {
        scheduler.schedule(key, Duration::from_micros(50), |_| ()).unwrap();
    }
    let (count, early) = (Count::default(), Count::default());
    for round in 1..=2000 {
        let (made, too_early) = (count.clone(), early.clone());
        let job = move |run: &Run<u32>| {
            if tourbillon::time::Instant::now() < run.due() {
                too_early.add();
            }
            made.add();
        };
        scheduler.schedule(0, Plan::every(ms(3_600_000)).times(1).first_at_once(), job).unwrap();
        eventually("the job has run", || count.get() == round && !scheduler.contains(&0));
    }
    assert_eq!(early.get(), 0);
}
