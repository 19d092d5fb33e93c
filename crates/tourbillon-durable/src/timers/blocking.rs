//! The same surface for code that is not `async`.

use std::time::Duration;

use futures_lite::future::block_on;

use super::{Ack, Answer, Created, Pulled, Receipt, Request, Rescheduled, Timers, TimersError};
use crate::id::TimerId;
use crate::spec::{FirstDue, NewTimer};
use crate::store::{CancelCounts, Cursor, HistoryEntry, ListFilter, ListPage, RowId, StoreCounts, Target, TimerRow};

/// Durable timers for code that is not `async`: each call blocks its thread until the answer is there. Made by [`Timers::blocking`].
#[derive(Clone)]
pub struct BlockingTimers(Timers);

macro_rules! blocking {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            /// As for the method of [`Timers`] with this name.
            pub fn $name(&self, $($argument: $type),*) -> Result<$result, TimersError> {
                block_on(self.0.$name($($argument),*))
            }
        )*
    };
}

impl BlockingTimers {
    pub(super) fn new(timers: Timers) -> BlockingTimers {
        BlockingTimers(timers)
    }

    /// Opens the timers in a directory: [`Timers::open`].
    ///
    /// # Errors
    /// Those of [`Timers::open`].
    #[cfg(feature = "embedded")]
    pub fn open(directory: impl AsRef<std::path::Path>) -> Result<BlockingTimers, TimersError> {
        Timers::builder().open_blocking(directory)
    }

    /// Opens the timers in a PostgreSQL database: [`Timers::connect`]. It needs no Tokio runtime, because it starts its own, which end
    /// with the timers: one has the connections, and handlers run on the other.
    ///
    /// # Errors
    /// Those of [`Timers::connect`].
    #[cfg(feature = "postgres")]
    pub fn connect(url: &str) -> Result<BlockingTimers, TimersError> {
        let options = crate::store::PostgresOptions::new(url).map_err(TimersError::Store)?;
        Timers::builder().connect_blocking(options)
    }

    /// Returns the same timers for `async` code, and for registering handlers.
    #[must_use]
    pub fn timers(&self) -> &Timers {
        &self.0
    }

    blocking! {
        /// Creates a timer: [`Timers::create`].
        create(timer: NewTimer) -> Created;
        /// Creates many timers: [`Timers::create_all`].
        create_all(timers: Vec<NewTimer>) -> Vec<Result<Created, TimersError>>;
        /// Cancels the timer with a key: [`Timers::cancel`].
        cancel(key: &str) -> CancelCounts;
        /// Cancels the timers with a name: [`Timers::cancel_name`].
        cancel_name(name: &str) -> CancelCounts;
        /// Cancels timers by id, key or name: [`Timers::cancel_target`].
        cancel_target(target: Target) -> CancelCounts;
        /// Cancels many targets: [`Timers::cancel_all`].
        cancel_all(targets: Vec<Target>) -> Vec<Result<CancelCounts, TimersError>>;
        /// Does many things in one transaction: [`Timers::batch`].
        batch(requests: Vec<Request>) -> Vec<Result<Answer, TimersError>>;
        /// Gives many timers another due time: [`Timers::reschedule_all`].
        reschedule_all(changes: Vec<(Target, FirstDue)>) -> Vec<Result<Rescheduled, TimersError>>;
        /// Gives a timer another due time: [`Timers::reschedule`].
        reschedule(target: Target, when: FirstDue, if_version: Option<u64>) -> Rescheduled;
        /// Returns the occurrences of a timer: [`Timers::get`].
        get(id: TimerId) -> Vec<TimerRow>;
        /// Returns the timer that has a key: [`Timers::get_key`].
        get_key(namespace: &str, key: &str) -> Option<TimerRow>;
        /// Returns a page of timers: [`Timers::list`].
        list(filter: ListFilter, cursor: Option<Cursor>, limit: usize) -> ListPage;
        /// Returns the timers that are delivered first: [`Timers::upcoming`].
        upcoming(filter: ListFilter, limit: usize) -> Vec<TimerRow>;
        /// Returns how occurrences of a timer ended: [`Timers::history`].
        history(id: TimerId) -> Vec<HistoryEntry>;
        /// Returns how many timers there are: [`Timers::counts`].
        counts() -> StoreCounts;
        /// Delivers a dead letter once more: [`Timers::replay`].
        replay(id: RowId) -> bool;
        /// Ends a dead letter: [`Timers::discard`].
        discard(id: RowId) -> bool;
        /// Copies the store into a directory: [`Timers::backup`].
        backup(to: &std::path::Path) -> u64;
        /// Pauses the delivery of all timers: [`Timers::pause`].
        pause() -> ();
        /// Ends a pause: [`Timers::resume`].
        resume() -> ();
        /// Takes timers that are due for a worker: [`Timers::pull`].
        pull(kind: &str, max: usize, lease: Duration) -> Vec<Pulled>;
        /// Ends pulled deliveries: [`Timers::finish_pulled`].
        finish_pulled(acks: Vec<(Receipt, Ack)>) -> Vec<Result<bool, TimersError>>;
        /// Makes the leases of pulled deliveries longer: [`Timers::extend_pulled`].
        extend_pulled(receipts: Vec<Receipt>, lease: Duration) -> Vec<Result<bool, TimersError>>;
        /// Ends the timers of this process: [`Timers::shutdown`].
        shutdown(limit: Duration) -> ();
    }
}
