//! The engine below, fjall, with one keyspace: opened with a check of everything that was acknowledged, read, and written durably.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, PartitioningPolicy,
    PinningPolicy,
};
use fjall::{
    AbstractTree, AnyTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Slice,
    Snapshot,
};

use super::acknowledged::{Acknowledged, AcknowledgedError};
use super::changes::Changes;
use super::closing::Closing;
use super::directory::{Contents, FORMAT, StoreDirectory, damaged, from_io};
use super::encoding::{self, Totals};
use super::journal::{self, JournalError, Journals};
use super::layout;
use super::options::EmbeddedOptions;
use super::upgrade;
use super::upkeep::{AnyMemtable, Upkeep};
use crate::store::error::StoreError;

/// The most bytes of journals: opening after a crash reads them all.
const JOURNALS: u64 = 96 << 20;

/// The most bytes in memory that wait to be written to tables, in halves of full memtables.
const HALF_MEMTABLES: u64 = 5;

/// The longest wait of one transaction for memory.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The most bytes of a memtable by the engine's own count. It never gets there: [`Tables`] seals memtables itself.
const NEVER_FULL: u64 = u64::MAX;

/// The open tables.
pub(super) struct Tables {
    // Dropped before the engine: its thread has memtables.
    upkeep: Upkeep,
    /// The memtable that transactions are written to, with a number of the engine's.
    active: Mutex<ActiveMemtable>,
    /// Held for writing while the entries of a transaction enter the memtable, one by one, and for reading while a view is made. When the
    /// engine ends a flush or a merge it shows what is in the memtable so far, and without this lock that may be half a transaction.
    entering: RwLock<()>,
    database: Database,
    timers: Keyspace,
    directory: PathBuf,
    /// From how many bytes on a memtable is sealed.
    full: u64,
    /// How many bytes may wait in memory to be written to tables.
    most_buffered: u64,
    closing: Closing,
}

struct ActiveMemtable {
    id: u64,
    memtable: AnyMemtable,
}

/// What [`open`] returns.
pub(super) struct Opened {
    pub(super) tables: Tables,
    pub(super) totals: Totals,
    pub(super) acknowledged: Acknowledged,
    /// How long it took.
    pub(super) recovery: Duration,
}

/// Opens the tables in a locked directory, or creates them.
pub(super) fn open(directory: &StoreDirectory, options: &EmbeddedOptions) -> Result<Opened, StoreError> {
    let begin = Instant::now();
    let format = match directory.contents()? {
        Contents::Nothing => {
            create(directory, options, |_| Ok::<_, StoreError>(Totals::default()))?;
            FORMAT
        }
        Contents::Store(found) if found < FORMAT && !options.creates => {
            return Err(StoreError::OlderFormat { found, wanted: FORMAT });
        }
        Contents::Store(format) => format,
    };
    let mut acknowledged = Acknowledged::open(&directory.acknowledged()).map_err(|error| match error {
        AcknowledgedError::Io(error) => from_io(directory.path(), &error),
        AcknowledgedError::Damaged => directory.damaged("the file acknowledged is missing or damaged"),
    })?;
    directory.check_versions()?;
    let journals = journal::examine(&directory.tables(), acknowledged.last()).map_err(|error| match error {
        JournalError::Io(error) => from_io(directory.path(), &error),
        JournalError::Damaged(what) => directory.damaged(&what),
    })?;
    journals.truncate_torn_record().map_err(|error| from_io(directory.path(), &error))?;
    let tables = Tables::open(directory, options)?;
    let mut totals = tables.check_complete(&journals, acknowledged.last())?;
    if totals.sequence > acknowledged.last() {
        // The last transactions of a process that was killed may be nowhere but in the memory of the kernel. Readers see them from now on.
        tables.sync()?;
    }
    if format < FORMAT {
        totals = upgrade::upgrade(&tables, totals)?;
        let noted = acknowledged.set(totals.sequence).and_then(|()| directory.raise_format());
        noted.map_err(|error| from_io(directory.path(), &error))?;
    }
    Ok(Opened { tables, totals, acknowledged, recovery: begin.elapsed() })
}

