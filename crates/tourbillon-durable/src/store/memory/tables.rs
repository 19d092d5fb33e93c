//! The tables of the store in memory: rows and their indexes, and no lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::super::error::StoreError;
use super::super::op::{WriteAnswer, WriteOp};
use super::super::query::{Cursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, MOST_SOON, SOON, StoreCounts};
use super::super::row::{EndedAs, HistoryEntry, RowId, RowState, TimerRow};
use super::super::rules::{self, Rows};
use super::super::shard::{Heartbeat, Ownership, ShardId, ShardTable};
use crate::id::TimerId;
use crate::time::StoreTime;

/// Rows and their indexes.
#[derive(Clone, Debug)]
pub struct MemoryTables {
    rows: BTreeMap<RowId, TimerRow>,
    /// By namespace and key: the heads.
    heads: BTreeMap<(String, String), RowId>,
    /// Namespace, name, row.
    names: BTreeSet<(String, String, RowId)>,
    /// Kind, time, row: armed and claimed rows.
    due: BTreeSet<(String, StoreTime, RowId)>,
    history: Vec<HistoryEntry>,
    shards: ShardTable,
    is_paused: bool,
}

impl MemoryTables {
    /// Returns empty tables for so many shards.
    #[must_use]
    pub fn new(shards: u16) -> MemoryTables {
        MemoryTables {
            rows: BTreeMap::new(),
            heads: BTreeMap::new(),
            names: BTreeSet::new(),
            due: BTreeSet::new(),
            history: Vec::new(),
            shards: ShardTable::new(shards),
            is_paused: false,
        }
    }

    /// Applies a batch.
    ///
    /// # Errors
    /// None, so far: the type is that of other stores.
    pub fn write(&mut self, batch: Vec<WriteOp>, now: StoreTime) -> Result<Vec<WriteAnswer>, StoreError> {
        let mut rows = MemoryRows { tables: self, now };
        batch.into_iter().map(|op| rules::apply(&mut rows, op)).collect()
    }

    /// Returns the rows that a query asks for.
    #[must_use]
    pub fn due(&self, query: &DueQuery) -> DuePage {
        let from = match query.after {
            Some((wake, row)) => Bound::Excluded((query.kind.clone(), wake, row)),
            None => Bound::Included((query.kind.clone(), StoreTime::ZERO, FIRST_ROW)),
        };
        let of_kind = self.due.range((from, Bound::Unbounded)).take_while(|(kind, ..)| *kind == query.kind);
        let mut entries = of_kind
            .map(|(_, _, row)| DueEntry::from(&self.rows[row]))
            .filter(|entry| query.shards.binary_search(&entry.shard).is_ok());
        let mut page = DuePage::empty();
        while entries.next().is_some_and(|entry| page.add(entry, query)) {}
        page
    }

    /// Returns claimed rows whose owner's epoch is over.
    #[must_use]
    pub fn orphans(&self, kind: &str, shards: &[ShardId], limit: usize) -> Vec<DueEntry> {
        let claimed = self.rows.values().filter(|row| row.state == RowState::Claimed && row.spec.kind == kind);
        let orphans = claimed.filter(|row| shards.contains(&row.shard) && row.epoch < self.shards.epoch(row.shard));
        orphans.take(limit).map(DueEntry::from).collect()
    }

