//! How the models report a broken promise.

use std::fmt;

/// A broken promise: its id, such as `"P2"`, and what was observed.
pub type Mismatch = (&'static str, String);

/// A broken promise, as a failed run reports it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PromiseViolation {
    /// Id of the promise, such as `"P2"`.
    pub promise: &'static str,
    /// The observation, in words.
    pub what: String,
}

impl fmt::Display for PromiseViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.what)
    }
}
