//! Timers for the tests of the embedded store, and all that a store has.

use std::time::{Duration, SystemTime};

use tourbillon_durable::store::{
    CreateAnswer, Cursor, EmbeddedOptions, EmbeddedStore, ListFilter, Reply, Store, StoreReport, TimerRow, WriteAnswer,
    WriteOp,
};
use tourbillon_durable::{NewTimer, StoreError};

use crate::conformance::ask::{ask, create_op};

/// Options for a store that also fits on a nearly full disk.
pub(crate) fn options() -> EmbeddedOptions {
    EmbeddedStore::options().reserve(0)
}

/// A timer that is far away, with a key and a name.
pub(crate) fn far(number: u128) -> NewTimer {
    let later = Duration::from_secs(1_000_000_000);
    let payload: Vec<u8> = (0..250_u32).map(|index| (index.wrapping_mul(number as u32 | 1) >> 3) as u8).collect();
    NewTimer::after("mail", later).key(format!("key {number}")).name(format!("name {}", number % 7)).payload(payload)
}

/// A timer that was due long ago.
pub(crate) fn overdue(number: u128) -> NewTimer {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    NewTimer::at("mail", then).key(format!("key {number}"))
}

/// Creates timers with these numbers in one batch.
pub(crate) fn create_all(store: &EmbeddedStore, numbers: impl IntoIterator<Item = u128>) -> Result<(), StoreError> {
    let batch: Vec<WriteOp> = numbers.into_iter().map(|number| create_op(number, far(number))).collect();
    for answer in ask(|reply| store.write(batch, reply))? {
        assert!(matches!(answer, WriteAnswer::Create(CreateAnswer::Created { .. })), "{answer:?}");
    }
    Ok(())
}

/// Returns all rows of a store, in the order of their ids.
pub(crate) fn all_rows(store: &EmbeddedStore) -> Result<Vec<TimerRow>, StoreError> {
    let mut rows = Vec::new();
    let mut cursor: Option<Cursor> = None;
    loop {
        let page = ask(|reply| store.list(ListFilter::default(), cursor, 1000, reply))?;
        rows.extend(page.rows);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(rows);
        }
    }
}

/// Verifies a store.
pub(crate) fn verify(store: &EmbeddedStore) -> Result<StoreReport, StoreError> {
    ask(|reply: Reply<StoreReport>| store.verify(reply))
}

/// Closes a store.
pub(crate) fn close(store: &EmbeddedStore) -> Result<(), StoreError> {
    ask(|reply| store.close(reply))
}
