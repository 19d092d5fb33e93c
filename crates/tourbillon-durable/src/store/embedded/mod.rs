//! The embedded store: one process, one directory.
//!
//! ```text
//!  write, heartbeat              due, get               list, history, counts
//!        |                          |                          |
//!   writer thread             reader thread              second reader thread
//!   rules on a Transaction    one view each, and         one view each
//!        |                    wait until it is durable
//!        |  one transaction for all that has come
//!        v
//!   fjall: journal, then memtable; tables in the background
//!        |  the writer goes on with the next transaction
//!        v
//!   syncer thread: one fdatasync of the journal for all that was written
//!        |
//!   acknowledged: the number of the last transaction; then the replies
//! ```
//!
//! Invariants:
//! 1. Every transaction writes the totals, which have its number; the numbers have no gap.
//! 2. A reply is sent after the transaction, and all before it, are durable and after its number is in the file `acknowledged` (Q1).
//! 3. Opening verifies that journals and tables have every transaction up to the acknowledged one (Q8, D57), because the engine alone
//!    does not notice a journal that ends too early.
//! 4. All entries of the indexes follow from the rows; an entry without its row is damage.
//! 5. After a commit that failed the store has ended: nobody knows what the disk holds, so nothing is tried again.

mod acknowledged;
mod backup;
mod blocks;
mod bytes;
mod changes;
mod closing;
mod directory;
mod encoding;
mod journal;
mod layout;
mod options;
mod reader;
mod room;
mod syncer;
mod tables;
mod transaction;
mod upgrade;
mod upkeep;
mod verify;
mod writer;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use self::changes::Changes;
use self::directory::StoreDirectory;
pub use self::options::EmbeddedOptions;
use self::reader::{ListQuestion, ReadJob, StoreReader};
use self::syncer::{DurableMark, Syncer};
use self::tables::View;
pub use self::verify::StoreReport;
use self::writer::{StoreWriter, WriteBatch, WriteRequest};
use super::error::StoreError;
use super::op::{WriteAnswer, WriteOp};
use super::query::{Cursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, StoreCounts};
use super::reply::Reply;
use super::row::{HistoryEntry, TimerRow};
use super::shard::{Heartbeat, Ownership, ShardId};
use super::{Store, StoreTraits};
use crate::id::TimerId;

/// How many batches are under way: one is applied while others become durable. Many, because clients that ask again one by one make small
/// batches, and what is not under way when a synchronisation begins waits for the next one.
const PARALLEL_WRITES: usize = 64;

/// A store in a directory, for one process. The [module](self) says how it works.
pub struct EmbeddedStore {
    writer: Sender<WriteRequest>,
    /// For questions that are answered from few entries.
    quick: Sender<ReadJob>,
    /// For questions that may read many rows.
    thorough: Sender<ReadJob>,
    /// For what reads everything.
    whole: Sender<ReadJob>,
    threads: Mutex<Option<StoreThreads>>,
    directory: PathBuf,
    recovery: Duration,
}

/// The threads of a store.
struct StoreThreads {
    writer: JoinHandle<()>,
    /// Threads on which replies are called: they cannot wait for the store's end.
    all: Vec<ThreadId>,
}

impl EmbeddedStore {
    /// Opens the store in a directory, which is created if it does not exist, with the default [options](EmbeddedStore::options).
    ///
    /// # Errors
    /// See [`EmbeddedOptions::open`].
    pub fn open(directory: impl AsRef<Path>) -> Result<EmbeddedStore, StoreError> {
        EmbeddedStore::options().open(directory)
    }

    /// Returns the default settings.
    pub fn options() -> EmbeddedOptions {
        EmbeddedOptions::default()
    }

    /// Returns how long opening took, the check of everything that was acknowledged included.
    #[must_use]
    pub fn recovery(&self) -> Duration {
        self.recovery
    }

    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Reads everything and verifies that rows, indexes and totals agree, while the store is used.
    ///
    /// The reply is [`StoreError::Damaged`] if something cannot be read or does not agree.
    pub fn verify(&self, reply: Reply<StoreReport>) {
        self.ask_whole(reply, |_, view| verify::verify(view));
    }

    fn open_with(directory: &Path, options: EmbeddedOptions) -> Result<EmbeddedStore, StoreError> {
        if !options.creates && !may_have_store(directory) {
            return Err(StoreError::Missing(format!(
                "{} has no store of durable timers. Verify the path; an application that opens the store makes one",
                directory.display()
            )));
        }
        let directory = StoreDirectory::lock(directory)?;
        let opened = tables::open(&directory, &options)?;
        let path = directory.path().to_owned();
        let failed = |error: io::Error| StoreError::Unavailable(format!("a thread cannot be started: {error}"));
        let tables = Arc::new(opened.tables);
        let failure = Arc::new(OnceLock::new());
        let durable = Arc::new(DurableMark::new(opened.totals.sequence, Arc::clone(&failure)));
        let read = |name| {
            let reader = StoreReader {
                tables: Arc::clone(&tables),
                options: options.clone(),
                failure: Arc::clone(&failure),
                durable: Arc::clone(&durable),
            };
            spawn(name, move |jobs| reader.run(&jobs))
        };
        let quick = read("timers-read").map_err(failed)?;
        let thorough = read("timers-list").map_err(failed)?;
        let whole = read("timers-copy").map_err(failed)?;
        let readers = vec![quick, thorough, whole];
        let mut all: Vec<ThreadId> = readers.iter().map(|(_, thread)| thread.thread().id()).collect();
        let lane = |index: usize| readers[index].0.clone();
        let (quick, thorough, whole) = (lane(0), lane(1), lane(2));
        let syncer = Syncer::start(&directory.tables(), opened.acknowledged, Arc::clone(&durable)).map_err(failed)?;
        all.push(syncer.thread());
        let writer = StoreWriter {
            tables,
            directory,
            syncer,
            totals: opened.totals,
            changes: Changes::default(),
            last_ended: None,
            shards: writer::unowned(&opened.totals),
            options,
            failure,
            readers,
        };
        let (requests, thread) = spawn("timers-write", move |requests| writer.run(&requests)).map_err(failed)?;
        all.push(thread.thread().id());
        Ok(EmbeddedStore {
            writer: requests,
            quick,
            thorough,
            whole,
            threads: Mutex::new(Some(StoreThreads { writer: thread, all })),
            directory: path,
            recovery: opened.recovery,
        })
    }

