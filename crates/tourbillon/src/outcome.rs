//! How a timer ends.

/// How an armed timer has ended. It ends once, in one of these.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Outcome, Timer};
///
/// let timer = Timer::after(Duration::from_millis(1));
/// match timer.wait_blocking() {
///     Outcome::Fired => println!("time is up"),
///     Outcome::Cancelled => println!("somebody was quicker"),
///     Outcome::Stopped => println!("the engine has been shut down"),
///     _ => unreachable!("there are no others yet"),
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// Its deadline came.
    Fired,
    /// It was cancelled before that: nobody will ever see it fire.
    Cancelled,
    /// Its engine was shut down before that.
    Stopped,
}
