//! Timers that outlive their process.

pub mod batch;
pub mod core;
mod id;
pub mod spec;
pub mod store;
mod time;

pub use id::{BadTimerId, TimerId};
pub use spec::{InvalidTimer, MissedFires, NewTimer, OnConflict, RetryPolicy};
pub use store::{Store, StoreError};
pub use time::{StoreTime, TimeOutOfRange};
