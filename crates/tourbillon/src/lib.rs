//! Timers for Rust servers: deadlines on millions of things at once.

#![cfg_attr(loom, allow(dead_code, unused_imports, reason = "a model looks at a part of the crate"))]

mod alarm;
mod barrier;
mod bias;
mod capacity;
mod clock;
mod core;
pub mod delay_queue;
mod driver;
mod engine;
mod entry;
mod home;
mod node;
mod outcome;
mod queues;
mod returns;
mod shard;
mod slab;
mod slack;
mod state;
mod stats;
mod sync;
pub mod time;
mod young;

pub use clock::Clock;
pub use delay_queue::DelayQueue;
pub use driver::{Driver, Turn};
pub use engine::{ArmError, BuildError, Builder, Engine, Entered, InstallError};
pub use outcome::Outcome;
pub use queues::QueueKind;
pub use slack::Slack;
pub use stats::{Lateness, Stats};
