//! Timers from one store to another, as lines of text (O4).
//!
//! [`export`] writes all timers of one moment, [`import`] reads them into a store. So timers move from a directory to PostgreSQL and back.
//!
//! # The format
//! Lines of JSON, in UTF-8:
//!
//! ```text
//! {"tourbillon":"durable timers","format":1}
//! {"id":{"timer":"0198...","occurrence":1},"state":"armed","due":1794000000000000, ... ,"spec":{"namespace":"default","kind":"mail","payload":"dGVh", ...}}
//! ...
//! {"rows":2,"checksum":"8c3d2b1a00ff1234"}
//! ```
//!
//! The first line names the format. Each further line is a [`TimerRow`], in the order of ids; times are microseconds since 1970, payloads are in base 64.
//! The last line has the number of rows and the 64-bit FNV-1a hash of their lines, each with its line break. A file without its last line is incomplete.
//!
//! # What an import does
//! Ids, keys, versions and attempts stay as they are. A row that was being delivered when it was exported is armed, and is delivered again with the next
//! attempt. An import that was interrupted can be repeated, also after the store has delivered some of the timers: nothing is written of a timer
//! that the store has already, at the same or another occurrence, and no row that has ended in the store, as far as its history tells. The history
//! of PostgreSQL goes back seven days, that of a directory 100,000 occurrences by default: an import that is repeated later than that revives
//! timers that have ended. A timer whose key another timer of the store has is counted as a conflict, and not written; its dead letters are, because
//! they need no key. The history of ended timers is not exported.

use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::channel;

use serde::{Deserialize, Serialize};

use crate::batch::BATCH_BYTES;
use crate::id::TimerId;
use crate::spec::{HIGHEST_PAYLOAD_LIMIT, InvalidTimer, Limits};
use crate::store::{ImportAnswer, ImportOp, Reply, Store, StoreError, TimerRow, WriteAnswer, WriteOp};
use crate::time::StoreTime;

/// The newest format that this program knows.
pub const FORMAT: u32 = 1;

/// How many rows are imported in one transaction, unless their payloads are many bytes.
const BATCH: usize = 500;

/// The most bytes of a line: a payload of the highest limit, and all texts of a timer.
const LONGEST_LINE: u64 = 4 << 20;

/// The highest occurrence or version of a row.
const HIGHEST_NUMBER: u64 = i64::MAX as u64;

const NAME: &str = "durable timers";

/// What an import has done.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Imported {
    /// Rows that were read.
    pub rows: u64,
    /// Rows that are in the store because of this import.
    pub written: u64,
    /// Rows that the store had already, as they are or at a later occurrence.
    pub existing: u64,
    /// Rows that had ended in the store. They were not written.
    pub ended: u64,
    /// Rows whose key belongs to another timer of the store. They were not written.
    pub conflicts: u64,
    /// The first of these, and the timers that have their keys.
    pub first_conflicts: Vec<(TimerId, TimerId)>,
}

/// Why an export or an import failed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TransferError {
    /// The store failed.
    Store(StoreError),
    /// The file could not be read or written.
    Io(String),
    /// The first line is not that of an export.
    NotAnExport,
    /// A newer program has written the file.
    NewerFormat(u32),
    /// A line cannot be read, or has a timer that no store keeps.
    BadLine {
        /// The number of the line, of which the first is 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// The file ends before its last line, after so many rows.
    Incomplete(u64),
    /// The rows are not those that were exported: their number or their checksum differs.
    Changed,
}

#[derive(Serialize, Deserialize)]
struct FirstLine {
    tourbillon: String,
    format: u32,
}

#[derive(Serialize, Deserialize, PartialEq, Eq)]
struct LastLine {
    rows: u64,
    checksum: String,
}

/// A line behind the first.
#[derive(Deserialize)]
#[serde(untagged)]
enum ExportLine {
    Row(Box<TimerRow>),
    Last(LastLine),
}

