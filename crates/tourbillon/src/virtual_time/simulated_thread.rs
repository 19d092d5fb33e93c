//! Many threads on one: for a simulator, which steps them in an order of its own.
//!
//! What makes a thread another one to the engine is where it is at home. So a simulated thread is a set of homes that takes
//! the place of the real thread's own while the simulated one runs. Shards, remote cancels and timers that move house are
//! then those of many threads, and repeatable.

use std::fmt;
use std::ptr::null;

use crate::core::thread_shard::{self, ThreadEngines, ThreadShard};

/// A thread as the engine sees it, without one of the system's.
pub struct SimulatedThread {
    homes: ThreadEngines,
    current: *const ThreadShard,
}

/// Puts the homes back where they were, also when what ran has panicked.
struct Running<'a>(&'a mut SimulatedThread);

impl SimulatedThread {
    /// One that has used no engine yet.
    #[must_use]
    pub fn new() -> SimulatedThread {
        SimulatedThread { homes: ThreadEngines::new(), current: null() }
    }

    /// Runs this as that thread. CallbackQueue of different simulated threads nest.
    ///
    /// # Safety
    /// What belongs to a thread ([`Entered`](crate::Entered), [`Worker`](crate::Worker)) and was made in here is dropped in here
    /// as well, in this call or a later one of the same simulated thread.
    pub unsafe fn run<R>(&mut self, run: impl FnOnce() -> R) -> R {
        // SAFETY: what is kept here came from an earlier exchange, or is empty; and users' code never runs with a home borrowed.
        unsafe { thread_shard::exchange(&mut self.homes, &mut self.current) };
        let _running = Running(self);
        run()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // SAFETY: as above; the guards that `run` made are gone or are the simulated thread's.
        unsafe { thread_shard::exchange(&mut self.0.homes, &mut self.0.current) };
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