/// Creates a store. `fill` writes into it, in transactions that need not be durable, and returns the totals of the last of them.
pub(super) fn create<E: From<StoreError>>(
    directory: &StoreDirectory,
    options: &EmbeddedOptions,
    fill: impl FnOnce(&Tables) -> Result<Totals, E>,
) -> Result<(), E> {
    let failed = |error| from_io(directory.path(), &error);
    directory.begin_creation().map_err(failed)?;
    let tables = Tables::open(directory, options)?;
    let filled = fill(&tables)?;
    let totals = Totals { sequence: filled.sequence + 1, ..filled };
    tables.commit(&mut Changes::default(), &totals)?;
    drop(tables);
    directory.sync_tables().map_err(failed)?;
    let mut acknowledged = Acknowledged::create(&directory.acknowledged()).map_err(failed)?;
    acknowledged.set(totals.sequence).map_err(failed)?;
    acknowledged.sync().map_err(failed)?;
    directory.end_creation().map_err(failed)?;
    Ok(())
}

impl Tables {
    fn open(directory: &StoreDirectory, options: &EmbeddedOptions) -> Result<Tables, StoreError> {
        let open = || {
            let database = Database::builder(directory.tables())
                .cache_size(options.cache)
                .journal_compression(CompressionType::None)
                .max_journaling_size(JOURNALS)
                .manual_journal_persist(true)
                // With more than one, a thread of the engine's spins while another one merges tables.
                .worker_threads(1)
                .open()?;
            let timers = database.keyspace("timers", keyspace_options)?;
            Ok((database, timers))
        };
        // The engine panics at some kinds of damage.
        match catch_unwind(AssertUnwindSafe(open)) {
            Ok(Ok((database, timers))) => Tables::around(database, timers, directory, options),
            Ok(Err(error)) => Err(on_open(directory.path(), &error)),
            Err(_) => Err(directory.damaged("the engine panicked while it read its files")),
        }
    }

    fn around(
        database: Database,
        timers: Keyspace,
        directory: &StoreDirectory,
        options: &EmbeddedOptions,
    ) -> Result<Tables, StoreError> {
        let upkeep = Upkeep::start(timers.path().join("tables"));
        let upkeep = upkeep.map_err(|error| from_io(directory.path(), &error))?;
        let memtable = timers.tree.active_memtable();
        Ok(Tables {
            upkeep,
            active: Mutex::new(ActiveMemtable { id: memtable.id(), memtable }),
            entering: RwLock::new(()),
            database,
            timers,
            directory: directory.path().to_owned(),
            full: options.write_buffer,
            most_buffered: options.write_buffer / 2 * HALF_MEMTABLES,
            closing: Closing::default(),
        })
    }

    /// Verifies that tables and journals together have every transaction, and returns the totals (D57).
    ///
    /// The journals have all transactions from the first to the last of them. The tables have all up to some number. So nothing is
    /// missing if the journals begin at the number after it or before, and nothing was lost if the last number was not acknowledged
    /// before, or is the acknowledged one.
    fn check_complete(&self, journals: &Journals, acknowledged: u64) -> Result<Totals, StoreError> {
        let in_tables = match self.timers.tree.get_highest_persisted_seqno() {
            Some(last) => self.totals_of(self.timers.tree.get(layout::TOTALS, last + 1).map_err(fjall::Error::from))?,
            None => None,
        };
        let in_tables = in_tables.map_or(0, |totals| totals.sequence);
        if let Some(first) = journals.first
            && first > in_tables + 1
        {
            let what = format!("the tables end with transaction {in_tables}, and the journals begin with {first}");
            return Err(damaged(&self.directory, &what));
        }
        let expected = journals.last.unwrap_or(0).max(in_tables);
        let totals = self.totals_of(self.timers.get(layout::TOTALS))?;
        match totals {
            Some(totals) if totals.sequence == expected && expected >= acknowledged => Ok(totals),
            other => {
                let found = other.map_or(0, |totals| totals.sequence);
                let what = format!(
                    "transaction {acknowledged} was acknowledged and {expected} is the last one in the files, but the \
                     tables have {found}"
                );
                Err(damaged(&self.directory, &what))
            }
        }
    }

