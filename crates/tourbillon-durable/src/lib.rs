//! Timers that outlive their process: created, cancelled and moved by key or name, delivered at least once, never early.
//!
//! [`Timers`] is the surface, [`NewTimer`] what it takes, [`Delivery`] what handlers get. [`store`] is the contract of stores, [`core`] the
//! state machine of a node.
//!
//! ```text
//!     Timers     requests, handlers, one thread a node
//!     core       what to load, claim, deliver and extend, and when: told the time and the store's answers
//!     store      rows, and rules that are the same for every store
//! ```

pub mod batch;
mod catch_panic;
pub mod core;
mod id;
pub mod spec;
pub mod store;
mod time;
mod timers;
pub mod transfer;

pub use self::core::StoreRequest;
pub use id::{BadTimerId, TimerId};
pub use spec::{FirstDue, InvalidTimer, MissedFires, NewTimer, OnConflict, RetryPolicy};
pub use store::{CancelCounts, MemoryStore, Store, StoreError, Target};
pub use time::{StoreTime, TimeOutOfRange};
pub use timers::{
    Ack, Answer, BlockingTimers, Created, DEFAULT_CONCURRENCY, Delivery, DeliveryStats, Event, Events, HandlerResult,
    LARGEST_BATCH, LARGEST_BATCH_PAYLOAD, NamespaceLateness, PullAnswer, PullRequest, Pulled, Receipt, Request,
    Rescheduled, StoreFailing, Timers, TimersBuilder, TimersError,
};

/// Compiles the code in the README and in the guide.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct DurableReadme;
    #[doc = include_str!("../../../docs/guide/durable-timers.md")]
    struct DurableGuide;
}
