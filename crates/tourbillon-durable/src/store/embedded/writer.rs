//! The writer: one thread applies all changes, and writes what has come in one transaction. The syncer makes it durable and replies.

use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use super::changes::Changes;
use super::directory::StoreDirectory;
use super::encoding::Totals;
use super::options::EmbeddedOptions;
use super::reader::ReadJob;
use super::room;
use super::syncer::{Syncer, WrittenTransaction};
use super::tables::Tables;
use super::transaction::{LastEnded, Transaction};
use crate::store::error::StoreError;
use crate::store::op::{WriteAnswer, WriteOp};
use crate::store::reply::Reply;
use crate::store::rules;
use crate::store::shard::{Heartbeat, Ownership, ShardOwner, ShardTable};
use crate::time::StoreTime;

/// The most operations of one transaction, unless one batch has more.
const MOST_OPERATIONS: usize = 4096;

/// What the writer is asked for.
pub(super) enum WriteRequest {
    Batch(WriteBatch),
    Heartbeat(Heartbeat, Reply<Ownership>),
    SetPaused(bool, Reply<()>),
    Close(Option<Reply<()>>),
}

/// Operations of one caller.
pub(super) struct WriteBatch {
    pub(super) operations: Vec<WriteOp>,
    pub(super) reply: Reply<Vec<WriteAnswer>>,
}

/// The state of the writer's thread.
pub(super) struct StoreWriter {
    pub(super) tables: Arc<Tables>,
    pub(super) directory: StoreDirectory,
    pub(super) syncer: Syncer,
    pub(super) totals: Totals,
    /// Without entries between transactions.
    pub(super) changes: Changes,
    /// Kept from one transaction to the next while they import.
    pub(super) last_ended: Option<LastEnded>,
    pub(super) shards: ShardTable,
    pub(super) options: EmbeddedOptions,
    /// Set when the store has ended because a write failed.
    pub(super) failure: Arc<OnceLock<StoreError>>,
    pub(super) readers: Vec<(Sender<ReadJob>, JoinHandle<()>)>,
}

/// Returns the table of the one shard, which nobody owns.
pub(super) fn unowned(totals: &Totals) -> ShardTable {
    let shard = ShardOwner { node: None, epoch: totals.epoch, lease_until: StoreTime::ZERO };
    ShardTable::from_rows(vec![shard], Default::default())
}

impl StoreWriter {
    /// Serves requests until the store is closed.
    pub(super) fn run(mut self, requests: &Receiver<WriteRequest>) {
        let mut held = None;
        while let Some(request) = held.take().or_else(|| requests.recv().ok()) {
            match request {
                WriteRequest::Batch(batch) => {
                    let mut group = vec![batch];
                    held = gather(requests, &mut group);
                    self.write(group);
                }
                WriteRequest::Heartbeat(heartbeat, reply) => {
                    let ownership = self.heartbeat(&heartbeat);
                    self.reply_when_durable(reply, ownership);
                }
                WriteRequest::SetPaused(is_paused, reply) => {
                    let set = self.set_paused(is_paused);
                    self.reply_when_durable(reply, set);
                }
                WriteRequest::Close(reply) => {
                    let result = self.close();
                    if let Some(reply) = reply {
                        reply.send(result);
                    }
                    return;
                }
            }
        }
        let _ignored = self.close();
    }

    /// Applies the batches in one transaction, and has the syncer reply.
    fn write(&mut self, group: Vec<WriteBatch>) {
        let (operations, replies): (Vec<_>, Vec<_>) =
            group.into_iter().map(|batch| (batch.operations, batch.reply)).unzip();
        let count = operations.iter().map(Vec::len).sum();
        match self.apply(&operations) {
            Ok(answers) => self.when_durable(count, move |durable| {
                for (reply, answers) in replies.into_iter().zip(answers) {
                    reply.send(durable.clone().map(|()| answers));
                }
            }),
            // Nothing was written. Each batch alone, so that what one of them cannot read is that one's error.
            Err(_) if replies.len() > 1 && self.failure.get().is_none() => {
                for (operations, reply) in operations.into_iter().zip(replies) {
                    self.write(vec![WriteBatch { operations, reply }]);
                }
            }
            Err(error) => replies.into_iter().for_each(|reply| reply.send(Err(error.clone()))),
        }
    }

