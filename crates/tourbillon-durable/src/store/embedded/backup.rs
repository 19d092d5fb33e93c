//! Copies of a store, made while it is used (O4).
//!
//! A backup is a store of its own, in another directory, with the rows and the history of one moment. Every row is read and verified on
//! the way. The copy is paused: no node delivers its timers before somebody ends the pause, so that a copy that was opened by
//! mistake delivers nothing.

use std::fs;
use std::path::Path;

use super::changes::Changes;
use super::directory::{Contents, StoreDirectory};
use super::encoding::Totals;
use super::layout;
use super::options::EmbeddedOptions;
use super::tables::{self, Tables, View};
use super::transaction::read_row;
use crate::store::error::StoreError;

/// How many bytes are written in one transaction.
const STEP: usize = 1 << 20;

/// Writes a copy of the view into a directory that does not exist or is empty, and returns how many rows it has.
pub(super) fn backup(view: &View<'_>, to: &Path, options: &EmbeddedOptions) -> Result<u64, StoreError> {
    let is_occupied = fs::read_dir(to).is_ok_and(|mut entries| entries.next().is_some());
    if is_occupied {
        return Err(StoreError::Unavailable(format!(
            "{} is not empty: a backup needs a directory of its own",
            to.display()
        )));
    }
    let directory = StoreDirectory::lock(to)?;
    if directory.contents()? != Contents::Nothing {
        return Err(StoreError::Unavailable(format!("{} has a store already", to.display())));
    }
    let mut rows = 0;
    tables::create(&directory, options, |tables| copy(view, tables, &mut rows))?;
    Ok(rows)
}

/// Copies all entries, in transactions that are made durable by the one that `create` writes after them.
fn copy(view: &View<'_>, to: &Tables, rows: &mut u64) -> Result<Totals, StoreError> {
    let mut totals = Totals { is_paused: true, sequence: 0, ..view.totals()? };
    let mut changes = Changes::default();
    let mut size = 0;
    for prefix in layout::all() {
        for entry in view.scan(prefix, Vec::new()) {
            let (key, value) = entry?;
            if layout::parse_row(&key).is_some() {
                read_row(view.tables(), &key, &value)?;
                *rows += 1;
            }
            size += key.len() + value.len();
            changes.put(&key, &value);
            if size >= STEP {
                totals.sequence += 1;
                to.write(&mut changes, &totals)?;
                size = 0;
            }
        }
    }
    totals.sequence += 1;
    to.write(&mut changes, &totals)?;
    Ok(totals)
}
