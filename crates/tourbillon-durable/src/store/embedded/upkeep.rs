//! Upkeep of the engine: a thread that does early, or elsewhere, what the engine would do while it holds the lock of its versions. Every
//! read and every write of the engine needs that lock.
//!
//! - *Memtables.* The engine drops its last reference to a flushed memtable under that lock, and a memtable has hundreds of thousands of
//!   nodes to free. This thread has a reference to each memtable, and drops it when nobody else has one.
//! - *Tables.* The engine synchronises the last table of a merge under that lock, and a burst of tens of megabytes delays the journal.
//!   This thread synchronises tables while they grow, so that little is left to write at the end. What the engine itself synchronises
//!   does not depend on it.
//!
//! The thread sleeps until the writer hands it a memtable, and again when no table has grown for a second.

use std::any::Any;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the thread looks while tables may grow.
const TICK: Duration = Duration::from_millis(5);
/// The thread sleeps when no table has grown for this long.
const QUIET: Duration = Duration::from_secs(1);
/// A table that has grown by so many bytes is synchronised.
const STEP: u64 = 1 << 20;
/// The numbers of tables follow one another, but some files are gone before the thread looks.
const LARGEST_GAP: u64 = 16;

/// A memtable, whose type the engine does not name.
pub(super) type AnyMemtable = Arc<dyn Any + Send + Sync>;

/// The way to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(super) struct Upkeep {
    full: Option<Sender<AnyMemtable>>,
    thread: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// Starts the thread for the tables in a directory.
    pub(super) fn start(tables: PathBuf) -> io::Result<Upkeep> {
        let (full, memtables) = channel();
        let run = move || UpkeepState::new(tables).run(&memtables);
        let thread = thread::Builder::new().name("timers-upkeep".to_owned()).spawn(run)?;
        Ok(Upkeep { full: Some(full), thread: Some(thread) })
    }

    /// Hands over a memtable that will be flushed. Tables will be written now.
    pub(super) fn flushes(&self, memtable: AnyMemtable) {
        if let Some(full) = &self.full {
            let _has_panicked = full.send(memtable);
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _has_panicked = thread.join();
        }
    }
}

struct UpkeepState {
    memtables: Vec<AnyMemtable>,
    growing: GrowingTables,
    /// When a table was last seen to grow, or a memtable came.
    busy_at: Instant,
}

impl UpkeepState {
    fn new(tables: PathBuf) -> UpkeepState {
        UpkeepState { memtables: Vec::new(), growing: GrowingTables::new(tables), busy_at: Instant::now() }
    }

    fn run(mut self, memtables: &Receiver<AnyMemtable>) {
        while let Ok(memtable) = memtables.recv() {
            self.growing.find_newest();
            self.add(memtable);
            while self.is_busy() {
                match memtables.recv_timeout(TICK) {
                    Ok(memtable) => self.add(memtable),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                self.free_flushed();
                if self.growing.synchronise() {
                    self.busy_at = Instant::now();
                }
            }
        }
    }

    fn add(&mut self, memtable: AnyMemtable) {
        self.memtables.push(memtable);
        self.busy_at = Instant::now();
    }

    /// Returns whether there is something to look at. A memtable that something else holds for longer is freed with the next ones.
    fn is_busy(&self) -> bool {
        self.busy_at.elapsed() < QUIET
    }

    /// Frees the memtables that nobody else has. Nobody can get a reference to such a one any more.
    fn free_flushed(&mut self) {
        self.memtables.retain(|memtable| Arc::strong_count(memtable) > 1);
    }
}

/// The files of tables that the engine is writing.
struct GrowingTables {
    directory: PathBuf,
    /// The number of the next table.
    next: u64,
    files: Vec<GrowingTable>,
}

struct GrowingTable {
    file: File,
    synchronised: u64,
    grew_at: Instant,
}

impl GrowingTables {
    fn new(directory: PathBuf) -> GrowingTables {
        GrowingTables { directory, next: 0, files: Vec::new() }
    }

    /// Finds the number after that of the newest table.
    fn find_newest(&mut self) {
        let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<u64>().ok();
        let entries = fs::read_dir(&self.directory).into_iter().flatten();
        let newest = entries.filter_map(number).max();
        // From the newest one on, because it may be growing already.
        self.next = self.next.max(newest.unwrap_or(0));
    }

    /// Synchronises tables that have grown. Returns whether there are any.
    fn synchronise(&mut self) -> bool {
        self.open_new();
        let mut has_grown = false;
        // An error is the engine's to report: it synchronises every table by itself.
        self.files.retain_mut(|table| {
            has_grown |= table.synchronise().unwrap_or(false);
            table.grew_at.elapsed() < QUIET
        });
        has_grown
    }

    fn open_new(&mut self) {
        for number in self.next..self.next + LARGEST_GAP {
            if let Ok(table) = GrowingTable::open(&self.directory.join(number.to_string())) {
                self.files.push(table);
                self.next = number + 1;
            }
        }
    }
}

impl GrowingTable {
    fn open(path: &Path) -> io::Result<GrowingTable> {
        Ok(GrowingTable { file: File::open(path)?, synchronised: 0, grew_at: Instant::now() })
    }

    /// Synchronises the file if it has grown by a [`STEP`], and returns whether it has.
    fn synchronise(&mut self) -> io::Result<bool> {
        let length = self.file.metadata()?.len();
        let has_grown = length >= self.synchronised + STEP;
        if has_grown {
            self.file.sync_data()?;
            self.synchronised = length;
            self.grew_at = Instant::now();
        }
        Ok(has_grown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memtable_is_freed_by_the_upkeep_and_not_by_the_engine() {
        let mut state = UpkeepState::new(PathBuf::new());
        let engines: AnyMemtable = Arc::new([0_u8; 8]);
        state.add(Arc::clone(&engines));
        state.free_flushed();
        assert_eq!(state.memtables.len(), 1, "the engine still has it");
        drop(engines);
        state.free_flushed();
        assert!(state.memtables.is_empty());
    }

    #[test]
    fn tables_are_synchronised_while_they_grow_and_from_the_newest_on() {
        let folder = tempfile::tempdir().unwrap();
        let write = |number: u64, length: u64| {
            let bytes = vec![7; usize::try_from(length).unwrap()];
            fs::write(folder.path().join(number.to_string()), bytes).unwrap();
        };
        write(3, STEP);
        write(40, STEP - 1);
        fs::write(folder.path().join("v12"), []).unwrap();
        let mut growing = GrowingTables::new(folder.path().to_owned());
        growing.find_newest();
        assert!(!growing.synchronise(), "the newest is too short, and the others are complete");
        write(40, STEP);
        write(42, 3 * STEP);
        assert!(growing.synchronise());
        let synchronised: Vec<u64> = growing.files.iter().map(|table| table.synchronised).collect();
        assert_eq!(synchronised, [STEP, 3 * STEP], "also the one behind a gap");
        assert!(!growing.synchronise(), "nothing has grown");
    }

    #[test]
    fn dropping_the_upkeep_ends_its_thread_while_it_has_memtables() {
        let upkeep = Upkeep::start(std::env::temp_dir().join("there is no such folder")).unwrap();
        let held: AnyMemtable = Arc::new(());
        upkeep.flushes(Arc::clone(&held));
        drop(upkeep);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
