//! The model: what the store has committed, and what may be delivered because of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use tourbillon_durable::StoreTime;
use tourbillon_durable::store::{ClaimAnswer, MemoryTables, RowId, TimerRow, WriteAnswer, WriteOp};

/// What happened in a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) created: u64,
    pub(crate) cancelled: u64,
    pub(crate) moved: u64,
    pub(crate) delivered: u64,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) crashes: u64,
    pub(crate) lost_requests: u64,
    pub(crate) lost_answers: u64,
    pub(crate) pauses: u64,
    pub(crate) clock_steps: u64,
    pub(crate) store_pauses: u64,
    pub(crate) copies: u64,
    pub(crate) outages: u64,
    pub(crate) handler_changes: u64,
    pub(crate) delegated: u64,
}

/// What the store has committed.
#[derive(Default)]
pub(crate) struct Ledger {
    /// Rows that have ended, and will never be delivered.
    ended: BTreeSet<RowId>,
    /// The attempts of each row that were claimed.
    claimed: BTreeMap<RowId, u32>,
    /// The deliveries that were begun.
    delivered: BTreeSet<(RowId, u32)>,
    pub(crate) totals: Totals,
}

impl Ledger {
    /// Checks what a committed batch did. `before` are the rows before it, `after` the tables behind it.
    pub(crate) fn committed(
        &mut self,
        ops: &[WriteOp],
        answers: &[WriteAnswer],
        before: &BTreeSet<RowId>,
        after: &MemoryTables,
        now: StoreTime,
    ) {
        let new: BTreeSet<RowId> = after.rows().map(|row| row.id).collect();
        for row in &new {
            assert!(!self.ended.contains(row), "q2: {row:?} is there again after its end");
        }
        let gone: Vec<RowId> = before.difference(&new).copied().collect();
        self.ended.extend(gone);
        for (op, answer) in ops.iter().zip(answers) {
            match (op, answer) {
                (WriteOp::Create(_), WriteAnswer::Create(tourbillon_durable::store::CreateAnswer::Created { .. })) => {
                    self.totals.created += 1;
                }
                (_, WriteAnswer::Cancel(counts)) => self.totals.cancelled += counts.cancelled,
                (_, WriteAnswer::Reschedule(tourbillon_durable::store::RescheduleAnswer::Moved { .. })) => {
                    self.totals.moved += 1;
                }
                (_, WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. })) => self.claimed(row, now),
                (_, WriteAnswer::Finish(Ok(_))) => self.totals.acknowledged += 1,
                (_, WriteAnswer::Finish(Err(_))) => self.totals.refused += 1,
                _ => {}
            }
        }
    }

    fn claimed(&mut self, row: &TimerRow, now: StoreTime) {
        let last = self.claimed.insert(row.id, row.attempt);
        // The answer to a claim may be asked for again, after the clock was set back.
        if last == Some(row.attempt) {
            return;
        }
        assert!(row.due <= now, "q4: {row:?} was claimed early, at {now}");
        assert!(last.is_none_or(|last| last < row.attempt), "q3: attempt {last:?} before {row:?}");
    }

    /// Checks a delivery that a node begins.
    pub(crate) fn deliver(&mut self, row: &TimerRow) {
        assert!(self.claimed.contains_key(&row.id), "q2: {row:?} was not claimed");
        assert!(self.delivered.insert((row.id, row.attempt)), "q3: one attempt was delivered twice: {row:?}");
        self.totals.delivered += 1;
    }
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Totals) {
        self.created += other.created;
        self.cancelled += other.cancelled;
        self.moved += other.moved;
        self.delivered += other.delivered;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.crashes += other.crashes;
        self.lost_requests += other.lost_requests;
        self.lost_answers += other.lost_answers;
        self.pauses += other.pauses;
        self.clock_steps += other.clock_steps;
        self.store_pauses += other.store_pauses;
        self.copies += other.copies;
        self.outages += other.outages;
        self.handler_changes += other.handler_changes;
        self.delegated += other.delegated;
    }
}
