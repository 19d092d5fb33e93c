//! Code that the command-line tools of Tourbillon share.
//!
//! - [`times`]: parses durations as users type them, `500ms` or `1.5s`
//! - [`browser`]: loads and drives pages in Chromium, for tests
//! - [`random`]: random numbers from a seed
//! - `postgres`: a PostgreSQL server in a temporary directory, and PgBouncer before it, on Unix
//! - [`not_tested`]: says what is not tested on this machine, past the test harness
//!
//! This is for `tourbillon-cli`, `tourbillon-sim`, `tourbillon-bench` and `tourbillon-fuzz`; its API has no stability promise.
#![forbid(unsafe_code)]

pub mod browser;
#[cfg(unix)]
pub mod postgres;
pub mod random;
pub mod times;
mod untested;

pub use random::Random;
pub use times::{TimeError, duration};
pub use untested::not_tested;
