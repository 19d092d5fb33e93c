//! Timers that outlive their process.

pub mod batch;
pub mod core;
mod id;
pub mod spec;
pub mod store;
mod time;
mod timers;

pub use id::{BadTimerId, TimerId};
pub use spec::{InvalidTimer, MissedFires, NewTimer, OnConflict, RetryPolicy};
pub use store::{CancelCounts, MemoryStore, Store, StoreError, Target};
pub use time::{StoreTime, TimeOutOfRange};
pub use timers::{
    Ack, BlockingTimers, Created, DEFAULT_CONCURRENCY, Delivery, DeliveryStats, HandlerResult, NamespaceLateness,
    Rescheduled, Timers, TimersBuilder, TimersError,
};