    /// Asks the writer. If the store is closed, the request is dropped here, and its reply says so.
    fn ask_writer(&self, request: WriteRequest) {
        let _is_closed = self.writer.send(request);
    }

    /// Asks a thread for reading, which drops a question that nobody waits for any more. If the store is closed, the question is dropped here,
    /// and its reply says so.
    fn ask<T: Send + 'static>(
        &self,
        lane: &Sender<ReadJob>,
        reply: Reply<T>,
        read: impl FnOnce(&StoreReader, &View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) {
        let question = move |reader: &StoreReader| {
            if reply.is_wanted() {
                reader.answer(reply, |view| read(reader, &view));
            }
        };
        let _is_closed = lane.send(ReadJob::Ask(Box::new(question)));
    }

    /// Asks the thread for what reads everything, which drops the view when it has begun to read. A copy is made although nobody waits.
    fn ask_whole<T: Send + 'static>(
        &self,
        reply: Reply<T>,
        read: impl FnOnce(&StoreReader, View<'_>) -> Result<T, StoreError> + Send + 'static,
    ) {
        let question = move |reader: &StoreReader| reader.answer(reply, |view| read(reader, view));
        let _is_closed = self.whole.send(ReadJob::Ask(Box::new(question)));
    }
}

/// Returns whether a directory has a store, which may be damaged or an interrupted backup, and not what is left of an interrupted creation.
fn may_have_store(directory: &Path) -> bool {
    let has = |name: &str| directory.join(name).exists();
    has("FORMAT") || has(directory::BACKUP) || has("tables") && !has("FORMAT.new")
}

impl Store for EmbeddedStore {
    fn traits(&self) -> StoreTraits {
        StoreTraits { shards: 1, parallel_writes: PARALLEL_WRITES, rescan: None }
    }

    fn write(&self, batch: Vec<WriteOp>, reply: Reply<Vec<WriteAnswer>>) {
        self.ask_writer(WriteRequest::Batch(WriteBatch { operations: batch, reply }));
    }

    fn due(&self, query: DueQuery, reply: Reply<DuePage>) {
        self.ask(&self.quick, reply, move |_, view| reader::due(view, &query));
    }

    fn orphans(&self, kind: String, shards: Vec<ShardId>, limit: usize, reply: Reply<Vec<DueEntry>>) {
        self.ask(&self.quick, reply, move |_, view| reader::orphans(view, &kind, &shards, limit));
    }

    fn heartbeat(&self, heartbeat: Heartbeat, reply: Reply<Ownership>) {
        self.ask_writer(WriteRequest::Heartbeat(heartbeat, reply));
    }

    fn get(&self, id: TimerId, reply: Reply<Vec<TimerRow>>) {
        self.ask(&self.quick, reply, move |_, view| reader::rows_of(view, id));
    }

    fn get_key(&self, namespace: String, key: String, reply: Reply<Option<TimerRow>>) {
        self.ask(&self.quick, reply, move |_, view| reader::holder(view, &namespace, &key));
    }

    fn list(&self, filter: ListFilter, cursor: Option<Cursor>, limit: usize, reply: Reply<ListPage>) {
        ListQuestion { filter, cursor, limit, reply }.ask(self.thorough.clone());
    }

    fn upcoming(&self, filter: ListFilter, limit: usize, reply: Reply<Vec<TimerRow>>) {
        self.ask(&self.thorough, reply, move |_, view| reader::upcoming(view, &filter, limit));
    }

    fn history(&self, id: TimerId, reply: Reply<Vec<HistoryEntry>>) {
        self.ask(&self.thorough, reply, move |reader, view| reader.history(view, id));
    }

    fn counts(&self, reply: Reply<StoreCounts>) {
        self.ask(&self.thorough, reply, StoreReader::counts);
    }

    fn set_paused(&self, is_paused: bool, reply: Reply<()>) {
        self.ask_writer(WriteRequest::SetPaused(is_paused, reply));
    }

    fn snapshot(&self, pages: async_channel::Sender<Vec<TimerRow>>, reply: Reply<u64>) {
        self.ask_whole(reply, move |_, view| reader::snapshot(view, &pages));
    }

    fn backup(&self, to: PathBuf, reply: Reply<u64>) {
        self.ask_whole(reply, move |reader, view| backup::backup(view, &to, reader.options()));
    }

    fn close(&self, reply: Reply<()>) {
        self.ask_writer(WriteRequest::Close(Some(reply)));
    }
}

/// Closes the store, and waits for its threads unless this is one of them.
impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.ask_writer(WriteRequest::Close(None));
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(threads) = threads.filter(|threads| !threads.all.contains(&thread::current().id())) {
            let _has_panicked = threads.writer.join();
        }
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("directory", &self.directory).finish_non_exhaustive()
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce(Receiver<T>) + Send + 'static,
) -> io::Result<(Sender<T>, JoinHandle<()>)> {
    let (sender, receiver) = channel();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || run(receiver))?;
    Ok((sender, thread))
}