    fn totals_of(&self, read: fjall::Result<Option<Slice>>) -> Result<Option<Totals>, StoreError> {
        let value = read.map_err(|error| self.on_read(&error))?;
        let totals = value.map(|value| encoding::read_totals(&value)).transpose();
        totals.map_err(|_| self.damaged("the totals cannot be read"))
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.timers.get(key).map_err(|error| self.on_read(&error))
    }

    /// Returns a view of the tables that later transactions do not change.
    pub(super) fn view(&self) -> View<'_> {
        let _none_enters = self.entering.read().unwrap_or_else(PoisonError::into_inner);
        View { tables: self, snapshot: self.database.snapshot() }
    }

    /// Writes changes, which it removes, and totals in one transaction, and returns when it is durable.
    pub(super) fn commit(&self, changes: &mut Changes, totals: &Totals) -> Result<(), StoreError> {
        self.write_as(changes, totals, PersistMode::SyncData)
    }

    /// Writes changes, which it removes, and totals in one transaction, which is durable when a later one is.
    pub(super) fn write(&self, changes: &mut Changes, totals: &Totals) -> Result<(), StoreError> {
        self.write_as(changes, totals, PersistMode::Buffer)
    }

    fn write_as(&self, changes: &mut Changes, totals: &Totals, mode: PersistMode) -> Result<(), StoreError> {
        let mut batch = self.database.batch().durability(Some(mode));
        for (key, value) in changes.take() {
            match value {
                Some(value) => batch.insert(&self.timers, key, value),
                None => batch.remove(&self.timers, key),
            }
        }
        batch.insert(&self.timers, layout::TOTALS, encoding::totals(totals));
        self.wait_for_memory();
        let entering = self.entering.write().unwrap_or_else(PoisonError::into_inner);
        let committed = batch.commit();
        drop(entering);
        committed.and_then(|()| self.seal_if_full()).map_err(|error| self.on_write(&error))
    }

    /// Seals the memtable if it is full and no other one waits to be written to a table, and tells the upkeep of sealed ones.
    ///
    /// The engine would ask its thread for it with each transaction, in a bounded queue that only this thread reads. While that thread
    /// merges tables the queue can fill up, and the thread then waits for ever for room in it.
    fn seal_if_full(&self) -> fjall::Result<()> {
        let mut active = self.active();
        let mut memtable = self.timers.tree.active_memtable();
        if memtable.size() > self.full && self.timers.tree.sealed_memtable_count() == 0 {
            self.timers.rotate_memtable()?;
            memtable = self.timers.tree.active_memtable();
        }
        if active.id != memtable.id() {
            let sealed = std::mem::replace(&mut *active, ActiveMemtable { id: memtable.id(), memtable });
            self.upkeep.flushes(sealed.memtable);
        }
        Ok(())
    }

    fn active(&self) -> MutexGuard<'_, ActiveMemtable> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn on_write(&self, error: &fjall::Error) -> StoreError {
        let directory = self.directory.display();
        match error {
            fjall::Error::Poisoned => StoreError::SyncFailed(format!(
                "{directory}: the engine has stopped after an error: a disk that is full or fails, or damage. If the store ends again after \
                 it was opened, `tourbillon durable inspect --verify` tells whether it is damaged"
            )),
            error => StoreError::SyncFailed(format!("{directory}: {error}")),
        }
    }

    /// Waits while the engine holds more than it may (Q5): its thread flushes no memtable while it merges tables, and the newest memtable grows
    /// meanwhile. An engine that has failed flushes nothing any more, so the wait has a limit; then the commit tells of the failure.
    fn wait_for_memory(&self) {
        let begin = Instant::now();
        while self.database.write_buffer_size() > self.most_buffered && begin.elapsed() < LONGEST_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Makes everything durable that was written.
    fn sync(&self) -> Result<(), StoreError> {
        let synced = self.database.persist(PersistMode::SyncAll);
        synced.map_err(|error| StoreError::SyncFailed(format!("{}: {error}", self.directory.display())))
    }

    /// Says whether the store is being closed, which ends all scans.
    pub(super) fn closing(&self) -> &Closing {
        &self.closing
    }

    /// Returns how many bytes the files have.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.database.disk_space().unwrap_or_default()
    }

    /// Returns the error for damage of this store.
    pub(super) fn damaged(&self, what: &str) -> StoreError {
        damaged(&self.directory, what)
    }

    fn on_read(&self, error: &fjall::Error) -> StoreError {
        match error {
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
                StoreError::Unavailable(format!("{}: {error}", self.directory.display()))
            }
            other => self.damaged(&format!("a table cannot be read ({other})")),
        }
    }
}

