//! Reads the journals of the engine before the engine does (D57).
//!
//! The engine truncates a journal at the first record that it cannot read, and refuses to open if the checksum of a record is wrong. Both
//! are wrong for us in some case: a damaged record in the middle must be an error and not the end, and a record that a power failure tore
//! must be the end and not an error. [`examine`] knows which transactions were acknowledged, and decides before the engine changes
//! anything.
//!
//! The format is that of fjall 3 (its file `version` says so, and the engine verifies it). All numbers are little-endian:
//!
//! ```text
//! journal  batch ...  then zeros up to the end of the file
//! batch    1  items:u32  seqno:u64    item ...    3  xxh3 of the items:u64  "FJL" 3
//! item     2  type:u8  compression:u8  keyspace:u64  key:u16  value:u32  stored:u32  the key  the stored value
//! ```
//!
//! Every batch of ours has the totals among its items, and these have the number of the transaction. The numbers of all batches follow
//! one another, within a journal and from one to the next.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::encoding;
use super::layout;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const TRAILER: [u8; 4] = *b"FJL\x03";

/// What the journals have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Journals {
    /// The number of the first transaction in them; `None` if they are empty.
    pub(super) first: Option<u64>,
    /// The number of the last.
    pub(super) last: Option<u64>,
    /// The last journal and its length without a record that was never acknowledged and is not whole.
    torn: Option<(PathBuf, u64)>,
}

/// Why the journals cannot be used.
#[derive(Debug)]
pub(super) enum JournalError {
    /// They could not be read.
    Io(io::Error),
    /// They are damaged: the text says where.
    Damaged(String),
}

impl From<io::Error> for JournalError {
    fn from(error: io::Error) -> JournalError {
        JournalError::Io(error)
    }
}

