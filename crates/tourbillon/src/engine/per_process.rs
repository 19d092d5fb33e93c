//! Engines that are made on first use and shared by all of a process: the global one, and the one that follows the wall clock.
//!
//! A child of `fork` cannot use its parent's engine (see [`fork`]), so each process has one of its own.
//!
//! No lock and no cell is held while an engine is built or announced. Threads that come at the same time may build one each; the first
//! to install its engine wins, and the others shut theirs down before anybody has used it. So what runs meanwhile, a `tracing`
//! subscriber for instance, may use timers (D81), and a fork in the middle leaves nothing locked in the child (D69).

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::Engine;
use crate::engine::Unannounced;
use crate::sync::fork;

pub(crate) struct PerProcess {
    /// Null, or what was installed last; never freed.
    installed: AtomicPtr<Installed>,
}

struct Installed {
    engine: Engine,
    /// Of the process that has installed it.
    generation: u32,
}

impl PerProcess {
    pub(crate) const fn new() -> PerProcess {
        PerProcess { installed: AtomicPtr::new(null_mut()) }
    }

    /// The engine of this process, if there is one yet.
    pub(crate) fn get(&self) -> Option<&'static Engine> {
        // SAFETY: it is null, or was leaked by `install`, which releases what it stores here.
        let installed = unsafe { self.installed.load(Ordering::Acquire).as_ref() }?;
        (installed.generation == fork::generation()).then_some(&installed.engine)
    }

    /// The engine of this process, built if need be.
    pub(crate) fn get_or_build(&self, build: impl FnOnce() -> Unannounced) -> &'static Engine {
        if let Some(engine) = self.get() {
            return engine;
        }
        let built = build();
        match self.install(built.engine().clone()) {
            Ok(engine) => {
                built.announce();
                engine
            }
            Err(engine) => engine,
        }
    }

    /// Makes an engine the one of this process.
    ///
    /// # Errors
    /// There is one already, which is given.
    pub(crate) fn install(&self, engine: Engine) -> Result<&'static Engine, &'static Engine> {
        let installed = Box::into_raw(Box::new(Installed { engine, generation: fork::generation() }));
        let mut before = self.installed.load(Ordering::Acquire);
        loop {
            if let Some(engine) = self.get() {
                // SAFETY: it came from a box just now, and was not stored.
                drop(unsafe { Box::from_raw(installed) });
                return Err(engine);
            }
            match self.installed.compare_exchange(before, installed, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: it is installed, and so is never freed.
                Ok(_) => return Ok(unsafe { &(*installed).engine }),
                Err(changed) => before = changed,
            }
        }
    }
}
