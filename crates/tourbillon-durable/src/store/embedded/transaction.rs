//! The rows during one transaction: the tables, and what the transaction has changed so far.

use std::collections::HashMap;

use super::changes::Changes;
use super::encoding::{self, Totals};
use super::layout::{self, IndexKeys};
use super::tables::{Tables, View};
use crate::id::TimerId;
use crate::spec::Recurrence;
use crate::store::error::StoreError;
use crate::store::row::{EndedAs, RowId, RowState, TimerRow};
use crate::store::rules::Rows;
use crate::store::shard::{ShardId, ShardTable};
use crate::time::StoreTime;

/// The rows during one transaction.
pub(super) struct Transaction<'a> {
    tables: &'a Tables,
    shards: &'a ShardTable,
    now: StoreTime,
    /// How many entries the history has.
    history: u64,
    changes: Changes,
    totals: Totals,
    /// The latest occurrence of each timer in the history, once an import has asked for one.
    last_ended: Option<LastEnded>,
}

/// The latest occurrence of each timer in the history.
pub(super) type LastEnded = HashMap<TimerId, u64>;

impl<'a> Transaction<'a> {
    pub(super) fn new(
        tables: &'a Tables,
        shards: &'a ShardTable,
        totals: Totals,
        history: u64,
        now: StoreTime,
        changes: Changes,
    ) -> Transaction<'a> {
        Transaction { tables, shards, now, history, changes, totals, last_ended: None }
    }

    /// Has what the transaction before has returned, so that the many transactions of an import do not each read the history.
    pub(super) fn with_last_ended(self, last_ended: Option<LastEnded>) -> Transaction<'a> {
        Transaction { last_ended, ..self }
    }

    /// Returns the changes, the totals after them, and the latest occurrences in the history, if an import has asked for them.
    pub(super) fn finish(self) -> (Changes, Totals, Option<LastEnded>) {
        (self.changes, self.totals, self.last_ended)
    }

    fn value(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.changes.get(key) {
            Some(value) => Ok(value.map(<[u8]>::to_vec)),
            None => Ok(self.tables.get(key)?.map(|value| value.to_vec())),
        }
    }

    fn row(&self, id: RowId) -> Result<Option<TimerRow>, StoreError> {
        let key = layout::row(id);
        match self.changes.get(&key) {
            Some(value) => value.map(|value| read_row(self.tables, &key, value)).transpose(),
            None => match self.tables.get(&key)? {
                Some(value) => read_row(self.tables, &key, &value).map(Some),
                None => Ok(None),
            },
        }
    }

    /// Returns a row that an index names.
    fn indexed(&self, id: RowId) -> Result<TimerRow, StoreError> {
        self.row(id)?.ok_or_else(|| self.tables.damaged(&format!("an index has the row {id:?}, which does not exist")))
    }

    /// Returns the keys of the tables that begin with `prefix`, with the changes of this transaction, in their order.
    fn keys(&self, prefix: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut keys = Vec::new();
        for entry in self.tables.view().scan(prefix.to_vec(), Vec::new()) {
            let (key, _) = entry?;
            if self.changes.get(&key).is_none() {
                keys.push(key.to_vec());
            }
        }
        let written = self.changes.scan(prefix).filter(|(_, value)| value.is_some());
        keys.extend(written.map(|(key, _)| key.to_vec()));
        keys.sort_unstable();
        Ok(keys)
    }

    /// Reads the whole history, which has no index of timers.
    fn read_last_ended(&self) -> Result<LastEnded, StoreError> {
        let mut last = LastEnded::new();
        let mut add = |key: &[u8], value: &[u8]| {
            let read = encoding::read_history(key, value);
            let (_, entry) = read.map_err(|_| self.tables.damaged("an entry of the history is malformed"))?;
            note_ended(&mut last, entry.id);
            Ok(())
        };
        let prefix = layout::all_history();
        for entry in self.tables.view().scan(prefix.clone(), Vec::new()) {
            let (key, value) = entry?;
            if self.changes.get(&key).is_none() {
                add(&key, &value)?;
            }
        }
        for (key, value) in self.changes.scan(&prefix) {
            value.map_or(Ok(()), |value| add(key, value))?;
        }
        Ok(last)
    }

    fn count(&mut self, state: RowState) -> &mut u64 {
        match state {
            RowState::Armed => &mut self.totals.armed,
            RowState::Claimed => &mut self.totals.claimed,
            RowState::Dead => &mut self.totals.dead,
        }
    }

    fn uncount(&mut self, state: RowState) -> Result<(), StoreError> {
        let count = self.count(state);
        match count.checked_sub(1) {
            Some(fewer) => *count = fewer,
            None => return Err(self.tables.damaged("there are more rows than the totals say")),
        }
        Ok(())
    }
}