impl Journals {
    /// Cuts off the torn record, if there is one.
    pub(super) fn truncate_torn_record(&self) -> io::Result<()> {
        if let Some((path, length)) = &self.torn {
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(*length)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// Adds a transaction that was read, and returns whether it is the one that has to come next.
    fn add(&mut self, sequence: u64) -> bool {
        let follows = self.last.is_none_or(|last| sequence == last + 1);
        self.first = self.first.or(Some(sequence));
        self.last = Some(sequence);
        follows
    }
}

/// Reads all journals in the directory of the engine. `acknowledged` is the number of the last transaction that callers were told of.
pub(super) fn examine(directory: &Path, acknowledged: u64) -> Result<Journals, JournalError> {
    let paths = journal_paths(directory)?;
    let mut found = Journals::default();
    for (index, path) in paths.iter().enumerate() {
        let is_last = index + 1 == paths.len();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let mut reader = BatchReader::open(path)?;
        loop {
            let start = reader.position;
            match reader.next()? {
                Found::Batch { sequence: Some(sequence) } if found.add(sequence) => {}
                Found::Batch { .. } => {
                    return Err(JournalError::Damaged(format!(
                        "the record at byte {start} of journal {file} does not follow transaction {}",
                        found.last.unwrap_or_default()
                    )));
                }
                Found::End => break,
                // The engine synchronises a journal before it begins another one, and a record before it is acknowledged.
                Found::Broken if is_last && found.last.is_none_or(|last| last >= acknowledged) => {
                    found.torn = Some((path.clone(), start));
                    break;
                }
                Found::Broken => {
                    return Err(JournalError::Damaged(format!(
                        "the record at byte {start} of journal {file} cannot be read, and was acknowledged"
                    )));
                }
            }
        }
    }
    match found.last {
        Some(last) if last < acknowledged => Err(JournalError::Damaged(format!(
            "transaction {acknowledged} was acknowledged, and the journals end with transaction {last}"
        ))),
        None if paths.is_empty() => Err(JournalError::Damaged("there is no journal".to_owned())),
        _ => Ok(found),
    }
}

/// Returns the journal that the engine writes.
pub(super) fn newest(directory: &Path) -> io::Result<PathBuf> {
    let newest = journal_paths(directory).map_err(|error| match error {
        JournalError::Io(error) => error,
        JournalError::Damaged(what) => io::Error::other(what),
    })?;
    newest.into_iter().next_back().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Returns the journals in the order in which they were written.
fn journal_paths(directory: &Path) -> Result<Vec<PathBuf>, JournalError> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let number = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
            let Some(number) = number else {
                return Err(JournalError::Damaged(format!("{} is no name of a journal", path.display())));
            };
            journals.push((number, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

/// What was found at some place of a journal.
enum Found {
    /// A whole batch, and the number of its transaction if its totals could be read.
    Batch { sequence: Option<u64> },
    /// Nothing but zeros up to the end of the file, or nothing at all.
    End,
    /// Bytes that are neither.
    Broken,
}

/// Reads the batches of a journal.
struct BatchReader {
    file: BufReader<File>,
    /// The first byte after the last whole batch.
    position: u64,
    buffer: Vec<u8>,
}

/// Why a batch could not be read.
enum BatchError {
    Io(io::Error),
    Broken,
}

impl From<io::Error> for BatchError {
    fn from(error: io::Error) -> BatchError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => BatchError::Broken,
            _ => BatchError::Io(error),
        }
    }
}

impl BatchReader {
    fn open(path: &Path) -> io::Result<BatchReader> {
        let file = BufReader::with_capacity(1 << 16, File::open(path)?);
        Ok(BatchReader { file, position: 0, buffer: Vec::new() })
    }

    fn next(&mut self) -> io::Result<Found> {
        let mut read = 0;
        match self.batch(&mut read) {
            Ok(sequence) => {
                self.position += read;
                Ok(Found::Batch { sequence })
            }
            Err(BatchError::Io(error)) => Err(error),
            Err(BatchError::Broken) => {
                io::Seek::seek(&mut self.file, io::SeekFrom::Start(self.position))?;
                Ok(if only_zeros(&mut self.file)? { Found::End } else { Found::Broken })
            }
        }
    }

    /// Reads one batch, adds its length to `read`, and returns the number of its transaction.
    fn batch(&mut self, read: &mut u64) -> Result<Option<u64>, BatchError> {
        let [tag, a, b, c, d, ..] = self.array::<13>(read)?;
        if tag != START {
            return Err(BatchError::Broken);
        }
        let mut checksum = Xxh3::new();
        let mut sequence = None;
        for _ in 0..u32::from_le_bytes([a, b, c, d]) {
            if let Some(totals) = self.item(read, &mut checksum)? {
                sequence = Some(totals);
            }
        }
        let end = self.array::<13>(read)?;
        let is_whole = end[0] == END && end[1..9] == checksum.digest().to_le_bytes() && end[9..] == TRAILER;
        if is_whole { Ok(sequence) } else { Err(BatchError::Broken) }
    }

    /// Reads one item, and returns the number of the transaction if the item is the totals.
    fn item(&mut self, read: &mut u64, checksum: &mut Xxh3) -> Result<Option<u64>, BatchError> {
        const HEAD: usize = 21;
        let head = self.array::<HEAD>(read)?;
        // A value is stored as it is: the store turns compression of journals off.
        if head[0] != ITEM || head[2] != 0 {
            return Err(BatchError::Broken);
        }
        let key = usize::from(u16::from_le_bytes([head[11], head[12]]));
        let value = u32::from_le_bytes([head[17], head[18], head[19], head[20]]);
        let length = key as u64 + u64::from(value);
        self.buffer.clear();
        // Not reserved at once: a damaged length may be anything.
        if (&mut self.file).take(length).read_to_end(&mut self.buffer)? as u64 != length {
            return Err(BatchError::Broken);
        }
        *read += length;
        checksum.update(&head);
        checksum.update(&self.buffer);
        let (key, value) = self.buffer.split_at(key);
        let totals = (key == layout::TOTALS).then(|| encoding::read_totals(value).ok()).flatten();
        Ok(totals.map(|totals| totals.sequence))
    }

    fn array<const N: usize>(&mut self, read: &mut u64) -> Result<[u8; N], BatchError> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        *read += N as u64;
        Ok(bytes)
    }
}

fn only_zeros(file: &mut impl Read) -> io::Result<bool> {
    let mut chunk = vec![0; 1 << 16];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(true),
            count if chunk[..count].iter().all(|byte| *byte == 0) => {}
            _ => return Ok(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::encoding::Totals;
    use super::*;

    /// Returns a batch as the engine writes it, with the totals of a transaction and one other item.
    fn batch(sequence: u64) -> Vec<u8> {
        let totals = encoding::totals(&Totals { sequence, ..Totals::default() });
        let items = [item(b"r1", &[7; 300]), item(layout::TOTALS, &totals)].concat();
        let checksum = xxhash_rust::xxh3::xxh3_64(&items).to_le_bytes();
        let start = [&[START][..], &2_u32.to_le_bytes(), &sequence.to_le_bytes()].concat();
        [start, items, vec![END], checksum.to_vec(), TRAILER.to_vec()].concat()
    }

    fn item(key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![ITEM, 0, 0];
        bytes.extend_from_slice(&1_u64.to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        [&bytes[..], key, value].concat()
    }

    /// Writes journals with these transactions, each followed by zeros.
    fn journals(of: &[&[u64]]) -> TempDir {
        let directory = TempDir::new().unwrap();
        for (number, sequences) in of.iter().enumerate() {
            let mut bytes: Vec<u8> = sequences.iter().flat_map(|sequence| batch(*sequence)).collect();
            bytes.resize(bytes.len() + 5000, 0);
            // Ten journals, so that the tenth is not sorted before the second.
            fs::write(directory.path().join(format!("{}.jnl", number + 9)), bytes).unwrap();
        }
        directory
    }

    fn range(directory: &TempDir, acknowledged: u64) -> Option<(Option<u64>, Option<u64>)> {
        match examine(directory.path(), acknowledged) {
            Ok(found) => Some((found.first, found.last)),
            Err(JournalError::Damaged(_)) => None,
            Err(JournalError::Io(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn q1_the_transactions_of_all_journals_are_found_in_order() {
        assert_eq!(range(&journals(&[&[5, 6], &[7], &[]]), 7), Some((Some(5), Some(7))));
        assert_eq!(range(&journals(&[&[]]), 7), Some((None, None)), "the tables may have them");
        assert_eq!(range(&journals(&[&[5, 6, 7]]), 6), Some((Some(5), Some(7))), "a kill came before the answer");
    }

    #[test]
    fn d57_a_transaction_that_is_missing_is_damage() {
        assert_eq!(range(&journals(&[&[5, 7]]), 7), None, "in a journal");
        assert_eq!(range(&journals(&[&[5], &[7]]), 7), None, "between two");
        assert_eq!(range(&journals(&[&[5, 6]]), 7), None, "at the end");
        assert_eq!(range(&journals(&[]), 7), None, "all journals");
    }

    #[test]
    fn d57_a_broken_record_is_the_end_only_if_it_is_the_last_and_was_not_acknowledged() {
        let with_broken = |of: &[&[u64]], journal: &str| {
            let directory = journals(of);
            let path = directory.path().join(journal);
            let mut bytes = fs::read(&path).unwrap();
            let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
            bytes[used - 200] ^= 1;
            fs::write(&path, bytes).unwrap();
            directory
        };
        let torn = with_broken(&[&[5], &[6, 7]], "10.jnl");
        assert_eq!(range(&torn, 7), None, "it was acknowledged");
        assert_eq!(range(&torn, 6), Some((Some(5), Some(6))));
        let found = examine(torn.path(), 6).unwrap();
        found.truncate_torn_record().unwrap();
        assert_eq!(fs::metadata(torn.path().join("10.jnl")).unwrap().len(), batch(6).len() as u64);
        assert_eq!(range(&torn, 6), Some((Some(5), Some(6))), "what is left is whole");
        assert_eq!(range(&with_broken(&[&[5, 6], &[]], "9.jnl"), 5), None, "it is not in the last journal");
        assert_eq!(range(&with_broken(&[&[5, 6], &[7]], "9.jnl"), 5), None);
    }
}
