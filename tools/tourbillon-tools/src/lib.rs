//! What the command lines of Tourbillon share, so that they agree on it.
//!
//! - [`times`]: a time as it is typed, `500ms` or `1.5s`
//! - [`random`]: random numbers from a seed
//!
//! This is for `tourbillon-cli`, `tourbillon-sim` and `tourbillon-bench`, and promises nothing to anybody else.
#![forbid(unsafe_code)]

pub mod random;
pub mod times;

pub use random::Random;
pub use times::{TimeError, duration};