/// A view of the tables that later transactions do not change.
///
/// While it lives, the engine keeps every memtable in memory, also those that it has written to tables since. So what reads for long begins
/// its scans and drops the view (Q5).
pub(super) struct View<'a> {
    tables: &'a Tables,
    snapshot: Snapshot,
}

impl<'a> View<'a> {
    pub(super) fn tables(&self) -> &'a Tables {
        self.tables
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>, StoreError> {
        self.snapshot.get(&self.tables.timers, key).map_err(|error| self.tables.on_read(&error))
    }

    /// Returns the entries whose keys begin with `prefix` and are not before `from`. The scan reads the tables as the view has them, also when the
    /// view is dropped: it keeps the memtables and the files of its beginning itself. It ends with [`StoreError::Closed`] when the
    /// store is being closed.
    pub(super) fn scan(
        &self,
        prefix: Vec<u8>,
        from: Vec<u8>,
    ) -> impl Iterator<Item = Result<(Slice, Slice), StoreError>> + use<'a> {
        let tables = self.tables;
        // With an end, because the engine skips removed entries before it returns the next one: behind the last entry of the prefix it would
        // skip those of other prefixes, which may be a million.
        let end = layout::behind(&prefix);
        let from = from.max(prefix).min(end.clone());
        let AnyTree::Standard(tree) = &tables.timers.tree else { unreachable!("values are not kept apart from keys") };
        // Not by `Snapshot::range`, whose iterator would keep the snapshot.
        let range = tree.create_range(&(from..end), self.snapshot.seqno(), None);
        range.map(move |entry| {
            tables.closing.check()?;
            entry.map_err(|error| tables.on_read(&fjall::Error::from(error)))
        })
    }

    /// Returns the totals.
    pub(super) fn totals(&self) -> Result<Totals, StoreError> {
        let read = self.snapshot.get(&self.tables.timers, layout::TOTALS);
        self.tables.totals_of(read)?.ok_or_else(|| self.tables.damaged("the totals are missing"))
    }
}

fn keyspace_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(NEVER_FULL)
        .data_block_compression_policy(CompressionPolicy::disabled())
        .data_block_size_policy(BlockSizePolicy::all(4096))
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0))))
        // In parts and not pinned, so that the cache bounds what filters and indexes of ten million timers take of the memory (Q5).
        .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        .index_block_partitioning_policy(PartitioningPolicy::all(true))
        .filter_block_pinning_policy(PinningPolicy::all(false))
        .index_block_pinning_policy(PinningPolicy::all(false))
}

