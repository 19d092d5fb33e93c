//! The state that all parts of a run share: the plan, the duration, and the planted fault.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tourbillon_tools::Random;

use super::promise::Promise;
use super::reference::Reference;
use crate::clock::{monotonic, nanos};

/// One run of the check.
pub(crate) struct CheckRun {
    pub(crate) seed: u64,
    /// Number of timers pending at a time, over all threads.
    pub(crate) timers: usize,
    /// Number of threads that arm sleeps.
    pub(crate) threads: usize,
    pub(crate) lasts: Duration,
    pub(crate) reference: Reference,
    /// When the part under load ends.
    pub(crate) load_ends: u64,
    broken: Option<Promise>,
    phase: Mutex<&'static str>,
    is_over: AtomicBool,
}

/// Share of the time for the part under load. The rest is for parts that need a quiet process.
const LOAD: f64 = 0.7;

impl CheckRun {
    pub(crate) fn new(seed: u64, timers: usize, threads: usize, lasts: Duration, broken: Option<Promise>) -> CheckRun {
        CheckRun {
            seed,
            timers,
            threads,
            lasts,
            reference: Reference::start(),
            load_ends: monotonic() + nanos(lasts.mul_f64(LOAD)),
            broken,
            phase: Mutex::new("starting"),
            is_over: AtomicBool::new(false),
        }
    }

    /// Returns whether the fault that breaks this promise is planted.
    pub(crate) fn breaks(&self, promise: Promise) -> bool {
        self.broken == Some(promise)
    }

    /// Returns the planted fault.
    pub(crate) fn broken(&self) -> Option<Promise> {
        self.broken
    }

    pub(crate) fn random(&self, part: &str, thread: usize) -> Random {
        Random::of(self.seed, part, thread)
    }

    /// Returns whether the part under load continues.
    pub(crate) fn is_under_load(&self) -> bool {
        monotonic() < self.load_ends
    }

    /// Sets the current phase, for the progress bar.
    pub(crate) fn set_phase(&self, what: &'static str) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    pub(crate) fn phase(&self) -> &'static str {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
