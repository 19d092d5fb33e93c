//! All that happened in a run, as one number: two runs of one plan have the same.

use std::hash::{DefaultHasher, Hash, Hasher};

use tourbillon::Outcome;

use crate::hub::{Event, What};

/// See the module.
#[derive(Debug, Default)]
pub struct Trace(DefaultHasher);

impl Trace {
    /// Of nothing yet.
    #[must_use]
    pub fn new() -> Trace {
        Trace::default()
    }

    /// Something happened.
    pub fn event(&mut self, event: Event) {
        let what = match event.what {
            What::Woken => (0, 0, 0),
            What::Told(Outcome::Fired) => (1, 0, 0),
            What::Told(Outcome::Cancelled) => (2, 0, 0),
            What::Told(_) => (3, 0, 0),
            What::Ran(number, due) => (4, number, due),
            What::Polled(number) => (5, number, 0),
            What::Done(number, is_failed) => (6, number, u64::from(is_failed)),
            What::Dropped(number) => (7, number, 0),
            What::Did(result) => (8, result, 0),
        };
        (event.id, event.clock, what).hash(&mut self.0);
    }

    /// Something was seen.
    pub fn number(&mut self, number: u64) {
        number.hash(&mut self.0);
    }

    /// The number.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.0.finish()
    }
}
