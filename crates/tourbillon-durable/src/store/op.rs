//! Operations that change a store, and their answers.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::query::DueEntry;
use super::row::{RowId, TimerRow};
use crate::id::TimerId;
use crate::spec::{DEFAULT_NAMESPACE, FirstDue, OnConflict, TimerSpec};
use crate::time::StoreTime;

/// One operation of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteOp {
    /// Arms a timer.
    Create(CreateOp),
    /// Ends armed rows, and counts them (U2).
    Cancel(CancelOp),
    /// Gives an armed row another due time (U3).
    Reschedule(RescheduleOp),
    /// Takes a due row for delivery, and arms the next occurrence (U6).
    Claim(ClaimOp),
    /// Ends a delivery.
    Finish(FinishOp),
    /// Makes the lease of a delivery longer.
    Extend(ExtendOp),
    /// Arms a dead letter again, or ends it.
    DeadLetter(DeadLetterOp),
    /// Writes a row that another store has exported (O4).
    Import(ImportOp),
}

/// The answer to one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteAnswer {
    /// To a create.
    Create(CreateAnswer),
    /// To a cancel.
    Cancel(CancelCounts),
    /// To a reschedule.
    Reschedule(RescheduleAnswer),
    /// To a claim.
    Claim(ClaimAnswer),
    /// To a finish: whether the delivery was still the current one (V5), and the row if it is armed again.
    Finish(Result<Option<DueEntry>, StaleDelivery>),
    /// To an extension: whether the delivery was still the current one (V5).
    Extend(Result<(), StaleDelivery>),
    /// To an operation on a dead letter: whether there was one, and the row if it is armed again.
    DeadLetter(Option<Option<DueEntry>>),
    /// To an import.
    Import(ImportAnswer),
    /// The store has no room for this operation; the others of the batch were applied.
    Full,
}

/// A delivery that was ended by somebody else: its attempt or its owner's epoch is over (V5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StaleDelivery;

/// Arms a timer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateOp {
    /// The id of the timer, if it is new.
    pub id: TimerId,
    /// What is asked for.
    pub spec: Arc<TimerSpec>,
    /// What happens if a pending timer has the key.
    pub on_conflict: OnConflict,
}

/// The answer to a [`CreateOp`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CreateAnswer {
    /// The timer is armed.
    Created {
        /// The row.
        entry: DueEntry,
        /// When it is due.
        due: StoreTime,
        /// The timer that it replaced.
        replaced: Option<TimerId>,
        /// Whether that one is being delivered: then its delivery goes on.
        in_flight: bool,
    },
    /// A pending timer has the key, and it stays: it was asked for in the same way, or the request says so.
    Existing {
        /// That timer.
        id: TimerId,
        /// When it is due.
        due: StoreTime,
        /// The version of its row.
        version: u64,
        /// Whether it is being delivered.
        in_flight: bool,
    },
    /// A pending timer has the key and was asked for differently.
    Conflict {
        /// That timer.
        id: TimerId,
    },
    /// The timer would never be due.
    NeverDue,
}

/// Which timers a cancel is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Target {
    /// The timer with this id.
    Id(TimerId),
    /// The timer with this key.
    Key {
        /// The namespace.
        namespace: String,
        /// The key.
        key: String,
    },
    /// All timers with this name.
    Name {
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
}

impl Target {
    /// Returns the timer with a key of the namespace `default`.
    pub fn key(key: impl Into<String>) -> Target {
        Target::Key { namespace: DEFAULT_NAMESPACE.to_owned(), key: key.into() }
    }

    /// Returns all timers with a name of the namespace `default`.
    pub fn name(name: impl Into<String>) -> Target {
        Target::Name { namespace: DEFAULT_NAMESPACE.to_owned(), name: name.into() }
    }

    /// Returns the same key or name in another namespace. An id is the same in all of them.
    #[must_use]
    pub fn in_namespace(self, namespace: impl Into<String>) -> Target {
        match self {
            Target::Id(id) => Target::Id(id),
            Target::Key { key, .. } => Target::Key { namespace: namespace.into(), key },
            Target::Name { name, .. } => Target::Name { namespace: namespace.into(), name },
        }
    }
}

impl From<TimerId> for Target {
    fn from(id: TimerId) -> Target {
        Target::Id(id)
    }
}

/// Ends armed rows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelOp {
    /// Which ones.
    pub target: Target,
}

/// What a cancel found (U2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CancelCounts {
    /// How many pending occurrences were cancelled: none of them is delivered afterwards.
    pub cancelled: u64,
    /// How many are being delivered: a handler may see them.
    pub in_flight: u64,
    /// How many had ended before: dead letters, and 1 if no timer with the id or key is pending.
    pub gone: u64,
}

/// Gives an armed row another due time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RescheduleOp {
    /// The timer; a name is [`RescheduleAnswer::NotFound`].
    pub target: Target,
    /// When it is due now.
    pub when: FirstDue,
    /// Only if the row still has this version.
    pub if_version: Option<u64>,
}

