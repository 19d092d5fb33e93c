//! How timers are opened.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

#[cfg(feature = "postgres")]
use tokio_postgres::{
    Socket,
    tls::{MakeTlsConnect, TlsConnect},
};

#[cfg(any(feature = "embedded", feature = "postgres"))]
use super::BlockingTimers;
use super::handlers::{HandlerThreads, SpawnFn};
use super::node_loop::{Mailbox, Message, NodeLoop};
use super::queue::RequestQueue;
use super::stats::StatsRecorder;
use super::{Timers, TimersError, TimersInner};
use crate::core::{CoreConfig, Input};
use crate::spec::{HIGHEST_PAYLOAD_LIMIT, Limits};
use crate::store::{NodeId, Store};

/// The longest lease: the clocks of nodes have room for it beyond their times.
const LONGEST_LEASE: Duration = Duration::from_secs(365 * 86_400);

/// Options of [`Timers`].
#[must_use]
pub struct TimersBuilder {
    limits: Limits,
    waiting_requests: usize,
    largest_batch: usize,
    delivery_lease: Duration,
    node_lease: Duration,
    rows_in_memory: usize,
    threads: usize,
    spawn: Option<SpawnFn>,
    max_clock_skew: Duration,
    /// Runtimes that only these timers use: they end with their node.
    #[cfg(feature = "postgres")]
    own_runtimes: Vec<OwnRuntime>,
}

impl Default for TimersBuilder {
    fn default() -> TimersBuilder {
        TimersBuilder {
            limits: Limits::default(),
            waiting_requests: 10_000,
            largest_batch: 1_024,
            delivery_lease: Duration::from_secs(30),
            node_lease: Duration::from_secs(10),
            rows_in_memory: 100_000,
            threads: 2,
            spawn: None,
            max_clock_skew: Duration::from_secs(60),
            #[cfg(feature = "postgres")]
            own_runtimes: Vec::new(),
        }
    }
}

impl TimersBuilder {
    /// Sets the most bytes of a payload: 64 KiB by default, 1 MiB at most.
    pub fn payload_limit(mut self, bytes: usize) -> TimersBuilder {
        self.limits.payload = bytes.min(HIGHEST_PAYLOAD_LIMIT);
        self
    }

    /// Sets how many creates and reschedules may wait for the store, and beside them how many cancels and answers of workers, so that these
    /// never wait behind creates (O2); further ones wait to be sent. Each timer of a request with many counts. 10,000 by default.
    pub fn waiting_requests(mut self, count: usize) -> TimersBuilder {
        self.waiting_requests = count.max(1);
        self
    }

    /// Sets how long a delivery may take before its lease is renewed, or, if its process is dead, before it is delivered again. 30 s by
    /// default, 10 ms at least and 365 days at most.
    pub fn delivery_lease(mut self, lease: Duration) -> TimersBuilder {
        self.delivery_lease = lease.clamp(Duration::from_millis(10), LONGEST_LEASE);
        self
    }

    /// Sets after which time without a sign of life the timers of a node are taken over by others. 10 s by default,
    /// 100 ms at least and 365 days at most.
    pub fn node_lease(mut self, lease: Duration) -> TimersBuilder {
        self.node_lease = lease.clamp(Duration::from_millis(100), LONGEST_LEASE);
        self
    }

    /// Sets the most timers of a kind that are in memory. 100,000 by default, about 15 MB.
    pub fn rows_in_memory(mut self, rows: usize) -> TimersBuilder {
        self.rows_in_memory = rows.max(1_000);
        self
    }

    /// Sets how many threads handlers run on, if they do not run elsewhere. Two by default.
    pub fn threads(mut self, threads: usize) -> TimersBuilder {
        self.threads = threads.max(1);
        self
    }

    /// Runs handlers where `spawn` puts them, on an executor of the caller's.
    pub fn spawn_with(
        mut self,
        spawn: impl Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync + 'static,
    ) -> TimersBuilder {
        self.spawn = Some(Arc::new(spawn));
        self
    }

