//! The directory of an embedded store: its files, its lock and its format.
//!
//! ```text
//! FORMAT         the version of the format; written last, so that a store without it was never used
//! FORMAT.new     the same, while the store is being created
//! BACKUP.new     there while the store is being created as a copy of another one
//! lock           held by the process that has the store open
//! acknowledged   the number of the last transaction that callers were told of
//! tables/        the files of the engine
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use xxhash_rust::xxh3::xxh3_128;

use crate::store::error::StoreError;

/// The newest format that this program knows.
///
/// 1. Rows with indexes of keys, names and times, totals, and the history.
/// 2. An index of failures besides, which [`upgrade`](super::upgrade) makes; rows know how many deliveries were given back.
pub(super) const FORMAT: u32 = 2;

/// The file that says that a copy is not complete.
pub(super) const BACKUP: &str = "BACKUP.new";

const FIRST_LINE: &str = "Tourbillon durable timers";

/// The directories that this process has locked, and whether their stores are being closed.
static HELD: Mutex<BTreeMap<PathBuf, bool>> = Mutex::new(BTreeMap::new());

/// How long opening waits for a store of this process: timers that were dropped close their store a moment later, on their own thread.
const DROPPED: Duration = Duration::from_secs(2);

/// How long opening waits for a store of this process that is being closed.
const CLOSING: Duration = Duration::from_secs(60);

/// The directory of a store, locked for this process.
#[derive(Debug)]
pub(super) struct StoreDirectory {
    path: PathBuf,
    /// Its name in [`HELD`].
    name: PathBuf,
    lock: File,
}

/// Unlocks the directory at once: a child process that another thread is starting may have the file open for a moment longer.
impl Drop for StoreDirectory {
    fn drop(&mut self) {
        let mut held = held();
        let _closing_unlocks_it_too = self.lock.unlock();
        held.remove(&self.name);
    }
}

/// What is in a directory that was just locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contents {
    /// No store, or one that was never used.
    Nothing,
    /// A store of this format, which this program knows.
    Store(u32),
}

impl StoreDirectory {
    /// Creates the directory if there is none, and locks it. Waits a moment for a store of this process, which may have been dropped.
    pub(super) fn lock(path: &Path) -> Result<StoreDirectory, StoreError> {
        let failed = |error| from_io(path, &error);
        create_durably(path).map_err(failed)?;
        let name = fs::canonicalize(path).map_err(failed)?;
        let options = OpenOptions::new().read(true).write(true).create(true).truncate(false).clone();
        let begin = Instant::now();
        loop {
            let mut held = held();
            let lock = options.open(path.join("lock")).map_err(failed)?;
            let wait = match lock.try_lock() {
                Ok(()) => {
                    held.insert(name.clone(), false);
                    return Ok(StoreDirectory { path: path.to_owned(), name, lock });
                }
                Err(TryLockError::WouldBlock) => held.get(&name).map(|closes| if *closes { CLOSING } else { DROPPED }),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            };
            drop(held);
            let text = match wait {
                Some(wait) if begin.elapsed() < wait => {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                }
                Some(_) => {
                    "this process has the store open. Timers that are dropped close it later; it can be opened again after their `shutdown`"
                }
                None => {
                    "another process has the store open. A directory is used by one process; PostgreSQL is for several"
                }
            };
            return Err(StoreError::Locked(format!("{}: {text}", path.display())));
        }
    }

