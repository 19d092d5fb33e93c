//! The surface: [`Timers`].
//!
//! ```text
//!     Timers (clones) --- requests ---> node loop (a thread) --- batches ---> Store
//!        create, cancel, ...              Core, Batcher      <-- replies ---
//!                                            |  deliveries
//!                                            v
//!                                         handlers, by kind, on threads of their own or on Tokio
//! ```

mod blocking;
mod builder;
mod clocks;
mod delivery;
mod error;
mod events;
mod handlers;
mod node_loop;
mod places;
mod pull;
mod queue;
mod request;
mod stats;

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

pub use self::blocking::BlockingTimers;
pub use self::builder::TimersBuilder;
pub use self::delivery::{Ack, Delivery, HandlerResult};
pub use self::error::TimersError;
pub use self::events::{Event, Events};
use serde::de::DeserializeOwned;

use self::handlers::Handler;
use self::node_loop::{Mailbox, Message};
pub use self::pull::{PullAnswer, PullRequest, Pulled, Receipt};
use self::queue::RequestQueue;
pub use self::request::{Answer, LARGEST_BATCH, LARGEST_BATCH_PAYLOAD, Request};
pub use self::stats::{DeliveryStats, NamespaceLateness, StoreFailing};
use crate::id::TimerId;
use crate::spec::{FirstDue, Limits, NewTimer};
use crate::store::{
    CancelCounts, CancelOp, CreateAnswer, CreateOp, Cursor, DeadLetterOp, HistoryEntry, ListFilter, ListPage, Reply,
    RescheduleAnswer, RescheduleOp, RowId, Store, StoreCounts, StoreError, Target, TimerRow, WriteAnswer, WriteOp,
};
use crate::time::StoreTime;

/// How many deliveries of a kind there are at the same time, unless [`Timers::on_with_limit`] says otherwise.
pub const DEFAULT_CONCURRENCY: usize = 256;

/// Timers that outlive their process.
///
/// Clones are handles to the same timers. The futures can be awaited under any executor. Without [`shutdown`](Timers::shutdown) the node ends when
/// the last handle is dropped. A handler that has a clone is such a handle, so then only a shutdown ends the node.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon_durable::{MemoryStore, NewTimer, Timers};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let timers = Timers::builder().build(MemoryStore::new())?;
/// let (sender, received) = channel();
/// timers.on("reminder", move |delivery| {
///     let sender = sender.clone();
///     async move { sender.send(delivery.text()?.to_owned()).map_err(Box::<dyn std::error::Error + Send + Sync>::from) }
/// })?;
/// let reminder = NewTimer::after("reminder", Duration::from_millis(5)).key("tea").payload("pour the tea");
/// let created = timers.blocking().create(reminder)?;
/// assert_eq!(received.recv()?, "pour the tea");
/// timers.blocking().shutdown(Duration::from_secs(1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Timers {
    inner: Arc<TimersInner>,
}

struct TimersInner {
    mailbox: Mailbox,
    store: Arc<dyn Store>,
    limits: Limits,
    queue: RequestQueue,
    stats: Arc<stats::StatsRecorder>,
    /// What is added to the system's clock to have the store's, in microseconds.
    clock_offset: Arc<AtomicI64>,
    /// Why the node has ended, if its store has failed.
    failure: Arc<OnceLock<StoreError>>,
}

/// A timer that a store has accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Created {
    /// Its id.
    pub id: TimerId,
    /// When it is due.
    pub due: SystemTime,
    /// The version of it, for [`Timers::reschedule`].
    pub version: u64,
    /// Whether it was created now: not if a timer with the key was pending and stays.
    pub is_new: bool,
    /// Whether the timer that had the key, and which stays or was replaced, is being delivered.
    pub in_flight: bool,
}

/// A timer that has another due time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rescheduled {
    /// When it is due.
    pub due: SystemTime,
    /// The new version of it.
    pub version: u64,
}

impl Timers {
    /// Returns a builder with the defaults.
    pub fn builder() -> TimersBuilder {
        TimersBuilder::default()
    }

