//! The error of the invariant checks.

use core::fmt;

/// An invariant that does not hold: a defect of this crate, or of an [`Entries`](crate::Entries) implementation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Violation(&'static str);

impl Violation {
    pub(crate) const fn new(what: &'static str) -> Violation {
        Violation(what)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timer queue invariant broken: {}", self.0)
    }
}

impl core::error::Error for Violation {}

/// Returns a [`Violation`] from the surrounding function unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $what:expr) => {
        if !$condition {
            return Err($crate::violation::Violation::new($what));
        }
    };
}
pub(crate) use ensure;
