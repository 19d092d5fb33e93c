//! Reads everything, and verifies that rows, indexes and totals agree.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::encoding;
use super::layout::{self, IndexKeys};
use super::tables::View;
use super::transaction::read_row;
use crate::store::error::StoreError;
use crate::store::row::RowState;

/// What a check of the whole store found: it is intact.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct StoreReport {
    /// Rows: armed, claimed and dead.
    pub rows: u64,
    /// Entries of the history.
    pub history: u64,
    /// Bytes of the files.
    pub disk_bytes: u64,
}

/// Entries as a set: their number, and the sum of their hashes. Two sets of entries are equal if these are, but for chance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct EntrySet {
    count: u64,
    hashes: u64,
}

impl EntrySet {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.count += 1;
        self.hashes = self.hashes.wrapping_add(xxh3_64_with_seed(value, xxh3_64(key)));
    }
}

/// Reads every entry of a view, which it drops before. Indexes are compared as sets, so that the rows are read once and in order.
pub(super) fn verify(view: View<'_>) -> Result<StoreReport, StoreError> {
    let tables = view.tables();
    let totals = view.totals()?;
    let rows = view.scan(layout::all_rows(), Vec::new());
    let indexes = layout::indexes().map(|prefix| view.scan(prefix, Vec::new()));
    let ended = view.scan(layout::all_history(), Vec::new());
    drop(view);
    let mut wanted = EntrySet::default();
    let mut counts = [0_u64; 3];
    for entry in rows {
        let (key, value) = entry?;
        let row = read_row(tables, &key, &value)?;
        let IndexKeys { head, name, time, failure } = layout::index_keys(&row);
        head.inspect(|key| wanted.add(key, &encoding::head(row.id)));
        name.inspect(|key| wanted.add(key, &[]));
        failure.inspect(|key| wanted.add(key, &[]));
        time.inspect(|key| wanted.add(key, &encoding::time_value(&row)));
        counts[match row.state {
            RowState::Armed => 0,
            RowState::Claimed => 1,
            RowState::Dead => 2,
        }] += 1;
    }
    let mut found = EntrySet::default();
    for entry in indexes.into_iter().flatten() {
        let (key, value) = entry?;
        found.add(&key, &value);
    }
    let mut history = 0;
    for entry in ended {
        let (key, value) = entry?;
        encoding::read_history(&key, &value).map_err(|_| tables.damaged("an entry of the history is malformed"))?;
        history += 1;
    }
    match () {
        () if found != wanted => {
            let what = format!("the indexes have {} entries and not the {} of the rows", found.count, wanted.count);
            Err(tables.damaged(&what))
        }
        () if counts != [totals.armed, totals.claimed, totals.dead] => {
            Err(tables.damaged(&format!("there are {counts:?} rows armed, claimed and dead, and the totals differ")))
        }
        () => Ok(StoreReport { rows: counts.iter().sum(), history, disk_bytes: tables.disk_bytes() }),
    }
}
