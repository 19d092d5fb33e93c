//! The simulated store: it applies requests at once, makes them durable in a later step, and may be made to break a rule.

use std::collections::VecDeque;

use tourbillon_durable::store::{
    CancelOp, ClaimAnswer, ExtendOp, Heartbeat, ImportOp, MemoryTables, Ownership, RowId, RowState, Target, TimerRow,
    WriteAnswer, WriteOp,
};
use tourbillon_durable::{StoreTime, TimerId};

/// A rule that a store breaks, now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// A row that was created is not there.
    DropsRow,
    /// The next occurrence of a repeating timer is not armed, although the answer to the claim names it.
    ForgetsNext,
    /// The next occurrence of a repeating timer is armed twice.
    DoublesNext,
    /// A cancel is answered and does not end anything.
    CancelsNothing,
    /// A cancel counts one occurrence too many.
    Miscounts,
    /// A reschedule is answered and does not move anything.
    MovesNothing,
    /// A row is claimed before it is due.
    ClaimsEarly,
    /// Two deliveries of a row have the same number.
    RepeatsAttempt,
    /// Answers are sent before the batch is durable.
    AnswersBeforeSync,
    /// A batch is applied although it is answered with an error.
    AppliesWhatFails,
    /// A crash leaves the first operations of a batch and not the others.
    TearsBatch,
    /// An extension of an older attempt, or with a fence that is over, makes the lease of the present delivery longer.
    ExtendsForAnybody,
    /// An extension of an attempt that is over is answered as if the worker still had the row.
    HidesThatItIsStale,
    /// An extension is answered, and the row is delivered again when its former lease is over.
    ExtendsNothing,
}

/// The tables as requests see them, and as they are after a crash.
pub(crate) struct SimStore {
    pub(crate) tables: MemoryTables,
    durable: MemoryTables,
    /// What is in `tables` and not yet in `durable`, in order.
    unsynced: VecDeque<(u64, Change)>,
    last: u64,
    pub(crate) flaw: Option<Flaw>,
}

enum Change {
    Write(Vec<WriteOp>, StoreTime),
    Heartbeat(Heartbeat, StoreTime),
}

impl SimStore {
    pub(crate) fn new(shards: u16, flaw: Option<Flaw>) -> SimStore {
        let tables = MemoryTables::new(shards);
        SimStore { durable: tables.clone(), tables, unsynced: VecDeque::new(), last: 0, flaw }
    }

    /// Applies a batch. Returns its number, under which it is synced, and the answers. A full store refuses what needs room.
    pub(crate) fn write(&mut self, ops: &[WriteOp], now: StoreTime, is_full: bool) -> (u64, Vec<WriteAnswer>) {
        let mut applied = Vec::new();
        let mut answers = Vec::new();
        for op in ops {
            if is_full && op.needs_room() {
                answers.push(WriteAnswer::Full);
                continue;
            }
            let answer = match self.flaw {
                Some(flaw) => self.flawed(flaw, op, now, &mut applied),
                None => self.one(op, now, &mut applied),
            };
            answers.push(answer);
        }
        (self.log(Change::Write(applied, now)), answers)
    }

    /// Answers a heartbeat. Returns the number under which it is synced.
    pub(crate) fn heartbeat(&mut self, heartbeat: Heartbeat, now: StoreTime) -> (u64, Ownership) {
        let ownership = self.tables.heartbeat(&heartbeat, now);
        (self.log(Change::Heartbeat(heartbeat, now)), ownership)
    }

    pub(crate) fn set_paused(&mut self, is_paused: bool) {
        self.tables.set_paused(is_paused);
        self.durable.set_paused(is_paused);
    }

    /// Returns the tables as the readers of a shared store see them: without what may still be undone.
    pub(crate) fn committed(&self) -> &MemoryTables {
        &self.durable
    }

