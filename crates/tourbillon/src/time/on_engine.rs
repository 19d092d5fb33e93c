//! Sleeps of an engine that is named.

use std::time::{Duration, SystemTime};

use crate::core::error::ArmError;
use crate::core::thread_shard;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::time::Sleep;

impl Engine {
    /// A [`Sleep`] on this engine: see [`time::sleep`](crate::time::sleep).
    ///
    /// # Cancel safety
    /// Dropping it cancels it, at once, from any thread.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.deadline(duration))
        }))
    }

    /// A [`Sleep`] on this engine: see [`time::sleep_until`](crate::time::sleep_until).
    ///
    /// # Cancel safety
    /// Dropping it cancels it, at once, from any thread.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.core().clock.time_of(deadline.into_std()))
        }))
    }

    /// A [`Sleep`] that is armed at once, so that the caller learns if it cannot be.
    ///
    /// # Errors
    /// [`ArmError::Full`] at the engine's capacity, [`ArmError::Stopped`] after its shutdown.
    pub fn try_sleep(&self, duration: Duration) -> Result<Sleep, ArmError> {
        let entry = thread_shard::with(self.core().as_ptr(), |local| Entry::idle(local, local.deadline(duration)));
        entry.armed().map(Sleep::from_entry)
    }

    /// A [`Sleep`] on this engine until the wall clock shows `when`. With [`Clock::wall`] it follows the clock when that is
    /// set; with any other it ends when the time that is left now has passed.
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
    /// Dropping it cancels it, at once, from any thread.
    pub fn sleep_until_wall(&self, when: SystemTime) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core().as_ptr(), |local| {
            Entry::idle(local, local.core().clock.time_of_wall(when))
        }))
    }
}
