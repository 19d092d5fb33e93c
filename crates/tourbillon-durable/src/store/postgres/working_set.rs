//! The rows of one transaction in memory: the rules read and write them here, and the difference goes to the server.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::super::error::StoreError;
use super::super::row::{EndedAs, HistoryEntry, RowId, TimerRow};
use super::super::rules::Rows;
use super::super::shard::ShardId;
use super::columns::damaged;
use crate::id::TimerId;
use crate::time::StoreTime;

/// All rows that a batch may touch, locked in the server and held here.
#[derive(Default)]
pub(super) struct WorkingSet {
    now: StoreTime,
    epochs: HashMap<ShardId, u64>,
    /// The rows as the server has them.
    stored: BTreeMap<RowId, TimerRow>,
    /// The rows as they are to be.
    rows: BTreeMap<RowId, TimerRow>,
    /// By namespace and key: the heads.
    heads: HashMap<(String, String), RowId>,
    /// By namespace and name.
    names: HashMap<(String, String), BTreeSet<RowId>>,
    ended: Vec<HistoryEntry>,
    /// The latest occurrence in the history of each timer of which the batch imports a row.
    last_ended: HashMap<TimerId, u64>,
}

/// What a batch has changed.
pub(super) struct Difference<'w> {
    /// Rows that are gone.
    pub(super) deleted: Vec<RowId>,
    /// Rows that have changed.
    pub(super) changed: Vec<&'w TimerRow>,
    /// New rows, in the order of their keys: so two transactions never wait for each other's keys in a circle.
    pub(super) new: Vec<&'w TimerRow>,
    /// Occurrences that have ended.
    pub(super) ended: &'w [HistoryEntry],
}

impl WorkingSet {
    pub(super) fn set_now(&mut self, now: StoreTime) {
        self.now = now;
    }

    pub(super) fn set_epoch(&mut self, shard: ShardId, epoch: u64) {
        self.epochs.insert(shard, epoch);
    }

    pub(super) fn set_last_ended(&mut self, timer: TimerId, occurrence: u64) {
        self.last_ended.insert(timer, occurrence);
    }

    /// Adds a row that the server has.
    pub(super) fn add_stored(&mut self, row: TimerRow) {
        self.index(&row);
        self.stored.insert(row.id, row.clone());
        self.rows.insert(row.id, row);
    }

    /// Returns the rows that the server has.
    pub(super) fn stored(&self) -> impl Iterator<Item = &TimerRow> {
        self.stored.values()
    }

    /// Returns what has to be written.
    pub(super) fn difference(&self) -> Difference<'_> {
        let deleted = self.stored.keys().filter(|id| !self.rows.contains_key(id)).copied().collect();
        let (mut changed, mut new) = (Vec::new(), Vec::new());
        for row in self.rows.values() {
            match self.stored.get(&row.id) {
                None => new.push(row),
                Some(stored) if stored != row => changed.push(row),
                Some(_) => {}
            }
        }
        new.sort_by_key(|row| (&row.spec.namespace, &row.spec.key, row.id));
        Difference { deleted, changed, new, ended: &self.ended }
    }

    fn index(&mut self, row: &TimerRow) {
        if let Some(key) = head_key(row) {
            self.heads.insert(key, row.id);
        }
        if let Some(name) = &row.spec.name {
            self.names.entry((row.spec.namespace.clone(), name.clone())).or_default().insert(row.id);
        }
    }

    fn forget(&mut self, row: &TimerRow) {
        self.rows.remove(&row.id);
        if let Some(key) = head_key(row) {
            self.heads.remove(&key);
        }
        if let Some(name) = &row.spec.name
            && let Some(rows) = self.names.get_mut(&(row.spec.namespace.clone(), name.clone()))
        {
            rows.remove(&row.id);
        }
    }
}

fn head_key(row: &TimerRow) -> Option<(String, String)> {
    row.spec.key.as_ref().filter(|_| row.is_head).map(|key| (row.spec.namespace.clone(), key.clone()))
}

impl Rows for WorkingSet {
    fn now(&self) -> StoreTime {
        self.now
    }

    fn shards(&self) -> u16 {
        super::SHARDS
    }

    fn epoch(&mut self, shard: ShardId) -> Result<u64, StoreError> {
        self.epochs.get(&shard).copied().ok_or_else(|| damaged(format!("there is no shard {}", shard.0)))
    }

    fn get(&mut self, id: RowId) -> Result<Option<TimerRow>, StoreError> {
        Ok(self.rows.get(&id).cloned())
    }

    fn of_timer(&mut self, timer: TimerId) -> Result<Vec<TimerRow>, StoreError> {
        let row = |occurrence| RowId { timer, occurrence };
        Ok(self.rows.range(row(0)..=row(u64::MAX)).map(|(_, row)| row.clone()).collect())
    }

    fn head(&mut self, namespace: &str, key: &str) -> Result<Option<TimerRow>, StoreError> {
        let id = self.heads.get(&(namespace.to_owned(), key.to_owned()));
        Ok(id.and_then(|id| self.rows.get(id)).cloned())
    }

    fn of_name(&mut self, namespace: &str, name: &str) -> Result<Vec<TimerRow>, StoreError> {
        let ids = self.names.get(&(namespace.to_owned(), name.to_owned())).into_iter().flatten();
        Ok(ids.filter_map(|id| self.rows.get(id)).cloned().collect())
    }

    fn last_ended(&mut self, timer: TimerId) -> Result<Option<u64>, StoreError> {
        let here = self.ended.iter().filter(|entry| entry.id.timer == timer).map(|entry| entry.id.occurrence);
        Ok(here.chain(self.last_ended.get(&timer).copied()).max())
    }

    fn put(&mut self, old: Option<&TimerRow>, new: TimerRow) -> Result<(), StoreError> {
        debug_assert_eq!(old, self.rows.get(&new.id), "the rules know the row that they change");
        if let Some(old) = old {
            self.forget(old);
        }
        self.index(&new);
        self.rows.insert(new.id, new);
        Ok(())
    }

    fn end(&mut self, row: &TimerRow, ended_as: EndedAs) -> Result<(), StoreError> {
        self.forget(row);
        self.ended.push(row.history(ended_as, self.now));
        Ok(())
    }
}
