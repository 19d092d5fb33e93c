//! How a scheduler is built.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::error::Failure;
use super::shared::{BoxedTask, OnFailure, Shared, SpawnWith, Users};
use super::{Overlap, Owner, Scheduler};
use crate::Engine;
use crate::sync::aside::thread;
use crate::time::MissedTickBehavior;

/// How to build a [`Scheduler`].
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
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use]
pub struct Builder<K> {
    engine: Option<Engine>,
    wall: Option<Engine>,
    threads: Option<usize>,
    rules: Rules,
    on_failure: Option<Box<OnFailure<K>>>,
    spawn: Option<Box<SpawnWith>>,
}

/// What happens when a run is due, all threads are busy, and as many runs stand in line as [may](Builder::queue).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Overflow {
    /// It waits where it is, and those that are due after it wait behind it, until there is room. Nothing is lost, and no
    /// memory is taken; the times that go by meanwhile are [missed](Builder::missed).
    #[default]
    Wait,
    /// It is not made, and counted. It does not use up one of the job's times.
    Skip,
    /// It stands in line all the same, and is counted as late. So a job misses no time, and the line may grow as long as there
    /// are jobs; with [`Overlap::Parallel`] longer.
    RunLate,
}

/// What holds for all jobs that do not say otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rules {
    pub(super) overflow: Overflow,
    pub(super) queue: usize,
    pub(super) capacity: usize,
    pub(super) overlap: Overlap,
    pub(super) missed: MissedTickBehavior,
}

impl<K> Builder<K> {
    pub(super) fn new() -> Builder<K> {
        let rules = Rules {
            overflow: Overflow::default(),
            queue: 1024,
            capacity: crate::multi::deadline_map::MOST,
            overlap: Overlap::default(),
            missed: MissedTickBehavior::Skip,
        };
        Builder { engine: None, wall: None, threads: None, rules, on_failure: None, spawn: None }
    }

    /// The engine whose time it follows. By default the [current](Engine::current) one.
    pub fn engine(mut self, engine: &Engine) -> Builder<K> {
        self.engine = Some(engine.clone());
        self
    }

    /// How many threads make the runs; by default as many as there are cores, and none on an engine that is [turned from
    /// outside](crate::Driver::external), such as one with a [manual clock](crate::Clock::manual). They have the scheduler's engine
    /// [entered](Engine::enter).
    ///
    /// In virtual time (`time::pause`) each run is made at its own time, on however many threads: time moves on when it has ended. With
    /// threads of its own on an engine with a manual clock, [`Engine::advance`] does not wait for them.
    ///
    /// With none, runs are made where the engine's callbacks are: for an engine that is [turned from
    /// outside](crate::Driver::external) by whoever turns it, so that a test in virtual time is the same each time;
    /// for others on one thread that all callbacks share. (Who is the only one to turn such an engine must not block on an
    /// [`Ending`](super::Ending), but turn until it [is over](super::Ending::is_over).)
    pub fn threads(mut self, threads: usize) -> Builder<K> {
        self.threads = Some(threads);
        self
    }

    /// The engine whose clock jobs with a [cron line](super::Plan::cron) follow. By default one with the system's wall clock,
    /// that all schedulers share. For tests, one with a [manual clock](crate::Clock::manual) that shows the nanoseconds
    /// since 1970.
    #[cfg(all(feature = "cron", target_os = "linux"))]
    pub fn wall_engine(mut self, engine: &Engine) -> Builder<K> {
        self.wall = Some(engine.clone());
        self
    }

    /// How many runs may stand in line for a thread. 1024 by default.
    pub fn queue(mut self, runs: usize) -> Builder<K> {
        self.rules.queue = runs;
        self
    }

    /// What happens when there is no room in that line. [`Overflow::Wait`] by default.
    pub fn overflow(mut self, overflow: Overflow) -> Builder<K> {
        self.rules.overflow = overflow;
        self
    }

    /// How many jobs it holds at most. A billion by default.
    pub fn capacity(mut self, jobs: usize) -> Builder<K> {
        self.rules.capacity = jobs.min(crate::multi::deadline_map::MOST);
        self
    }

    /// What happens when a job is due and its last run has not ended. [`Overlap::Skip`] by default.
    pub fn overlap(mut self, overlap: Overlap) -> Builder<K> {
        self.rules.overlap = overlap;
        self
    }

    /// What happens when a job's times went by and nobody could make its runs: the process was held up, or the line was full.
    ///
    /// By default [`Skip`](MissedTickBehavior::Skip): one run is made, late, and the others are counted as missed; the
    /// next is due when it would have been anyway. With [`Burst`](MissedTickBehavior::Burst) all are made, one after
    /// the other; with [`Delay`](MissedTickBehavior::Delay) one is made, and the next is due one interval after that.
    pub fn missed(mut self, missed: MissedTickBehavior) -> Builder<K> {
        self.rules.missed = missed;
        self
    }

    /// Is told of each run that panicked or returned an error, on the thread that made it. Without it, failures are
    /// counted, and the last of each job is in its [report](Scheduler::report).
    pub fn on_failure(mut self, on_failure: impl Fn(&Failure<'_, K>) + Send + Sync + 'static) -> Builder<K> {
        self.on_failure = Some(Box::new(on_failure));
        self
    }

    /// Hands the runs of async jobs to an executor, rather than to the scheduler's own threads: for jobs that need the
    /// context of a runtime.
    ///
    /// ```
    /// # async fn example() -> std::io::Result<()> {
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let runtime = tokio::runtime::Handle::current();
    /// let scheduler: Scheduler<u32> = Scheduler::builder().spawn_with(move |run| drop(runtime.spawn(run))).build()?;
    /// # Ok(()) }
    /// ```
    pub fn spawn_with(mut self, spawn: impl Fn(BoxedTask) + Send + Sync + 'static) -> Builder<K> {
        self.spawn = Some(Box::new(spawn));
        self
    }
}

impl<K: Send + Sync + 'static> Builder<K> {
    /// Builds it and starts its threads. It is running.
    ///
    /// # Errors
    /// The system refused a thread.
    pub fn build(self) -> io::Result<Scheduler<K>> {
        let engine = self.engine.unwrap_or_else(Engine::current);
        let threads =
            self.threads.unwrap_or_else(|| match engine.core().driver.is_external() && !engine.core().is_virtual {
                true => 0,
                false => std::thread::available_parallelism().map_or(1, usize::from),
            });
        let users = Users { on_failure: self.on_failure, spawn: self.spawn };
        let shared = Shared::new(engine.core().clone(), threads, self.rules, users);
        let scheduler = Scheduler { owner: Arc::new(Owner::new(shared, engine, self.wall)) };
        let Owner { shared, engine, .. } = &*scheduler.owner;
        let _first = shared.owner.set(Arc::downgrade(&scheduler.owner));
        // Until they have all looked for work, one of them may be setting the bell.
        shared.begin_work(&mut shared.lock());
        for started in 0..threads {
            let (shared, engine) = (Arc::clone(shared), engine.clone());
            let thread = thread::Builder::new().name("tourbillon-jobs".into());
            if let Err(refused) = thread.spawn(move || shared.work(&engine)) {
                scheduler.owner.shared.leave(threads - started);
                return Err(refused);
            }
        }
        // So that it hears of the engine's end.
        shared.changed(shared.lock());
        Ok(scheduler)
    }
}

impl<K> fmt::Debug for Builder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("threads", &self.threads).field("rules", &self.rules).finish_non_exhaustive()
    }
}
