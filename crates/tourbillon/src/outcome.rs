//! How a timer ends.

use std::fmt;

/// How an armed timer ended. Every armed timer ends exactly once, in one of these three ways, so a `match` needs no other arm.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Outcome, Timer};
///
/// let timer = Timer::after(Duration::from_millis(1));
/// match timer.wait_blocking() {
///     Outcome::Fired => println!("time is up"),
///     Outcome::Cancelled => println!("cancelled before that"),
///     Outcome::Stopped => println!("the engine has been shut down"),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The deadline came.
    Fired,
    /// The timer was cancelled before its deadline: no thread will ever see it as fired.
    Cancelled,
    /// The engine was shut down before the deadline.
    Stopped,
}

/// Writes `fired`, `cancelled` or `stopped`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Outcome::Fired => "fired",
            Outcome::Cancelled => "cancelled",
            Outcome::Stopped => "stopped",
        })
    }
}
