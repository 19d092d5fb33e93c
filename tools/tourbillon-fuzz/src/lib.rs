//! What the fuzz targets do with the bytes they are given. Each is a function of bytes that returns if all is well, and panics if not.
//!
//! | | |
//! |---|---|
//! | [`queue()`] | operations on a queue, against the naive one |
//! | [`engine()`] | operations on an engine in virtual time and on everything that is built on it, each surface with a small model |
//! | [`cron()`] | a cron line, asked for its times |
//! | [`times()`] | a time as it is typed |
//! | [`words()`] | names: of time zones and back ends |
//!
//! The targets themselves are in `fuzz`, outside of the workspace, as they need a nightly compiler; `scripts/fuzz` runs them. What is
//! here is compiled by any, and the test `seeds` runs it on all inputs that are kept in `tools/fuzz-targets/seeds`.
#![forbid(unsafe_code)]

mod bytes;
#[cfg(feature = "engine")]
mod cron;
#[cfg(feature = "engine")]
mod engine;
mod queue;
mod times;
#[cfg(feature = "words")]
mod words;

#[cfg(feature = "engine")]
pub use cron::cron;
#[cfg(feature = "engine")]
pub use engine::engine;
pub use queue::queue;
pub use times::times;
#[cfg(feature = "words")]
pub use words::words;
