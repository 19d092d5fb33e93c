//! Copies of a store, made while it is used (O4).
//!
//! A backup is a store of its own, in another directory, with the rows and the history of one moment. Every row is read and verified on
//! the way. The copy is paused: no node delivers its timers before somebody ends the pause, so that a copy that was opened by
//! mistake delivers nothing.
//!
//! A copy may be on the disk of the store, which ends when a write of it finds no room. So the copy leaves as much room as the store keeps
//! for cancels and deliveries. A copy that fails is removed.

use std::fs;
use std::path::Path;

use super::changes::Changes;
use super::directory::{Contents, StoreDirectory, from_io};
use super::encoding::Totals;
use super::layout;
use super::options::EmbeddedOptions;
use super::room;
use super::tables::{self, Tables, View};
use super::transaction::read_row;
use crate::store::error::StoreError;

/// How many bytes are written in one transaction.
const STEP: usize = 1 << 20;

/// Why a copy was given up.
enum CopyError {
    /// The store that is copied could not be read, or is being closed.
    Source(StoreError),
    /// The copy could not be written.
    Target(StoreError),
}

impl From<StoreError> for CopyError {
    fn from(error: StoreError) -> CopyError {
        CopyError::Target(error)
    }
}

/// Writes a copy of the view, which it drops before, into a directory that does not exist or is empty, and returns how many rows it has.
pub(super) fn backup(view: View<'_>, to: &Path, options: &EmbeddedOptions) -> Result<u64, StoreError> {
    let is_there = to.is_dir();
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
    fill(view, &directory, options).map_err(|error| {
        let error = match error {
            CopyError::Source(error) => error,
            CopyError::Target(error) => on_target(to, error, options),
        };
        let removed = directory.remove_backup();
        if !is_there && removed.is_ok() {
            let _stays_empty = fs::remove_dir(to);
        }
        error
    })
}

/// Makes the copy in an empty directory.
fn fill(view: View<'_>, directory: &StoreDirectory, options: &EmbeddedOptions) -> Result<u64, CopyError> {
    let failed = |error| from_io(directory.path(), &error);
    check_room(directory.path(), options)?;
    directory.begin_backup().map_err(failed)?;
    let mut copy = Copy { directory, options, rows: 0 };
    tables::create(directory, options, |tables| copy.fill(view, tables))?;
    directory.end_backup().map_err(failed)?;
    Ok(copy.rows)
}

/// A copy that is being made.
struct Copy<'a> {
    directory: &'a StoreDirectory,
    options: &'a EmbeddedOptions,
    rows: u64,
}

impl Copy<'_> {
    /// Copies all entries, in transactions that are made durable by the one that `create` writes after them.
    fn fill(&mut self, view: View<'_>, to: &Tables) -> Result<Totals, CopyError> {
        let mut totals = Totals { is_paused: true, sequence: 0, ..view.totals().map_err(CopyError::Source)? };
        let from = view.tables();
        let scans = layout::all().map(|prefix| view.scan(prefix, Vec::new()));
        drop(view);
        let mut changes = Changes::default();
        let mut size = 0;
        for entry in scans.into_iter().flatten() {
            let (key, value) = entry.map_err(CopyError::Source)?;
            if layout::parse_row(&key).is_some() {
                read_row(from, &key, &value).map_err(CopyError::Source)?;
                self.rows += 1;
            }
            size += key.len() + value.len();
            changes.put(&key, &value);
            if size >= STEP {
                self.write(to, &mut changes, &mut totals)?;
                size = 0;
            }
        }
        self.write(to, &mut changes, &mut totals)?;
        Ok(totals)
    }

    fn write(&self, to: &Tables, changes: &mut Changes, totals: &mut Totals) -> Result<(), StoreError> {
        check_room(self.directory.path(), self.options)?;
        totals.sequence += 1;
        to.write(changes, totals)
    }
}

/// Verifies that the disk of the copy has the room that is kept for the store.
fn check_room(to: &Path, options: &EmbeddedOptions) -> Result<(), StoreError> {
    match room::free_bytes(to) {
        free if free < options.reserve => Err(no_room(to, options)),
        _ => Ok(()),
    }
}

fn no_room(to: &Path, options: &EmbeddedOptions) -> StoreError {
    StoreError::Full(format!(
        "the backup in {} was given up and removed, because {} bytes of its disk are kept for cancels and deliveries. The store that was copied \
         goes on. Free some room, or make the backup on another disk",
        to.display(),
        options.reserve
    ))
}

/// Returns the error for a copy that could not be written, which says that the store itself goes on.
fn on_target(to: &Path, error: StoreError, options: &EmbeddedOptions) -> StoreError {
    match error {
        // The engine does not say that there is no room.
        StoreError::SyncFailed(_) if room::free_bytes(to) < options.reserve.max(STEP as u64) => no_room(to, options),
        StoreError::SyncFailed(what) | StoreError::Damaged(what) | StoreError::Unavailable(what) => {
            StoreError::Unavailable(format!(
                "the backup in {} could not be written and was removed: {what}. The store that was copied goes on",
                to.display()
            ))
        }
        other => other,
    }
}
