//! What each operation does to rows, for every store: [`apply`].
//!
//! A store gives access to its rows by the trait [`Rows`]. The rules read and write them in the order of the operations; the store makes all
//! writes of a batch durable in one transaction, or none.
//!
//! Invariants of the rows of one timer (checked by [`check`]):
//! 1. If its spec has a key and any of its rows is armed or claimed, exactly one of these is the head, unless another timer has taken the key
//!    or all of them are replayed letters. The head has the highest occurrence of them, replayed letters aside. Dead letters are never heads.
//! 2. At most one timer of a namespace has heads under a key.
//! 3. A row that is armed has never been acknowledged, and a row that was cancelled is gone: so no row is delivered after its end (Q2).
//!
//! # Why each race has one winner
//! A store runs transactions on the same row one after the other: the embedded one has a single writer, PostgreSQL locks the rows of a batch.
//! - *Claim against cancel or reschedule* (Q2). The claim comes first: the cancel finds the row claimed, and counts it as in flight. The cancel comes first: the claim
//!   finds no row, or after a reschedule another version, and is lost. Nothing is both counted as cancelled and delivered.
//! - *Two deliveries of one row* (V5). Each claim raises the attempt. A finish or an extension names its attempt, so of all deliveries only the last can
//!   end the row, and only once, because the end removes it or arms it.
//! - *Takeover* (Q7). It raises the epoch of the shard in a transaction. A claim reads that epoch in its own transaction, on PostgreSQL with a lock that the takeover waits
//!   for. So a claim of the old owner is committed before the takeover, which then finds the row as an orphan; or it comes after it and is
//!   fenced. The same holds for a finish: it is before the takeover, or refused.
//! - *Pulls*. A worker's claim compares no epoch; it is decided by the version alone, as any two claims are. Its fence stands in the row, so that only the
//!   worker can end it, and a takeover does not take the row for an orphan. Its lease decides when others may claim it.
//! - *Repeated requests*. A claim whose answer was lost is asked again with its token and finds its own row. A finish that is repeated is stale, and
//!   its owner looks at the window again for the row that the first one may have armed.

mod changes;
mod deliveries;

use super::error::StoreError;
use super::op::{WriteAnswer, WriteOp};
use super::row::{EndedAs, RowId, TimerRow};
use super::shard::ShardId;
use crate::id::TimerId;
use crate::time::StoreTime;

/// Access of the [rules](self) to the rows of a store, inside one transaction: reads see the writes of the same transaction.
pub trait Rows {
    /// Returns the time of the store's clock for this transaction.
    fn now(&self) -> StoreTime;

    /// Returns how many shards the store has.
    fn shards(&self) -> u16;

    /// Returns the epoch of a shard.
    ///
    /// # Errors
    /// The store could not be read.
    fn epoch(&mut self, shard: ShardId) -> Result<u64, StoreError>;

    /// Returns a row.
    ///
    /// # Errors
    /// The store could not be read.
    fn get(&mut self, id: RowId) -> Result<Option<TimerRow>, StoreError>;

    /// Returns all rows of a timer, dead letters included, in the order of their occurrences.
    ///
    /// # Errors
    /// The store could not be read.
    fn of_timer(&mut self, timer: TimerId) -> Result<Vec<TimerRow>, StoreError>;

    /// Returns the head that has this key.
    ///
    /// # Errors
    /// The store could not be read.
    fn head(&mut self, namespace: &str, key: &str) -> Result<Option<TimerRow>, StoreError>;

    /// Returns all rows with this name, dead letters included, in any order.
    ///
    /// # Errors
    /// The store could not be read.
    fn of_name(&mut self, namespace: &str, name: &str) -> Result<Vec<TimerRow>, StoreError>;

    /// Returns the latest occurrence of a timer that has ended, as far as the history tells.
    ///
    /// # Errors
    /// The store could not be read.
    fn last_ended(&mut self, timer: TimerId) -> Result<Option<u64>, StoreError>;