    /// Sets how far the clock of this machine may be off from the store's before the node refuses to own timers (O1). One minute by default.
    pub fn max_clock_skew(mut self, skew: Duration) -> TimersBuilder {
        self.max_clock_skew = skew;
        self
    }

    /// Opens the timers in a directory, which is created if it does not exist, as [`Timers::open`] does.
    ///
    /// For options of the store, give [`build`](TimersBuilder::build) what
    /// [`EmbeddedStore::options`](crate::store::EmbeddedStore::options) opens.
    ///
    /// # Errors
    /// Those of [`Timers::open`].
    #[cfg(feature = "embedded")]
    pub async fn open(self, directory: impl AsRef<std::path::Path>) -> Result<Timers, TimersError> {
        let directory = directory.as_ref().to_owned();
        let (sender, receiver) = futures_channel::oneshot::channel();
        // Opening reads and verifies files, which can take long after a crash: a thread does it, whatever executor polls this.
        let open = move || drop(sender.send(self.open_blocking(&directory)));
        std::thread::Builder::new()
            .name("durable-open".to_owned())
            .spawn(open)
            .map_err(|error| TimersError::Thread(error.to_string()))?;
        receiver.await.unwrap_or(Err(TimersError::Ended)).map(|opened| opened.timers().clone())
    }

    /// Opens the timers in a directory, as [`BlockingTimers::open`] does.
    ///
    /// # Errors
    /// Those of [`Timers::open`].
    #[cfg(feature = "embedded")]
    pub fn open_blocking(self, directory: impl AsRef<std::path::Path>) -> Result<BlockingTimers, TimersError> {
        let store = crate::store::EmbeddedStore::open(directory).map_err(TimersError::Store)?;
        Ok(self.build(store)?.blocking())
    }

    /// Opens the timers in a PostgreSQL database, as [`Timers::connect`] does. Handlers run on the Tokio runtime, unless
    /// [`spawn_with`](TimersBuilder::spawn_with) says otherwise.
    ///
    /// # Errors
    /// Those of [`Timers::connect`].
    #[cfg(feature = "postgres")]
    pub async fn connect(self, url: &str) -> Result<Timers, TimersError> {
        let options = crate::store::PostgresOptions::new(url).map_err(TimersError::Store)?;
        self.connect_with(options).await
    }

    /// Opens the timers in a PostgreSQL database, with options of the store. Handlers run as with [`connect`](TimersBuilder::connect).
    /// [`connect_tls`](TimersBuilder::connect_tls) is for TLS.
    ///
    /// # Errors
    /// Those of [`Timers::connect`].
    #[cfg(feature = "postgres")]
    pub async fn connect_with(self, options: crate::store::PostgresOptions) -> Result<Timers, TimersError> {
        self.connect_tls(options, tokio_postgres::NoTls).await
    }

