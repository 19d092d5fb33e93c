//! The functions that the fuzz targets call. Each takes any bytes, returns if all is well, and panics if not.
//!
//! | | |
//! |---|---|
//! | [`queue()`] | operations on a queue, compared with the naive queue |
//! | [`engine()`] | the world of `tourbillon-sim` that the bytes encode: an engine and all its surfaces, compared with the models there |
//! | [`cron()`] | a cron line, and its times |
//! | [`times()`] | a duration as users type it |
//! | [`words()`] | names of time zones and back ends |
//!
//! The targets are in `tools/fuzz-targets`, outside the workspace, since they need a nightly compiler; `scripts/fuzz` runs them.
//! This crate builds with any compiler, and its test `seeds` runs it on all inputs in `tools/fuzz-targets/seeds`.
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
