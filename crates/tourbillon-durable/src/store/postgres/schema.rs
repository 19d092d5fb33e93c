//! The schema, and how an older one becomes a newer one.

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;

use super::super::error::StoreError;
use super::Shared;
use super::columns::damaged;
use super::failure::Failure;
use super::session::Session;
use super::statements::{in_schema, lock_key};

/// What leads to each format from the one before it, the first of them from nothing.
const MIGRATIONS: &[&[&str]] = &[
    &[include_str!("sql/v1_tables.sql"), include_str!("sql/v1_functions.sql")],
    &[include_str!("sql/v2.sql")],
    &[include_str!("sql/v3.sql")],
    &[include_str!("sql/v4.sql")],
    &[include_str!("sql/v5.sql")],
    &[include_str!("sql/v6_functions.sql")],
];

/// The oldest server that has all that the statements need.
const OLDEST_SERVER: u32 = 130_000;

/// How long a change of a table waits for a lock, while later users of the table wait behind it; and how long the store then lets these pass.
const LOCK_WAIT: Duration = Duration::from_secs(1);
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// The newest format that this program knows.
const KNOWN: u32 = MIGRATIONS.len() as u32;

/// Verifies that the server can hold a store, and brings its schema to the newest format if `creates`. Processes that start together take
/// turns. Nothing is written if the schema has the newest format already.
///
/// # Errors
/// [`StoreError::NewerFormat`]: a newer program has used the schema. Unless `creates`, [`StoreError::Missing`]: there is no schema, or it has no
/// store; [`StoreError::OlderFormat`]: an older program has made it.
pub(super) async fn prepare(store: &Shared, creates: bool) -> Result<(), Failure> {
    let mut session = store.pools.session(&store.pools.control).await?;
    check_server(&session).await?;
    let found = format_of(&session, &store.schema).await?;
    if found == KNOWN {
        return Ok(());
    }
    if !creates {
        return Err(match found {
            0 => missing(&session, &store.schema).await?,
            _ => StoreError::OlderFormat { found, wanted: KNOWN },
        }
        .into());
    }
    loop {
        let result = raise(store, &mut session).await;
        if let Err(failure) = &result {
            session.roll_back(failure).await;
        }
        match result {
            Err(Failure::Locked(_)) => tokio::time::sleep(LOCK_PAUSE).await,
            result => return result,
        }
    }
}

async fn raise(store: &Shared, session: &mut Session<'_>) -> Result<(), Failure> {
    session.begin(&[]).await?;
    let lock = lock_key("format", &store.schema);
    let short = LOCK_WAIT.as_millis();
    session
        .client()
        .batch_execute(&format!(
            "SET LOCAL lock_timeout = 60000; SELECT pg_advisory_xact_lock({lock}); SET LOCAL lock_timeout = {short}"
        ))
        .await?;
    // Another process may have done it while this one waited.
    let found = format_of(session, &store.schema).await?;
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        if index == 0 && !exists(session, &schema_named(&store.schema)).await? {
            session.client().batch_execute(&format!("CREATE SCHEMA \"{}\"", store.schema)).await?;
        }
        for part in *migration {
            session.client().batch_execute(&in_schema(part, &store.schema)).await?;
        }
        let record = format!("INSERT INTO tourbillon.formats (version) VALUES ({})", index + 1);
        session.client().batch_execute(&in_schema(&record, &store.schema)).await?;
    }
    session.commit(&[], || ()).await?;
    Ok(())
}

/// Returns the format of the schema; zero if there is none.
async fn format_of(session: &Session<'_>, schema: &str) -> Result<u32, Failure> {
    let formats = "pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = 'formats' AND n.nspname";
    if !exists(session, &format!("{formats} = '{schema}'")).await? {
        return Ok(0);
    }
    let newest = value(session, &in_schema("SELECT coalesce(max(version), 0) FROM tourbillon.formats", schema)).await?;
    let found = newest.parse().map_err(|_| damaged(format!("the format {newest:?} is no number")))?;
    match found {
        0 => Err(damaged("the table of formats is empty".to_owned()).into()),
        _ if found > KNOWN => Err(StoreError::NewerFormat { found, known: KNOWN }.into()),
        _ => Ok(found),
    }
}

/// Returns the error that says where there is no store.
async fn missing(session: &Session<'_>, schema: &str) -> Result<StoreError, Failure> {
    let database = value(session, "SELECT current_database()").await?;
    let what = match exists(session, &schema_named(schema)).await? {
        true => format!("the schema {schema:?} of the database {database:?} has no durable timers"),
        false => format!("the database {database:?} has no schema {schema:?}"),
    };
    Ok(StoreError::Missing(format!(
        "{what}. Verify the address and the name of the schema; `tourbillon serve`, an import, or an application that opens the store makes one"
    )))
}

/// Returns the row of the catalog that a schema has.
fn schema_named(schema: &str) -> String {
    format!("pg_namespace WHERE nspname = '{schema}'")
}

async fn check_server(session: &Session<'_>) -> Result<(), Failure> {
    let version = value(session, "SELECT current_setting('server_version_num')").await?;
    if version.parse().is_ok_and(|version: u32| version < OLDEST_SERVER) {
        return Err(StoreError::Unavailable(format!("PostgreSQL 13 or newer is needed, and this is {version}")).into());
    }
    let encoding = value(session, "SELECT current_setting('server_encoding')").await?;
    if encoding != "UTF8" {
        return Err(
            StoreError::Unavailable(format!("the database must have the encoding UTF8 and not {encoding}")).into()
        );
    }
    Ok(())
}

/// Returns whether the catalog has a row. It is read as a table: functions such as `to_regclass` answer from a cache, which inside of a
/// transaction may not know what another process has made in the meantime.
async fn exists(session: &Session<'_>, row: &str) -> Result<bool, Failure> {
    Ok(value(session, &format!("SELECT count(*) FROM {row}")).await? != "0")
}

/// Returns the one value that a query has.
pub(super) async fn value(session: &Session<'_>, query: &str) -> Result<String, Failure> {
    let answer = session.client().simple_query(query).await?;
    let mut rows = answer.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    });
    rows.next().ok_or_else(|| damaged(format!("no answer to {query:?}")).into())
}
