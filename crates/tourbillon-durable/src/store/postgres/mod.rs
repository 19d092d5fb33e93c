//! A store in PostgreSQL 13 or newer, for many processes.
//!
//! ```text
//!   write   one transaction: lock the rows of the batch -> rules in memory -> write the difference, COMMIT   (write, working_set)
//!   due     an index by kind and time                                                                       (reads)
//!   leases  nodes(node, alive_until), shards(shard, epoch, node): one row written a heartbeat               (leases)
//!   hints   NOTIFY behind the commit, at most one each 20 ms; LISTEN with a connection of its own           (hints)
//! ```
//!
//! - *Durable* (Q1) means: as durable as the server is. Transactions run with `synchronous_commit = on`. A server with `fsync = off` can lose
//!   what it has acknowledged, and so can a failover to an asynchronous standby.
//! - *The clock* is the server's `clock_timestamp()`, in whole microseconds.
//! - *A lost connection* before `COMMIT` is [`StoreError::Unavailable`], and nothing was done; while `COMMIT` is under way it is
//!   [`StoreError::Uncertain`].
//! - *A server that cannot be written*, as a standby before it is promoted, is [`StoreError::ReadOnly`]. Its connections are closed, so that
//!   later requests reach the server that can be written, with its settings of then.
//! - *Locks.* A claim never waits for another transaction: [`ClaimAnswer::Lost`](super::ClaimAnswer::Lost) can therefore mean that another
//!   transaction had the row locked and then left it armed. A later [`due`](Store::due) shows it again.
//! - *Transactions of applications* can create and cancel timers with the functions `tourbillon.create_timer` and `tourbillon.cancel` (U5).
//!   They hold locks until they end: keep them short. The guide (`docs/guide/durable-timers.md`) describes their arguments and the rights they need.
//! - *Poolers* in transaction mode are possible, except for [`listen`](PostgresStore::listen): see [`PostgresOptions`].

mod columns;
mod failure;
mod hints;
mod leases;
mod options;
mod plan;
mod reads;
mod route;
mod schema;
mod session;
mod statements;
mod units;
mod wanted;
mod working_set;
mod write;

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{MakeTlsConnect, NoTls, TlsConnect};
use tokio_postgres::types::ToSql;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::failure::Failure;
use self::hints::{Listener, PendingHint};
pub use self::options::PostgresOptions;
use self::session::{Change, Pools};
use self::statements::Statements;
use super::error::StoreError;
use super::op::{WriteAnswer, WriteOp};
use super::query::{Cursor, DueEntry, DuePage, DueQuery, ListFilter, ListPage, StoreCounts};
use super::reply::Reply;
use super::row::{HistoryEntry, TimerRow};
use super::shard::{Heartbeat, NodeLeases, Ownership, ShardId};
use super::{HintFn, PartReply, Store, StoreTraits};
use crate::catch_panic::catch_panic;
use crate::id::TimerId;
use crate::time::StoreTime;

/// How many shards there are.
const SHARDS: u16 = 256;
/// How often a node looks for timers that other processes have armed.
const RESCAN: Duration = Duration::from_millis(250);
/// The same if hints tell of timers that are due soon, so that a look has to find only what a lost hint has told of, and timers that were
/// not due soon when they were armed. The latter are found in time, because this is less than [`hints::SOON`].
const RESCAN_WITH_HINTS: Duration = Duration::from_secs(1);
/// How often partitions of the history are made and dropped.
const UPKEEP_EVERY: Duration = Duration::from_secs(3600);
/// How long the server may work for the partitions of one day, in milliseconds.
const UPKEEP_LIMIT: &str = "10000";
/// For how many days partitions of the history are made ahead.
const DAYS_AHEAD: i32 = 3;

/// A store in PostgreSQL. Clones share its connections. It lives on the Tokio runtime on which it was connected.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

/// What all clones and requests share.
struct Shared {
    pools: Pools,
    sql: Statements,
    schema: String,
    request_timeout: Duration,
    history_days: i32,
    /// One permit for each batch that is written at the same time.
    writers: Semaphore,
    parallel_writes: usize,
    /// One permit for a transaction of batches whose operations are written apart, so that most writers are left for others.
    apart: Semaphore,
    lock_timeout: Duration,
    /// What this store owned at the last heartbeat.
    owned: Mutex<LastOwnership>,
    /// What other stores are told next.
    hint: Arc<PendingHint>,
    listener: Listener,
    /// Whether the options ask for hints, and connections can hear them.
    hints: bool,
    runtime: Handle,
    requests: TaskTracker,
    /// Cancelled when the store is closed or dropped.
    closed: CancellationToken,
}

