//! What a handler gets, and what it answers.

use std::fmt;
use std::str::Utf8Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;

use crate::id::TimerId;
use crate::store::{RowId, TimerRow};

/// A timer that is due, for its handler. It may be delivered more than once: [`attempt`](Delivery::attempt) says which time this is.
#[derive(Clone)]
pub struct Delivery {
    row: Arc<TimerRow>,
    abandoned: Arc<AtomicBool>,
}

/// What a handler says about a delivery. Of the text of an error the store keeps 8 KiB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ack {
    /// It is done: the timer has fired.
    Done,
    /// It failed, and is delivered again as the timer's [`RetryPolicy`](crate::RetryPolicy) says.
    Retry(String),
    /// It failed, and is delivered again after this time, if its policy has an attempt left.
    RetryAfter(Duration, String),
    /// It could not be tried yet, and is delivered again after this time. That does not count as an attempt.
    Postpone(Duration),
    /// It failed for good: the timer becomes a dead letter.
    GiveUp(String),
}

/// What a handler may return: nothing or `Ok` for "done", `Err` for "try again", or an [`Ack`].
pub trait HandlerResult: Send + 'static {
    /// Returns what it says about the delivery.
    fn into_ack(self) -> Ack;
}

impl HandlerResult for Ack {
    fn into_ack(self) -> Ack {
        self
    }
}

impl HandlerResult for () {
    fn into_ack(self) -> Ack {
        Ack::Done
    }
}

impl<T: HandlerResult, E: fmt::Display + Send + 'static> HandlerResult for Result<T, E> {
    fn into_ack(self) -> Ack {
        match self {
            Ok(done) => done.into_ack(),
            Err(error) => Ack::Retry(error.to_string()),
        }
    }
}

impl Delivery {
    pub(super) fn new(row: Arc<TimerRow>, abandoned: Arc<AtomicBool>) -> Delivery {
        Delivery { row, abandoned }
    }

    /// Returns the timer's id.
    #[must_use]
    pub fn id(&self) -> TimerId {
        self.row.id.timer
    }

    /// Returns the id of this occurrence: the same for every attempt, so that it can be the key by which a receiver recognises a repetition.
    #[must_use]
    pub fn row_id(&self) -> RowId {
        self.row.id
    }

    /// Returns the number of the occurrence, of which the first is 1.
    #[must_use]
    pub fn occurrence(&self) -> u64 {
        self.row.id.occurrence
    }

    /// Returns the namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.row.spec.namespace
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.row.spec.key.as_deref()
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.row.spec.name.as_deref()
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.row.spec.kind
    }

    /// Returns the number of this delivery, of which the first is 1. No two deliveries of an occurrence have the same number.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.row.attempt
    }

    /// Returns how many deliveries before this one were [given back](Ack::Postpone) untried.
    #[must_use]
    pub fn postponed(&self) -> u32 {
        self.row.returned
    }

    /// Returns how long the timer's policy waits if this delivery fails, with a jitter that is chosen anew each time.
    #[must_use]
    pub fn retry_delay(&self) -> Duration {
        self.row.retry_delay(std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), self.row.id))
    }

    /// Returns the epoch of the node that delivers: a higher one means a later owner.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.row.epoch
    }

    /// Returns when the occurrence was due.
    #[must_use]
    pub fn due(&self) -> SystemTime {
        self.row.due.to_system()
    }

    /// Returns how many missed occurrences this one stands for, besides itself.
    #[must_use]
    pub fn stands_for(&self) -> u64 {
        self.row.stands_for
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.row.spec.payload
    }

    /// Returns the payload as text.
    ///
    /// # Errors
    /// The payload is not UTF-8.
    pub fn text(&self) -> Result<&str, Utf8Error> {
        str::from_utf8(self.payload())
    }

    /// Returns the payload as a value, from JSON.
    ///
    /// # Errors
    /// The payload is not such a value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(self.payload())
    }

    /// Returns what the payload is, as a media type.
    #[must_use]
    pub fn content_type(&self) -> Option<&str> {
        self.row.spec.content_type.as_deref()
    }

    /// Returns whether the timer has another owner by now, so that the result of this handler does not count. A handler that takes long asks
    /// before it does what cannot be undone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("id", &self.row.id)
            .field("kind", &self.kind())
            .field("attempt", &self.attempt())
            .field("due", &self.row.due)
            .finish_non_exhaustive()
    }
}