    /// Opens the timers in a directory, which is created if it does not exist, with the default options. One process at a time can have it
    /// open. Others of [`builder`](Timers::builder).
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> { smol::block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// use std::time::Duration;
    /// use tourbillon_durable::{NewTimer, Timers};
    ///
    /// let timers = Timers::open(directory.path()).await?;
    /// timers.on("expire", |delivery| async move { println!("{:?} has expired", delivery.key()) })?;
    /// timers.create(NewTimer::after("expire", Duration::from_secs(900)).key("order 4711")).await?;
    /// timers.shutdown(Duration::from_secs(5)).await?;
    ///
    /// let timers = Timers::open(directory.path()).await?; // another process, another day
    /// assert_eq!(timers.cancel("order 4711").await?.cancelled, 1);
    /// # timers.shutdown(Duration::from_secs(5)).await?;
    /// # Ok(()) }) }
    /// ```
    ///
    /// # Errors
    /// [`TimersError::Store`] with [`StoreError::Locked`] if another process has the directory open, [`StoreError::NewerFormat`] if a newer
    /// version has written it, [`StoreError::Damaged`] if something that was acknowledged cannot be read, and
    /// [`StoreError::ReadOnly`], [`StoreError::Full`] or [`StoreError::Unavailable`] if the operating system refuses. The text says what to do.
    #[cfg(feature = "embedded")]
    pub async fn open(directory: impl AsRef<std::path::Path>) -> Result<Timers, TimersError> {
        Timers::builder().open(directory).await
    }

    /// Opens the timers in a PostgreSQL database, with the default options and without TLS: `postgres://user:password@host/database`. Many processes can
    /// do so; they share the work. The schema `tourbillon` is created or brought to the newest format. Others of
    /// [`builder`](Timers::builder).
    ///
    /// This is called on a Tokio runtime, on which the connections live and handlers run. [`BlockingTimers::connect`] needs none.
    ///
    /// # Errors
    /// [`TimersError::Store`] with [`StoreError::BadOptions`] if the address cannot be understood, or without a Tokio runtime;
    /// [`StoreError::Unavailable`] if the server does not answer or refuses the connection; [`StoreError::NewerFormat`] if a newer version
    /// has used the database; [`StoreError::ReadOnly`] or [`StoreError::NotPermitted`] if the schema is missing and cannot
    /// be created.
    #[cfg(feature = "postgres")]
    pub async fn connect(url: &str) -> Result<Timers, TimersError> {
        Timers::builder().connect(url).await
    }

    /// Returns the same timers for code that is not `async`: each call blocks its thread.
    ///
    /// The store's own threads answer, except with [`connect`](Timers::connect): there the connections need the threads of the caller's Tokio runtime. Calls
    /// that block all of these, of which a current-thread runtime has one, wait for ever, so `async` code and handlers on it do not make them.
    #[must_use]
    pub fn blocking(&self) -> BlockingTimers {
        BlockingTimers::new(self.clone())
    }

    /// Creates a timer, and returns when it is durable.
    ///
    /// If the future is dropped, the timer may have been created all the same; with a key it can be created again without harm.
    ///
    /// # Errors
    /// The timer is invalid, its key belongs to a timer that was asked for differently, or the store failed.
    pub async fn create(&self, timer: NewTimer) -> Result<Created, TimersError> {
        self.created(self.ask(self.create_op(timer)?).await?)
    }

    /// Creates many timers in one request: one durable transaction, if the store takes that many in one. More than 1,024, or 16 MiB of payload, or than may
    /// [wait for the store](TimersBuilder::waiting_requests), are sent in parts, one after the other as the store makes room.
    ///
    /// If the future is dropped, some timers may have been created all the same.
    ///
    /// # Errors
    /// A timer is invalid: then none is created. What else goes wrong is in the results, in the order of the timers.
    pub async fn create_all(
        &self,
        timers: impl IntoIterator<Item = NewTimer>,
    ) -> Result<Vec<Result<Created, TimersError>>, TimersError> {
        let ops: Vec<WriteOp> = timers.into_iter().map(|timer| self.create_op(timer)).collect::<Result<_, _>>()?;
        let answers = self.ask_all(ops).await?;
        Ok(answers.into_iter().map(|answer| self.created(answer?)).collect())
    }

    /// Cancels the timer with a key of the namespace `default`. A dead letter that was [replayed](Timers::replay) has no key.
    ///
    /// # Errors
    /// The store failed.
    pub async fn cancel(&self, key: impl Into<String>) -> Result<CancelCounts, TimersError> {
        self.cancel_target(Target::key(key)).await
    }

    /// Cancels all timers with a name of the namespace `default`, in one transaction. What is counted as cancelled is never delivered.
    ///
    /// # Errors
    /// The store failed.
    pub async fn cancel_name(&self, name: impl Into<String>) -> Result<CancelCounts, TimersError> {
        self.cancel_target(Target::name(name)).await
    }

    /// Cancels timers by id, key or name, in any namespace: `Target::name("cart 7").in_namespace("shop")`.
    ///
    /// # Errors
    /// The store failed.
    pub async fn cancel_target(&self, target: Target) -> Result<CancelCounts, TimersError> {
        match self.ask(WriteOp::Cancel(CancelOp { target })).await? {
            WriteAnswer::Cancel(counts) => Ok(counts),
            _ => Err(TimersError::confused()),
        }
    }

    /// Cancels many targets in one request. The counts are in the order of the targets.
    ///
    /// # Errors
    /// The node has ended. Errors of the store are in the results.
    pub async fn cancel_all(
        &self,
        targets: impl IntoIterator<Item = Target>,
    ) -> Result<Vec<Result<CancelCounts, TimersError>>, TimersError> {
        let ops = targets.into_iter().map(|target| WriteOp::Cancel(CancelOp { target })).collect();
        let answers = self.ask_all(ops).await?;
        let counts = answers.into_iter().map(|answer| match answer? {
            WriteAnswer::Cancel(counts) => Ok(counts),
            _ => Err(TimersError::confused()),
        });
        Ok(counts.collect())
    }

    /// Gives a pending timer, by its id or key, another due time; with `if_version` only if it was not changed since. Versions are those of one timer
    /// and begin with 1, so compare them with [`Target::Id`]: a key may be another timer's by now, which has come to the same version. A [`FirstDue::At`] takes
    /// `StoreTime::try_from(time)?` of a `SystemTime`; [`FirstDue::Next`] is for timers that repeat.
    ///
    /// # Errors
    /// No such timer is pending, or the target is a name; it is being delivered, it has another version, the time is out of range, or the store
    /// failed.
    pub async fn reschedule(
        &self,
        target: Target,
        when: FirstDue,
        if_version: Option<u64>,
    ) -> Result<Rescheduled, TimersError> {
        rescheduled(self.ask(WriteOp::Reschedule(RescheduleOp { target, when, if_version })).await?)
    }

    /// Returns all occurrences of a timer that have not ended, the latest first.
    ///
    /// # Errors
    /// The store failed.
    pub async fn get(&self, id: TimerId) -> Result<Vec<TimerRow>, TimersError> {
        self.read(|store, reply| store.get(id, reply)).await
    }

    /// Returns the timer that has a key.
    ///
    /// # Errors
    /// The store failed.
    pub async fn get_key(
        &self,
        namespace: impl Into<String>,
        key: impl Into<String>,
    ) -> Result<Option<TimerRow>, TimersError> {
        let (namespace, key) = (namespace.into(), key.into());
        self.read(|store, reply| store.get_key(namespace, key, reply)).await
    }

    /// Returns a page of timers, in the order of their ids: up to `limit` of them that pass the filter and come after the cursor.
    ///
    /// The page is the last if it has no `next`, and only then. Before that a page has a timer at least; it can have fewer than `limit`, if a
    /// store in a directory has looked at many timers that did not pass. Such a store answers other questions while it looks at further ones.
    ///
    /// The cursor of a page stays valid whatever happens to the timers. No occurrence comes twice; one that is created between two pages comes if
    /// its id is behind the cursor, and usually it is.
    ///
    /// # Errors
    /// [`TimersError::ZeroPage`] if `limit` is zero; the store failed.
    pub async fn list(
        &self,
        filter: ListFilter,
        cursor: Option<Cursor>,
        limit: usize,
    ) -> Result<ListPage, TimersError> {
        if limit == 0 {
            return Err(TimersError::ZeroPage);
        }
        self.read(|store, reply| store.list(filter, cursor, limit, reply)).await
    }

    /// Returns timers that pass the filter and are not dead letters, those first that are delivered first; the search may end early if few
    /// timers pass.
    ///
    /// # Errors
    /// The store failed.
    pub async fn upcoming(&self, filter: ListFilter, limit: usize) -> Result<Vec<TimerRow>, TimersError> {
        self.read(|store, reply| store.upcoming(filter, limit, reply)).await
    }

    /// Returns how occurrences of a timer ended, as long as the store remembers it, the latest first.
    ///
    /// # Errors
    /// The store failed.
    pub async fn history(&self, id: TimerId) -> Result<Vec<HistoryEntry>, TimersError> {
        self.read(|store, reply| store.history(id, reply)).await
    }

    /// Returns how many timers there are, and which wait for a handler.
    ///
    /// # Errors
    /// The store failed.
    pub async fn counts(&self) -> Result<StoreCounts, TimersError> {
        self.read(<dyn Store>::counts).await
    }

    /// Returns what this process has delivered, and how late.
    #[must_use]
    pub fn stats(&self) -> DeliveryStats {
        DeliveryStats { waiting_requests: self.inner.queue.len(), ..self.inner.stats.read() }
    }

    /// Returns what [`stats`](Timers::stats) returns, without the lateness: its histograms are large, and a health check does not need them.
    #[must_use]
    pub fn stats_without_lateness(&self) -> DeliveryStats {
        DeliveryStats { waiting_requests: self.inner.queue.len(), ..self.inner.stats.read_without_lateness() }
    }

    /// Pauses the delivery of all timers of the store, by all processes, until [`resume`](Timers::resume), even if the processes end meanwhile.
    /// Everything else goes on, and deliveries that have begun end as usual. After this has returned, this process begins no delivery; others
    /// on the same store hear of it with their next sign of life, within a third of their [lease](TimersBuilder::node_lease).
    ///
    /// # Errors
    /// The store failed.
    pub async fn pause(&self) -> Result<(), TimersError> {
        self.set_paused(true).await
    }

    /// Ends a [pause](Timers::pause), or that of a store that was restored from a backup.
    ///
    /// # Errors
    /// The store failed.
    pub async fn resume(&self) -> Result<(), TimersError> {
        self.set_paused(false).await
    }

    /// Copies the store into a directory that does not exist or is empty, while it is used, and returns the number of rows (O4). To restore the copy,
    /// open it, or a copy of it, and [resume](Timers::resume) it: until then it delivers nothing.
    ///
    /// # Errors
    /// The store is not in a directory, or could not be read, or the copy could not be written.
    pub async fn backup(&self, to: impl Into<PathBuf>) -> Result<u64, TimersError> {
        self.read(|store, reply| store.backup(to.into(), reply)).await
    }

    /// Returns the store, for [`transfer`](crate::transfer).
    #[must_use]
    pub fn store(&self) -> &dyn Store {
        &*self.inner.store
    }

    async fn set_paused(&self, is_paused: bool) -> Result<(), TimersError> {
        self.read(|store, reply| store.set_paused(is_paused, reply)).await?;
        let (sender, receiver) = futures_channel::oneshot::channel();
        self.send(Message::Paused(is_paused, sender))?;
        receiver.await.map_err(|_| self.ended())
    }

    /// Delivers a dead letter once more, at once. Returns whether there was one. The timer does not get its key back, which may be another timer's:
    /// cancel it by its id or name.
    ///
    /// # Errors
    /// The store failed.
    pub async fn replay(&self, id: RowId) -> Result<bool, TimersError> {
        self.dead_letter(id, true).await
    }

    /// Ends a dead letter. Returns whether there was one.
    ///
    /// # Errors
    /// The store failed.
    pub async fn discard(&self, id: RowId) -> Result<bool, TimersError> {
        self.dead_letter(id, false).await
    }

    /// Registers the handler of a kind. Timers of a kind without a handler wait, and are counted by [`counts`](Timers::counts).
    ///
    /// The handler is called at least once for each timer that is due, until it acknowledges it: see [`HandlerResult`]. A second
    /// handler for a kind replaces the first.
    ///
    /// # Errors
    /// The kind cannot be the kind of a timer, or the node has ended.
    pub fn on<H, F>(&self, kind: &str, handler: H) -> Result<(), TimersError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: HandlerResult,
    {
        self.on_with_limit(kind, DEFAULT_CONCURRENCY, handler)
    }

    /// Registers the handler of a kind, with the most deliveries at the same time.
    ///
    /// # Errors
    /// The kind cannot be the kind of a timer, the limit is zero, or the node has ended.
    pub fn on_with_limit<H, F>(&self, kind: &str, limit: usize, handler: H) -> Result<(), TimersError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: HandlerResult,
    {
        self.on_kinds(&[kind], limit, handler)
    }

    /// Registers one handler for many kinds, each with the most deliveries at the same time.
    ///
    /// # Errors
    /// A text cannot be the kind of a timer, the limit is zero, or the node has ended.
    pub fn on_kinds<H, F>(&self, kinds: &[&str], limit: usize, handler: H) -> Result<(), TimersError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: HandlerResult,
    {
        kinds.iter().try_for_each(|kind| crate::spec::check_kind(kind))?;
        if limit == 0 {
            return Err(TimersError::ZeroLimit);
        }
        let handler = Handler::new(handler);
        kinds.iter().try_for_each(|kind| {
            self.send(Message::Register { kind: (*kind).to_owned(), limit, handler: Some(handler.clone()) })
        })
    }

    /// Registers the handler of a kind whose payloads are values as JSON, written by [`NewTimer::json`]. A payload that is no such value makes its timer a
    /// dead letter, which can be replayed by a program that knows better.
    ///
    /// # Errors
    /// Those of [`on`](Timers::on).
    pub fn on_json<T, H, F>(&self, kind: &str, handler: H) -> Result<(), TimersError>
    where
        T: DeserializeOwned + Send + 'static,
        H: Fn(Delivery, T) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: HandlerResult,
    {
        self.on(kind, move |delivery| {
            let begun = delivery.json().map(|value| handler(delivery, value));
            async move {
                match begun {
                    Ok(handling) => handling.await.into_ack(),
                    Err(error) => Ack::GiveUp(format!("the payload is not what the handler expects: {error}")),
                }
            }
        })
    }

    /// Removes the handler of a kind: its timers wait from now on.
    ///
    /// # Errors
    /// The node has ended.
    pub fn off(&self, kind: &str) -> Result<(), TimersError> {
        self.send(Message::Register { kind: kind.to_owned(), limit: 0, handler: None })
    }

    /// Stops delivering, waits until deliveries that have begun have ended, but no longer than `limit`, and closes the store. Until the last of them
    /// has ended, handlers can go on using these timers.
    ///
    /// # Errors
    /// Deliveries were still running at the limit: they are delivered again by the next process. Or the store failed.
    pub async fn shutdown(&self, limit: Duration) -> Result<(), TimersError> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        self.send(Message::Shutdown { limit, done: sender })?;
        receiver.await.unwrap_or_else(|_| Err(self.ended()))
    }

