//! A store in memory: for tests, and as the reference that other stores are compared with. Its timers end with the process.

mod tables;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_channel::Sender;

pub use self::tables::MemoryTables;
use super::error::StoreError;
use super::op::{WriteAnswer, WriteOp};
use super::query::{Cursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, StoreCounts};
use super::reply::Reply;
use super::row::{HistoryEntry, TimerRow};
use super::shard::{Heartbeat, Ownership, ShardId};
use super::{Store, StoreTraits};
use crate::id::TimerId;
use crate::time::StoreTime;

/// A store in memory. Clones share its timers, so that several nodes of one process can use it.
#[derive(Clone)]
pub struct MemoryStore {
    tables: Arc<Mutex<Option<MemoryTables>>>,
    clock: Arc<dyn Fn() -> StoreTime + Send + Sync>,
    shards: u16,
}

impl MemoryStore {
    /// Returns an empty store with one shard, on the system's clock.
    #[must_use]
    pub fn new() -> MemoryStore {
        MemoryStore::with_clock(1, || StoreTime::try_from(SystemTime::now()).unwrap_or(StoreTime::ZERO))
    }

    /// Returns an empty store with so many shards, one at least, on a clock of the caller's.
    pub fn with_clock(shards: u16, clock: impl Fn() -> StoreTime + Send + Sync + 'static) -> MemoryStore {
        let shards = shards.max(1);
        let tables = Arc::new(Mutex::new(Some(MemoryTables::new(shards))));
        MemoryStore { tables, clock: Arc::new(clock), shards }
    }

    fn lock(&self) -> MutexGuard<'_, Option<MemoryTables>> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replies with what `read` returns, after the lock is free again.
    fn with<T>(&self, reply: Reply<T>, read: impl FnOnce(&mut MemoryTables, StoreTime) -> Result<T, StoreError>) {
        let now = (self.clock)();
        let result = self.lock().as_mut().map_or(Err(StoreError::Closed), |tables| read(tables, now));
        reply.send(result);
    }
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore::new()
    }
}

impl Store for MemoryStore {
    fn traits(&self) -> StoreTraits {
        StoreTraits {
            shards: self.shards,
            parallel_writes: 1,
            rescan: (self.shards > 1).then_some(Duration::from_millis(250)),
        }
    }

    fn write(&self, batch: Vec<WriteOp>, reply: Reply<Vec<WriteAnswer>>) {
        self.with(reply, |tables, now| tables.write(batch, now));
    }

    fn due(&self, query: DueQuery, reply: Reply<DuePage>) {
        self.with(reply, |tables, _| Ok(tables.due(&query)));
    }

    fn orphans(&self, kind: String, shards: Vec<ShardId>, limit: usize, reply: Reply<Vec<DueEntry>>) {
        self.with(reply, |tables, _| Ok(tables.orphans(&kind, &shards, limit)));
    }

    fn heartbeat(&self, heartbeat: Heartbeat, reply: Reply<Ownership>) {
        self.with(reply, |tables, now| Ok(tables.heartbeat(&heartbeat, now)));
    }

    fn get(&self, id: TimerId, reply: Reply<Vec<TimerRow>>) {
        self.with(reply, |tables, _| Ok(tables.rows_of(id)));
    }

    fn get_key(&self, namespace: String, key: String, reply: Reply<Option<TimerRow>>) {
        self.with(reply, |tables, _| Ok(tables.holder(&namespace, &key)));
    }

    fn list(&self, filter: ListFilter, cursor: Option<Cursor>, limit: usize, reply: Reply<ListPage>) {
        self.with(reply, |tables, _| Ok(tables.list(&filter, cursor, limit)));
    }

    fn upcoming(&self, filter: ListFilter, limit: usize, reply: Reply<Vec<TimerRow>>) {
        self.with(reply, |tables, _| Ok(tables.upcoming(&filter, limit)));
    }

    fn history(&self, id: TimerId, reply: Reply<Vec<HistoryEntry>>) {
        self.with(reply, |tables, _| Ok(tables.history_of(id)));
    }

    fn counts(&self, reply: Reply<StoreCounts>) {
        self.with(reply, |tables, now| Ok(tables.counts(now)));
    }

    fn set_paused(&self, is_paused: bool, reply: Reply<()>) {
        self.with(reply, |tables, _| {
            tables.set_paused(is_paused);
            Ok(())
        });
    }

    fn snapshot(&self, pages: Sender<Vec<TimerRow>>, reply: Reply<u64>) {
        let rows: Vec<TimerRow> = self.lock().iter().flat_map(|tables| tables.rows().cloned()).collect();
        // The receiver may be the thread that asks.
        std::thread::spawn(move || {
            let count = rows.len() as u64;
            let _receiver_is_gone = rows.chunks(1_000).try_for_each(|page| pages.send_blocking(page.to_vec()));
            reply.send(Ok(count));
        });
    }

    fn close(&self, reply: Reply<()>) {
        reply.send(Ok(()));
    }
}
