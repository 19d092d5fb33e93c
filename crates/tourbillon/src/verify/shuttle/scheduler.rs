//! A `Scheduler`, with threads of its own and without, whose jobs several threads add, change and remove.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tourbillon_queue::Span;

use super::checked_engine::{CheckedEngine, micros, one_of};
use super::explore;
use crate::engine::{Builder, Engine};
use crate::scheduler::{Backoff, Cause, Plan, Run, Scheduler, Shutdown};
use crate::sync::under_shuttle::{point, time};

/// The longest time until a run is due, in microseconds.
const MOST: u64 = 20_000;

/// The counts of all jobs of a scheduler.
#[derive(Default)]
struct Common {
    /// Whether a thread has begun to shut the scheduler down.
    is_ending: AtomicBool,
    /// Whether a thread has waited for its end.
    is_over: AtomicBool,
    /// How many runs have begun and not ended.
    running: AtomicU64,
    /// How many runs have failed, on purpose.
    failed: AtomicU64,
    /// How many runs were reported because they exceeded their time limit.
    over_limit: AtomicU64,
}

/// The counts of one job. (In atomics that shuttle does not see.)
#[derive(Default)]
struct JobCounts {
    common: Arc<Common>,
    /// The number of the last run.
    last: AtomicU64,
    /// Whether the runs may have begun with those of another closure, which an upsert replaced.
    may_replace: bool,
    is_running: AtomicBool,
    ended: AtomicU64,
}

/// A run that has begun. (An assertion that fails in it is counted by the scheduler as a failed run.)
struct ActiveRun {
    job: Arc<JobCounts>,
    checked: CheckedEngine,
}

impl ActiveRun {
    fn begin(job: &Arc<JobCounts>, checked: &CheckedEngine, run: &Run<usize>) -> ActiveRun {
        let due = checked.engine.clock().time_of(run.due().into_std());
        assert!(time() >= due, "run at {:?}, due at {due:?}", time());
        assert!(!job.common.is_over.load(Ordering::Relaxed), "a run that begins after the end");
        assert!(!job.is_running.swap(true, Ordering::Relaxed), "two runs of one job at once");
        let number = job.last.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(if job.may_replace { run.number() >= number } else { run.number() == number }, "number {number}");
        job.common.running.fetch_add(1, Ordering::Relaxed);
        ActiveRun { job: Arc::clone(job), checked: checked.clone() }
    }

    /// Ends the run, and returns whether it is to fail.
    fn fails(self) -> bool {
        let fails = one_of(8) == 0;
        self.job.common.failed.fetch_add(u64::from(fails), Ordering::Relaxed);
        fails
    }
}

impl Drop for ActiveRun {
    fn drop(&mut self) {
        self.job.common.running.fetch_sub(1, Ordering::Relaxed);
        self.job.is_running.store(false, Ordering::Relaxed);
        self.job.ended.fetch_add(1, Ordering::Relaxed);
        self.checked.changed();
    }
}

/// A thread that adds, changes and removes jobs.
struct SchedulerUser<'a> {
    checked: &'a CheckedEngine,
    scheduler: &'a Scheduler<usize>,
    common: &'a Arc<Common>,
    /// Keys from this one on are used by this thread only.
    own: usize,
}

