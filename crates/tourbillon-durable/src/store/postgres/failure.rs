//! What an error of PostgreSQL means for a store.

use deadpool_postgres::PoolError;
use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use super::super::error::StoreError;

/// Why a transaction did not commit.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another transaction was in the way: the same work can be tried again at once.
    Raced(StoreError),
    /// Another transaction has a row or a key for longer than the lock timeout.
    Locked(StoreError),
    /// The connection is lost, or could not be made.
    Lost(StoreError),
    /// The store cannot do it.
    Refused(StoreError),
}

impl Failure {
    /// Returns what the caller is told.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Failure::Raced(error) | Failure::Locked(error) | Failure::Lost(error) | Failure::Refused(error) => error,
        }
    }

    /// Returns what an error means that came after `COMMIT` was sent: if the connection is lost, nobody knows whether it was done.
    pub(super) fn in_commit(error: &Error) -> Failure {
        let severity = error.as_db_error().and_then(DbError::parsed_severity);
        if is_lost(error.code(), severity) {
            Failure::Lost(StoreError::Uncertain(describe(error)))
        } else {
            error.into()
        }
    }

    /// Returns whether another connection may do what this one could not: it may reach another server, one that was promoted meanwhile, or
    /// have the settings and the prepared statements of now.
    pub(super) fn may_be_of_connection(&self) -> bool {
        let of_server = |error: &StoreError| {
            matches!(error, StoreError::ReadOnly(_) | StoreError::Unavailable(_) | StoreError::Internal(_))
        };
        match self {
            Failure::Raced(_) | Failure::Locked(_) => false,
            Failure::Lost(_) => true,
            Failure::Refused(error) => of_server(error),
        }
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
            return Failure::Lost(StoreError::Unavailable(describe(error)));
        };
        let text = describe(error);
        match *code {
            _ if is_race(code) => Failure::Raced(StoreError::Unavailable(text)),
            SqlState::LOCK_NOT_AVAILABLE => Failure::Locked(StoreError::Unavailable(text)),
            _ => Failure::Refused(meaning(code, text)),
        }
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

/// Returns whether another transaction was in the way.
fn is_race(code: &SqlState) -> bool {
    // The tables have no checks but those of the history's partitions: one was added while an entry was on its way to another.
    let races = [&SqlState::UNIQUE_VIOLATION, &SqlState::CHECK_VIOLATION];
    let is_rollback = class(code) == "40" && *code != SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN;
    races.contains(&code) || is_rollback
}

/// Returns what the caller is told. What passes by itself, with a failover or with a restart of the server must be temporary, because other
/// errors end the node.
fn meaning(code: &SqlState, text: String) -> StoreError {
    match *code {
        // A standby that is about to be promoted, or a server that is set to read only for a while.
        SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::ReadOnly(format!(
            "{text}. The server is a standby, or is set to read only: ask again when it was promoted or can be written"
        )),
        SqlState::INSUFFICIENT_PRIVILEGE => StoreError::NotPermitted(text),
        SqlState::DISK_FULL => StoreError::Full(text),
        // A statement that was prepared is unknown, or was prepared by somebody else: another connection of the server answers.
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => without_prepared_statements(&text),
        SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN | SqlState::INVALID_SCHEMA_NAME => {
            StoreError::Damaged(format!("the tables are not those that this program made: {text}"))
        }
        // A prepared statement is older than the tables, which a newer program has changed. A new connection has none.
        SqlState::FEATURE_NOT_SUPPORTED => internal(code, &text),
        // The server contradicts itself for a moment, or a pooler has no number of its own for what it refuses.
        SqlState::INTERNAL_ERROR => internal(code, &text),
        _ => match class(code) {
            // Connections, transactions that the server ended, resources, locks, operators, snapshots, roles and databases.
            "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58" | "72" => StoreError::Unavailable(text),
            // A request is larger or deeper than the server allows at the moment.
            "54" => internal(code, &text),
            _ => StoreError::Damaged(format!("PostgreSQL refuses what it should know ({}): {text}", code.code())),
        },
    }
}

/// Returns what an error means that no outage explains. It may pass all the same, so the node goes on, and tells if it does not.
fn internal(code: &SqlState, text: &str) -> StoreError {
    StoreError::Internal(format!("PostgreSQL answers {}: {text}", code.code()))
}

