//! Builds engines.

use std::sync::Arc;

use crate::clock::Clock;
use crate::core::error::BuildError;
use crate::core::owner::EngineOwner;
use crate::core::trace;
use crate::core::{CoreConfig, CoreRef};
use crate::driver::Driver;
use crate::engine::Engine;
use crate::shard::SlackQueue;
use crate::shard::queue::{Queue, QueueKind};
use crate::slack::Slack;

/// A builder of an [`Engine`], with the defaults: [`Engine::builder`].
///
/// ```
/// use tourbillon::{Clock, Engine, Slack};
///
/// let engine = Engine::builder().clock(Clock::monotonic()).slack(Slack::exact()).capacity(1_000_000).build()?;
/// assert!(!engine.is_shutdown());
/// # Ok::<(), tourbillon::BuildError>(())
/// ```
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    clock: Option<Clock>,
    shards: Option<usize>,
    slack: Slack,
    capacity: Option<usize>,
    queue: QueueKind,
    driver: Option<Driver>,
    is_virtual: bool,
}

/// A built engine that has not been reported to the `tracing` subscriber.
///
/// A subscriber may use timers, so the engine is reported only after it has been stored where those timers find it (D81).
pub(crate) struct UntracedEngine {
    engine: Engine,
    /// Where its driver runs, if the engine has started one.
    driver: Option<&'static str>,
    shards: usize,
}

impl Builder {
    /// Sets the clock. [`Clock::monotonic`] by default.
    pub fn clock(mut self, clock: Clock) -> Builder {
        self.clock = Some(clock);
        self
    }

    /// Sets the number of shards: up to this many threads have a shard of their own, and further threads share.
    ///
    /// By default four for each core, and one with a [manual clock](Clock::manual), because timers fire in order within one shard.
    pub fn shards(mut self, shards: usize) -> Builder {
        self.shards = Some(shards);
        self
    }

    /// Sets the slack of timers that have none of their own. [`Slack::adaptive`] by default.
    pub fn slack(mut self, slack: Slack) -> Builder {
        self.slack = slack;
        self
    }

    /// Limits the number of timers that the engine holds. No limit by default.
    ///
    /// A timer takes a slot from its first poll, which arms it, until it fires, is cancelled or is stopped. At the limit
    /// [`Engine::try_sleep`] and the other `try_` functions return [`ArmError::Full`](crate::ArmError::Full). A plain sleep waits for a
    /// slot; if none becomes free it still ends at its own deadline. Slots are given in the order in which sleeps began to wait, and each
    /// slot wakes one of them. A [`DelayQueue`](crate::DelayQueue), [`Timer`](crate::Timer), [`NamedTimers`](crate::NamedTimers) or
    /// [`Scheduler`](crate::Scheduler) takes one slot for its nearest deadline, and at the limit is as exact as a sleep that waits.
    pub fn capacity(mut self, capacity: usize) -> Builder {
        self.capacity = Some(capacity);
        self
    }

    /// Sets the data structure that keeps the timers of a shard in order. [`QueueKind::Wheel`] by default.
    pub fn queue(mut self, queue: QueueKind) -> Builder {
        self.queue = queue;
        self
    }

    /// Makes the engine fit for virtual time, which moves to the next deadline: a cancelled timer leaves no trace, and cancelling costs
    /// more.
    #[doc(hidden)]
    pub fn exact(mut self) -> Builder {
        self.is_virtual = true;
        self
    }

    /// Sets the driver, which fires the timers. [`Driver::default`] by default, and [`Driver::external`] with a manual clock.
    pub fn driver(mut self, driver: Driver) -> Builder {
        self.driver = Some(driver);
        self
    }

    /// Builds the engine and starts its driver.
    ///
    /// # Errors
    /// A [`BuildError`] names the setting that cannot be met.
    pub fn build(self) -> Result<Engine, BuildError> {
        self.build_untraced().map(UntracedEngine::trace)
    }

    pub(crate) fn build_untraced(self) -> Result<UntracedEngine, BuildError> {
        let clock = self.clock.unwrap_or_else(Clock::monotonic);
        let shards = self.shards.unwrap_or_else(|| if clock.is_manual() { 1 } else { default_shards() });
        if shards == 0 {
            return Err(BuildError::NoShards);
        }
        if self.capacity == Some(0) {
            return Err(BuildError::NoCapacity);
        }
        drop(Queue::new(self.queue, SlackQueue::OnTime).map_err(BuildError::Rounds)?);
        let default = || if clock.is_manual() { Driver::external() } else { Driver::default() };
        let (driver, start) = self.driver.unwrap_or_else(default).prepare(&clock)?;
        let (slack, capacity, kind) = (self.slack.bits(), self.capacity, self.queue);
        let core =
            CoreRef::new(CoreConfig { clock, slack, capacity, kind, shards, driver, is_virtual: self.is_virtual });
        let engine = Engine { owner: Arc::new(EngineOwner { core }) };
        let owner = Arc::downgrade(&engine.owner);
        engine.core().clock.add_follower(owner.clone());
        engine.core().owner.get_or_init(|| owner);
        let driver = start.run(engine.core())?;
        Ok(UntracedEngine { engine, driver, shards })
    }

    /// Builds the engine. If the system refuses a thread for the driver, the engine is shut down from the start.
    pub(super) fn build_or_shut_down(self) -> UntracedEngine {
        self.build_untraced().unwrap_or_else(|_| {
            let built = Engine::builder().driver(Driver::external()).build_untraced();
            let built = built.expect("an engine without a driver needs nothing that could fail");
            built.engine.shutdown();
            built
        })
    }
}

impl UntracedEngine {
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Reports the engine to the `tracing` subscriber.
    pub(crate) fn trace(self) -> Engine {
        trace::engine_built(self.engine.core(), self.shards);
        if let Some(on) = self.driver {
            trace::driver_started(self.engine.core(), on);
        }
        self.engine
    }
}

fn default_shards() -> usize {
    4 * std::thread::available_parallelism().map_or(1, usize::from).max(2)
}
