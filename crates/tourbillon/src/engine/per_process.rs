//! Engines that are built on first use and shared by the whole process: the global engine, and the one on the wall clock.
//!
//! A child of `fork` cannot use its parent's engine (see [`fork`]), so each process has one of its own.
//!
//! No lock is held while an engine is built or reported to `tracing`. Threads that come at the same time may build one each; the first to
//! install its engine wins, and the others shut theirs down before it is used. So code that runs meanwhile, a `tracing` subscriber for
//! instance, may use timers (D81), and a fork in the middle leaves nothing locked in the child (D69).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Engine;
use crate::engine::builder::UntracedEngine;
use crate::sync::fork;

/// A slot for the engine of a process.
pub(crate) struct PerProcess {
    /// Null, or the engine that was installed last; never freed.
    installed: AtomicPtr<InstalledEngine>,
}

struct InstalledEngine {
    engine: Engine,
    /// The generation of the process that has installed it.
    generation: u32,
}

impl PerProcess {
    pub(crate) const fn new() -> PerProcess {
        PerProcess { installed: AtomicPtr::new(null_mut()) }
    }

    /// Returns the engine of this process, if there is one yet.
    pub(crate) fn get(&self) -> Option<&'static Engine> {
        // SAFETY: the pointer is null, or `install` leaked its box and stored it with release ordering, and it is never freed.
        let installed = unsafe { self.installed.load(Ordering::Acquire).as_ref() }?;
        (installed.generation == fork::generation()).then_some(&installed.engine)
    }

    /// Returns the engine of this process, and builds it if there is none.
    pub(crate) fn get_or_build(&self, build: impl FnOnce() -> UntracedEngine) -> &'static Engine {
        if let Some(engine) = self.get() {
            return engine;
        }
        let built = build();
        match self.install(built.engine().clone()) {
            Ok(engine) => {
                built.trace();
                engine
            }
            Err(engine) => engine,
        }
    }

    /// Makes `engine` the one of this process, and returns it.
    ///
    /// # Errors
    /// Returns the engine that was installed before, if there is one.
    pub(crate) fn install(&self, engine: Engine) -> Result<&'static Engine, &'static Engine> {
        let installed = Box::into_raw(Box::new(InstalledEngine { engine, generation: fork::generation() }));
        let mut before = self.installed.load(Ordering::Acquire);
        loop {
            if let Some(engine) = self.get() {
                // SAFETY: it came from a box above, and was not stored, so no other thread has it.
                drop(unsafe { Box::from_raw(installed) });
                return Err(engine);
            }
            match self.installed.compare_exchange(before, installed, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it is installed now, and installed engines are never freed.
                Ok(_) => return Ok(unsafe { &(*installed).engine }),
                Err(changed) => before = changed,
            }
        }
    }
}
