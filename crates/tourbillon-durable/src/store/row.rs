//! Rows: occurrences of timers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::shard::ShardId;
use crate::id::TimerId;
use crate::spec::TimerSpec;
use crate::time::StoreTime;

/// The identity of a row: a timer and the number of its occurrence, of which the first is 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct RowId {
    /// The timer.
    pub timer: TimerId,
    /// The number of the occurrence.
    pub occurrence: u64,
}

/// One occurrence of a timer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimerRow {
    /// Its identity.
    pub id: RowId,
    /// The shard, by the hash of namespace and name.
    pub shard: ShardId,
    /// Whether this is the row that holds the timer's key: its latest occurrence.
    pub is_head: bool,
    /// Its state.
    pub state: RowState,
    /// When the occurrence was due, retries and leases aside.
    pub due: StoreTime,
    /// When the owner has to look at the row next: the due time or the retry of an armed row, the end of the lease of a claimed one.
    pub wake: StoreTime,
    /// Raised with every change of the row.
    pub version: u64,
    /// The number of deliveries so far, the current one included.
    pub attempt: u32,
    /// How many of them were given back undelivered: these do not count towards the limit of attempts.
    pub returned: u32,
    /// The epoch of the owner that claimed the row last; zero before.
    pub epoch: u64,
    /// The token of the claim that holds the row, so that the same claim can be asked for twice.
    pub claim: u64,
    /// How many occurrences the timer still has, this one included; `None` for no limit.
    pub left: Option<u64>,
    /// How many missed occurrences this one stands for, besides itself.
    pub stands_for: u64,
    /// When the store accepted the timer.
    pub created: StoreTime,
    /// When a dead letter was last armed again.
    pub replayed_at: Option<StoreTime>,
    /// Why the last delivery failed.
    pub last_error: Option<String>,
    /// What the user asked for.
    pub spec: Arc<TimerSpec>,
}

/// The state of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowState {
    /// It waits for its time. It can be cancelled and rescheduled.
    Armed,
    /// A node delivers it.
    Claimed,
    /// It was given up: a dead letter, which can be replayed or discarded.
    Dead,
}

/// How an occurrence ended (Q2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedAs {
    /// A handler acknowledged it.
    Fired,
    /// It was cancelled or replaced.
    Cancelled,
    /// It was given up, and discarded later.
    Dead,
    /// It was missed, and its policy skips missed fires.
    Skipped,
}

/// What a store remembers of an occurrence that has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Which occurrence.
    pub id: RowId,
    /// How it ended.
    pub ended_as: EndedAs,
    /// When it ended.
    pub at: StoreTime,
    /// When it was due.
    pub due: StoreTime,
    /// How many times it was delivered.
    pub attempts: u32,
    /// Its namespace.
    pub namespace: String,
    /// Its key.
    pub key: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its kind.
    pub kind: String,
    /// Why its last delivery failed, if one did.
    pub error: Option<String>,
}

impl TimerRow {
    /// Returns what a store remembers of this row after it has ended.
    #[must_use]
    pub fn history(&self, ended_as: EndedAs, at: StoreTime) -> HistoryEntry {
        HistoryEntry {
            id: self.id,
            ended_as,
            at,
            due: self.due,
            attempts: self.attempt,
            namespace: self.spec.namespace.clone(),
            key: self.spec.key.clone(),
            name: self.spec.name.clone(),
            kind: self.spec.kind.clone(),
            error: self.last_error.clone(),
        }
    }

    /// Returns how long its policy waits after the present delivery, if that has failed. `random` chooses the jitter.
    #[must_use]
    pub fn retry_delay(&self, random: u64) -> std::time::Duration {
        self.spec.retry.delay(self.attempt.saturating_sub(self.returned), random)
    }

    /// Returns the time under which the row is in the index of what is to be looked at; `None` for a dead letter.
    #[must_use]
    pub fn indexed_wake(&self) -> Option<StoreTime> {
        (self.state != RowState::Dead).then_some(self.wake)
    }
}
