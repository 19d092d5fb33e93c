//! What a store must hold and answer when nodes and workers claim and end deliveries.

use tourbillon_durable::store::{
    ClaimAnswer, ClaimOp, DueEntry, EndedAs, ExtendOp, FinishOp, RowId, RowState, StaleDelivery, TimerRow, Verdict,
    is_pull_fence,
};
use tourbillon_durable::{MissedFires, StoreTime};

use super::model::{Model, next_slot};

/// What becomes of an occurrence that is claimed for the first time.
enum Fate {
    /// It is delivered, as the occurrence of that time.
    Fires(StoreTime),
    Skipped,
    Dies,
}

impl Model {
    pub(crate) fn claim(&mut self, op: &ClaimOp, now: StoreTime) -> ClaimAnswer {
        let Some(row) = self.rows.get(&op.id).cloned() else { return ClaimAnswer::Lost };
        let epoch = self.epoch(row.shard);
        if !is_pull_fence(op.epoch) && op.epoch != epoch {
            return ClaimAnswer::Fenced;
        }
        if row.state == RowState::Claimed && (row.epoch, row.claim) == (op.epoch, op.token) {
            let next = self.of_timer(row.id.timer).into_iter().find(|next| {
                row.spec.is_repeating() && next.id.occurrence > row.id.occurrence && next.state == RowState::Armed
            });
            return ClaimAnswer::Claimed { row, next: next.as_ref().map(DueEntry::from) };
        }
        if row.state == RowState::Dead || row.version != op.version {
            return ClaimAnswer::Lost;
        }
        let owner_is_gone = row.state == RowState::Claimed && row.epoch < epoch;
        let earliest = if owner_is_gone { row.due } else { row.due.max(row.wake) };
        if now < earliest {
            return ClaimAnswer::Early(earliest);
        }
        if row.state == RowState::Claimed && is_last_attempt(&row, now) {
            self.bury(&row);
            return ClaimAnswer::GivenUp { is_dead: true, next: None };
        }
        if row.attempt == 0 && row.replayed_at.is_none() {
            return self.claim_first(&row, op, now);
        }
        // An outage has kept a retry waiting for longer than the user wants it tried.
        if row.state == RowState::Armed && row.attempt != row.returned && has_no_time_left(&row, now) {
            self.bury(&row);
            return ClaimAnswer::GivenUp { is_dead: true, next: None };
        }
        ClaimAnswer::Claimed { row: self.take(op, now), next: None }
    }

    /// Claims an occurrence for the first time. The times that the timer still has are counted one by one.
    fn claim_first(&mut self, row: &TimerRow, op: &ClaimOp, now: StoreTime) -> ClaimAnswer {
        let slots = || {
            let all = std::iter::successors(Some(row.due), |due| next_slot(&row.spec.recurrence, *due));
            let all = all.take_while(|slot| row.spec.until.is_none_or(|until| *slot <= until));
            all.take(usize::try_from(row.left.unwrap_or(u64::MAX)).unwrap_or(usize::MAX))
        };
        let until = |limit: StoreTime| slots().take_while(|slot| *slot <= limit).count();
        let late = now.since(row.due);
        let (fate, steps) = match row.spec.missed {
            MissedFires::Once => {
                let last = slots().take_while(|slot| *slot <= now).last();
                (Fate::Fires(last.expect("it is due")), until(now))
            }
            MissedFires::All { at_most } if until(now) as u64 > at_most => {
                (Fate::Skipped, until(now) - at_most as usize)
            }
            MissedFires::Skip { older_than } if late > older_than => {
                (Fate::Skipped, slots().take_while(|slot| now.since(*slot) > older_than).count())
            }
            MissedFires::DeadAfter(age) if late > age => (Fate::Dies, 1),
            _ => (Fate::Fires(row.due), 1),
        };
        let next = slots().nth(steps).map(|due| later(row, due, steps as u64));
        let entry = next.as_ref().map(DueEntry::from);
        self.covers.insert(row.id, steps as u64);
        let keeps_key = row.is_head && next.is_none();
        if next.is_none() {
            self.timers.insert(row.id.timer, Some(row.id.occurrence + steps as u64 - 1));
        }
        next.into_iter().for_each(|next| _ = self.rows.insert(next.id, next));
        match fate {
            Fate::Fires(due) => {
                let fired = self.row(row.id);
                (fired.due, fired.stands_for, fired.is_head) = (due, steps as u64 - 1, keeps_key);
                ClaimAnswer::Claimed { row: self.take(op, now), next: entry }
            }
            Fate::Skipped => {
                self.end(row.id, EndedAs::Skipped);
                self.pass_on(row, keeps_key);
                ClaimAnswer::GivenUp { is_dead: false, next: entry }
            }
            Fate::Dies => {
                self.bury(&TimerRow { is_head: keeps_key, ..row.clone() });
                ClaimAnswer::GivenUp { is_dead: true, next: entry }
            }
        }
    }