    /// Makes everything up to a number durable.
    pub(crate) fn sync(&mut self, number: u64) {
        let count = self.unsynced.partition_point(|(unsynced, _)| *unsynced <= number);
        for _ in 0..count {
            self.sync_next();
        }
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// Loses what is not durable, except for the first `survivors` changes, which the disk happens to have.
    pub(crate) fn crash(&mut self, survivors: usize) {
        for _ in 0..survivors {
            self.sync_next();
        }
        if let (Some(Flaw::TearsBatch), Some((_, Change::Write(mut ops, now)))) = (self.flaw, self.unsynced.pop_front())
        {
            ops.truncate(ops.len() / 2);
            self.make_durable(Change::Write(ops, now));
        }
        self.unsynced.clear();
        self.tables = self.durable.clone();
    }

    fn sync_next(&mut self) {
        let next = self.unsynced.pop_front();
        next.into_iter().for_each(|(_, change)| self.make_durable(change));
    }

    fn make_durable(&mut self, change: Change) {
        match change {
            Change::Write(ops, now) => _ = self.durable.write(ops, now).expect("it was written before"),
            Change::Heartbeat(heartbeat, now) => _ = self.durable.heartbeat(&heartbeat, now),
        }
    }

    fn log(&mut self, change: Change) -> u64 {
        self.last += 1;
        self.unsynced.push_back((self.last, change));
        self.last
    }

    fn one(&mut self, op: &WriteOp, now: StoreTime, applied: &mut Vec<WriteOp>) -> WriteAnswer {
        applied.push(op.clone());
        self.tables.write(vec![op.clone()], now).expect("tables in memory do not fail").remove(0)
    }

    /// Applies an operation as a store with a fault does.
    fn flawed(&mut self, flaw: Flaw, op: &WriteOp, now: StoreTime, applied: &mut Vec<WriteOp>) -> WriteAnswer {
        match (flaw, op) {
            (Flaw::CancelsNothing, WriteOp::Cancel(_))
            | (Flaw::MovesNothing, WriteOp::Reschedule(_))
            | (Flaw::ExtendsNothing, WriteOp::Extend(_)) => {
                return self.tables.clone().write(vec![op.clone()], now).expect("as above").remove(0);
            }
            (Flaw::ExtendsForAnybody, WriteOp::Extend(extension)) => {
                let present = self.tables.rows_of(extension.id.timer).into_iter().find(|row| row.id == extension.id);
                let present = present.filter(|row| row.state == RowState::Claimed && row.attempt != extension.attempt);
                if let Some(TimerRow { attempt, epoch, .. }) = present {
                    return self.one(&WriteOp::Extend(ExtendOp { attempt, epoch, ..extension.clone() }), now, applied);
                }
            }
            _ => {}
        }
        let mut answer = self.one(op, now, applied);
        match (flaw, &mut answer, op) {
            (Flaw::DropsRow, WriteAnswer::Create(_), WriteOp::Create(create)) if is_chosen(create.id) => {
                self.one(&cancel(create.id), now, applied);
            }
            (Flaw::ForgetsNext, WriteAnswer::Claim(ClaimAnswer::Claimed { row, next: Some(_) }), _) => {
                self.one(&cancel(row.id.timer), now, applied);
            }
            (Flaw::DoublesNext, WriteAnswer::Claim(ClaimAnswer::Claimed { next: Some(next), .. }), _) => {
                let next = self.tables.rows_of(next.id.timer).remove(0);
                // The rules import no second row of a series that is pending, so it comes as another series.
                let timer = TimerId::from_u128(!next.id.timer.as_u128());
                let id = RowId { timer, occurrence: next.id.occurrence };
                let double = TimerRow { id, is_head: false, ..next };
                self.one(&WriteOp::Import(ImportOp { row: double, has_heir: false }), now, applied);
            }
            (Flaw::Miscounts, WriteAnswer::Cancel(counts), _) => counts.cancelled += 1,
            (Flaw::HidesThatItIsStale, WriteAnswer::Extend(result), _) => *result = Ok(()),
            (Flaw::ClaimsEarly, WriteAnswer::Claim(ClaimAnswer::Early(due)), _) => {
                answer = self.one(op, *due, applied);
            }
            (Flaw::RepeatsAttempt, WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. }), _) if row.attempt > 1 => {
                row.attempt -= 1;
            }
            _ => {}
        }
        answer
    }
}

/// Returns whether a fault that does not happen each time happens to this timer.
fn is_chosen(timer: TimerId) -> bool {
    timer.as_u128().is_multiple_of(8)
}

fn cancel(timer: TimerId) -> WriteOp {
    WriteOp::Cancel(CancelOp { target: Target::Id(timer) })
}