    /// Notes that the store is being closed, so that this process may wait for its end.
    pub(super) fn begin_closing(&self) {
        held().insert(self.name.clone(), true);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where the files of the engine are.
    pub(super) fn tables(&self) -> PathBuf {
        self.path.join("tables")
    }

    pub(super) fn acknowledged(&self) -> PathBuf {
        self.path.join("acknowledged")
    }

    /// Looks at what is in the directory, and removes what was left of an interrupted creation. What was left of an interrupted backup is an
    /// error, because an empty store in its place would pass for the copy.
    pub(super) fn contents(&self) -> Result<Contents, StoreError> {
        let failed = |error| from_io(&self.path, &error);
        match fs::read_to_string(self.path.join("FORMAT")) {
            Ok(text) => self.check_format(&text).map(Contents::Store),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if self.path.join(BACKUP).try_exists().map_err(failed)? {
                    return Err(StoreError::Damaged(format!(
                        "{} has an interrupted backup, which lacks timers. Remove the directory, and use another backup",
                        self.path.display()
                    )));
                }
                let was_begun = self.path.join("FORMAT.new").try_exists().map_err(failed)?;
                let has_tables = self.tables().try_exists().map_err(failed)?;
                if has_tables && !was_begun {
                    return Err(self.damaged("the file FORMAT is missing"));
                }
                if has_tables {
                    fs::remove_dir_all(self.tables()).map_err(failed)?;
                }
                Ok(Contents::Nothing)
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(self.damaged("the file FORMAT is no text")),
            Err(error) => Err(failed(error)),
        }
    }

    /// Notes that a store is being created here.
    pub(super) fn begin_creation(&self) -> io::Result<()> {
        let mut file = File::create(self.path.join("FORMAT.new"))?;
        write!(file, "{FIRST_LINE}\nformat {FORMAT}\n")?;
        file.sync_all()?;
        sync(&self.path)
    }

    /// Makes the entries of the engine's keyspaces durable. The engine synchronises each of them, and not the directory that they are in.
    pub(super) fn sync_tables(&self) -> io::Result<()> {
        sync(&self.tables().join("keyspaces"))?;
        sync(&self.tables())
    }

    /// Notes that the store is complete, and may be used.
    pub(super) fn end_creation(&self) -> io::Result<()> {
        fs::rename(self.path.join("FORMAT.new"), self.path.join("FORMAT"))?;
        sync(&self.path)
    }

    /// Notes that the store is being created as a copy of another one.
    pub(super) fn begin_backup(&self) -> io::Result<()> {
        let mut file = File::create(self.path.join(BACKUP))?;
        file.write_all(b"An unfinished backup\n")?;
        file.sync_all()?;
        sync(&self.path)
    }

    /// Notes that the copy is complete. It is so from the end of its creation on, which a process that dies before this has noted.
    pub(super) fn end_backup(&self) -> io::Result<()> {
        fs::remove_file(self.path.join(BACKUP))?;
        sync(&self.path)
    }

    /// Removes a copy that cannot be completed. Until nothing else is left of it, the directory says what it is.
    pub(super) fn remove_backup(&self) -> io::Result<()> {
        let is_gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
        fs::remove_file(self.path.join("FORMAT")).or_else(is_gone)?;
        fs::remove_dir_all(self.tables()).or_else(is_gone)?;
        for name in ["acknowledged", "FORMAT.new", BACKUP, "lock"] {
            fs::remove_file(self.path.join(name)).or_else(is_gone)?;
        }
        Ok(())
    }

    /// Notes that the store has the newest format now.
    pub(super) fn raise_format(&self) -> io::Result<()> {
        self.begin_creation()?;
        self.end_creation()
    }

    fn check_format(&self, text: &str) -> Result<u32, StoreError> {
        let mut lines = text.lines();
        let is_ours = lines.next() == Some(FIRST_LINE);
        let format = lines.next().and_then(|line| line.strip_prefix("format ")?.parse::<u32>().ok());
        match format {
            Some(found) if is_ours && found > FORMAT => Err(StoreError::NewerFormat { found, known: FORMAT }),
            Some(found @ 1..) if is_ours => Ok(found),
            _ => Err(self.damaged("the file FORMAT is not that of a store")),
        }
    }

    /// Verifies the files that the engine believes without a check, before it deletes what they do not name.
    ///
    /// Each keyspace has a file `current` with the number of its newest version and the checksum of the file that describes that version.
    pub(super) fn check_versions(&self) -> Result<(), StoreError> {
        for keyspace in ["0", "1"] {
            let path = self.tables().join("keyspaces").join(keyspace);
            let current = self.read(&path.join("current"))?;
            let Some((version, checksum)) = current.split_first_chunk::<8>() else {
                return Err(self.damaged(&format!("keyspaces/{keyspace}/current is too short")));
            };
            let name = format!("v{}", u64::from_le_bytes(*version));
            let file = self.read(&path.join(&name))?;
            // The last byte is the kind of the checksum, of which there is one.
            if *checksum != [&xxh3_128(&file).to_le_bytes()[..], &[0]].concat() {
                return Err(self.damaged(&format!("keyspaces/{keyspace}/{name} has a wrong checksum")));
            }
        }
        Ok(())
    }

    /// Reads a file that must be there.
    fn read(&self, path: &Path) -> Result<Vec<u8>, StoreError> {
        fs::read(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.damaged(&format!("{} is missing", path.display())),
            _ => from_io(&self.path, &error),
        })
    }

    /// Returns the error for damage of this store.
    pub(super) fn damaged(&self, what: &str) -> StoreError {
        damaged(&self.path, what)
    }
}

fn held() -> MutexGuard<'static, BTreeMap<PathBuf, bool>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Creates a directory and those above it that are missing. A directory that is synchronised can still be lost with its entry in the one above.
fn create_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let above = path.parent().map(|above| if above.as_os_str().is_empty() { Path::new(".") } else { above });
    above.map_or(Ok(()), create_durably)?;
    match fs::create_dir(path) {
        // Another process was quicker.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created?,
    }
    above.map_or(Ok(()), sync)
}

/// Makes the entries of a directory durable.
fn sync(directory: &Path) -> io::Result<()> {
    // Directories cannot be synchronised on other systems.
    if cfg!(unix) { File::open(directory)?.sync_all() } else { Ok(()) }
}

/// Returns the error for damage of the store in `directory`.
pub(super) fn damaged(directory: &Path, what: &str) -> StoreError {
    StoreError::Damaged(format!(
        "{}: {what}. Keep a copy of the directory, check the disk, and restore the newest backup into an empty directory",
        directory.display()
    ))
}

/// Returns the error for a system call that failed while a store was opened.
pub(super) fn from_io(directory: &Path, error: &io::Error) -> StoreError {
    let text = format!("{}: {error}", directory.display());
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(format!(
            "{text}. Let the user of this process write the directory and everything in it, or mount its file system for writing"
        )),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::Full(format!("{text}. Free some room on its disk"))
        }
        _ => StoreError::Unavailable(text),
    }
}
