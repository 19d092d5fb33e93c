//! Drop-in for `tokio::time`.

mod instant;
mod sleep;

pub use instant::Instant;
pub use sleep::{Sleep, sleep, sleep_until};