    async fn dead_letter(&self, id: RowId, replay: bool) -> Result<bool, TimersError> {
        match self.ask(WriteOp::DeadLetter(DeadLetterOp { id, replay })).await? {
            WriteAnswer::DeadLetter(found) => Ok(found.is_some()),
            _ => Err(TimersError::confused()),
        }
    }

    fn create_op(&self, timer: NewTimer) -> Result<WriteOp, TimersError> {
        let (spec, on_conflict) = timer.check(self.inner.limits)?;
        Ok(WriteOp::Create(CreateOp { id: TimerId::new(), spec: Arc::new(spec), on_conflict }))
    }

    fn created(&self, answer: WriteAnswer) -> Result<Created, TimersError> {
        let created = |id, due: StoreTime, version, is_new, in_flight| {
            let due = due.to_system();
            Created { id, due, version, is_new, in_flight }
        };
        match answer {
            WriteAnswer::Create(CreateAnswer::Created { entry, due, in_flight, .. }) => {
                Ok(created(entry.id.timer, due, entry.version, true, in_flight))
            }
            WriteAnswer::Create(CreateAnswer::Existing { id, due, version, in_flight }) => {
                Ok(created(id, due, version, false, in_flight))
            }
            WriteAnswer::Create(CreateAnswer::Conflict { id }) => Err(TimersError::Conflict(id)),
            WriteAnswer::Create(CreateAnswer::NeverDue) => Err(TimersError::Invalid(crate::InvalidTimer::NeverDue)),
            WriteAnswer::Full => Err(TimersError::Store(StoreError::Full("creates are refused".to_owned()))),
            _ => Err(TimersError::confused()),
        }
    }

