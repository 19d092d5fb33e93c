//! Simulated threads: many threads, as the engine sees them, on one real thread, for a simulator that steps them in its own order.
//!
//! The engine knows a thread by its `ThreadShard`s. A simulated thread has a set of them, which replaces the set of the real thread while the
//! simulated thread runs. Shards, remote cancels and migrations of timers are then those of many threads, and repeatable.

use std::fmt;
use std::ptr::null;

use crate::core::thread_shard::{self, ThreadEngines, ThreadShard};

/// A thread as the engine sees it, without a thread of the system.
pub struct SimulatedThread {
    engines: ThreadEngines,
    current: *const ThreadShard,
}

/// Puts the real thread's engines back, also after a panic.
struct RestoreRealThread<'a>(&'a mut SimulatedThread);

impl SimulatedThread {
    /// Returns a thread that has used no engine yet.
    #[must_use]
    pub fn new() -> SimulatedThread {
        SimulatedThread { engines: ThreadEngines::new(), current: null() }
    }

    /// Runs `run` as this thread. Calls for different simulated threads may nest.
    ///
    /// # Safety
    /// A value that belongs to a thread ([`Entered`](crate::Entered), [`Worker`](crate::Worker)) and that `run` has made must be dropped
    /// inside this call, or inside a later call for the same simulated thread.
    pub unsafe fn run<R>(&mut self, run: impl FnOnce() -> R) -> R {
        // SAFETY: `current` and `engines` came from an earlier exchange, or are empty, so `current` is null or points into `engines`. And
        // code of the user, such as the caller, never runs while a `ThreadShard` is borrowed.
        unsafe { thread_shard::exchange(&mut self.engines, &mut self.current) };
        let _restore = RestoreRealThread(self);
        run()
    }
}

impl Drop for RestoreRealThread<'_> {
    fn drop(&mut self) {
        // SAFETY: as above. By the contract of `run`, guards that still exist belong to the simulated thread.
        unsafe { thread_shard::exchange(&mut self.0.engines, &mut self.0.current) };
    }
}

impl Default for SimulatedThread {
    fn default() -> SimulatedThread {
        SimulatedThread::new()
    }
}

impl fmt::Debug for SimulatedThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedThread").finish_non_exhaustive()
    }
}