/// What a store owned at its last heartbeat.
#[derive(Default)]
struct LastOwnership {
    shards: BTreeSet<ShardId>,
    /// The kinds that its node has handlers for; `None` if the node has not said.
    kinds: Option<BTreeSet<String>>,
}

impl PostgresStore {
    /// Connects to a server without TLS, and brings the schema `tourbillon` to the newest format.
    ///
    /// # Errors
    /// [`StoreError::NewerFormat`] if a newer program has used the database; [`StoreError::ReadOnly`] if the schema is not there and the server
    /// cannot be written; [`StoreError::NotPermitted`] if the user may not make it; [`StoreError::Unavailable`] if the server does not answer or refuses the connection; [`StoreError::BadOptions`] if the
    /// address cannot be understood, or without a Tokio runtime.
    ///
    /// # Panics
    /// If the Tokio runtime has no I/O or no time.
    pub async fn connect(url: &str) -> Result<PostgresStore, StoreError> {
        PostgresStore::open(PostgresOptions::new(url)?).await
    }

    /// Connects with these options, without TLS.
    ///
    /// # Errors
    /// Those of [`connect`](PostgresStore::connect); [`StoreError::BadOptions`] if the address asks for TLS; with [`PostgresOptions::create`]`(false)` also [`StoreError::Missing`] and
    /// [`StoreError::OlderFormat`].
    pub async fn open(options: PostgresOptions) -> Result<PostgresStore, StoreError> {
        if options.server.get_ssl_mode() == SslMode::Require {
            return Err(StoreError::BadOptions(
                "the address says sslmode=require, and this way to open a store has no TLS: use PostgresStore::open_tls with a connector, \
                 or sslmode=prefer if the connection may be without TLS"
                    .to_owned(),
            ));
        }
        PostgresStore::open_tls(options, NoTls).await
    }

    /// Connects with these options, and with TLS by a connector for `tokio-postgres`, such as those of `tokio-postgres-rustls`.
    ///
    /// # Errors
    /// Those of [`open`](PostgresStore::open).
    pub async fn open_tls<T>(options: PostgresOptions, tls: T) -> Result<PostgresStore, StoreError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync + 'static,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let runtime = Handle::try_current().map_err(|_| {
            StoreError::BadOptions(
                "PostgreSQL is used on a Tokio runtime: call this inside one, or use BlockingTimers::connect"
                    .to_owned(),
            )
        })?;
        let parallel_writes = options.connections.div_ceil(2);
        let creates = options.creates;
        let mut shared = Shared {
            pools: Pools::new(&options, tls.clone()),
            sql: Statements::new(&options.schema),
            request_timeout: options.request_timeout,
            history_days: i32::try_from(options.history_days).unwrap_or(i32::MAX / 2),
            writers: Semaphore::new(parallel_writes),
            parallel_writes,
            apart: Semaphore::new(1),
            lock_timeout: options.lock_timeout,
            owned: Mutex::default(),
            hint: Arc::default(),
            hints: options.hints,
            listener: hints::listener(options.server, tls, &options.schema),
            schema: options.schema,
            runtime,
            requests: TaskTracker::new(),
            closed: CancellationToken::new(),
        };
        shared.in_time(schema::prepare(&shared, creates)).await?;
        shared.hints &= route::keeps_sessions(&shared).await?;
        let shared = Arc::new(shared);
        let (hint, closed) = (Arc::clone(&shared.hint), shared.closed.clone());
        shared.runtime.spawn(hints::send(hint, Arc::downgrade(&shared), closed));
        if creates {
            let mut upkeep = Upkeep::default();
            match shared.keep_history().await {
                Err(error) if !error.is_temporary() && !matches!(error, StoreError::NotPermitted(_)) => {
                    return Err(error);
                }
                result => upkeep.tell(&result),
            }
            shared.runtime.spawn(upkeep.run(Arc::downgrade(&shared), shared.closed.clone()));
        }
        Ok(PostgresStore { shared })
    }

    /// Calls `on_hint` each time another process arms a timer that is due soon, with its due time; with [`StoreTime::ZERO`] if that is not
    /// known, and when the connection was made anew. Hints can be lost: they only save the time until the next look.
    ///
    /// This needs a connection to the server itself, or a pooler in session mode: a pooler in transaction mode does not pass hints on.
    pub fn listen(&self, on_hint: impl Fn(StoreTime) + Send + Sync + 'static) {
        // The listener survives a panic of the caller's function.
        let on_hint = move |due| catch_panic(|| on_hint(due));
        let listening = (self.shared.listener)(Arc::new(on_hint));
        let closed = self.shared.closed.clone();
        self.shared.runtime.spawn(async move { closed.run_until_cancelled(listening).await });
    }

    /// Returns the Tokio runtime of the store.
    pub(crate) fn runtime(&self) -> Handle {
        self.shared.runtime.clone()
    }

    /// Answers a request in a task of its own.
    fn answer<T, F>(&self, reply: Reply<T>, request: impl FnOnce(Arc<Shared>) -> F)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        if self.shared.closed.is_cancelled() {
            return reply.send(Err(StoreError::Closed));
        }
        let answer = request(Arc::clone(&self.shared));
        self.shared.requests.spawn_on(async move { reply.send(answer.await) }, &self.shared.runtime);
    }
}