/// Returns what the caller is told if a pooler mixes up the prepared statements of its clients, and why it seems so.
pub(super) fn without_prepared_statements(reason: &str) -> StoreError {
    StoreError::BadOptions(format!(
        "a pooler between this program and PostgreSQL does not know prepared statements ({reason}): \
         set the option prepared_statements to false (--prepared-statements=false for the program `tourbillon`, \
         PostgresOptions::prepared_statements(false) in Rust), or use a pooler that knows them, or one in session mode"
    ))
}

/// Returns the first two letters of a code, which are its class.
fn class(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Returns whether the connection is gone, or the server ends it, so that nobody knows what became of a `COMMIT` that was sent.
fn is_lost(code: Option<&SqlState>, severity: Option<Severity>) -> bool {
    let Some(code) = code else { return true };
    let ends_connection = matches!(severity, Some(Severity::Fatal | Severity::Panic));
    ends_connection || *code == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN || ["08", "57"].contains(&class(code))
}

/// Returns the error with its causes: the first line of it alone says no more than "db error".
pub(super) fn describe(error: &Error) -> String {
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
            let StoreError::BadOptions(text) = error else { panic!("{error:?}") };
            // For programs in Rust, and for operators of the service.
            assert!(["prepared_statements(false)", "--prepared-statements=false"].iter().all(|way| text.contains(way)));
        }
    }

    /// Returns the name of what an error of this code means.
    fn kind(code: &str) -> &'static str {
        match meaning(&SqlState::from_code(code), String::new()) {
            StoreError::Unavailable(_) => "unavailable",
            StoreError::Internal(_) => "internal",
            StoreError::ReadOnly(_) => "read only",
            StoreError::NotPermitted(_) => "not permitted",
            StoreError::Full(_) => "full",
            StoreError::Damaged(_) => "damaged",
            other => panic!("{code}: {other:?}"),
        }
    }

    #[test]
    fn q1_d47_what_passes_is_temporary_and_what_does_not_is_not() {
        let passing: [(&str, &[&str]); 5] = [
            ("connections", &["08000", "08003", "08006", "08P01", "57P03", "57P05"]),
            ("transactions that the server ended", &["25000", "25P02", "25P03", "25P04", "40003", "57014", "72000"]),
            ("the end of the server", &["57P01", "57P02", "57P04", "58000", "58030"]),
            ("roles and databases that are changed", &["28000", "28P01", "3D000"]),
            ("resources and locks", &["53000", "53200", "53300", "53400", "55000", "55P03"]),
        ];
        for (what, codes) in passing {
            assert!(codes.iter().all(|code| kind(code) == "unavailable"), "{what}");
        }
        assert_eq!((kind("25006"), kind("53100"), kind("42501")), ("read only", "full", "not permitted"));
        for code in ["22021", "23502", "23503", "3F000", "42601", "42703", "42P01", "42883", "P0001", "XX001", "XX002"]
        {
            assert_eq!(kind(code), "damaged", "{code}");
        }
        // Statements that are older than the tables, limits, and what has no number of its own: they may pass, and are told of if they do not.
        assert!(["0A000", "54000", "54001", "XX000"].iter().all(|code| kind(code) == "internal"));
        assert!(StoreError::Internal(String::new()).is_temporary());
        assert!(Failure::from(StoreError::Internal(String::new())).may_be_of_connection());
        assert!(StoreError::ReadOnly(String::new()).is_temporary());
        assert!(!StoreError::NotPermitted(String::new()).is_temporary());
    }

    #[test]
    fn q1_transactions_that_were_in_each_others_way_are_tried_again() {
        let is_race = |code: &&str| is_race(&SqlState::from_code(code));
        assert!(["40001", "40P01", "40002", "23505", "23514"].iter().all(is_race));
        assert!(!["40003", "23503", "55P03"].iter().any(is_race));
    }

    #[test]
    fn q1_a_commit_is_uncertain_if_the_server_has_ended_the_connection() {
        let lost = |code: &str, severity| is_lost(Some(&SqlState::from_code(code)), Some(severity));
        assert!(is_lost(None, None));
        // A server without room for its log ends at the commit, and may have written it or not.
        assert!(lost("53100", Severity::Panic));
        for code in ["25P03", "25P04", "57P01", "57P02", "XX000"] {
            assert!(lost(code, Severity::Fatal), "{code}");
        }
        assert!(lost("08006", Severity::Error) && lost("57014", Severity::Error) && lost("40003", Severity::Error));
        for code in ["25006", "40001", "23505", "53100", "55P03"] {
            assert!(!lost(code, Severity::Error), "{code}: the transaction was rolled back");
        }
    }
}
