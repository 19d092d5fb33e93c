//! Timer queues that are exact to the nanosecond, have no horizon, and read no clock.
//!
//! A [`TimerQueue`] holds values with deadlines and returns them when they are due: in the order of their
//! deadlines, equal ones as they were armed, never early. The caller passes the time, so a queue runs the same under a
//! real clock and under a simulated one. Four structures implement it. They return the same results and differ in cost:
//!
//! 1. [`Wheel`]: a hierarchical wheel. Arm and cancel O(1), expire O(1) amortised, next deadline a scan of one slot.
//!    *Use when* in doubt; it is best with very many timers, most of them cancelled.
//! 2. [`Heap`]: an indexed heap of four children a node. Arm, cancel and expire O(log n), next deadline O(1).
//!    *Use when* the timers are so few that the 1.6 kB which a wheel takes for each slot in use are too much, or every single
//!    operation has to be bounded.
//! 3. [`ListTree`]: sorted runs beside a tree. O(1) for timers that are armed in the order of their deadlines,
//!    O(log n) for the others, next deadline O(1) or a step down the tree. *Use when* a few fixed timeouts make up
//!    nearly all timers.
//! 4. [`Rounds`]: a single wheel with round counts. Arm and cancel O(1); expire reads the slots that time passes,
//!    later rounds included; next deadline reads all timers if none is due within the revolution. *Use when*
//!    timers are due within one revolution and you want to choose tick and slots.
//!
//! [`Naive`] is a fifth, for tests: the specification as code.
//!
//! ```
//! use tourbillon_queue::{Span, Time, TimerQueue, Wheel};
//!
//! let mut timeouts = Wheel::new();
//! let now = Time::from_nanos(1_000);
//! let request = timeouts.insert(now + Span::from_secs(30), "request 1");
//! timeouts.insert(now + Span::from_secs(5), "request 2");
//!
//! // Request 1 is answered, so its timeout is cancelled. Request 2 is not.
//! assert_eq!(timeouts.remove(request), Some("request 1"));
//! let mut late = Vec::new();
//! timeouts.expire(now + Span::from_secs(6), |timer| late.push(timer.value));
//! assert_eq!(late, ["request 2"]);
//! ```
//!
//! # Timers that live elsewhere
//!
//! Each structure also exists without keys and values of its own: [`RawWheel`], [`RawHeap`], [`RawListTree`],
//! [`RawRounds`]. They order ids of any type and store one word, a [`Place`], with each entry: see [`Entries`]. An engine
//! uses them for timers in memory that it already has.
//!
//! # Requirements
//!
//! `alloc`, and nothing else: no `std`, no dependency, no `unsafe`.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod blocks;
mod heap;
mod keyed;
mod list_tree;
mod naive;
mod place;
mod queue;
mod raw;
mod rounds;
mod slab;
mod time;
mod violation;
mod wheel;

pub use heap::{Heap, RawHeap};
pub use keyed::{Keyed, Timer};
pub use list_tree::{ListTree, RawListTree};
pub use naive::Naive;
pub use place::Place;
pub use queue::{Expired, TimerQueue};
pub use raw::{Entries, RawQueue, Settled};
pub use rounds::{RawRounds, Rounds, RoundsError};
pub use slab::Key;
pub use time::{Span, Time};
pub use violation::Violation;
pub use wheel::{CompactWheel, EntryDeadlines, RawWheel, Wheel};

/// Compiles the code in the README.
#[cfg(doctest)]
mod readme {
    #[doc = include_str!("../README.md")]
    struct QueueReadme;
}
