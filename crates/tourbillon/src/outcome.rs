//! How a timer ends.

/// How an armed timer has ended. It ends once, in one of these.
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