    fn pass_on(&mut self, row: &TimerRow, is_head: bool) {
        self.inherit(&TimerRow { is_head, ..row.clone() });
    }

    fn take(&mut self, op: &ClaimOp, now: StoreTime) -> TimerRow {
        let row = self.row(op.id);
        (row.state, row.wake) = (RowState::Claimed, now.saturating_add(op.lease));
        (row.version, row.attempt) = (row.version + 1, row.attempt + 1);
        (row.epoch, row.claim) = (op.epoch, op.token);
        let row = row.clone();
        self.claims.insert(row.id, (row.attempt, row.claim));
        row
    }

    pub(crate) fn finish(&mut self, op: &FinishOp, now: StoreTime) -> Result<Option<DueEntry>, StaleDelivery> {
        let row = self.current(op.id, op.attempt, op.epoch).ok_or(StaleDelivery)?;
        let (after, is_counted) = match &op.verdict {
            Verdict::Done => {
                self.end(row.id, EndedAs::Fired);
                self.inherit(&row);
                return Ok(None);
            }
            Verdict::Dead { .. } => {
                self.bury(&row);
                return Ok(None);
            }
            Verdict::Retry { after, .. } if is_last_attempt(&row, now.saturating_add(*after)) => {
                self.bury(&row);
                return Ok(None);
            }
            Verdict::Retry { after, .. } => (*after, true),
            Verdict::Return { after } => (*after, false),
        };
        let row = self.row(op.id);
        (row.state, row.wake, row.version) = (RowState::Armed, now.saturating_add(after), row.version + 1);
        match is_counted {
            true => row.last_error = Some(String::new()),
            false => row.returned += 1,
        }
        Ok(Some(DueEntry::from(&*row)))
    }

    pub(crate) fn extend(&mut self, op: &ExtendOp, now: StoreTime) -> Result<(), StaleDelivery> {
        let id = self.current(op.id, op.attempt, op.epoch).ok_or(StaleDelivery)?.id;
        let row = self.row(id);
        (row.wake, row.version) = (now.saturating_add(op.lease), row.version + 1);
        Ok(())
    }

    /// Returns the row of a delivery that is still the current one.
    fn current(&self, id: RowId, attempt: u32, epoch: u64) -> Option<TimerRow> {
        let row = self.rows.get(&id).filter(|row| row.state == RowState::Claimed)?;
        let is_owned = is_pull_fence(epoch) || epoch == self.epoch(row.shard);
        (is_owned && (row.attempt, row.epoch) == (attempt, epoch)).then(|| row.clone())
    }

    fn bury(&mut self, row: &TimerRow) {
        let dead = self.row(row.id);
        (dead.state, dead.is_head, dead.version) = (RowState::Dead, false, row.version + 1);
        dead.last_error = Some(String::new());
        self.inherit(row);
    }
}

/// Returns whether a row that is to be delivered at `wake` has had its last attempt.
fn is_last_attempt(row: &TimerRow, wake: StoreTime) -> bool {
    row.attempt - row.returned >= row.spec.retry.attempts || has_no_time_left(row, wake)
}

fn has_no_time_left(row: &TimerRow, wake: StoreTime) -> bool {
    row.spec.retry.give_up_after.is_some_and(|limit| {
        let since = row.replayed_at.map_or(row.due, |replayed| replayed.max(row.due));
        wake > since.saturating_add(limit)
    })
}

/// Returns the armed row of a later occurrence.
fn later(row: &TimerRow, due: StoreTime, steps: u64) -> TimerRow {
    TimerRow {
        id: RowId { occurrence: row.id.occurrence + steps, ..row.id },
        due,
        wake: due,
        version: row.version + 1,
        left: row.left.map(|left| left - steps),
        ..row.clone()
    }
}
