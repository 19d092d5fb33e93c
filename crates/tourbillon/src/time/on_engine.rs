//! `sleep` and its relatives as methods of `Engine`.

use std::time::{Duration, SystemTime};

use crate::core::error::ArmError;
use crate::core::thread_shard;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::time::Sleep;

impl Engine {
    /// Returns a [`Sleep`] on this engine: see [`time::sleep`](crate::time::sleep).
    ///
    /// # Cancel safety
    /// Dropping the sleep on any thread cancels it at once.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.deadline(duration))
        }))
    }

    /// Returns a [`Sleep`] on this engine: see [`time::sleep_until`](crate::time::sleep_until).
    ///
    /// # Cancel safety
    /// Dropping the sleep on any thread cancels it at once.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.core().clock.time_of(deadline.into_std()))
        }))
    }

    /// Returns a [`Sleep`] that is armed already, or an error if the engine refuses it.
    ///
    /// # Errors
    /// [`ArmError::Full`] at the engine's capacity, [`ArmError::Stopped`] after its shutdown.
    pub fn try_sleep(&self, duration: Duration) -> Result<Sleep, ArmError> {
        let entry = thread_shard::with(self.core().as_ptr(), |local| Entry::idle(local, local.deadline(duration)));
        entry.armed().map(Sleep::from_entry)
    }

    /// Returns a [`Sleep`] on this engine until the wall clock shows `when`. On an engine with [`Clock::wall`](crate::Clock::wall) the sleep
    /// follows the wall clock when that is set; on any other engine it ends when the time that is left now has passed.
    ///
    /// ```
    /// # #[cfg(target_os = "linux")] {
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::{Clock, Engine};
    ///
    /// let calendar = Engine::builder().clock(Clock::wall()).build()?;
    /// futures_lite::future::block_on(calendar.sleep_until_wall(SystemTime::now() + Duration::from_millis(1)));
    /// # }
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    ///
    /// # Cancel safety
    /// Dropping the sleep on any thread cancels it at once.
    pub fn sleep_until_wall(&self, when: SystemTime) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.core().clock.time_of_wall(when))
        }))
    }
}
