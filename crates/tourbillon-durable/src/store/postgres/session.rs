//! Connections: pools of them, statements, transactions.
//!
//! All settings are made inside of transactions, so that a pooler in transaction mode may sit before the server. Requests that depend on
//! nothing are sent together: `BEGIN` with the first statements, the last statements with `COMMIT`.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use futures_util::future::{join, join_all};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Row, Socket, Statement};

use super::super::error::StoreError;
use super::failure::Failure;
use super::options::PostgresOptions;

/// The server ends a session that has sent nothing inside a transaction for so long: so a process that hangs gives its locks back (Q7).
pub(super) const IDLE_LIMIT: Duration = Duration::from_secs(10);

/// How long a batch waits for a row or a key of another transaction before its operations are written apart.
const SHORT_LOCK_WAIT: Duration = Duration::from_millis(50);

/// How long a transaction waits for locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LockWait {
    /// As long as the options say.
    Long,
    /// [`SHORT_LOCK_WAIT`] at most.
    Short,
}

/// The values of a statement's parameters.
pub(super) type Params<'a> = [&'a (dyn ToSql + Sync)];

/// A statement with the types of its parameters.
pub(super) struct Sql {
    pub(super) text: String,
    pub(super) types: Vec<Type>,
}

/// Connections for work, and two more for leases and upkeep, so that a lease never waits for work.
pub(super) struct Pools {
    pub(super) work: Pool,
    pub(super) control: Pool,
    pub(super) prepared_statements: bool,
    /// One permit for each connection that long reads may have at the same time, so that one is left for looks and those of writes are.
    long_reads: Semaphore,
    begin_write: String,
    /// The same, with [`SHORT_LOCK_WAIT`].
    begin_short_write: String,
    begin_read: String,
    begin_long_read: String,
}

/// A connection, and whether it can be used again.
pub(super) struct Session<'a> {
    client: Option<Object>,
    pools: &'a Pools,
    pub(super) is_idle: bool,
    _permit: Option<SemaphorePermit<'a>>,
}

/// A statement that can be sent without asking the server for anything before.
enum Ready<'s> {
    Prepared(Statement),
    Text(&'s Sql),
}

/// What is done in the end of a transaction.
pub(super) type Change<'a> = (&'a Sql, Vec<&'a (dyn ToSql + Sync)>);

