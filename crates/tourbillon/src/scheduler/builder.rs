//! The builder of a scheduler.

use std::fmt;
use std::sync::Arc;

use super::error::{Failure, SchedulerBuildError};
use super::plan::Overlap;
use super::random::Random;
use super::shared::SchedulerShared;
use super::user_hooks::{BoxedTask, OnFailure, SpawnWith, UserHooks};
use super::{Scheduler, SchedulerOwner};
use crate::engine::Engine;
use crate::multi::deadline_map;
use crate::slack::Slack;
use crate::sync::unmodelled::thread;
use crate::time::MissedTickBehavior;

/// Builds a [`Scheduler`].
///
/// ```
/// use tourbillon::scheduler::{Overflow, Scheduler};
///
/// let scheduler: Scheduler<u32> = Scheduler::builder()
///     .threads(4)
///     .queue(100)
///     .overflow(Overflow::Skip)
///     .on_failure(|failure| eprintln!("{failure}"))
///     .build()?;
/// # Ok::<(), tourbillon::scheduler::SchedulerBuildError>(())
/// ```
#[must_use]
pub struct Builder<K> {
    engine: Option<Engine>,
    wall: Option<Engine>,
    threads: Option<usize>,
    rules: SchedulerRules,
    on_failure: Option<Box<OnFailure<K>>>,
    executor: JobExecutor,
    seed: Option<u64>,
}

/// Where the runs of async jobs are polled.
enum JobExecutor {
    OwnThreads,
    SpawnWith(Box<SpawnWith>),
    #[cfg(feature = "tokio")]
    CurrentRuntime,
    #[cfg(feature = "tokio")]
    Runtime(tokio::runtime::Handle),
}

/// The rule for a run that is due while all threads are busy and the [queue](Builder::queue) is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// The run, and those due after it, wait outside the queue until there is room. No run is lost and no memory is used; the times
    /// that pass meanwhile are [missed](Builder::missed).
    #[default]
    Wait,
    /// The run is skipped and counted. It does not count as one of the [`times`](super::Plan::times) of the job's plan.
    Skip,
    /// The run is queued all the same, and counted as late. So no time is missed, and the queue may grow to the number of jobs, or
    /// beyond that with [`Overlap::Parallel`].
    RunLate,
}

/// The settings that hold for all jobs; a plan may override some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SchedulerRules {
    pub(super) overflow: Overflow,
    pub(super) queue: usize,
    pub(super) capacity: usize,
    pub(super) overlap: Overlap,
    pub(super) missed: MissedTickBehavior,
    pub(super) slack: Option<Slack>,
}

impl<K> Builder<K> {
    pub(super) fn new() -> Builder<K> {
        let rules = SchedulerRules {
            overflow: Overflow::default(),
            queue: 1024,
            capacity: deadline_map::MOST,
            overlap: Overlap::default(),
            missed: MissedTickBehavior::Skip,
            slack: None,
        };
        Builder {
            engine: None,
            wall: None,
            threads: None,
            rules,
            on_failure: None,
            executor: JobExecutor::OwnThreads,
            seed: None,
        }
    }

