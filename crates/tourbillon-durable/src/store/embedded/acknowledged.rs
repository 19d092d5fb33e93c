//! The file `acknowledged`: the number of the last transaction that callers were told of.
//!
//! The engine below stops reading a journal at the first record that it cannot read, because after a power failure the last record may be
//! torn. So a damaged record would take all later ones with it, silently (D57). This file tells the two apart: the writer notes here the
//! number of each transaction after the engine has made it durable and before any caller is told. A record at or below that number was
//! durable once, and must be readable.
//!
//! The file is not synchronised: the kernel has it after `kill -9`, and after a power failure it may have an older number, which asks for
//! less and never for too much. The number is written to two slots in turn, so that a torn write leaves the other one.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use xxhash_rust::xxh3::xxh3_64;

/// The distance of the slots: two sectors of a disk are not torn together.
const SLOT: u64 = 4096;
const SLOT_BYTES: usize = 16;

/// The open file.
#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
    last: u64,
    /// The slot that does not have the last number.
    other_slot: u64,
}

/// Why the number cannot be had.
#[derive(Debug)]
pub(super) enum AcknowledgedError {
    /// The file could not be read.
    Io(io::Error),
    /// Neither slot is intact.
    Damaged,
}

impl Acknowledged {
    /// Creates the file for a store without transactions.
    pub(super) fn create(path: &Path) -> io::Result<Acknowledged> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        let acknowledged = Acknowledged { file, last: 0, other_slot: 0 };
        acknowledged.write(0)?;
        acknowledged.write(1)?;
        acknowledged.file.sync_all()?;
        Ok(acknowledged)
    }

    /// Opens the file.
    pub(super) fn open(path: &Path) -> Result<Acknowledged, AcknowledgedError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => AcknowledgedError::Damaged,
            _ => AcknowledgedError::Io(error),
        })?;
        let slots = [read_slot(&file, 0), read_slot(&file, 1)];
        let last = slots.into_iter().flatten().max().ok_or(AcknowledgedError::Damaged)?;
        Ok(Acknowledged { file, last, other_slot: u64::from(slots[0] == Some(last)) })
    }

    /// Returns the number of the last transaction that callers were told of.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Notes that callers are about to be told of this transaction.
    pub(super) fn set(&mut self, sequence: u64) -> io::Result<()> {
        self.last = sequence;
        let slot = self.other_slot;
        self.other_slot = 1 - slot;
        self.write(slot)
    }

    /// Makes the number durable.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write(&self, slot: u64) -> io::Result<()> {
        let number = self.last.to_le_bytes();
        let mut bytes = [0; SLOT_BYTES];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&xxh3_64(&number).to_le_bytes());
        write_at(&self.file, &bytes, slot * SLOT)
    }
}

fn read_slot(file: &File, slot: u64) -> Option<u64> {
    let mut bytes = [0; SLOT_BYTES];
    read_at(file, &mut bytes, slot * SLOT).ok()?;
    let (number, checksum) = bytes.split_first_chunk::<8>()?;
    (xxh3_64(number).to_le_bytes() == *checksum).then_some(u64::from_le_bytes(*number))
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn write_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::io::{Seek, Write};
    file.seek(io::SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    use std::io::{Read, Seek};
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d57_a_torn_write_leaves_the_number_before_it_whichever_numbers_are_noted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acknowledged");
        let mut acknowledged = Acknowledged::create(&path).unwrap();
        for (before, sequence) in [(2, 4), (6, 8), (11, 13)] {
            acknowledged.set(before).unwrap();
            // A process that opens the store goes on with the slots where the one before it has stopped.
            acknowledged = Acknowledged::open(&path).unwrap();
            assert_eq!(acknowledged.last(), before);
            acknowledged.set(sequence).unwrap();
            let (first, second) = (read_slot(&acknowledged.file, 0), read_slot(&acknowledged.file, 1));
            assert_eq!(first.max(second), Some(sequence));
            assert_eq!(first.min(second), Some(before));
        }
    }
}
