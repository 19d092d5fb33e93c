//! The syncer: a thread that makes durable what the writer has written, and replies.
//!
//! The writer goes on with the next transaction while the disk is busy with the ones before. One `fdatasync` covers every transaction that was
//! written before it began, so the syncer replies to all of them together, in their order (Q1). Nothing that a transaction has read
//! can be lost while the transaction itself is kept, because journals are durable from their beginning on.
//!
//! The engine can only synchronise while it holds the lock of its journal, and no transaction can be written then. So the syncer has a handle of
//! its own: it synchronises the newest journal. That is enough, because the engine synchronises a journal before it creates the next one.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::acknowledged::Acknowledged;
use super::journal;
use crate::store::error::StoreError;

/// A transaction that is written and not durable yet.
pub(super) struct WrittenTransaction {
    /// Its number, or that of the last one before it if it has changed nothing.
    pub(super) sequence: u64,
    /// How many operations it has.
    pub(super) operations: usize,
    /// Called when it is durable, or cannot be made so.
    pub(super) reply: Box<dyn FnOnce(Result<(), StoreError>) + Send>,
}

/// The way to the syncer's thread.
pub(super) struct Syncer {
    written: Sender<WrittenTransaction>,
    thread: JoinHandle<Acknowledged>,
}

/// The number of the last transaction that is durable. Readers wait for what they have read.
#[derive(Debug)]
pub(super) struct DurableMark {
    sequence: Mutex<u64>,
    has_advanced: Condvar,
    /// Set when the store has ended because a write failed.
    failure: Arc<OnceLock<StoreError>>,
}

impl DurableMark {
    pub(super) fn new(sequence: u64, failure: Arc<OnceLock<StoreError>>) -> DurableMark {
        DurableMark { sequence: Mutex::new(sequence), has_advanced: Condvar::new(), failure }
    }