/// The answer to a [`RescheduleOp`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RescheduleAnswer {
    /// The row has another due time.
    Moved {
        /// The row.
        entry: DueEntry,
        /// Its kind.
        kind: String,
        /// When it is due.
        due: StoreTime,
    },
    /// The row has another version.
    VersionIs(u64),
    /// The timer is being delivered.
    InFlight,
    /// No such timer is pending.
    NotFound,
    /// The time is after [`StoreTime::MAX`], or after the end of the timer.
    OutOfRange,
}

/// Takes a due row for delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimOp {
    /// The row.
    pub id: RowId,
    /// The version that the owner knows.
    pub version: u64,
    /// The owner's epoch of the row's shard, or the fence of a [pull](crate::store::pull_fence).
    pub epoch: u64,
    /// Chosen by the owner for this claim; the same claim can be asked for again if its answer was lost.
    pub token: u64,
    /// How long the delivery may take before the row is delivered again.
    pub lease: Duration,
}

/// The answer to a [`ClaimOp`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClaimAnswer {
    /// The row is the claimant's.
    Claimed {
        /// The row as it is now.
        row: TimerRow,
        /// The next occurrence, which was armed in the same transaction.
        next: Option<DueEntry>,
    },
    /// The row has another version or is gone: it was cancelled, moved or claimed by somebody else.
    Lost,
    /// The row is not due yet by the store's clock; or the times of its recurrence cannot be told here, because of a zone that the claiming process
    /// does not know: then it stays armed, and this is when to ask again.
    Early(StoreTime),
    /// The row was too late for its policy, or had no attempt left: it has ended or is a dead letter.
    GivenUp {
        /// Whether it is a dead letter now; otherwise it was skipped.
        is_dead: bool,
        /// The next occurrence, which was armed in the same transaction.
        next: Option<DueEntry>,
    },
    /// The epoch is over: another node owns the shard.
    Fenced,
}

/// Ends a delivery.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FinishOp {
    /// The row.
    pub id: RowId,
    /// The attempt that ends.
    pub attempt: u32,
    /// The epoch in which it was claimed.
    pub epoch: u64,
    /// How it ends.
    pub verdict: Verdict,
}

/// How a delivery ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The occurrence has fired.
    Done,
    /// It is delivered again, after this time by the store's clock, unless its policy has no attempt or no time left.
    Retry {
        /// How long to wait.
        after: Duration,
        /// Why the delivery failed.
        error: String,
    },
    /// It becomes a dead letter.
    Dead {
        /// Why.
        error: String,
    },
    /// It is armed again after this time: the node gives it back undelivered. The number of the attempt is used up, but it does not count
    /// towards the limit of attempts.
    Return {
        /// How long to wait.
        after: Duration,
    },
}

/// Makes the lease of a delivery longer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtendOp {
    /// The row.
    pub id: RowId,
    /// The attempt.
    pub attempt: u32,
    /// The epoch in which it was claimed.
    pub epoch: u64,
    /// How long the lease is from now on.
    pub lease: Duration,
}

/// Arms a dead letter again, or ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeadLetterOp {
    /// The row.
    pub id: RowId,
    /// Whether it is armed again, due at once, for one more delivery or as many as its policy has left; or ended.
    pub replay: bool,
}

/// Writes a row that another store has exported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportOp {
    /// The row as it was in the other store.
    pub row: TimerRow,
    /// Whether a later row of the timer that has its key is written too. If the key belongs to another timer of this store, neither of them is.
    pub has_heir: bool,
}

impl ImportOp {
    /// Returns what writes rows, of which all that belong to one timer follow one another in the order of their occurrences.
    #[must_use]
    pub fn of_rows(rows: Vec<TimerRow>) -> Vec<ImportOp> {
        let mut ops: Vec<ImportOp> = Vec::with_capacity(rows.len());
        let mut last_head = None;
        for row in rows.into_iter().rev() {
            let has_heir = last_head == Some(row.id.timer);
            if row.is_head {
                last_head = Some(row.id.timer);
            }
            ops.push(ImportOp { row, has_heir });
        }
        ops.reverse();
        ops
    }
}

/// The answer to an [`ImportOp`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImportAnswer {
    /// The row is in the store now.
    Written,
    /// The store has the row already, or another occurrence of its timer that stands for it. Nothing was written.
    Exists,
    /// The row has ended in this store, or a later occurrence of its timer has. Nothing was written.
    Ended,
    /// Another timer has its key. Nothing was written.
    Conflict(TimerId),
}

impl WriteOp {
    /// Returns whether the operation may be refused when the store is nearly full: all others end something, and make room.
    #[must_use]
    pub fn needs_room(&self) -> bool {
        matches!(self, WriteOp::Create(_) | WriteOp::Import(_))
    }
}