impl Pools {
    /// Returns pools without connections: these are made when they are needed.
    pub(super) fn new<T>(options: &PostgresOptions, tls: T) -> Pools
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send + Sync,
        T::TlsConnect: Send + Sync,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let pool = |size| {
            let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(options.server.clone(), tls.clone(), recycling);
            let wait = Some(options.request_timeout);
            Pool::builder(manager)
                .max_size(size)
                .runtime(Runtime::Tokio1)
                .timeouts(Timeouts { wait, create: wait, recycle: wait })
                .build()
                .expect("the pool has a runtime for its time limits")
        };
        // Every statement of a transaction finds its rows by an index. Without these settings a plan that was cached while the tables were
        // empty reads them from one end to the other.
        let begin_write = |lock_timeout: Duration| {
            format!(
                "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = {}; \
                 SET LOCAL idle_in_transaction_session_timeout = {}; {BY_INDEX}",
                lock_timeout.as_millis(),
                IDLE_LIMIT.as_millis(),
            )
        };
        // The server stops a read when its caller has given up.
        let begin_long_read = format!(
            "BEGIN READ ONLY; SET LOCAL statement_timeout = {}",
            options.request_timeout.as_millis().clamp(1, i32::MAX as u128)
        );
        Pools {
            work: pool(options.connections),
            control: pool(2),
            prepared_statements: options.prepared_statements,
            long_reads: Semaphore::new((options.connections / 2).saturating_sub(1).max(1)),
            begin_write: begin_write(options.lock_timeout),
            begin_short_write: begin_write(options.lock_timeout.min(SHORT_LOCK_WAIT)),
            begin_read: format!("{begin_long_read}; SET LOCAL enable_seqscan = off; SET LOCAL jit = off"),
            begin_long_read,
        }
    }

    /// Takes a connection from a pool, or makes one.
    pub(super) async fn session(&self, pool: &Pool) -> Result<Session<'_>, Failure> {
        Ok(Session { client: Some(pool.get().await?), pools: self, is_idle: true, _permit: None })
    }

    /// Forgets the idle connections that were last used before this moment: a request on one of them has had no answer, and the network may have lost
    /// them all.
    pub(super) fn forget_older_than(&self, moment: Instant) {
        for pool in [&self.work, &self.control] {
            pool.retain(|_, metrics| metrics.last_used() < moment.elapsed());
        }
    }

    /// Takes a connection for work, for a read that may take long: only some of the connections can be taken so.
    pub(super) async fn long_session(&self) -> Result<Session<'_>, Failure> {
        let permit = self.long_reads.acquire().await.map_err(|_| StoreError::Closed)?;
        let mut session = self.session(&self.work).await?;
        session._permit = Some(permit);
        Ok(session)
    }

    /// Runs one statement alone: a function that has its settings itself.
    pub(super) async fn ask(&self, sql: &Sql, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        let mut session = self.session(&self.work).await?;
        // If the caller gives up, nobody reads the answer: the connection is not used again.
        session.is_idle = false;
        let rows = session.rows(sql, params).await;
        session.is_idle = rows.is_ok();
        rows
    }

    /// Runs one statement that only reads, by indexes.
    pub(super) async fn read(&self, sql: &Sql, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        let mut session = self.session(&self.work).await?;
        session.is_idle = false;
        let ready = session.ready(sql).await?;
        session.read(&self.begin_read, &ready, params).await
    }

    /// Runs one statement that only reads, by indexes, and may take long.
    pub(super) async fn long_read(&self, sql: &Sql, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        let mut session = self.long_session().await?;
        session.is_idle = false;
        let ready = session.ready(sql).await?;
        session.read(&self.begin_read, &ready, params).await
    }

    /// Runs one statement whose loss does no harm: its commit does not wait for the disk.
    pub(super) async fn tell(&self, sql: &Sql, params: &Params<'_>) -> Result<(), Failure> {
        let mut session = self.session(&self.work).await?;
        session.is_idle = false;
        let ready = session.ready(sql).await?;
        session.read("BEGIN; SET LOCAL synchronous_commit = off", &ready, params).await?;
        Ok(())
    }

    /// Runs one statement that only reads, in whatever way the server likes best. It is not kept as a prepared statement.
    pub(super) async fn search(&self, sql: &Sql, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        let mut session = self.long_session().await?;
        session.read(&self.begin_long_read, &Ready::Text(sql), params).await
    }
}

const BY_INDEX: &str = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; \
     SET LOCAL jit = off";

const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = off; \
     SET LOCAL jit = off; SET LOCAL idle_in_transaction_session_timeout = 0";