    /// Replies with a result when everything that was written before is durable, or at once with an error.
    fn reply_when_durable<T: Send + 'static>(&self, reply: Reply<T>, result: Result<T, StoreError>) {
        match result {
            Ok(value) => self.when_durable(0, move |durable| reply.send(durable.map(|()| value))),
            Err(error) => reply.send(Err(error)),
        }
    }

    /// Has a function called when everything that was written before is durable: also what a transaction without changes has read.
    fn when_durable(&self, operations: usize, reply: impl FnOnce(Result<(), StoreError>) + Send + 'static) {
        self.syncer.sync(WrittenTransaction { sequence: self.totals.sequence, operations, reply: Box::new(reply) });
    }

    /// Applies batches in one transaction, and returns the answers. The transaction is written, and not durable yet.
    fn apply(&mut self, batches: &[Vec<WriteOp>]) -> Result<Vec<Vec<WriteAnswer>>, StoreError> {
        self.check_alive()?;
        let now = (self.options.clock)();
        let needs_room = batches.iter().flatten().any(WriteOp::needs_room);
        let has_room = !needs_room || room::free_bytes(self.directory.path()) >= self.options.reserve;
        let changes = std::mem::take(&mut self.changes);
        let imports = batches.iter().flatten().any(|operation| matches!(operation, WriteOp::Import(_)));
        let last_ended = self.last_ended.take().filter(|_| imports);
        let rows = Transaction::new(&self.tables, &self.shards, self.totals, self.options.history, now, changes);
        let mut rows = rows.with_last_ended(last_ended);
        let mut answers = Vec::with_capacity(batches.len());
        for batch in batches {
            let apply = |operation: &WriteOp| {
                if operation.needs_room() && !has_room {
                    return Ok(WriteAnswer::Full);
                }
                rules::apply(&mut rows, operation.clone())
            };
            answers.push(batch.iter().map(apply).collect::<Result<_, StoreError>>()?);
        }
        let (totals, last_ended);
        (self.changes, totals, last_ended) = rows.finish();
        if self.changes.len() > 0 {
            self.commit(totals)?;
        }
        self.last_ended = last_ended;
        Ok(answers)
    }

    /// Writes the changes.
    fn commit(&mut self, totals: Totals) -> Result<(), StoreError> {
        let totals = Totals { sequence: self.totals.sequence + 1, ..totals };
        match self.tables.write(&mut self.changes, &totals) {
            Ok(()) => self.totals = totals,
            Err(error) => {
                let _is_set = self.failure.set(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn heartbeat(&mut self, heartbeat: &Heartbeat) -> Result<Ownership, StoreError> {
        self.check_alive()?;
        let now = (self.options.clock)();
        let mut shards = self.shards.clone();
        let ownership = shards.heartbeat(heartbeat, now);
        let epoch = shards.owners()[0].epoch;
        if epoch != self.totals.epoch {
            // Before the node claims anything, so that after a crash no other node gets the same epoch (Q7).
            self.commit(Totals { epoch, ..self.totals })?;
        }
        self.shards = shards;
        Ok(Ownership { is_paused: self.totals.is_paused, ..ownership })
    }

    fn set_paused(&mut self, is_paused: bool) -> Result<(), StoreError> {
        self.check_alive()?;
        if self.totals.is_paused != is_paused {
            self.commit(Totals { is_paused, ..self.totals })?;
        }
        Ok(())
    }

    fn check_alive(&self) -> Result<(), StoreError> {
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Ends the readers and what they read, closes the engine and gives up the lock.
    fn close(self) -> Result<(), StoreError> {
        let StoreWriter { tables, directory, syncer, failure, readers, .. } = self;
        directory.begin_closing();
        // A copy that has begun would take its time, and its receiver may be the caller that waits for this.
        tables.closing().begin();
        let acknowledged = syncer.finish();
        for (jobs, thread) in readers {
            let _has_ended = jobs.send(ReadJob::Stop);
            let _has_panicked = thread.join();
        }
        drop(tables);
        let path = directory.path().display();
        let synced = acknowledged.map_or(Ok(()), |acknowledged| acknowledged.sync());
        let synced = synced.map_err(|error| StoreError::SyncFailed(format!("{path}: {error}")));
        failure.get().map_or(synced, |error| Err(error.clone()))
    }
}

/// Adds the batches that have come to `group`, and returns the first request that is none.
fn gather(requests: &Receiver<WriteRequest>, group: &mut Vec<WriteBatch>) -> Option<WriteRequest> {
    let mut operations = group[0].operations.len();
    while operations < MOST_OPERATIONS {
        match requests.try_recv() {
            Ok(WriteRequest::Batch(batch)) => {
                operations += batch.operations.len();
                group.push(batch);
            }
            Ok(other) => return Some(other),
            Err(_) => return None,
        }
    }
    None
}
