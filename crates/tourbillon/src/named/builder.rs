//! The builder of named timers.

use super::NamedTimers;
use crate::current;
use crate::engine::Engine;
use crate::slack::Slack;

/// Builds [`NamedTimers`].
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{ArmError, Engine, NamedTimers};
///
/// let timers = NamedTimers::builder().engine(&Engine::current()).capacity(1).build();
/// timers.start("a", Duration::from_secs(60), |_| ())?;
/// let full = timers.start("b", Duration::from_secs(60), |_| ());
/// assert_eq!(full, Err(ArmError::Full { capacity: 1 }));
/// # Ok::<(), ArmError>(())
/// ```
#[derive(Debug)]
#[must_use]
pub struct Builder {
    engine: Option<Engine>,
    capacity: usize,
    slack: Option<Slack>,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder { engine: None, capacity: usize::MAX, slack: None }
    }

    /// Sets the engine of the timers. By default the [current](Engine::current) one. The timers do not keep it running after its last
    /// handle is dropped.
    pub fn engine(mut self, engine: &Engine) -> Builder {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets how many timers there can be, for programs whose clients choose the names and must not take all memory. Starting one more is
    /// [`ArmError::Full`](crate::ArmError::Full); timers that are created and not started count. A billion by default.
    pub fn capacity(mut self, timers: usize) -> Builder {
        self.capacity = timers;
        self
    }

    /// Sets how late timers may fire, instead of the slack of the engine. All timers together have one wake-up, so they share it.
    pub fn slack(mut self, slack: Slack) -> Builder {
        self.slack = Some(slack);
        self
    }

    /// Builds an empty set of timers.
    #[must_use]
    pub fn build(self) -> NamedTimers {
        let core = match &self.engine {
            Some(engine) => engine.core().clone(),
            None => current::with_current(|local| local.core().clone()),
        };
        NamedTimers::built(core, self.capacity, self.slack)
    }
}