/// Writes all timers of a store, as they are at one moment, while the store is used. Returns how many rows there are. `progress` is called with the
/// number of rows so far.
///
/// # Errors
/// The store could not be read, or the output not be written: then the output has no last line.
pub fn export(store: &dyn Store, out: &mut dyn Write, progress: &mut dyn FnMut(u64)) -> Result<u64, TransferError> {
    let (sender, pages) = async_channel::bounded(2);
    let (reply, count) = channel();
    store.snapshot(sender, Reply::new(move |result| drop(reply.send(result))));
    let mut sums = Sums::default();
    write_line(out, &FirstLine { tourbillon: NAME.to_owned(), format: FORMAT })?;
    while let Ok(page) = pages.recv_blocking() {
        for row in page {
            let line = write_line(out, &row)?;
            sums.add(line.as_bytes());
        }
        progress(sums.rows);
    }
    let sent = count.recv().unwrap_or(Err(StoreError::Closed)).map_err(TransferError::Store)?;
    if sent != sums.rows {
        return Err(TransferError::Store(StoreError::Closed));
    }
    write_line(out, &sums.last_line())?;
    out.flush().map_err(|error| TransferError::Io(error.to_string()))?;
    Ok(sums.rows)
}

/// Reads an export and verifies each of its lines, without a store. Returns how many rows there are.
///
/// # Errors
/// The file is not a complete export, or cannot be read.
pub fn verify(input: &mut dyn BufRead) -> Result<u64, TransferError> {
    let mut lines = ExportReader::open(input)?;
    while lines.next_row()?.is_some() {}
    Ok(lines.sums.rows)
}

/// Reads an export into a store. `progress` is called with the number of rows so far. Rows are written while the file is read: pause the store
/// before, and [verify] the file first if it can be read twice.
///
/// # Errors
/// The file is not a complete export, or the store failed. The rows before that are in the store; the import can be repeated.
pub fn import(
    store: &dyn Store,
    input: &mut dyn BufRead,
    progress: &mut dyn FnMut(u64),
) -> Result<Imported, TransferError> {
    let mut lines = ExportReader::open(input)?;
    let mut imported = Imported::default();
    let (mut batch, mut bytes): (Vec<TimerRow>, usize) = (Vec::with_capacity(BATCH), 0);
    loop {
        let next = lines.next_row()?;
        let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
        // The rows of a timer are written together.
        let is_other = |last: &TimerRow| next.as_ref().is_none_or(|next| next.id.timer != last.id.timer);
        if (is_full || next.is_none()) && batch.last().is_some_and(is_other) {
            write_batch(store, std::mem::take(&mut batch), &mut imported)?;
            bytes = 0;
            progress(imported.rows);
        }
        let Some(row) = next else { return Ok(imported) };
        bytes += row.spec.payload.len();
        batch.push(row);
    }
}

fn write_batch(store: &dyn Store, batch: Vec<TimerRow>, imported: &mut Imported) -> Result<(), TransferError> {
    /// How many conflicts are named.
    const MOST_NAMED: usize = 10;

    let ids: Vec<TimerId> = batch.iter().map(|row| row.id.timer).collect();
    let ops = ImportOp::of_rows(batch).into_iter().map(WriteOp::Import).collect();
    let (reply, answers) = channel();
    store.write(ops, Reply::new(move |result| drop(reply.send(result))));
    let answers = answers.recv().unwrap_or(Err(StoreError::Closed)).map_err(TransferError::Store)?;
    for (id, answer) in ids.into_iter().zip(answers) {
        imported.rows += 1;
        match answer {
            WriteAnswer::Import(ImportAnswer::Written) => imported.written += 1,
            WriteAnswer::Import(ImportAnswer::Exists) => imported.existing += 1,
            WriteAnswer::Import(ImportAnswer::Ended) => imported.ended += 1,
            WriteAnswer::Import(ImportAnswer::Conflict(holder)) => {
                imported.conflicts += 1;
                if imported.first_conflicts.len() < MOST_NAMED {
                    imported.first_conflicts.push((id, holder));
                }
            }
            _ => return Err(TransferError::Store(StoreError::Full("the rest was not imported".to_owned()))),
        }
    }
    Ok(())
}

/// The number of rows, and the hash of their lines.
struct Sums {
    rows: u64,
    hash: u64,
}

impl Default for Sums {
    fn default() -> Sums {
        Sums { rows: 0, hash: 0xcbf2_9ce4_8422_2325 }
    }
}