    /// Sets the engine whose clock the scheduler follows. By default the [current](Engine::current) one.
    pub fn engine(mut self, engine: &Engine) -> Builder<K> {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets how many threads make the runs. By default there are as many as cores, and none on an engine that is [turned from
    /// outside](crate::Driver::external), such as one with a [manual clock](crate::Clock::manual). The threads have
    /// [entered](Engine::enter) the scheduler's engine.
    ///
    /// In virtual time (`time::pause`) each run is made at its own time, on any number of threads: time moves on when the run has
    /// ended. On an engine with a manual clock, [`Engine::advance`] does not wait for the scheduler's threads.
    ///
    /// Without threads, runs are made where the engine's callbacks run. On an engine that is [turned from
    /// outside](crate::Driver::external) that is the thread that turns it, so that a test is the same each time; on other engines
    /// it is one thread that all callbacks share. (If only one thread turns the engine, it must not block on an
    /// [`Ending`](super::Ending), but turn the engine until the scheduler [is over](super::Ending::is_over).)
    pub fn threads(mut self, threads: usize) -> Builder<K> {
        self.threads = Some(threads);
        self
    }

    /// Sets the engine whose clock jobs with a [cron line](super::Plan::cron) follow. By default that is an engine with the system's
    /// wall clock, which all schedulers share. For tests, use one with a [manual clock](crate::Clock::manual) that shows the
    /// nanoseconds since 1970.
    #[cfg(feature = "cron")]
    pub fn wall_engine(mut self, engine: &Engine) -> Builder<K> {
        self.wall = Some(engine.clone());
        self
    }

    /// Sets how many runs may wait for a thread. 1024 by default.
    pub fn queue(mut self, runs: usize) -> Builder<K> {
        self.rules.queue = runs;
        self
    }

    /// Sets what happens when that queue is full. [`Overflow::Wait`] by default.
    pub fn overflow(mut self, overflow: Overflow) -> Builder<K> {
        self.rules.overflow = overflow;
        self
    }

    /// Sets how many jobs the scheduler can hold. A billion by default.
    pub fn capacity(mut self, jobs: usize) -> Builder<K> {
        self.rules.capacity = jobs.min(deadline_map::MOST);
        self
    }

    /// Sets how late the scheduler may notice that jobs are due, instead of the slack of its engine. It has one wake-up for all jobs (and one
    /// for those with a cron line), so they share it. Times of runs do not drift: each is computed from the time before it, and
    /// [`Run::due`](super::Run::due) is exact.
    pub fn slack(mut self, slack: Slack) -> Builder<K> {
        self.rules.slack = Some(slack);
        self
    }

    /// Sets what happens when a job is due while its previous run has not ended. [`Overlap::Skip`] by default.
    pub fn overlap(mut self, overlap: Overlap) -> Builder<K> {
        self.rules.overlap = overlap;
        self
    }

    /// Sets what happens when times of a job passed without a run, because the process was suspended or the queue was full.
    ///
    /// By default [`Skip`](MissedTickBehavior::Skip): one run is made, late, and the others are counted as missed; the
    /// next run is due as planned. With [`Burst`](MissedTickBehavior::Burst) all runs are made, one after the other; with
    /// [`Delay`](MissedTickBehavior::Delay) one run is made, and the next is due one interval after it.
    pub fn missed(mut self, missed: MissedTickBehavior) -> Builder<K> {
        self.rules.missed = missed;
        self
    }

    /// Calls `on_failure` for each run that panicked, returned an error or exceeded its time limit, on the thread that made the run. A
    /// closure that exceeds its limit is reported while it runs, on the engine's thread for callbacks: an `on_failure` that blocks delays
    /// other callbacks there. Without this, failures are only counted, and the last of each job is in its [report](Scheduler::report).
    pub fn on_failure(mut self, on_failure: impl Fn(&Failure<'_, K>) + Send + Sync + 'static) -> Builder<K> {
        self.on_failure = Some(Box::new(on_failure));
        self
    }

    /// Sets the seed of the random numbers for [`Plan::jitter`](super::Plan::jitter) and [`Backoff::jitter`](super::Backoff::jitter), so
    /// that a test takes the same course each time. By default the seed differs each time.
    pub fn seed(mut self, seed: u64) -> Builder<K> {
        self.seed = Some(seed);
        self
    }

    /// Runs async jobs on the Tokio runtime in which [`build`](Builder::build) is called, instead of the scheduler's own threads, and calls
    /// all jobs in its context, so that they can use Tokio's sockets, timers and tasks.
    ///
    /// Outside a runtime, `build` returns [`SchedulerBuildError::NoTokioRuntime`]. When the runtime is shut down, runs of async jobs end as
    /// aborted. Of this, [`on_tokio_handle`](Builder::on_tokio_handle) and [`spawn_with`](Builder::spawn_with), the last call counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Plan, Scheduler};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let jobs = Scheduler::builder().threads(1).on_tokio().build()?;
    /// let (send, mut receive) = tokio::sync::mpsc::channel(1);
    /// jobs.schedule_async("poll", Plan::once(Duration::ZERO), move |_| {
    ///     let send = send.clone();
    ///     async move {
    ///         tokio::time::sleep(Duration::from_millis(1)).await; // needs a Tokio runtime
    ///         send.send("polled").await
    ///     }
    /// })?;
    /// assert_eq!(receive.recv().await, Some("polled"));
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "tokio")]
    pub fn on_tokio(mut self) -> Builder<K> {
        self.executor = JobExecutor::CurrentRuntime;
        self
    }

    /// Runs async jobs on this Tokio runtime: see [`on_tokio`](Builder::on_tokio).
    #[cfg(feature = "tokio")]
    pub fn on_tokio_handle(mut self, runtime: &tokio::runtime::Handle) -> Builder<K> {
        self.executor = JobExecutor::Runtime(runtime.clone());
        self
    }

    /// Hands the runs of async jobs to an executor instead of the scheduler's own threads. (For Tokio there is `on_tokio`. The last call of
    /// both counts.)
    ///
    /// ```
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let scheduler: Scheduler<u32> = Scheduler::builder().spawn_with(|run| smol::spawn(run).detach()).build()?;
    /// # Ok::<(), tourbillon::scheduler::SchedulerBuildError>(())
    /// ```
    pub fn spawn_with(mut self, spawn: impl Fn(BoxedTask) + Send + Sync + 'static) -> Builder<K> {
        self.executor = JobExecutor::SpawnWith(Box::new(spawn));
        self
    }
}

impl<K: Send + Sync + 'static> Builder<K> {
    /// Builds the scheduler and starts its threads. It is running when this returns.
    ///
    /// # Errors
    /// The system could not start a thread; or the jobs are to run on Tokio (`on_tokio`), and there is no Tokio runtime here.
    pub fn build(self) -> Result<Scheduler<K>, SchedulerBuildError> {
        let hooks = self.executor.hooks(self.on_failure)?;
        let engine = self.engine.unwrap_or_else(Engine::current);
        let threads =
            self.threads.unwrap_or_else(|| match engine.core().driver.is_external() && !engine.core().is_virtual {
                true => 0,
                false => std::thread::available_parallelism().map_or(1, usize::from),
            });
        let random = self.seed.map_or_else(Random::seeded_at_random, Random::new);
        let shared = SchedulerShared::new(engine.core().clone(), threads, self.rules, hooks, random);
        let scheduler = Scheduler { owner: Arc::new(SchedulerOwner::new(shared, engine, self.wall)) };
        let SchedulerOwner { shared, engine, .. } = &*scheduler.owner;
        let _first = shared.owner.set(Arc::downgrade(&scheduler.owner));
        // Virtual time must not move before the threads have looked for work, as one of them may be setting the wake-up timers.
        shared.report_busy(&mut shared.lock());
        for started in 0..threads {
            let (shared, engine) = (Arc::clone(shared), engine.clone());
            let thread = thread::Builder::new().name("tourbillon-jobs".into());
            if let Err(refused) = thread.spawn(move || shared.run_thread(&engine)) {
                scheduler.owner.shared.remove_threads(threads - started);
                return Err(SchedulerBuildError::Thread(refused));
            }
        }
        // Sets the wake-up timer, which also reports the engine's shutdown.
        shared.unlock_changed(shared.lock());
        Ok(scheduler)
    }
}

impl JobExecutor {
    /// Returns the hooks of a scheduler whose async jobs run here.
    ///
    /// # Errors
    /// The executor is the current Tokio runtime, and there is none.
    fn hooks<K>(self, on_failure: Option<Box<OnFailure<K>>>) -> Result<UserHooks<K>, SchedulerBuildError> {
        match self {
            JobExecutor::OwnThreads => Ok(UserHooks::new(on_failure, None)),
            JobExecutor::SpawnWith(spawn) => Ok(UserHooks::new(on_failure, Some(spawn))),
            #[cfg(feature = "tokio")]
            JobExecutor::CurrentRuntime => {
                let current = tokio::runtime::Handle::try_current();
                let runtime = current.map_err(|_| SchedulerBuildError::NoTokioRuntime)?;
                Ok(UserHooks::on_tokio(on_failure, runtime))
            }
            #[cfg(feature = "tokio")]
            JobExecutor::Runtime(runtime) => Ok(UserHooks::on_tokio(on_failure, runtime)),
        }
    }
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("threads", &self.threads).field("rules", &self.rules).finish_non_exhaustive()
    }
}