impl SchedulerUser<'_> {
    fn use_it(&self, may_end: bool) {
        let scheduler = self.scheduler;
        for step in 0..4 {
            let key = one_of(2);
            let plan = Plan::every(micros(1, MOST)).times(1 + one_of(3) as u64);
            let plan = if one_of(3) == 0 { plan.retry(2, Backoff::fixed(micros(1, MOST / 4))) } else { plan };
            let plan = if one_of(3) == 0 { plan.time_limit(micros(1, MOST / 2)) } else { plan };
            match one_of(16) {
                0..2 => _ = self.add(key, plan),
                14..16 => self.upsert(key, plan),
                2..4 => self.add_async(key, plan),
                4 => _ = scheduler.remove(&key),
                5 => _ = scheduler.pause(&key) && scheduler.resume(&key),
                6 => _ = scheduler.reschedule(&key, plan.first_at_once()),
                12..14 => _ = scheduler.run_now(&key),
                7 if may_end => self.end(),
                8 if may_end => {
                    self.common.is_ending.store(true, Ordering::Relaxed);
                    self.checked.engine.shutdown();
                    self.checked.changed();
                }
                _ => self.wait_for_one(self.own + step),
            }
        }
    }

    fn add(&self, key: usize, plan: Plan) -> Arc<JobCounts> {
        let job = self.job(false);
        let _or_not = self.scheduler.schedule(key, plan, self.closure(&job));
        job
    }

    fn upsert(&self, key: usize, plan: Plan) {
        let _or_not = self.scheduler.upsert(key, plan, self.closure(&self.job(true)));
    }

    fn closure(&self, job: &Arc<JobCounts>) -> impl Fn(&Run<usize>) + Send + Sync + 'static + use<> {
        let (counts, checked) = (Arc::clone(job), self.checked.clone());
        move |run| {
            let active = ActiveRun::begin(&counts, &checked, run);
            point();
            if active.fails() {
                // Not by `panic!`, which shuttle would report.
                resume_unwind(Box::new("on purpose"));
            }
        }
    }

    /// Adds a job whose runs sleep on the scheduler's engine.
    fn add_async(&self, key: usize, plan: Plan) {
        let (job, checked) = (self.job(false), self.checked.clone());
        let _or_not = self.scheduler.schedule_async(key, plan, move |run| {
            let (job, checked) = (Arc::clone(&job), checked.clone());
            async move {
                let active = ActiveRun::begin(&job, &checked, &run);
                let after = micros(0, MOST);
                let sleep = checked.engine.sleep(after);
                let _waits = checked.waits_until(time() + Span::from(after));
                sleep.await;
                if active.fails() { Err("on purpose") } else { Ok(()) }
            }
        });
    }

    /// Adds a job that no other thread changes, and waits for its run.
    fn wait_for_one(&self, key: usize) {
        let after = micros(0, MOST);
        let job = self.add(key, Plan::once(after));
        let is_ending = || self.common.is_ending.load(Ordering::Relaxed);
        self.checked.wait_for(after, || job.ended.load(Ordering::Relaxed) == 1 || is_ending());
    }

    fn end(&self) {
        self.common.is_ending.store(true, Ordering::Relaxed);
        self.checked.changed();
        let how = if one_of(2) == 0 { Shutdown::Drain } else { Shutdown::Abort };
        self.scheduler.shutdown(how).wait();
        assert_eq!(self.common.running.load(Ordering::Relaxed), 0, "a run that goes on after the end");
        self.common.is_over.store(true, Ordering::Relaxed);
    }

    fn job(&self, may_replace: bool) -> Arc<JobCounts> {
        Arc::new(JobCounts { common: Arc::clone(self.common), may_replace, ..JobCounts::default() })
    }
}

fn share(checked: CheckedEngine, threads: usize, may_end: bool) {
    let common = Arc::new(Common::default());
    let counted = Arc::clone(&common);
    let builder = Scheduler::builder().engine(&checked.engine).threads(threads);
    let builder = builder.on_failure(move |failure| {
        let is_over_limit = matches!(failure.cause, Cause::TimeLimit(_));
        counted.over_limit.fetch_add(u64::from(is_over_limit), Ordering::Relaxed);
    });
    let scheduler = builder.build().expect("there are threads");
    let users = Arc::new(shuttle::sync::Mutex::new(2));
    for own in [10, 20] {
        let (scheduler, common, users) = (scheduler.clone(), Arc::clone(&common), Arc::clone(&users));
        checked.spawn(move |checked| {
            let user = SchedulerUser { checked, scheduler: &scheduler, common: &common, own };
            user.use_it(may_end);
            let is_last = {
                let mut users = users.lock().unwrap();
                *users -= 1;
                *users == 0
            };
            if is_last {
                user.end();
            }
        });
    }
    checked.run();
    let stats = scheduler.stats();
    let (failed, over_limit) = (common.failed.load(Ordering::Relaxed), common.over_limit.load(Ordering::Relaxed));
    assert_eq!((stats.running, stats.waiting, stats.jobs), (0, 0, 0), "{stats:?}");
    assert_eq!(stats.over_limit, over_limit, "{stats:?}");
    // A future that exceeds its limit has failed, a closure has not.
    assert!((failed..=failed + over_limit).contains(&stats.failed), "{failed} on purpose, {stats:?}");
    drop(scheduler);
    checked.engine.shutdown();
    checked.check_outcomes();
}

fn builder() -> Builder {
    Engine::builder().shards(1 + one_of(3))
}

#[test]
fn p1_g2_g5_jobs_of_a_scheduler_with_threads_run_one_at_a_time_and_none_is_lost() {
    explore(|| share(CheckedEngine::driven(builder()), 1 + one_of(2), false));
}

#[test]
fn g9_d41_a_scheduler_or_its_engine_is_shut_down_at_any_moment() {
    explore(|| share(CheckedEngine::driven(builder()), one_of(3), true));
}

#[test]
fn p1_g2_jobs_of_a_scheduler_without_threads_on_an_engine_that_is_turned() {
    explore(|| share(CheckedEngine::turned(builder(), 1 + one_of(2)), 0, true));
}