    /// Opens the timers in a PostgreSQL database, with options of the store, and with TLS by a connector for `tokio-postgres`, such as those of
    /// `tokio-postgres-rustls`. Handlers run as with [`connect`](TimersBuilder::connect).
    ///
    /// # Errors
    /// Those of [`Timers::connect`].
    #[cfg(feature = "postgres")]
    pub async fn connect_tls<T>(mut self, options: crate::store::PostgresOptions, tls: T) -> Result<Timers, TimersError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync + 'static,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let store = crate::store::PostgresStore::open_tls(options, tls).await.map_err(TimersError::Store)?;
        if self.spawn.is_none() {
            let tokio = store.runtime();
            self.spawn = Some(Arc::new(move |handler| drop(tokio.spawn(handler))));
        }
        self.build(store)
    }

    /// Opens the timers in a PostgreSQL database on Tokio runtimes of their own, as [`BlockingTimers::connect`] does, with options of the
    /// store. One runtime has the connections. Handlers run on another, which has as many threads as [`threads`](TimersBuilder::threads) says, so
    /// that a handler may block its thread with a call of [`BlockingTimers`].
    ///
    /// # Errors
    /// Those of [`Timers::connect`].
    #[cfg(feature = "postgres")]
    pub fn connect_blocking(mut self, options: crate::store::PostgresOptions) -> Result<BlockingTimers, TimersError> {
        let connections = OwnRuntime::start("durable-postgres", 2)?;
        if self.spawn.is_none() {
            let handlers = OwnRuntime::start("durable-tokio", self.threads)?;
            let tokio = handlers.handle()?;
            self.spawn = Some(Arc::new(move |handler| drop(tokio.spawn(handler))));
            self.own_runtimes.push(handlers);
        }
        let handle = connections.handle()?;
        self.own_runtimes.push(connections);
        let (sender, receiver) = futures_channel::oneshot::channel();
        handle.spawn(async move { drop(sender.send(self.connect_with(options).await)) });
        futures_lite::future::block_on(receiver).unwrap_or(Err(TimersError::Ended)).map(|opened| opened.blocking())
    }

    /// Opens the timers of a store. Whatever the store is, handlers run on [`threads`](TimersBuilder::threads) of their own, unless
    /// [`spawn_with`](TimersBuilder::spawn_with) says otherwise.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn build(self, store: impl Store) -> Result<Timers, TimersError> {
        self.build_shared(Arc::new(store))
    }

    /// Opens the timers of a store that is shared with other code.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn build_shared(self, store: Arc<dyn Store>) -> Result<Timers, TimersError> {
        let thread_error = |error: std::io::Error| TimersError::Thread(error.to_string());
        let traits = store.traits();
        let config = CoreConfig {
            node: NodeId(crate::TimerId::new().as_uuid()),
            store: traits,
            delivery_lease: self.delivery_lease,
            node_lease: self.node_lease,
            // With other writers each look goes through the whole window, which is therefore short, and makes it longer.
            window: traits.rescan.map_or(Duration::from_secs(60), |rescan| (rescan * 3).max(Duration::from_secs(2))),
            rows_in_memory: self.rows_in_memory,
            page: 1_000,
            retry: Duration::from_millis(200),
        };
        let threads = match self.spawn {
            Some(spawn) => HandlerThreads::Spawn(spawn),
            None => HandlerThreads::start(self.threads).map_err(thread_error)?,
        };
        let stats = Arc::new(StatsRecorder::default());
        let clock_offset = Arc::new(AtomicI64::new(0));
        let (mailbox, messages) = Mailbox::new();
        let node = NodeLoop::new(
            config,
            Arc::clone(&store),
            mailbox.clone(),
            threads,
            Arc::clone(&stats),
            Arc::clone(&clock_offset),
            (self.largest_batch, self.max_clock_skew),
        )?;
        let failure = node.failure();
        let hinted = mailbox.clone();
        store.on_hint(Box::new(move || hinted.tell(Message::Core(Input::Hinted))));
        #[cfg(feature = "postgres")]
        let own_runtimes = self.own_runtimes;
        let run = move || {
            node.run(&messages);
            #[cfg(feature = "postgres")]
            drop(own_runtimes);
        };
        std::thread::Builder::new().name("durable-node".to_owned()).spawn(run).map_err(thread_error)?;
        let queue = RequestQueue::new(self.waiting_requests, self.largest_batch);
        let inner = TimersInner { mailbox, store, limits: self.limits, queue, stats, clock_offset, failure };
        Ok(Timers { inner: Arc::new(inner) })
    }
}

/// A Tokio runtime that can be dropped on any thread.
#[cfg(feature = "postgres")]
struct OwnRuntime(Option<tokio::runtime::Runtime>);

#[cfg(feature = "postgres")]
impl OwnRuntime {
    fn start(name: &str, threads: usize) -> Result<OwnRuntime, TimersError> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).thread_name(name).enable_all().build();
        runtime.map(|runtime| OwnRuntime(Some(runtime))).map_err(|error| TimersError::Thread(error.to_string()))
    }

    fn handle(&self) -> Result<tokio::runtime::Handle, TimersError> {
        self.0.as_ref().map(|runtime| runtime.handle().clone()).ok_or(TimersError::Ended)
    }
}

#[cfg(feature = "postgres")]
impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
