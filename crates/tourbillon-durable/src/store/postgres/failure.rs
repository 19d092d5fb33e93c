//! What an error of PostgreSQL means for a store.

use deadpool_postgres::PoolError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

use super::super::error::StoreError;

/// Why a transaction did not commit.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another transaction was in the way: the same work can be tried again at once.
    Raced(StoreError),
    /// The store cannot do it.
    Refused(StoreError),
}

impl Failure {
    /// Returns what the caller is told.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Failure::Raced(error) | Failure::Refused(error) => error,
        }
    }

    /// Returns what an error means that came after `COMMIT` was sent: if the connection is lost, nobody knows whether it was done.
    pub(super) fn in_commit(error: &Error) -> Failure {
        if is_lost(error) { Failure::Refused(StoreError::Uncertain(describe(error))) } else { error.into() }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::Refused(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::from(&error)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Failure {
        let Some(code) = error.code() else {
            return Failure::Refused(StoreError::Unavailable(describe(error)));
        };
        let text = describe(error);
        let races = [
            &SqlState::UNIQUE_VIOLATION,
            // The tables have no such constraint but those of the history's partitions: one was added while an entry was on its way to another.
            &SqlState::CHECK_VIOLATION,
            &SqlState::T_R_SERIALIZATION_FAILURE,
            &SqlState::T_R_DEADLOCK_DETECTED,
        ];
        if races.contains(&code) {
            return Failure::Raced(StoreError::Unavailable(text));
        }
        Failure::Refused(meaning(code, text))
    }
}

impl From<PoolError> for Failure {
    fn from(error: PoolError) -> Failure {
        match error {
            PoolError::Backend(error) => error.into(),
            PoolError::Closed => StoreError::Closed.into(),
            other => StoreError::Unavailable(format!("no connection to PostgreSQL: {other}")).into(),
        }
    }
}

fn meaning(code: &SqlState, text: String) -> StoreError {
    match *code {
        SqlState::READ_ONLY_SQL_TRANSACTION | SqlState::INSUFFICIENT_PRIVILEGE => StoreError::ReadOnly(text),
        SqlState::DISK_FULL => StoreError::Full(text),
        // A statement that was prepared is unknown, or was prepared by somebody else: another connection of the server answers.
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => StoreError::BadOptions(format!(
            "a pooler between this program and PostgreSQL does not know prepared statements ({text}): \
             set PostgresOptions::prepared_statements(false), or use a pooler that knows them"
        )),
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_SCHEMA_NAME => {
            StoreError::Damaged(format!("the tables are not those that this program made: {text}"))
        }
        _ => match code.code().get(..2) {
            // Connections, resources, locks, operators, roles and databases.
            Some("08" | "53" | "55" | "57" | "58" | "28" | "3D") => StoreError::Unavailable(text),
            _ => StoreError::Damaged(format!("PostgreSQL refuses what it should know ({}): {text}", code.code())),
        },
    }
}

/// Returns whether the connection is gone, or the server ends it.
fn is_lost(error: &Error) -> bool {
    match error.code() {
        None => true,
        Some(code) => matches!(code.code().get(..2), Some("08" | "57")),
    }
}

/// Returns the error with its causes: the first line of it alone says no more than "db error".
fn describe(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        let detail = error.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        return format!("{}{detail}", error.message());
    }
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q8_a_pooler_that_does_not_know_prepared_statements_is_an_error_that_says_what_to_do() {
        for code in [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT] {
            let error = meaning(&code, "prepared statement \"s95\" does not exist".to_owned());
            assert!(matches!(&error, StoreError::BadOptions(text) if text.contains("prepared_statements(false)")));
        }
        assert!(matches!(meaning(&SqlState::SYNTAX_ERROR, "?".to_owned()), StoreError::Damaged(_)));
    }
}
