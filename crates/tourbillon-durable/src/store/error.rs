//! What can go wrong in a store.

use std::fmt;

/// Why a store did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store has no room: creates are refused, cancels and deliveries go on.
    Full(String),
    /// The store can be read and not written: PostgreSQL is a standby or is set to read only, or a directory cannot be written. A node goes
    /// on and delivers when the store can be written again.
    ReadOnly(String),
    /// The user of the database lacks a privilege. The text says what for.
    NotPermitted(String),
    /// The address or an option of the store cannot be used.
    BadOptions(String),
    /// Another process has the store open, or this one has and does not close it.
    Locked(String),
    /// There is no store, and it was opened so that none is made. The text says where, and what to do.
    Missing(String),
    /// The store has an older format than this program uses, and it was opened so that it is not upgraded.
    OlderFormat {
        /// The format of the store.
        found: u32,
        /// The format that this program uses.
        wanted: u32,
    },
    /// The store has a newer format than this program knows.
    NewerFormat {
        /// The format of the store.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// The store is damaged. The text says where, and what to do.
    Damaged(String),
    /// The store cannot be reached at the moment. Nothing was done.
    Unavailable(String),
    /// The database has refused a request with an error that it should not have, such as one inside of itself. Nothing was done. A node asks again,
    /// because such an error can pass with a failover or an upgrade of the server, and tells if it does not.
    Internal(String),
    /// The connection was lost during a commit: all of the batch is in the store, or none of it. Ask again, with the same key.
    Uncertain(String),
    /// A write could not be made durable. The store has ended, because nobody knows what the disk holds: open it again.
    SyncFailed(String),
    /// The store has been closed.
    Closed,
}

impl StoreError {
    /// Returns whether the same request may succeed later. An error that is not temporary ends the node that meets it.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            StoreError::Full(_)
                | StoreError::ReadOnly(_)
                | StoreError::Unavailable(_)
                | StoreError::Internal(_)
                | StoreError::Uncertain(_)
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Full(what) => write!(f, "the store is full: {what}"),
            StoreError::ReadOnly(what) => write!(f, "the store cannot be written: {what}"),
            StoreError::NotPermitted(what) => {
                write!(f, "the user of the database may not do this, so grant it the privilege and start again: {what}")
            }
            StoreError::BadOptions(what) => write!(f, "the store cannot be opened like this: {what}"),
            StoreError::Locked(what) => write!(f, "the store is in use: {what}"),
            StoreError::Missing(what) => write!(f, "there is no store: {what}"),
            StoreError::OlderFormat { found, wanted } => {
                write!(
                    f,
                    "the store has format {found}, and this program uses format {wanted}: use the program that made it, or open the store \
                     with `tourbillon serve` or with the library, which upgrades it"
                )
            }
            StoreError::NewerFormat { found, known } => {
                write!(
                    f,
                    "the store has format {found}, and this program knows formats up to {known}: use a newer program"
                )
            }
            StoreError::Damaged(what) => write!(f, "the store is damaged: {what}"),
            StoreError::Unavailable(what) => write!(f, "the store cannot be reached: {what}"),
            StoreError::Internal(what) => write!(f, "the store has refused what it should be able to do: {what}"),
            StoreError::Uncertain(what) => {
                write!(f, "the connection to the store was lost during a commit, which may have succeeded: {what}")
            }
            StoreError::SyncFailed(what) => {
                write!(f, "a write could not be made durable, and the store has ended; open it again: {what}")
            }
            StoreError::Closed => f.write_str("the store has been closed"),
        }
    }
}

impl std::error::Error for StoreError {}
