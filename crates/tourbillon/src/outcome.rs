//! How a timer ends.

/// How an armed timer ended. Every armed timer ends exactly once.
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
///     _ => unreachable!("there are no others yet"),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// The deadline came.
    Fired,
    /// The timer was cancelled before its deadline: no thread will ever see it as fired.
    Cancelled,
    /// The engine was shut down before the deadline.
    Stopped,
}
