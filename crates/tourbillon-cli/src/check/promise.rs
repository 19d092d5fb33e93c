//! The promises and their ids.

use std::fmt;
use std::str::FromStr;

/// A promise of the design.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Promise {
    P1,
    P2,
    P3,
    P4,
    P5,
    P6,
    P7,
    P8,
    P9,
    P10,
    P11,
}

impl Promise {
    pub(crate) const ALL: [Promise; 11] = [
        Promise::P1,
        Promise::P2,
        Promise::P3,
        Promise::P4,
        Promise::P5,
        Promise::P6,
        Promise::P7,
        Promise::P8,
        Promise::P9,
        Promise::P10,
        Promise::P11,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Promise::P1 => "never early",
            Promise::P2 => "one outcome",
            Promise::P3 => "order",
            Promise::P4 => "bounded lateness",
            Promise::P5 => "no cliffs",
            Promise::P6 => "no panics",
            Promise::P7 => "bounded resources",
            Promise::P8 => "named clocks",
            Promise::P9 => "idle is free",
            Promise::P10 => "nothing under a lock",
            Promise::P11 => "blocked executors",
        }
    }

    /// Returns the promise in a sentence.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Promise::P1 => "no timer completes before its deadline",
            Promise::P2 => "an armed timer fires, is cancelled or is stopped: one of these, once",
            Promise::P3 => "timers of one thread fire in the order of their deadlines",
            Promise::P4 => "a timer is late by its slack and the system's wake-up only, and that is measured",
            Promise::P5 => "every duration is valid, up to centuries and beyond",
            Promise::P6 => "bad input gives an error; a panic in a user's callback is contained",
            Promise::P7 => "a capacity is kept; arming and cancelling allocate nothing in the steady state",
            Promise::P8 => "a timer follows the clock that was chosen: monotonic, boot-time or wall",
            Promise::P9 => "with nothing due no thread wakes up",
            Promise::P10 => "no code of the user runs under a lock of the engine",
            Promise::P11 => "timers fire while every thread of the executor is blocked",
        }
    }

    /// Returns all promises, a line for each.
    pub(crate) fn list() -> String {
        let line =
            |promise: Promise| format!("  {:4} {:21} {}", promise.to_string(), promise.title(), promise.meaning());
        Promise::ALL.map(line).join("\n")
    }

    /// Describes the fault that `--break` plants.
    pub(crate) fn fault(self) -> &'static str {
        match self {
            Promise::P1 => "one timer in a hundred gets a shorter duration than the audit expects",
            Promise::P2 => "one callback in a hundred reports its outcome twice",
            Promise::P3 => "some timers are given each other's deadlines",
            Promise::P4 => "the driver oversleeps once",
            Promise::P5 => "durations are cut to 32 bits of milliseconds",
            Promise::P6 => "a panic in a callback ends the driver's thread",
            Promise::P7 => "one cancelled timer in ten is never released",
            Promise::P8 => "the engine with the wall clock follows the monotonic one",
            Promise::P9 => "a timer wakes the driver up each millisecond",
            Promise::P10 => "callbacks are called under the lock that arming takes",
            Promise::P11 => "the executor's own thread drives the timers",
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl FromStr for Promise {
    type Err = String;

    fn from_str(id: &str) -> Result<Promise, String> {
        let found = Promise::ALL.into_iter().find(|promise| promise.to_string().eq_ignore_ascii_case(id));
        found.ok_or_else(|| "the promises are P1 to P11".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_known_by_their_ids_in_either_case() {
        for promise in Promise::ALL {
            assert_eq!(promise.to_string().to_lowercase().parse(), Ok(promise));
        }
        assert_eq!("P10".parse(), Ok(Promise::P10));
        assert!("P12".parse::<Promise>().is_err() && "".parse::<Promise>().is_err());
    }
}