    /// Waits until a transaction is durable.
    pub(super) fn wait_for(&self, sequence: u64) -> Result<(), StoreError> {
        let mut durable = self.lock();
        while *durable < sequence {
            if let Some(error) = self.failure.get() {
                return Err(error.clone());
            }
            durable = self.has_advanced.wait(durable).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn advance(&self, sequence: u64) {
        *self.lock() = sequence;
        self.has_advanced.notify_all();
    }

    /// Ends the store, and all waiting for it.
    fn fail(&self, error: StoreError) {
        let _durable = self.lock();
        let _is_set = self.failure.set(error);
        self.has_advanced.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.sequence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Syncer {
    /// Starts the thread for the engine in a directory.
    pub(super) fn start(tables: &Path, acknowledged: Acknowledged, mark: Arc<DurableMark>) -> io::Result<Syncer> {
        let journal = ActiveJournal { directory: tables.to_owned(), open: None };
        let (written, requests) = channel();
        let state = SyncerState { journal, acknowledged, mark, failure: None, last: None };
        let thread = thread::Builder::new().name("timers-sync".to_owned()).spawn(move || state.run(&requests))?;
        Ok(Syncer { written, thread })
    }

    /// Has a transaction made durable. If the thread has panicked, the reply is dropped here.
    pub(super) fn sync(&self, transaction: WrittenTransaction) {
        let _has_panicked = self.written.send(transaction);
    }

    pub(super) fn thread(&self) -> thread::ThreadId {
        self.thread.thread().id()
    }

    /// Waits until everything is durable, and returns the file of the acknowledged number; `None` if the thread has panicked.
    pub(super) fn finish(self) -> Option<Acknowledged> {
        drop(self.written);
        self.thread.join().ok()
    }
}

struct SyncerState {
    journal: ActiveJournal,
    acknowledged: Acknowledged,
    mark: Arc<DurableMark>,
    /// The error of the first synchronisation that failed.
    failure: Option<StoreError>,
    last: Option<LastSync>,
}

/// The synchronisation before.
struct LastSync {
    ended: Instant,
    took: Duration,
    /// How many operations it has made durable, and how many came meanwhile: as many may wait for the next one.
    operations: usize,
}

impl LastSync {
    /// Returns how long the next synchronisation waits for more operations, if so many are here at `now`, the last of which `came` then;
    /// `None` if it begins.
    ///
    /// Without the wait, operations of clients that ask again come just after a synchronisation has begun and wait for two of them: half of
    /// the clients for each, and the disk does half of what it can. On a disk that takes less than [`SHORT`] the processor is what limits,
    /// and nothing is won.
    fn wait(&self, here: usize, came: Instant, now: Instant) -> Option<Duration> {
        // Not all clients ask again.
        let is_expected = here < self.operations - self.operations / 8;
        let until = (self.ended + (self.took * 3 / 4).min(LONGEST_WAIT)).min(came.max(self.ended) + LONGEST_GAP);
        let left = until.saturating_duration_since(now);
        (is_expected && self.took >= SHORT && !left.is_zero()).then_some(left)
    }
}

impl SyncerState {
    fn run(mut self, requests: &Receiver<WrittenTransaction>) -> Acknowledged {
        let mut group = Vec::new();
        loop {
            if group.is_empty() {
                let Ok(first) = requests.recv() else { return self.acknowledged };
                group.push(first);
            }
            group.extend(requests.try_iter());
            self.wait_for_returning(requests, &mut group);
            let began = Instant::now();
            let result = self.make_durable(group.last().map_or(0, |last| last.sequence));
            let ended = Instant::now();
            let durable = std::mem::replace(&mut group, requests.try_iter().collect());
            let operations = operations_of(&durable) + operations_of(&group);
            self.last = Some(LastSync { ended, took: ended - began, operations });
            for transaction in durable {
                (transaction.reply)(result.clone());
            }
        }
    }

    /// Waits a moment for the clients that were answered last and ask again.
    fn wait_for_returning(&self, requests: &Receiver<WrittenTransaction>, group: &mut Vec<WrittenTransaction>) {
        let (mut here, mut came) = (operations_of(group), Instant::now());
        while let Some(wait) = self.last.as_ref().and_then(|last| last.wait(here, came, Instant::now()))
            && let Ok(transaction) = requests.recv_timeout(wait)
        {
            (here, came) = (here + transaction.operations, Instant::now());
            group.push(transaction);
        }
    }

    fn make_durable(&mut self, sequence: u64) -> Result<(), StoreError> {
        if let Some(error) = &self.failure {
            return Err(error.clone());
        }
        if sequence <= self.acknowledged.last() {
            return Ok(());
        }
        let synced = self.journal.sync().and_then(|()| self.acknowledged.set(sequence));
        match synced {
            Ok(()) => self.mark.advance(sequence),
            Err(error) => {
                // The kernel may have dropped what it could not write: nothing after this can be trusted.
                let error = StoreError::SyncFailed(format!("{}: {error}", self.journal.directory.display()));
                self.mark.fail(error.clone());
                self.failure = Some(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }
}

/// A synchronisation that is shorter than this is not worth a wait.
const SHORT: Duration = Duration::from_millis(1);
/// The longest wait for clients that may ask again.
const LONGEST_WAIT: Duration = Duration::from_millis(4);
/// The wait ends when no operation has come for this long: the clients that ask again have done so.
const LONGEST_GAP: Duration = Duration::from_millis(1);

fn operations_of(group: &[WrittenTransaction]) -> usize {
    group.iter().map(|transaction| transaction.operations).sum()
}

/// The journal that the engine writes.
struct ActiveJournal {
    directory: PathBuf,
    open: Option<(PathBuf, File)>,
}

impl ActiveJournal {
    /// Makes everything durable that the engine has written before this call.
    fn sync(&mut self) -> io::Result<()> {
        let newest = journal::newest(&self.directory)?;
        match &self.open {
            Some((path, file)) if *path == newest => file.sync_data(),
            _ => {
                let file = File::options().write(true).open(&newest)?;
                file.sync_data()?;
                self.open = Some((newest, file));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_disk_waits_a_moment_for_the_clients_that_it_has_answered() {
        let ended = Instant::now();
        let last = |took_micros| LastSync { ended, took: Duration::from_micros(took_micros), operations: 256 };
        let after = |micros| ended + Duration::from_micros(micros);
        let micros = |wait: Option<Duration>| wait.map(|wait| wait.as_micros());
        assert_eq!(micros(last(4000).wait(100, after(400), after(500))), Some(900), "until none has come for a moment");
        assert_eq!(
            micros(last(4000).wait(100, after(2500), after(2600))),
            Some(400),
            "at most three quarters of what it took"
        );
        assert_eq!(
            micros(last(9000).wait(100, after(3900), after(3900))),
            Some(100),
            "not for long on a very slow disk"
        );
        assert_eq!(
            micros(last(4000).wait(100, ended - LONGEST_GAP, after(100))),
            Some(900),
            "the answers are on their way"
        );
        assert_eq!(last(4000).wait(100, after(400), after(1400)), None, "none comes any more");
        assert_eq!(last(4000).wait(100, after(2900), after(3000)), None, "the time is over");
        assert_eq!(last(4000).wait(224, after(1), after(1)), None, "nearly all are here");
        assert_eq!(last(999).wait(0, after(1), after(1)), None, "the disk is fast");
        let of_one_client = LastSync { operations: 1, ..last(4000) };
        assert_eq!(of_one_client.wait(1, after(1), after(1)), None, "the only client is here");
    }
}
