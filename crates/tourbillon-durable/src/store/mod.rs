//! Stores: where durable timers are kept.
//!
//! A store holds rows. A row is one occurrence of a timer: armed, claimed or dead. An occurrence that has ended is no row any more; the
//! history may tell of it.
//!
//! ```text
//!               create                 claim                    finish(done)
//!     (no row) --------> armed ----------------------> claimed ---------------> (no row) fired
//!                        |   ^  the next occurrence,   |  |  |
//!                 cancel |   |  if any, is armed in    |  |  | finish(dead), or
//!                        v   |  the same transaction   |  |  | the last attempt's lease is over
//!                   (no row) '------------------------'   |  '--------------> dead --- discard --> (no row)
//!                  cancelled    finish(retry)             |                    |
//!                                                         v                    | replay
//!                                   claim, if the lease or the owner's epoch   v
//!                                   is over: the attempt is raised           armed
//! ```
//!
//! # The contract
//! - [`Store::write`] applies a batch of [`WriteOp`]s in their order, in one transaction, and replies after the transaction is durable (Q1).
//!   What each operation does is the same in every store, because every store calls [`rules::apply`] on its [`Rows`].
//! - If `write` replies with an error, none of the batch is in the store, except after [`StoreError::Uncertain`]: then all of it is, or
//!   none of it.
//! - A store has one clock (Q4), which it gives to the rules. Nothing is claimed before it is due by that clock.
//! - [`Store::due`] and [`Store::orphans`] see every transaction that was replied to before they were called.
//! - A store calls each reply exactly once, on any thread, under no lock of its own. A [`Reply`] that is dropped replies
//!   [`StoreError::Closed`].
//! - A damaged store is an error (Q8): no row is skipped silently.
//!
//! # Shards and epochs
//! Rows belong to shards, by the hash of namespace and name ([`shard_of`]), so that all timers of a name are in one shard. A node owns
//! shards for the time of a lease, under an epoch that is raised each time the owner changes. Claims, finishes and extensions carry the
//! epoch and are refused if it is over (Q7). A store of one process has one shard, and raises its epoch when it is opened.
//!
//! A node says with each heartbeat for which kinds it has handlers. Due rows of a kind that the owner of their shard has no handler for are *delegated*
//! to the nodes that have one, which claim them as a worker pulls rows.
//!
//! A row that a worker pulls belongs to no node: its claim carries a [fence](pull_fence) of random bits in the place of the epoch. No other
//! node counts it as an orphan; it is claimed again when its lease is over.

#[cfg(feature = "embedded")]
pub mod embedded;
mod error;
mod memory;
mod op;
#[cfg(feature = "postgres")]
mod postgres;
mod query;
mod reply;
mod row;
pub mod rules;
mod shard;

#[cfg(feature = "embedded")]
pub use self::embedded::{EmbeddedOptions, EmbeddedStore, StoreReport};
pub use self::error::StoreError;
pub use self::memory::{MemoryStore, MemoryTables};
pub use self::op::{
    CancelCounts, CancelOp, ClaimAnswer, ClaimOp, CreateAnswer, CreateOp, DeadLetterOp, ExtendOp, FinishOp,
    ImportAnswer, ImportOp, RescheduleAnswer, RescheduleOp, StaleDelivery, Target, Verdict, WriteAnswer, WriteOp,
};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresOptions, PostgresStore};
pub use self::query::{
    Cursor, DueCursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, MOST_SOON, SOON, StoreCounts,
};
pub use self::reply::Reply;
pub use self::row::{EndedAs, HistoryEntry, RowId, RowState, TimerRow};
pub use self::rules::Rows;
pub(crate) use self::shard::node_fence;
pub use self::shard::{
    Heartbeat, LiveNode, NodeId, NodeLeases, Ownership, ShardId, ShardTable, is_pull_fence, pull_fence, shard_of,
};

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use async_channel::Sender;

use crate::id::TimerId;

