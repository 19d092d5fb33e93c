//! How a store in PostgreSQL is opened.

use std::fmt;
use std::time::Duration;

use tokio_postgres::Config;

use super::super::error::StoreError;

/// The schema of a store, unless another was [named](PostgresOptions::schema).
const DEFAULT_SCHEMA: &str = "tourbillon";

/// The most connections: more than servers take.
const MOST_CONNECTIONS: usize = 10_000;

/// The most days of history: a hundred years.
const MOST_DAYS: u32 = 36_500;

/// The longest time that the server waits for a lock, which it counts in milliseconds.
const LONGEST_LOCK_WAIT: Duration = Duration::from_millis(i32::MAX as u64);

/// Options of a [`PostgresStore`](super::PostgresStore).
///
/// Poolers: everything but [hints](super::PostgresStore::listen) works through a pooler in transaction mode, because all settings are made
/// inside of transactions. A pooler in that mode that does not know named prepared statements needs
/// [`prepared_statements(false)`](PostgresOptions::prepared_statements). Opening a store that lacks this is [`StoreError::BadOptions`], if the
/// pooler is noticed; otherwise statements can be mixed up.
#[derive(Clone)]
#[must_use]
pub struct PostgresOptions {
    pub(super) server: Config,
    pub(super) schema: String,
    pub(super) creates: bool,
    pub(super) connections: usize,
    pub(super) prepared_statements: bool,
    pub(super) hints: bool,
    pub(super) request_timeout: Duration,
    pub(super) lock_timeout: Duration,
    pub(super) history_days: u32,
}

impl PostgresOptions {
    /// Returns the defaults for a server: `postgres://user:password@host/database`, or `host=/run/postgresql dbname=app`.
    ///
    /// # Errors
    /// [`StoreError::BadOptions`]: the address cannot be understood.
    pub fn new(url: &str) -> Result<PostgresOptions, StoreError> {
        let mut server: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            let error = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
            StoreError::BadOptions(format!(
                "the address of PostgreSQL is wrong ({error}): write postgres://user:password@host/database, or host=... dbname=..."
            ))
        })?;
        if server.get_connect_timeout().is_none() {
            server.connect_timeout(Duration::from_secs(5));
        }
        if server.get_application_name().is_none() {
            server.application_name("tourbillon");
        }
        notice_loss(&mut server);
        Ok(PostgresOptions {
            server,
            schema: DEFAULT_SCHEMA.to_owned(),
            creates: true,
            connections: 8,
            prepared_statements: true,
            hints: true,
            request_timeout: Duration::from_secs(30),
            lock_timeout: Duration::from_secs(5),
            history_days: 7,
        })
    }

    /// Sets the schema of the tables and functions: `tourbillon` by default. Stores with different schemas are independent.
    ///
    /// # Errors
    /// [`StoreError::BadOptions`]: the name has something other than up to 40 lower-case letters, digits and `_`, or begins with `pg_`, as only
    /// schemas of the server may.
    pub fn schema(mut self, schema: impl Into<String>) -> Result<PostgresOptions, StoreError> {
        self.schema = schema.into();
        let is_allowed = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        let is_of_server = self.schema.starts_with("pg_");
        if self.schema.is_empty() || self.schema.len() > 40 || !self.schema.chars().all(is_allowed) || is_of_server {
            return Err(StoreError::BadOptions(format!(
                "the schema {:?}: its name may have up to 40 lower-case letters, digits and _, and does not begin with pg_",
                self.schema
            )));
        }
        Ok(self)
    }

    /// Sets whether opening makes the schema if it is missing, and upgrades one of an older format (the default).
    ///
    /// With `false` a schema that is missing is [`StoreError::Missing`], and one of an older format [`StoreError::OlderFormat`]: nothing in the
    /// database is made or changed, so this is for programs that look at a store that others use. It then leaves the partitions of the history
    /// to those others, too.
    pub fn create(mut self, creates: bool) -> PostgresOptions {
        self.creates = creates;
        self
    }

    /// Sets how many connections there are for work, 8 by default, at least 2 and at most 10,000. Half of them write; lists, counts, histories and
    /// exports have one less than the other half, so that they never delay deliveries, and wait for each other. Two more are for leases and upkeep.
    pub fn connections(mut self, connections: usize) -> PostgresOptions {
        self.connections = connections.clamp(2, MOST_CONNECTIONS);
        self
    }

    /// Sets whether statements are prepared once for a connection (the default), or sent with every request.
    pub fn prepared_statements(mut self, prepared: bool) -> PostgresOptions {
        self.prepared_statements = prepared;
        self
    }

    /// Sets whether [`Timers`](crate::Timers) listens for hints of other processes (the default), with one more connection, and looks at the
    /// store once a second besides. Behind a pooler in transaction mode this should be off: [`Timers`](crate::Timers) then looks four times a second, and
    /// sees a timer that another process arms a quarter of a second later at most. A store that notices such a pooler does that by itself; if it does
    /// not, it can be a second.
    pub fn hints(mut self, hints: bool) -> PostgresOptions {
        self.hints = hints;
        self
    }

    /// Sets after how long a request to the server is given up, 30 seconds by default.
    pub fn request_timeout(mut self, timeout: Duration) -> PostgresOptions {
        self.request_timeout = timeout;
        self
    }

    /// Sets after how long a request is given up that waits for a row or a key of another transaction, 5 seconds by default and at
    /// least a millisecond. Claims and requests for other timers do not wait.
    pub fn lock_timeout(mut self, timeout: Duration) -> PostgresOptions {
        self.lock_timeout = timeout.clamp(Duration::from_millis(1), LONGEST_LOCK_WAIT);
        self
    }

    /// Sets for how many days the history is kept, 7 by default, at least 1 and at most 36,500.
    pub fn history_days(mut self, days: u32) -> PostgresOptions {
        self.history_days = days.clamp(1, MOST_DAYS);
        self
    }
}

/// Sets how the system notices that the machine of the server is gone, as far as the address does not say it.
fn notice_loss(server: &mut Config) {
    /// How long nothing may come before the system asks whether the server is still there, how often it asks then, and how many times.
    const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

    let (idle, interval, retries) = KEEPALIVE;
    if server.get_keepalives_idle() == Config::new().get_keepalives_idle() {
        server.keepalives_idle(idle);
    }
    if server.get_keepalives_interval().is_none() {
        server.keepalives_interval(interval);
    }
    if server.get_keepalives_retries().is_none() {
        server.keepalives_retries(retries);
    }
    if server.get_tcp_user_timeout().is_none() {
        server.tcp_user_timeout(Duration::from_secs(30));
    }
}

/// Shows the options without the password.
impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("hosts", &self.server.get_hosts())
            .field("database", &self.server.get_dbname())
            .field("schema", &self.schema)
            .field("connections", &self.connections)
            .field("prepared_statements", &self.prepared_statements)
            .field("hints", &self.hints)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q1_what_an_address_says_of_lost_connections_holds() {
        let times = |addition: &str| {
            let server = PostgresOptions::new(&format!("host=db user=app{addition}")).unwrap().server;
            let timeout = server.get_tcp_user_timeout().copied();
            (server.get_keepalives_idle().as_secs(), server.get_keepalives_retries(), timeout.unwrap().as_secs())
        };
        assert_eq!(times(""), (10, Some(3), 30));
        assert_eq!(times(" keepalives_idle=60 keepalives_retries=7 tcp_user_timeout=5"), (60, Some(7), 5));
    }
}