impl Rows for Transaction<'_> {
    fn now(&self) -> StoreTime {
        self.now
    }

    fn shards(&self) -> u16 {
        self.shards.owners().len() as u16
    }

    fn epoch(&mut self, shard: ShardId) -> Result<u64, StoreError> {
        Ok(self.shards.epoch(shard))
    }

    fn get(&mut self, id: RowId) -> Result<Option<TimerRow>, StoreError> {
        self.row(id)
    }

    fn of_timer(&mut self, timer: TimerId) -> Result<Vec<TimerRow>, StoreError> {
        // Most timers are due once. A timer has the same recurrence in all its rows, so its first row says whether there can be others.
        if let Some(first) = self.row(RowId { timer, occurrence: 1 })?
            && first.spec.recurrence == Recurrence::Once
        {
            return Ok(vec![first]);
        }
        let mut rows = Vec::new();
        for key in self.keys(&layout::rows_of(timer))? {
            let id = layout::parse_row(&key).ok_or_else(|| self.tables.damaged("the key of a row is malformed"))?;
            rows.push(self.indexed(id)?);
        }
        Ok(rows)
    }

    fn head(&mut self, namespace: &str, key: &str) -> Result<Option<TimerRow>, StoreError> {
        let Some(value) = self.value(&layout::head(namespace, key))? else { return Ok(None) };
        let id = encoding::read_head(&value).map_err(|_| self.tables.damaged("an entry of the keys is malformed"))?;
        self.indexed(id).map(Some)
    }

    fn of_name(&mut self, namespace: &str, name: &str) -> Result<Vec<TimerRow>, StoreError> {
        let prefix = layout::named(namespace, name);
        let mut rows = Vec::new();
        for key in self.keys(&prefix)? {
            let id = layout::parse_name(&prefix, &key);
            let id = id.ok_or_else(|| self.tables.damaged("an entry of the names is malformed"))?;
            rows.push(self.indexed(id)?);
        }
        Ok(rows)
    }

    fn last_ended(&mut self, timer: TimerId) -> Result<Option<u64>, StoreError> {
        if self.totals.ended == 0 {
            return Ok(None);
        }
        let last = match self.last_ended.take() {
            Some(last) => last,
            None => self.read_last_ended()?,
        };
        Ok(self.last_ended.insert(last).get(&timer).copied())
    }

    fn put(&mut self, old: Option<&TimerRow>, new: TimerRow) -> Result<(), StoreError> {
        let before = old.map(layout::index_keys).unwrap_or_default();
        let after = layout::index_keys(&new);
        let (is_named, is_head) = (before.name == after.name, before.head == after.head);
        let is_failure = before.failure == after.failure;
        self.remove_entries(before, &after);
        if let Some(old) = old {
            self.uncount(old.state)?;
        }
        *self.count(new.state) += 1;
        // The id of a new row is in all these keys but that of the head, so the tables have none of them.
        let write = if old.is_none() { Changes::put_new } else { Changes::put };
        let key = layout::row(new.id);
        let value = encoding::row(&key, &new);
        write(&mut self.changes, &key, &value);
        if let Some(name) = after.name.filter(|_| !is_named) {
            write(&mut self.changes, &name, &[]);
        }
        if let Some(failure) = after.failure.filter(|_| !is_failure) {
            write(&mut self.changes, &failure, &[]);
        }
        if let Some(time) = after.time {
            write(&mut self.changes, &time, &encoding::time_value(&new));
        }
        if let Some(head) = after.head.filter(|_| !is_head) {
            self.changes.put(&head, &encoding::head(new.id));
        }
        Ok(())
    }

    fn end(&mut self, row: &TimerRow, ended_as: EndedAs) -> Result<(), StoreError> {
        self.remove_entries(layout::index_keys(row), &IndexKeys::default());
        self.changes.remove(&layout::row(row.id));
        self.uncount(row.state)?;
        let number = self.totals.ended;
        self.totals.ended += 1;
        if let Some(slot) = number.checked_rem(self.history) {
            let key = layout::history(slot);
            let value = encoding::history(&key, number, &row.history(ended_as, self.now));
            self.changes.put(&key, &value);
            self.last_ended.iter_mut().for_each(|last| note_ended(last, row.id));
        }
        Ok(())
    }
}

impl Transaction<'_> {
    /// Removes the entries of a row from the indexes, except those that it has afterwards too.
    fn remove_entries(&mut self, before: IndexKeys, after: &IndexKeys) {
        let pairs = [
            (before.head, &after.head),
            (before.name, &after.name),
            (before.time, &after.time),
            (before.failure, &after.failure),
        ];
        for (old, new) in pairs {
            if let Some(key) = old.filter(|key| new.as_ref() != Some(key)) {
                self.changes.remove(&key);
            }
        }
    }
}

fn note_ended(last: &mut LastEnded, ended: RowId) {
    let last = last.entry(ended.timer).or_default();
    *last = ended.occurrence.max(*last);
}

/// Reads the row that is the value of a key.
pub(super) fn read_row(tables: &Tables, key: &[u8], value: &[u8]) -> Result<TimerRow, StoreError> {
    let id = layout::parse_row(key).ok_or_else(|| tables.damaged("the key of a row is malformed"))?;
    let row = encoding::read_row(key, id, value);
    row.map_err(|_| tables.damaged(&format!("the row {id:?} is malformed or has a wrong checksum")))
}

/// Reads a row that an index of the view names.
pub(super) fn read_indexed(view: &View<'_>, id: RowId) -> Result<TimerRow, StoreError> {
    let key = layout::row(id);
    match view.get(&key)? {
        Some(value) => read_row(view.tables(), &key, &value),
        None => Err(view.tables().damaged(&format!("an index has the row {id:?}, which does not exist"))),
    }
}
