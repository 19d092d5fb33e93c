//! A hash of everything that happened in a run. Two runs of one plan have the same hash.

use std::hash::{DefaultHasher, Hash, Hasher};

use tourbillon::Outcome;

use crate::recorder::{EventKind, RecordedEvent};

/// A hash of the events of a run.
#[derive(Debug, Default)]
pub struct RunHash(DefaultHasher);

impl RunHash {
    /// Returns the hash of no events.
    #[must_use]
    pub fn new() -> RunHash {
        RunHash::default()
    }

    /// Adds an event.
    pub fn event(&mut self, event: RecordedEvent) {
        let what = match event.what {
            EventKind::Woken => (0, 0, 0),
            EventKind::CallbackCalled(Outcome::Fired) => (1, 0, 0),
            EventKind::CallbackCalled(Outcome::Cancelled) => (2, 0, 0),
            EventKind::CallbackCalled(_) => (3, 0, 0),
            EventKind::RunStarted(number, due) => (4, number, due),
            EventKind::RunPolled(number) => (5, number, 0),
            EventKind::RunEnded(number, is_failed) => (6, number, u64::from(is_failed)),
            EventKind::RunDropped(number) => (7, number, 0),
            EventKind::ActionDone(result) => (8, result, 0),
        };
        (event.id, event.clock, what).hash(&mut self.0);
    }

    /// Adds an observed number.
    pub fn number(&mut self, number: u64) {
        number.hash(&mut self.0);
    }

    /// Returns the hash.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.0.finish()
    }
}
