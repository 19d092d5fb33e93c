//! Engines that are built on first use and shared by the whole process: the global engine, and the one on the wall clock.
//!
//! A child of `fork` cannot use its parent's engine (see [`fork`]), so each process has one of its own.
//!
//! No lock is held while an engine is built or reported to `tracing`. Threads that come at the same time may build one each; the first to
//! install its engine wins, and the others shut theirs down before it is used. So code that runs meanwhile, a `tracing` subscriber for
//! instance, may use timers (D81), and a fork in the middle leaves nothing locked in the child (D69).

use crate::Engine;
use crate::engine::builder::UntracedEngine;
use crate::sync::fork;
use crate::sync::published::Published;

/// A slot for the engine of a process.
pub(crate) struct PerProcess {
    /// The engine that was installed last, by this process or by an ancestor.
    installed: Published<InstalledEngine>,
}

struct InstalledEngine {
    engine: Engine,
    /// The generation of the process that has installed it.
    generation: u32,
}

impl PerProcess {
    pub(crate) const fn new() -> PerProcess {
        PerProcess { installed: Published::new() }
    }

    /// Returns the engine of this process, if there is one yet.
    pub(crate) fn get(&self) -> Option<&'static Engine> {
        let installed = self.installed.get()?;
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
        let mut installed = InstalledEngine { engine, generation: fork::generation() };
        loop {
            let before = self.installed.get();
            if let Some(engine) = self.get() {
                return Err(engine);
            }
            match self.installed.replace(before, installed) {
                Ok(installed) => return Ok(&installed.engine),
                Err(refused) => installed = refused,
            }
        }
    }
}
