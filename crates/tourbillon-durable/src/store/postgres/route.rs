//! Whether there is a pooler in transaction mode between the store and the server.
//!
//! Such a pooler gives each transaction any of its connections to the server, in practice the one that was used last. So two clients find it:
//!
//! ```text
//!   first    prepare   which process?             which process now? run what was prepared
//!   second                             BEGIN                                                COMMIT
//! ```
//!
//! The second client now has the connection that the first one used, and the first one is answered by another process of the server. Without
//! such a pooler that never happens. A pooler that has one connection only, or is busy, may not be found.

use std::time::Duration;

use tokio_postgres::{Error, Statement};
use uuid::Uuid;

use super::super::error::StoreError;
use super::Shared;
use super::failure::{Failure, describe, without_prepared_statements};
use super::schema::value;
use super::session::Session;

/// How long the look may take. A pooler with one connection would let the first client wait for the second.
const PATIENCE: Duration = Duration::from_secs(2);

const PROCESS: &str = "SELECT pg_backend_pid()";

/// What the connections of a store are.
enum Route {
    /// Sessions of the server, as far as can be seen.
    Sessions,
    /// Those of a pooler in transaction mode that knows named prepared statements, if they are used.
    Transactions,
    /// Those of one that does not know them, and why it seems so.
    Unprepared(String),
}

/// Returns whether a connection keeps its session on the server, as far as can be seen.
///
/// # Errors
/// [`StoreError::BadOptions`]: there is a pooler in transaction mode that does not know named prepared statements, and the options ask for them.
pub(super) async fn keeps_sessions(store: &Shared) -> Result<bool, StoreError> {
    match tokio::time::timeout(PATIENCE, look(store)).await {
        Ok(Ok(Route::Transactions)) => Ok(false),
        Ok(Ok(Route::Unprepared(reason))) => Err(without_prepared_statements(&reason)),
        // A connection that cannot be made now, or is lost, is no reason to refuse the store.
        Ok(Ok(Route::Sessions) | Err(_)) | Err(_) => Ok(true),
    }
}

async fn look(store: &Shared) -> Result<Route, Failure> {
    let mut first = store.pools.session(&store.pools.control).await?;
    let mut second = store.pools.session(&store.pools.control).await?;
    // Until all is over, a connection is not used again.
    (first.is_idle, second.is_idle) = (false, false);
    // Other processes name their statements alike: the answer tells whose statement was run.
    let secret = Uuid::new_v4().to_string();
    let prepared = match store.pools.prepared_statements {
        true => Some(first.client().prepare(&format!("SELECT '{secret}'::text")).await),
        false => None,
    };
    let before = value(&first, PROCESS).await?;
    second.client().batch_execute("BEGIN READ ONLY").await?;
    let route = match (value(&first, PROCESS).await? == before, prepared) {
        (true, _) => Route::Sessions,
        (false, Some(prepared)) => match run(&first, prepared).await {
            Ok(answer) if answer == secret => Route::Transactions,
            Ok(_) => Route::Unprepared("it ran the statement of another client".to_owned()),
            Err(error) => Route::Unprepared(describe(&error)),
        },
        (false, None) => Route::Transactions,
    };
    second.client().batch_execute("COMMIT").await?;
    (first.is_idle, second.is_idle) = (true, true);
    Ok(route)
}

/// Runs a statement that was prepared on another connection of the pooler.
async fn run(session: &Session<'_>, prepared: Result<Statement, Error>) -> Result<String, Error> {
    session.client().query_one(&prepared?, &[]).await?.try_get(0)
}