impl Session<'_> {
    pub(super) fn client(&self) -> &tokio_postgres::Client {
        self.client.as_ref().expect("a session has its connection until it is dropped")
    }

    /// Begins a transaction, and runs the first statements in it.
    pub(super) async fn begin(&mut self, first: &[Change<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        self.begin_with(LockWait::Long, first).await
    }

    /// The same, with a limit for the waits for locks.
    pub(super) async fn begin_with(&mut self, wait: LockWait, first: &[Change<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        let begin = match wait {
            LockWait::Long => &self.pools.begin_write,
            LockWait::Short => &self.pools.begin_short_write,
        };
        // Also a statement that is prepared may have no answer.
        self.is_idle = false;
        let first = self.all_ready(first).await?;
        let running = first.iter().map(|(ready, params)| self.run(ready, params));
        let (begun, rows) = join(self.client().batch_execute(begin), join_all(running)).await;
        begun?;
        Ok(rows.into_iter().collect::<Result<_, Error>>()?)
    }

    /// Runs one statement in a transaction that begins like this.
    async fn read(&mut self, begin: &str, ready: &Ready<'_>, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        // If the caller gives up, nobody reads the answer: the connection is not used again.
        self.is_idle = false;
        let (begun, (rows, ended)) = join(
            self.client().batch_execute(begin),
            join(self.run(ready, params), self.client().batch_execute("COMMIT")),
        )
        .await;
        self.is_idle = rows.is_ok() && ended.is_ok();
        begun?;
        let rows = rows?;
        ended?;
        Ok(rows)
    }

    /// Begins a transaction that reads the tables as they are now, however long it takes.
    pub(super) async fn begin_snapshot(&mut self) -> Result<(), Failure> {
        self.is_idle = false;
        self.client().batch_execute(BEGIN_SNAPSHOT).await?;
        Ok(())
    }

    /// Runs a statement inside of a transaction.
    pub(super) async fn rows(&self, sql: &Sql, params: &Params<'_>) -> Result<Vec<Row>, Failure> {
        let ready = self.ready(sql).await?;
        Ok(self.run(&ready, params).await?)
    }

    /// Runs the last statements of a transaction, in their order, and commits. Returns how many rows each has changed. `on_commit` is called
    /// just before `COMMIT` is sent.
    pub(super) async fn commit(&mut self, last: &[Change<'_>], on_commit: impl FnOnce()) -> Result<Vec<u64>, Failure> {
        let last = self.all_ready(last).await?;
        on_commit();
        type Running<'r> = Pin<Box<dyn Future<Output = Result<u64, Error>> + Send + 'r>>;
        let mut running: Vec<Running<'_>> = Vec::with_capacity(last.len() + 1);
        for (ready, params) in &last {
            running.push(Box::pin(self.change(ready, params)));
        }
        let client = self.client();
        running.push(Box::pin(async { client.batch_execute("COMMIT").await.map(|()| 0) }));
        let results = join_all(running).await;
        self.is_idle = results.last().is_some_and(Result::is_ok);
        // The server has rolled back if one of the statements failed: the first error is the reason.
        let counts = results.into_iter().collect::<Result<Vec<u64>, Error>>();
        counts.map_err(|error| Failure::in_commit(&error))
    }

    /// Ends the transaction without its changes after this failure. The connection is not used again if that fails, or if another one may
    /// do better: one that was made while the server was set to read only, or to a standby, would refuse every write for as long as it lives.
    pub(super) async fn roll_back(&mut self, after: &Failure) {
        if after.may_be_of_connection() {
            self.is_idle = false;
        } else if !self.is_idle && !self.client().is_closed() {
            self.is_idle = self.client().batch_execute("ROLLBACK").await.is_ok();
        }
    }

    async fn all_ready<'c>(&self, changes: &'c [Change<'c>]) -> Result<Vec<(Ready<'c>, &'c Params<'c>)>, Failure> {
        let mut ready = Vec::with_capacity(changes.len());
        for (sql, params) in changes {
            ready.push((self.ready(sql).await?, params.as_slice()));
        }
        Ok(ready)
    }

    /// Prepares a statement, unless this connection has it already.
    async fn ready<'s>(&self, sql: &'s Sql) -> Result<Ready<'s>, Error> {
        if !self.pools.prepared_statements {
            return Ok(Ready::Text(sql));
        }
        let client = self.client.as_ref().expect("a session has its connection until it is dropped");
        Ok(Ready::Prepared(client.prepare_typed_cached(&sql.text, &sql.types).await?))
    }

    /// Sends a statement at the first poll, and returns its rows.
    async fn run(&self, ready: &Ready<'_>, params: &Params<'_>) -> Result<Vec<Row>, Error> {
        match ready {
            Ready::Prepared(statement) => self.client().query(statement, params).await,
            Ready::Text(sql) => self.client().query_typed(&sql.text, &typed(sql, params)).await,
        }
    }

    /// Sends a statement at the first poll, and returns how many rows it has changed.
    async fn change(&self, ready: &Ready<'_>, params: &Params<'_>) -> Result<u64, Error> {
        match ready {
            Ready::Prepared(statement) => self.client().execute(statement, params).await,
            Ready::Text(sql) => self.client().execute_typed(&sql.text, &typed(sql, params)).await,
        }
    }
}

fn typed<'p>(sql: &Sql, params: &Params<'p>) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
    params.iter().copied().zip(sql.types.iter().cloned()).collect()
}

/// A connection that is inside of a transaction, or has failed, must not get back into its pool: it is closed.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take()
            && !self.is_idle
        {
            drop(Object::take(client));
        }
    }
}