/// Where durable timers are kept. The [module](self) has the contract.
pub trait Store: Send + Sync + 'static {
    /// Returns what the layer above has to know of this store.
    fn traits(&self) -> StoreTraits;

    /// Applies the operations in their order, in one transaction, and replies with one answer for each when they are durable.
    fn write(&self, batch: Vec<WriteOp>, reply: Reply<Vec<WriteAnswer>>);

    /// Applies the operations as [`write`](Store::write) does, but not all of them have to wait if another transaction is in the way of one. So
    /// `reply` is called with the answers to some of the operations, named by their places in the batch, until all have theirs. After the first call, which
    /// may be for none, the store takes another batch. A group of operations stays together, as do operations that name the same timer.
    fn write_in_parts(&self, batch: Vec<WriteOp>, groups: Vec<Range<usize>>, reply: PartReply) {
        let _whole = groups;
        let all: Vec<usize> = (0..batch.len()).collect();
        self.write(batch, Reply::new(move |result| reply(&all, result)));
    }

    /// Replies with rows of one kind that are to be looked at soon, in the order of time.
    fn due(&self, query: DueQuery, reply: Reply<DuePage>);

    /// Replies with up to `limit` claimed rows of the kind and the shards whose epoch is older than that of their shard: their owner is gone.
    fn orphans(&self, kind: String, shards: Vec<ShardId>, limit: usize, reply: Reply<Vec<DueEntry>>);

    /// Renews the leases of a node's shards, gives up those that it releases, and takes over what it may.
    fn heartbeat(&self, heartbeat: Heartbeat, reply: Reply<Ownership>);

    /// Replies with all rows of a timer, the latest occurrence first.
    fn get(&self, id: TimerId, reply: Reply<Vec<TimerRow>>);

    /// Replies with the row that holds a key.
    fn get_key(&self, namespace: String, key: String, reply: Reply<Option<TimerRow>>);

    /// Replies with a page of rows that pass the filter, in the order of their ids. It has a row, unless there is none behind the cursor; it may
    /// have fewer than `limit`, which is one at least, and others behind it.
    fn list(&self, filter: ListFilter, cursor: Option<Cursor>, limit: usize, reply: Reply<ListPage>);

    /// Replies with up to `limit` armed and claimed rows that pass the filter, those first that are to be looked at first. A store may stop
    /// searching before it has seen all of them.
    fn upcoming(&self, filter: ListFilter, limit: usize, reply: Reply<Vec<TimerRow>>);

    /// Replies with what is known of occurrences of a timer that have ended, the latest first.
    fn history(&self, id: TimerId, reply: Reply<Vec<HistoryEntry>>);

    /// Replies with how many rows there are.
    fn counts(&self, reply: Reply<StoreCounts>);

    /// Pauses the store, or ends its pause. While it is paused its owners begin no delivery, which they are told with the answers to their
    /// heartbeats; everything else goes on. The pause is durable, and that of a store that was restored from a backup.
    fn set_paused(&self, is_paused: bool, reply: Reply<()>);

    /// Replies with the leases of the nodes, after every heartbeat that has not yet seen what was done in the store before this call. A store of one
    /// process replies with none: a process that can call this is the only one that has the store open.
    fn node_leases(&self, reply: Reply<NodeLeases>) {
        reply.send(Ok(NodeLeases::default()));
    }

    /// Sends all rows of one moment in pages, in the order of their ids, and replies with how many there were. It waits while the receiver is
    /// slow, and ends when the receiver is dropped.
    fn snapshot(&self, pages: Sender<Vec<TimerRow>>, reply: Reply<u64>);

    /// Copies the store as it is now into a directory that does not exist or is empty, while it is used, and replies with the number of rows (O4).
    /// The copy is an embedded store, and paused.
    fn backup(&self, _to: PathBuf, reply: Reply<u64>) {
        reply.send(Err(StoreError::BadOptions(
            "only a store in a directory is copied like this; export this one, or use the tools of its server"
                .to_owned(),
        )));
    }

    /// Has `on_hint` called when another process arms a timer that is due soon. Hints can be lost, and a store without other writers has none.
    fn on_hint(&self, _on_hint: HintFn) {}

    /// Ends the store: what was accepted is written, later requests are replied to with [`StoreError::Closed`]. Reads that have not ended may be
    /// replied to with that too: closing does not wait for long ones, such as a snapshot whose pages nobody takes.
    fn close(&self, reply: Reply<()>);
}

/// Called with the places of some operations of a batch, and what became of them. It must not block.
pub type PartReply = Box<dyn Fn(&[usize], Result<Vec<WriteAnswer>, StoreError>) + Send + Sync>;

/// Called with a hint. It must not block.
pub type HintFn = Box<dyn Fn() + Send + Sync>;

/// What the layer above has to know of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreTraits {
    /// How many shards there are.
    pub shards: u16,
    /// How many batches the store writes at the same time.
    pub parallel_writes: usize,
    /// How often the near window has to be looked at again, because others can arm timers in the store; `None` if nobody can.
    pub rescan: Option<Duration>,
}

impl StoreTraits {
    /// Returns whether others can arm timers in the store.
    #[must_use]
    pub fn has_other_writers(&self) -> bool {
        self.rescan.is_some()
    }
}