    /// Renews, releases and takes over shards.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat, now: StoreTime) -> Ownership {
        Ownership { is_paused: self.is_paused, ..self.shards.heartbeat(heartbeat, now) }
    }

    /// Pauses the store, or ends its pause.
    pub fn set_paused(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Returns all rows of a timer, the latest occurrence first.
    #[must_use]
    pub fn rows_of(&self, timer: TimerId) -> Vec<TimerRow> {
        self.range_of(timer).rev().cloned().collect()
    }

    /// Returns the row that holds a key.
    #[must_use]
    pub fn holder(&self, namespace: &str, key: &str) -> Option<TimerRow> {
        let id = self.heads.get(&(namespace.to_owned(), key.to_owned()))?;
        Some(self.rows[id].clone())
    }

    /// Returns a page of rows in the order of their ids.
    #[must_use]
    pub fn list(&self, filter: &ListFilter, cursor: Option<Cursor>, limit: usize) -> ListPage {
        let from = cursor.map_or(Bound::Unbounded, |cursor| Bound::Excluded(cursor.0));
        let mut found = self.rows.range((from, Bound::Unbounded)).map(|(_, row)| row).filter(|row| filter.passes(row));
        let rows: Vec<TimerRow> = found.by_ref().take(limit).cloned().collect();
        let next = found.next().and(rows.last()).map(|row| Cursor(row.id));
        ListPage { rows, next }
    }

    /// Returns rows that pass the filter, those first that are to be looked at first.
    #[must_use]
    pub fn upcoming(&self, filter: &ListFilter, limit: usize) -> Vec<TimerRow> {
        let alive = self.rows.values().filter(|row| row.indexed_wake().is_some() && filter.passes(row));
        let mut rows: Vec<&TimerRow> = alive.collect();
        rows.sort_unstable_by_key(|row| (row.wake, row.id));
        rows.into_iter().take(limit).cloned().collect()
    }

    /// Returns how occurrences of a timer ended, the latest first.
    #[must_use]
    pub fn history_of(&self, timer: TimerId) -> Vec<HistoryEntry> {
        self.history.iter().rev().filter(|entry| entry.id.timer == timer).cloned().collect()
    }

    /// Returns how many rows there are.
    #[must_use]
    pub fn counts(&self, now: StoreTime) -> StoreCounts {
        let mut counts = StoreCounts { is_paused: self.is_paused, ..StoreCounts::default() };
        let mut overdue = BTreeMap::<&str, u64>::new();
        for row in self.rows.values() {
            match row.state {
                RowState::Armed => counts.armed += 1,
                RowState::Claimed => counts.claimed += 1,
                RowState::Dead => counts.dead += 1,
            }
            if row.state != RowState::Armed {
                continue;
            }
            counts.failed += u64::from(row.last_error.is_some());
            if row.wake <= now {
                *overdue.entry(&row.spec.kind).or_default() += 1;
            } else if row.wake <= now.saturating_add(SOON) {
                counts.due_soon = (counts.due_soon + 1).min(MOST_SOON);
            }
        }
        counts.overdue = overdue.into_iter().map(|(kind, count)| (kind.to_owned(), count)).collect();
        counts
    }

    /// Returns all rows, in the order of their ids.
    pub fn rows(&self) -> impl Iterator<Item = &TimerRow> {
        self.rows.values()
    }

    /// Verifies the rows and their indexes. For tests.
    ///
    /// # Errors
    /// The text says what is wrong.
    pub fn check(&self) -> Result<(), String> {
        rules::check(self.rows.values())?;
        let due: BTreeSet<_> = self.rows.values().filter_map(due_key).collect();
        let heads: BTreeMap<_, _> = self.rows.values().filter_map(|row| Some((head_key(row)?, row.id))).collect();
        let names: BTreeSet<_> = self.rows.values().filter_map(name_key).collect();
        match () {
            () if due != self.due => Err("the index of times differs from the rows".to_owned()),
            () if heads != self.heads => Err("the index of keys differs from the rows".to_owned()),
            () if names != self.names => Err("the index of names differs from the rows".to_owned()),
            () => Ok(()),
        }
    }

    fn range_of(&self, timer: TimerId) -> impl DoubleEndedIterator<Item = &TimerRow> {
        let row = |occurrence| RowId { timer, occurrence };
        self.rows.range(row(0)..=row(u64::MAX)).map(|(_, row)| row)
    }

    fn forget(&mut self, row: &TimerRow) {
        self.rows.remove(&row.id);
        due_key(row).map(|key| self.due.remove(&key));
        head_key(row).map(|key| self.heads.remove(&key));
        name_key(row).map(|key| self.names.remove(&key));
    }
}

const FIRST_ROW: RowId = RowId { timer: TimerId::from_u128(0), occurrence: 0 };

fn due_key(row: &TimerRow) -> Option<(String, StoreTime, RowId)> {
    row.indexed_wake().map(|wake| (row.spec.kind.clone(), wake, row.id))
}

fn head_key(row: &TimerRow) -> Option<(String, String)> {
    row.spec.key.as_ref().filter(|_| row.is_head).map(|key| (row.spec.namespace.clone(), key.clone()))
}

fn name_key(row: &TimerRow) -> Option<(String, String, RowId)> {
    row.spec.name.as_ref().map(|name| (row.spec.namespace.clone(), name.clone(), row.id))
}

/// The tables during one transaction.
struct MemoryRows<'a> {
    tables: &'a mut MemoryTables,
    now: StoreTime,
}

impl Rows for MemoryRows<'_> {
    fn now(&self) -> StoreTime {
        self.now
    }

    fn shards(&self) -> u16 {
        self.tables.shards.owners().len() as u16
    }

    fn epoch(&mut self, shard: ShardId) -> Result<u64, StoreError> {
        Ok(self.tables.shards.epoch(shard))
    }

    fn get(&mut self, id: RowId) -> Result<Option<TimerRow>, StoreError> {
        Ok(self.tables.rows.get(&id).cloned())
    }

    fn of_timer(&mut self, timer: TimerId) -> Result<Vec<TimerRow>, StoreError> {
        Ok(self.tables.range_of(timer).cloned().collect())
    }

    fn head(&mut self, namespace: &str, key: &str) -> Result<Option<TimerRow>, StoreError> {
        Ok(self.tables.holder(namespace, key))
    }

    fn of_name(&mut self, namespace: &str, name: &str) -> Result<Vec<TimerRow>, StoreError> {
        let first = (namespace.to_owned(), name.to_owned(), FIRST_ROW);
        let named = self.tables.names.range(first..).take_while(|(of, called, _)| of == namespace && called == name);
        Ok(named.map(|(_, _, row)| self.tables.rows[row].clone()).collect())
    }

    fn last_ended(&mut self, timer: TimerId) -> Result<Option<u64>, StoreError> {
        let ended = self.tables.history.iter().filter(|entry| entry.id.timer == timer);
        Ok(ended.map(|entry| entry.id.occurrence).max())
    }

    fn put(&mut self, old: Option<&TimerRow>, new: TimerRow) -> Result<(), StoreError> {
        debug_assert_eq!(old, self.tables.rows.get(&new.id), "the rules know the row that they change");
        if let Some(old) = old {
            self.tables.forget(old);
        }
        due_key(&new).map(|key| self.tables.due.insert(key));
        head_key(&new).map(|key| self.tables.heads.insert(key, new.id));
        name_key(&new).map(|key| self.tables.names.insert(key));
        self.tables.rows.insert(new.id, new);
        Ok(())
    }

    fn end(&mut self, row: &TimerRow, ended_as: EndedAs) -> Result<(), StoreError> {
        self.tables.forget(row);
        self.tables.history.push(row.history(ended_as, self.now));
        Ok(())
    }
}