impl Shared {
    /// Runs a request that changes no timer, for as long as a request may take.
    async fn in_time<T>(&self, request: impl Future<Output = Result<T, Failure>>) -> Result<T, StoreError> {
        self.in_time_of(self.request_timeout, request).await
    }

    /// The same with another limit.
    async fn in_time_of<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        let begin = Instant::now();
        let result = tokio::time::timeout(limit, request).await;
        if matches!(result, Err(_) | Ok(Err(Failure::Lost(_)))) {
            self.pools.forget_older_than(begin);
        }
        match result {
            Ok(result) => result.map_err(Failure::into_error),
            Err(_) => Err(StoreError::Unavailable(format!("PostgreSQL did not answer within {limit:?}"))),
        }
    }

    fn set_owned(&self, shards: impl Iterator<Item = ShardId>, kinds: Option<&BTreeSet<String>>) {
        let now = LastOwnership { shards: shards.collect(), kinds: kinds.cloned() };
        *self.owned.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Returns whether this store's own node delivers rows of a shard and kind, as far as the store knows: then it needs no hint.
    fn delivers(&self, shard: ShardId, kind: &str) -> bool {
        let owned = self.owned.lock().unwrap_or_else(PoisonError::into_inner);
        owned.shards.contains(&shard) && owned.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    /// Makes the partitions of the history for the next days, and drops those that are too old. Each day has a transaction of its own, today first,
    /// so that a day whose entries take long to move keeps no other from its partition. While entries are moved, deliveries cannot end.
    async fn keep_history(&self) -> Result<(), StoreError> {
        for ahead in 0..=DAYS_AHEAD {
            let limit = (&self.sql.set_time_limit, vec![&UPKEEP_LIMIT as &(dyn ToSql + Sync)]);
            self.in_time(self.run_alone(&[limit, (&self.sql.keep_history, vec![&self.history_days, &ahead])])).await?;
        }
        Ok(())
    }

    async fn set_paused(&self, is_paused: bool) -> Result<(), Failure> {
        self.run_alone(&[(&self.sql.set_paused, vec![&is_paused])]).await
    }

    /// Runs statements in a transaction of their own.
    async fn run_alone(&self, statements: &[Change<'_>]) -> Result<(), Failure> {
        let mut session = self.pools.session(&self.pools.control).await?;
        let done = async {
            session.begin(statements).await?;
            session.commit(&[], || ()).await
        };
        if let Err(failure) = done.await {
            session.roll_back(&failure).await;
            return Err(failure);
        }
        Ok(())
    }
}

/// Keeps the history in shape.
#[derive(Default)]
struct Upkeep {
    /// How often it has failed since it last succeeded.
    failures: u64,
}

impl Upkeep {
    /// Runs until the store is closed.
    async fn run(mut self, store: Weak<Shared>, closed: CancellationToken) {
        while closed.run_until_cancelled(tokio::time::sleep(UPKEEP_EVERY)).await.is_some() {
            let Some(store) = store.upgrade() else { return };
            // If it fails, entries of a day without partition are kept in `history_rest`, and the next run moves them.
            self.tell(&store.keep_history().await);
        }
    }

    /// Tells on standard error of a second failure in a row, and again each time their number has doubled.
    fn tell(&mut self, result: &Result<(), StoreError>) {
        if let Some(text) = self.note(result) {
            eprintln!("tourbillon-durable: {text}");
        }
    }

    fn note(&mut self, result: &Result<(), StoreError>) -> Option<String> {
        let Err(error) = result else {
            self.failures = 0;
            return None;
        };
        self.failures += 1;
        let is_told = self.failures >= 2 && self.failures.is_power_of_two();
        is_told.then(|| {
            format!(
                "the history has failed {} times to get partitions and to lose old ones: {error}. It grows until the owner of its tables calls \
                 keep_history: see the guide",
                self.failures
            )
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

impl Store for PostgresStore {
    fn traits(&self) -> StoreTraits {
        let rescan = if self.shared.hints { RESCAN_WITH_HINTS } else { RESCAN };
        StoreTraits { shards: SHARDS, parallel_writes: self.shared.parallel_writes, rescan: Some(rescan) }
    }

    fn write(&self, batch: Vec<WriteOp>, reply: Reply<Vec<WriteAnswer>>) {
        self.answer(reply, |store| async move { write::write(&store, batch).await });
    }

    fn write_in_parts(&self, batch: Vec<WriteOp>, groups: Vec<Range<usize>>, reply: PartReply) {
        if self.shared.closed.is_cancelled() {
            let all: Vec<usize> = (0..batch.len()).collect();
            return catch_panic(|| reply(&all, Err(StoreError::Closed)));
        }
        let store = Arc::clone(&self.shared);
        let writing = async move { write::write_in_parts(&store, &batch, &groups, &reply).await };
        self.shared.requests.spawn_on(writing, &self.shared.runtime);
    }

    fn due(&self, query: DueQuery, reply: Reply<DuePage>) {
        self.answer(reply, |store| async move { store.in_time(reads::due(&store, &query)).await });
    }

    fn orphans(&self, kind: String, shards: Vec<ShardId>, limit: usize, reply: Reply<Vec<DueEntry>>) {
        self.answer(
            reply,
            move |store| async move { store.in_time(reads::orphans(&store, &kind, &shards, limit)).await },
        );
    }

    fn heartbeat(&self, heartbeat: Heartbeat, reply: Reply<Ownership>) {
        self.answer(reply, |store| async move { leases::heartbeat(&store, &heartbeat).await });
    }

    fn get(&self, id: TimerId, reply: Reply<Vec<TimerRow>>) {
        self.answer(reply, move |store| async move { store.in_time(reads::get(&store, id)).await });
    }

    fn get_key(&self, namespace: String, key: String, reply: Reply<Option<TimerRow>>) {
        self.answer(reply, |store| async move { store.in_time(reads::get_key(&store, &namespace, &key)).await });
    }

    fn list(&self, filter: ListFilter, cursor: Option<Cursor>, limit: usize, reply: Reply<ListPage>) {
        self.answer(
            reply,
            move |store| async move { store.in_time(reads::list(&store, &filter, cursor, limit)).await },
        );
    }

    fn upcoming(&self, filter: ListFilter, limit: usize, reply: Reply<Vec<TimerRow>>) {
        self.answer(reply, move |store| async move { store.in_time(reads::upcoming(&store, &filter, limit)).await });
    }

    fn history(&self, id: TimerId, reply: Reply<Vec<HistoryEntry>>) {
        self.answer(reply, move |store| async move { store.in_time(reads::history(&store, id)).await });
    }

    fn counts(&self, reply: Reply<StoreCounts>) {
        self.answer(reply, |store| async move { store.in_time(reads::counts(&store)).await });
    }

    fn set_paused(&self, is_paused: bool, reply: Reply<()>) {
        self.answer(reply, move |store| async move { store.in_time(store.set_paused(is_paused)).await });
    }

    fn node_leases(&self, reply: Reply<NodeLeases>) {
        self.answer(reply, |store| async move { store.in_time(leases::node_leases(&store)).await });
    }

    fn snapshot(&self, pages: async_channel::Sender<Vec<TimerRow>>, reply: Reply<u64>) {
        self.answer(
            reply,
            move |store| async move { reads::snapshot(&store, &pages).await.map_err(Failure::into_error) },
        );
    }

    fn on_hint(&self, on_hint: HintFn) {
        if self.shared.hints {
            self.listen(move |_| on_hint());
        }
    }

    fn close(&self, reply: Reply<()>) {
        let shared = Arc::clone(&self.shared);
        shared.closed.cancel();
        shared.requests.close();
        self.shared.runtime.spawn(async move {
            shared.requests.wait().await;
            shared.pools.work.close();
            shared.pools.control.close();
            reply.send(Ok(()));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o5_q8_upkeep_that_fails_again_and_again_is_told_of() {
        let mut upkeep = Upkeep::default();
        let denied = || Err(StoreError::NotPermitted("must be owner of table history".to_owned()));
        let told: Vec<bool> = (0..8).map(|_| upkeep.note(&denied()).is_some()).collect();
        assert_eq!(told, [false, true, false, true, false, false, false, true]);
        assert_eq!(
            (upkeep.note(&Ok(())), upkeep.note(&denied())),
            (None, None),
            "one success, and one failure behind it"
        );
        assert!(upkeep.note(&denied()).is_some_and(|text| text.contains("owner of table")));
    }
}
