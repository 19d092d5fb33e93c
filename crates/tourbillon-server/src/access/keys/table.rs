//! API keys in a table of a store in PostgreSQL, which all nodes read.

use std::fmt;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Error, NoTls, Row};
use tourbillon_durable::store::{PostgresOptions, PostgresStore};

use super::{Access, ApiKey, KeyFuture, KeyStore, KeyStoreError};
use crate::config::ServerConfig;

/// How long the database may take, the connection included.
const PATIENCE: Duration = Duration::from_secs(5);

/// A value of a statement and its type. With the types in the request the server need not prepare the statement, so it works behind a pooler.
type TypedValue<'a> = (&'a (dyn ToSql + Sync), Type);

const LIST: &str = "SELECT id, name, namespaces, is_read_only, hash, \
     to_char(created AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') \
     FROM tourbillon.api_keys ORDER BY api_keys.created, id";
const ADD: &str =
    "INSERT INTO tourbillon.api_keys (id, name, namespaces, is_read_only, hash) VALUES ($1, $2, $3, $4, $5)";
const REMOVE: &str = "DELETE FROM tourbillon.api_keys WHERE id = $1 RETURNING id";

/// The table `tourbillon.api_keys`. It has a connection of its own, so that keys are read while all others are at work.
pub(super) struct KeyTable {
    server: Config,
    /// How the store is opened that makes the table.
    store: PostgresOptions,
    /// The address without a password.
    place: String,
    client: Mutex<Option<Client>>,
}

impl KeyTable {
    pub(super) fn new(config: &ServerConfig) -> Result<KeyTable, KeyStoreError> {
        let wrong = |error: Error| KeyStoreError(format!("the address of PostgreSQL is wrong: {error}"));
        let mut server: Config = config.store.parse().map_err(wrong)?;
        let store = config.postgres_options().map_err(|error| KeyStoreError(error.to_string()))?;
        if server.get_application_name().is_none() {
            server.application_name("tourbillon");
        }
        Ok(KeyTable { server, store, place: config.shown_store(), client: Mutex::new(None) })
    }

    /// Runs a statement, with a new connection if there is none or the last one was lost. Returns its rows; `None` if there is no table: no
    /// program that knows it has opened the store yet.
    async fn run(&self, sql: &str, values: &[TypedValue<'_>]) -> Result<Option<Vec<Row>>, KeyStoreError> {
        let mut place = self.client.lock().await;
        // Taken out, so that a connection is not used again after an error or a time limit.
        let client = match place.take().filter(|client| !client.is_closed()) {
            Some(client) => client,
            None => self.connect().await?,
        };
        let answer = client.query_typed(sql, values).await;
        let is_missing =
            |error: &Error| matches!(error.code(), Some(&SqlState::UNDEFINED_TABLE | &SqlState::INVALID_SCHEMA_NAME));
        match answer {
            Ok(rows) => {
                *place = Some(client);
                Ok(Some(rows))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Runs a statement with a time limit.
    async fn ask(&self, sql: &str, values: &[TypedValue<'_>]) -> Result<Option<Vec<Row>>, KeyStoreError> {
        let slow = |_| self.failed(&format!("no answer within {PATIENCE:?}"));
        tokio::time::timeout(PATIENCE, self.run(sql, values)).await.map_err(slow)?
    }

    async fn connect(&self) -> Result<Client, KeyStoreError> {
        let (client, connection) = self.server.connect(NoTls).await.map_err(|error| self.failed(&error))?;
        tokio::spawn(async { _ = connection.await });
        Ok(client)
    }

    /// Brings the schema to the newest format, which has the table.
    async fn make(&self) -> Result<(), KeyStoreError> {
        PostgresStore::open(self.store.clone()).await.map(drop).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &dyn fmt::Display) -> KeyStoreError {
        KeyStoreError(format!("the API keys in {}: {error}", self.place))
    }
}

fn key_of(row: &Row) -> Result<ApiKey, Error> {
    let is_read_only: bool = row.try_get(3)?;
    Ok(ApiKey {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        namespaces: row.try_get(2)?,
        access: if is_read_only { Access::Read } else { Access::Write },
        hash: row.try_get(4)?,
        created: row.try_get(5)?,
    })
}

impl KeyStore for KeyTable {
    fn place(&self) -> String {
        self.place.clone()
    }

    fn list(&self) -> KeyFuture<'_, Vec<ApiKey>> {
        Box::pin(async {
            let rows = self.ask(LIST, &[]).await?.unwrap_or_default();
            rows.iter().map(key_of).collect::<Result<_, _>>().map_err(|error| self.failed(&error))
        })
    }

    fn add(&self, key: ApiKey) -> KeyFuture<'_, ()> {
        Box::pin(async move {
            let is_read_only = key.access == Access::Read;
            let values: [TypedValue<'_>; 5] = [
                (&key.id, Type::TEXT),
                (&key.name, Type::TEXT),
                (&key.namespaces, Type::TEXT_ARRAY),
                (&is_read_only, Type::BOOL),
                (&key.hash, Type::TEXT),
            ];
            if self.ask(ADD, &values).await?.is_some() {
                return Ok(());
            }
            self.make().await?;
            let added = self.ask(ADD, &values).await?;
            added.map(drop).ok_or_else(|| self.failed(&"the table tourbillon.api_keys is missing"))
        })
    }

    fn revoke<'a>(&'a self, id: &'a str) -> KeyFuture<'a, bool> {
        Box::pin(async move {
            let removed = self.ask(REMOVE, &[(&id, Type::TEXT)]).await?;
            Ok(removed.is_some_and(|rows| !rows.is_empty()))
        })
    }
}