    /// Writes a row and its indexes. `old` is the row as it was, if there was one.
    ///
    /// # Errors
    /// The store could not be written.
    fn put(&mut self, old: Option<&TimerRow>, new: TimerRow) -> Result<(), StoreError>;

    /// Removes a row and its indexes, and records in the history how it ended.
    ///
    /// # Errors
    /// The store could not be written.
    fn end(&mut self, row: &TimerRow, ended_as: EndedAs) -> Result<(), StoreError>;
}

/// Applies one operation.
///
/// # Errors
/// The store failed: the whole transaction is to be given up.
pub fn apply(rows: &mut (impl Rows + ?Sized), op: WriteOp) -> Result<WriteAnswer, StoreError> {
    Ok(match op {
        WriteOp::Create(op) => WriteAnswer::Create(changes::create(rows, op)?),
        WriteOp::Cancel(op) => WriteAnswer::Cancel(changes::cancel(rows, &op.target)?),
        WriteOp::Reschedule(op) => WriteAnswer::Reschedule(changes::reschedule(rows, &op)?),
        WriteOp::DeadLetter(op) => WriteAnswer::DeadLetter(changes::dead_letter(rows, &op)?),
        WriteOp::Claim(op) => WriteAnswer::Claim(deliveries::claim(rows, &op)?),
        WriteOp::Finish(op) => WriteAnswer::Finish(deliveries::finish(rows, op)?),
        WriteOp::Extend(op) => WriteAnswer::Extend(deliveries::extend(rows, &op)?),
        WriteOp::Import(op) => WriteAnswer::Import(changes::import(rows, op)?),
    })
}

/// Ends a row. If it was the head, the latest other row of the timer that is not dead becomes the head.
fn end_row(rows: &mut (impl Rows + ?Sized), row: &TimerRow, ended_as: EndedAs) -> Result<(), StoreError> {
    rows.end(row, ended_as)?;
    pass_on_head(rows, row)
}

/// Makes another row of the timer the head, if `row` was it and is not any more.
fn pass_on_head(rows: &mut (impl Rows + ?Sized), row: &TimerRow) -> Result<(), StoreError> {
    if !row.is_head || !row.spec.is_repeating() {
        return Ok(());
    }
    let others = rows.of_timer(row.id.timer)?;
    let heir = others.into_iter().rev().find(|other| other.id != row.id && other.indexed_wake().is_some());
    if let Some(heir) = heir {
        let head = TimerRow { is_head: true, ..heir.clone() };
        rows.put(Some(&heir), head)?;
    }
    Ok(())
}

/// Verifies the invariants of all rows of a store. For tests.
///
/// # Errors
/// The text says which invariant does not hold, and for which row.
pub fn check<'a>(all: impl Iterator<Item = &'a TimerRow>) -> Result<(), String> {
    use std::collections::HashMap;

    let mut pending: HashMap<TimerId, Vec<&TimerRow>> = HashMap::new();
    let mut holders: HashMap<(&str, &str), RowId> = HashMap::new();
    for row in all {
        if row.indexed_wake().is_some() {
            pending.entry(row.id.timer).or_default().push(row);
        } else if row.is_head {
            return Err(format!("a dead letter is the head of its timer: {row:?}"));
        }
        if let (true, Some(key)) = (row.is_head, &row.spec.key)
            && let Some(other) = holders.insert((&row.spec.namespace, key), row.id)
        {
            return Err(format!("two rows have one key: {other:?} and {row:?}"));
        }
    }
    for rows in pending.values() {
        let mut heads = rows.iter().filter(|row| row.is_head);
        // A letter is replayed without the key, which an earlier occurrence may have by then.
        let is_behind =
            |head: &TimerRow, row: &TimerRow| row.id.occurrence > head.id.occurrence && row.replayed_at.is_none();
        if let Some(head) = heads.next()
            && (heads.next().is_some() || rows.iter().any(|row| is_behind(head, row)))
        {
            return Err(format!("the head is not the latest pending row of its timer: {rows:?}"));
        }
    }
    Ok(())
}