impl Sums {
    fn add(&mut self, line: &[u8]) {
        self.rows += 1;
        for byte in line {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn last_line(&self) -> LastLine {
        LastLine { rows: self.rows, checksum: format!("{:016x}", self.hash) }
    }
}

fn write_line<T: Serialize>(out: &mut dyn Write, value: &T) -> Result<String, TransferError> {
    let io = |error: io::Error| TransferError::Io(error.to_string());
    let mut line = serde_json::to_string(value).map_err(|error| TransferError::Io(error.to_string()))?;
    line.push('\n');
    out.write_all(line.as_bytes()).map_err(io)?;
    Ok(line)
}

/// Reads the lines of an export.
struct ExportReader<'i> {
    input: &'i mut dyn BufRead,
    line: u64,
    sums: Sums,
    is_complete: bool,
}

impl<'i> ExportReader<'i> {
    fn open(input: &'i mut dyn BufRead) -> Result<ExportReader<'i>, TransferError> {
        let mut reader = ExportReader { input, line: 0, sums: Sums::default(), is_complete: false };
        let first = reader.next_line()?;
        match serde_json::from_str(&first) {
            Ok(FirstLine { tourbillon, format }) if tourbillon == NAME => match format {
                1..=FORMAT => Ok(reader),
                newer => Err(TransferError::NewerFormat(newer)),
            },
            _ => Err(TransferError::NotAnExport),
        }
    }

    /// Returns the next row; `None` behind the last.
    fn next_row(&mut self) -> Result<Option<TimerRow>, TransferError> {
        if self.is_complete {
            return Ok(None);
        }
        let line = self.next_line()?;
        if !line.ends_with('\n') && serde_json::from_str::<LastLine>(&line).is_err() {
            return Err(TransferError::Incomplete(self.sums.rows));
        }
        match serde_json::from_str(&line) {
            Ok(ExportLine::Row(row)) => {
                self.check(&row)?;
                self.sums.add(line.as_bytes());
                Ok(Some(*row))
            }
            Ok(ExportLine::Last(last)) => {
                self.is_complete = true;
                if last != self.sums.last_line() {
                    return Err(TransferError::Changed);
                }
                // Another export behind this one would be passed over.
                if self.next_line()?.trim().is_empty() {
                    Ok(None)
                } else {
                    Err(self.bad("something follows the last line"))
                }
            }
            Err(error) => Err(self.bad(&error.to_string())),
        }
    }

    fn next_line(&mut self) -> Result<String, TransferError> {
        let mut line = String::new();
        let read = self.input.take(LONGEST_LINE).read_line(&mut line);
        self.line += 1;
        match read {
            Ok(read) if read as u64 == LONGEST_LINE => Err(self.bad("it is too long")),
            Ok(_) => Ok(line),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(self.bad("it is no text")),
            Err(error) => Err(TransferError::Io(error.to_string())),
        }
    }

    /// Checks that a store can keep the row.
    fn check(&self, row: &TimerRow) -> Result<(), TransferError> {
        let limits = Limits { payload: HIGHEST_PAYLOAD_LIMIT };
        match row.spec.check(limits) {
            // Stores have timers that were accepted before this was refused.
            Ok(()) | Err(InvalidTimer::ZeroLateness) => {}
            Err(error) => return Err(self.bad(&error.to_string())),
        }
        let times = [row.due, row.wake, row.created, row.replayed_at.unwrap_or_default()];
        if times.iter().any(|time| *time > StoreTime::MAX) {
            return Err(self.bad(&format!("a time is after {}", StoreTime::MAX)));
        }
        if row.id.occurrence == 0 || row.version == 0 {
            return Err(self.bad("occurrences and versions begin with 1"));
        }
        // No store counts so far, and numbers near the last could not be raised.
        if row.id.occurrence > HIGHEST_NUMBER || row.version > HIGHEST_NUMBER {
            return Err(self.bad(&format!("occurrences and versions are at most {HIGHEST_NUMBER}")));
        }
        Ok(())
    }

    fn bad(&self, what: &str) -> TransferError {
        TransferError::BadLine { line: self.line, what: what.to_owned() }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Store(error) => error.fmt(f),
            TransferError::Io(error) => f.write_str(error),
            TransferError::NotAnExport => {
                f.write_str("this is no export of durable timers: its first line says something else")
            }
            TransferError::NewerFormat(found) => {
                write!(
                    f,
                    "the export has format {found}, and this program knows formats up to {FORMAT}: use a newer program"
                )
            }
            TransferError::BadLine { line, what } => write!(f, "line {line}: {what}"),
            TransferError::Incomplete(rows) => {
                write!(f, "the export ends after {rows} rows, without its last line: export again")
            }
            TransferError::Changed => {
                f.write_str("the rows are not those that were exported: their number or their checksum differs")
            }
        }
    }
}

impl std::error::Error for TransferError {}