/// Returns the error for an engine that could not be opened.
fn on_open(directory: &Path, error: &fjall::Error) -> StoreError {
    match error {
        fjall::Error::Locked => StoreError::Locked(directory.display().to_string()),
        // What the engine needs and does not find was lost: its directory was there.
        fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::AlreadyExists => {
                damaged(directory, &format!("a file of the engine is missing or too short ({error})"))
            }
            _ => from_io(directory, error),
        },
        other => damaged(directory, &format!("the engine cannot read its files ({other})")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tempfile::TempDir;

    use super::*;

    fn opened(write_buffer: u64) -> (TempDir, Opened) {
        let folder = tempfile::tempdir().unwrap();
        let directory = StoreDirectory::lock(folder.path()).unwrap();
        let options = EmbeddedOptions::default().write_buffer(write_buffer);
        let opened = open(&directory, &options).unwrap();
        (folder, opened)
    }

    #[test]
    fn q5_many_small_transactions_do_not_stop_the_thread_of_the_engine() {
        let (_folder, Opened { tables, mut totals, .. }) = opened(1 << 20);
        let first = tables.active().id;
        for number in 0..60_000_u32 {
            let mut changes = Changes::default();
            changes.put(&[b"r", &number.to_be_bytes()[..]].concat(), &[7; 64]);
            totals.sequence += 1;
            tables.write(&mut changes, &totals).unwrap();
            let waiting = tables.database.write_buffer_size();
            assert!(waiting < 4 << 20, "{waiting} bytes wait in memory after {number} transactions");
        }
        assert!(tables.active().id > first + 3, "memtables were sealed");
    }

    #[test]
    fn q1_a_view_shows_whole_transactions_while_the_engine_flushes_and_merges() {
        const ENTRIES: u32 = 500;
        let (_folder, Opened { tables, mut totals, .. }) = opened(1 << 20);
        let key = |entry: u32| [b"r", &entry.to_be_bytes()[..]].concat();
        let number_at = |view: &View<'_>, entry| view.get(&key(entry)).unwrap().map(|value| value[..8].to_vec());
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let view = tables.view();
                    let first = number_at(&view, 0);
                    assert_eq!(number_at(&view, ENTRIES - 1), first, "half a transaction");
                    let expected = first.map_or(totals.sequence, |first| u64::from_be_bytes(first.try_into().unwrap()));
                    assert_eq!(view.totals().unwrap().sequence, expected);
                }
            });
            let mut totals = totals;
            for _ in 0..300 {
                totals.sequence += 1;
                let mut changes = Changes::default();
                let value = [&totals.sequence.to_be_bytes()[..], &[7; 200]].concat();
                (0..ENTRIES).for_each(|entry| changes.put(&key(entry), &value));
                tables.write(&mut changes, &totals).unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        totals.sequence += 300;
        assert_eq!(tables.view().totals().unwrap().sequence, totals.sequence);
    }

    #[test]
    fn q5_writes_wait_for_the_engine_before_its_memory_grows_beyond_three_memtables() {
        let (_folder, Opened { tables, mut totals, .. }) = opened(1 << 20);
        let mut most = 0;
        for number in 0..100_u8 {
            let mut changes = Changes::default();
            changes.put(&[b'r', number], &[number; 256 << 10]);
            totals.sequence += 1;
            tables.write(&mut changes, &totals).unwrap();
            most = most.max(tables.database.write_buffer_size());
        }
        assert!(most < 4 << 20, "{most} bytes of {} waited in memory", 100 * (256 << 10));
    }

    #[test]
    fn q5_a_scan_goes_on_after_its_view_and_keeps_no_memtable_that_was_filled_later() {
        let (_folder, Opened { tables, mut totals, .. }) = opened(1 << 20);
        let mut write = |key: u8, value: u8| {
            let mut changes = Changes::default();
            changes.put(&[b'r', key], &[value; 256 << 10]);
            totals.sequence += 1;
            tables.write(&mut changes, &totals).unwrap();
        };
        for number in 0..8 {
            write(number, number);
        }
        let view = tables.view();
        let scan = view.scan(b"r".to_vec(), Vec::new());
        drop(view);
        // Each key is written again many times, so that the engine merges tables and drops what the scan has not read yet.
        for number in 0..100 {
            write(number % 10, 0xee);
        }
        let kept = tables.timers.tree.get_version_history_lock().memtable_size_sum();
        assert!(kept < 8 << 20, "{kept} bytes of {} are kept in memory", 100 * (256 << 10));
        let found: Vec<(u8, u8)> = scan.map(|entry| entry.map(|(key, value)| (key[1], value[0])).unwrap()).collect();
        assert_eq!(found, (0..8).map(|number| (number, number)).collect::<Vec<_>>());
    }
}