    async fn read<T: Send + 'static>(&self, ask: impl FnOnce(&dyn Store, Reply<T>)) -> Result<T, TimersError> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        // Dropped with this future: the store then drops the question.
        let waiting = Arc::new(());
        let caller = Arc::downgrade(&waiting);
        let reply = Reply::new_while(move || caller.strong_count() > 0, move |result| queue::reply(sender, result));
        ask(&*self.inner.store, reply);
        let answer = receiver.await;
        drop(waiting);
        answer.map_err(|_| self.ended())?.map_err(|error| self.store_failed(error))
    }

    fn send(&self, message: Message) -> Result<(), TimersError> {
        self.inner.mailbox.send(message).map_err(|_| self.ended())
    }

    /// Returns the error of a request that the store has refused. A request that comes while the timers are shut down may meet the closed
    /// store or no node any more; the caller is told the same.
    fn store_failed(&self, error: StoreError) -> TimersError {
        if error == StoreError::Closed { self.ended() } else { TimersError::Store(error) }
    }

    /// Returns why there is no answer.
    fn ended(&self) -> TimersError {
        self.inner.failure.get().map_or(TimersError::Ended, |error| TimersError::Store(error.clone()))
    }
}

fn rescheduled(answer: WriteAnswer) -> Result<Rescheduled, TimersError> {
    match answer {
        WriteAnswer::Reschedule(RescheduleAnswer::Moved { entry, due, .. }) => {
            Ok(Rescheduled { due: due.to_system(), version: entry.version })
        }
        WriteAnswer::Reschedule(RescheduleAnswer::VersionIs(version)) => Err(TimersError::VersionIs(version)),
        WriteAnswer::Reschedule(RescheduleAnswer::InFlight) => Err(TimersError::InFlight),
        WriteAnswer::Reschedule(RescheduleAnswer::NotFound) => Err(TimersError::NotFound),
        WriteAnswer::Reschedule(RescheduleAnswer::OutOfRange) => Err(TimersError::OutOfRange),
        _ => Err(TimersError::confused()),
    }
}

/// Returns a number for the jitter of a retry.
fn random(seed: impl std::hash::Hash) -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), seed)
}

/// Without handles nobody can shut the timers down: the node ends at once, and what it delivers is delivered again by the next process.
impl Drop for TimersInner {
    fn drop(&mut self) {
        let (done, _nobody_waits) = futures_channel::oneshot::channel();
        let _ended = self.mailbox.send(Message::Shutdown { limit: Duration::ZERO, done });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use futures_lite::future::{block_on, poll_once};

    use super::*;
    use crate::MemoryStore;

    #[test]
    fn q6_the_store_is_told_when_a_read_is_given_up() {
        let timers = Timers::builder().build(MemoryStore::new()).unwrap();
        let (sender, asked) = channel();
        let mut read = Box::pin(timers.read(move |_, reply: Reply<()>| sender.send(reply).unwrap()));
        assert!(block_on(poll_once(&mut read)).is_none());
        let reply = asked.recv().unwrap();
        assert!(reply.is_wanted());
        drop(read);
        assert!(!reply.is_wanted());
    }
}
