//! The ids of timers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a timer. A repeating timer keeps its id over all its occurrences.
///
/// Ids are UUIDs of version 7: unique in all stores, and ordered by the millisecond in which they were made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimerId(Uuid);

/// A text that is not the id of a timer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadTimerId;

impl TimerId {
    /// Returns a new id.
    #[must_use]
    pub fn new() -> TimerId {
        TimerId(Uuid::now_v7())
    }

    /// Returns the id with this number.
    #[must_use]
    pub const fn from_u128(number: u128) -> TimerId {
        TimerId(Uuid::from_u128(number))
    }

    /// Returns the id as a number.
    #[must_use]
    pub const fn as_u128(self) -> u128 {
        self.0.as_u128()
    }

    /// Returns the id as the crate `uuid` has it.
    #[must_use]
    pub const fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl Default for TimerId {
    fn default() -> TimerId {
        TimerId::new()
    }
}

impl FromStr for TimerId {
    type Err = BadTimerId;

    fn from_str(text: &str) -> Result<TimerId, BadTimerId> {
        Uuid::try_parse(text).map(TimerId).map_err(|_| BadTimerId)
    }
}

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerId({self})")
    }
}

impl fmt::Display for BadTimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the id of a timer: an id is a UUID, such as 0199f3a2-7c1e-7b5d-9c55-2f2f7a2f1a10")
    }
}

impl std::error::Error for BadTimerId {}
