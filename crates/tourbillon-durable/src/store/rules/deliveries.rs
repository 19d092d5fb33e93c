//! What owners do to rows: claim, finish and extend.

use std::time::Duration;

use super::super::error::StoreError;
use super::super::op::{ClaimAnswer, ClaimOp, ExtendOp, FinishOp, StaleDelivery, Verdict};
use super::super::query::DueEntry;
use super::super::row::{EndedAs, RowId, RowState, TimerRow};
use super::super::shard::is_pull_fence;
use super::{Rows, end_row, pass_on_head};
use crate::spec::{MissedFires, RecurrenceTimes, TimerSpec};
use crate::time::StoreTime;

/// The most bytes of an error that a row keeps, so that a row is not much larger than what was asked for, and an export of it can be imported.
const LONGEST_ERROR: usize = 8 * 1024;

/// When a row is claimed again whose times the claiming process cannot tell.
const UNREADABLE_AGAIN: Duration = Duration::from_secs(60);

pub(super) fn claim(rows: &mut (impl Rows + ?Sized), op: &ClaimOp) -> Result<ClaimAnswer, StoreError> {
    let Some(row) = rows.get(op.id)? else { return Ok(ClaimAnswer::Lost) };
    let owner_epoch = rows.epoch(row.shard)?;
    if owner_epoch != op.epoch && !is_pull_fence(op.epoch) {
        return Ok(ClaimAnswer::Fenced);
    }
    // The same claim again, because its answer was lost.
    if row.state == RowState::Claimed && row.epoch == op.epoch && row.claim == op.token {
        let next = armed_after(rows, &row)?;
        return Ok(ClaimAnswer::Claimed { row, next });
    }
    if row.state == RowState::Dead || row.version != op.version {
        return Ok(ClaimAnswer::Lost);
    }
    let now = rows.now();
    let is_orphan = row.state == RowState::Claimed && row.epoch < owner_epoch;
    // After the clock was set back, a row that was delivered before may not be due yet.
    let earliest = if is_orphan { row.due } else { row.wake.max(row.due) };
    if earliest > now {
        return Ok(ClaimAnswer::Early(earliest));
    }
    if row.state == RowState::Claimed && has_no_attempt_left(&row, now) {
        bury(rows, row, "its last delivery was neither acknowledged nor refused in time")?;
        return Ok(ClaimAnswer::GivenUp { is_dead: true, next: None });
    }
    if row.state == RowState::Armed && row.attempt == 0 && row.replayed_at.is_none() {
        return claim_first(rows, row, op, now);
    }
    // A retry that nobody was there to deliver. One that was only given back has had no delivery yet.
    if row.state == RowState::Armed && row.attempt > row.returned && is_too_old(&row, now) {
        let error = row.last_error.clone();
        bury(rows, row, error.as_deref().unwrap_or("its next delivery came later than its policy tries"))?;
        return Ok(ClaimAnswer::GivenUp { is_dead: true, next: None });
    }
    // A retry or an orphan: its next occurrence was armed with its first claim.
    let row = take(rows, &row, row.clone(), op, now)?;
    Ok(ClaimAnswer::Claimed { row, next: None })
}

/// Claims an occurrence for the first time: its policy decides what is missed, and the next occurrence is armed.
fn claim_first(
    rows: &mut (impl Rows + ?Sized),
    row: TimerRow,
    op: &ClaimOp,
    now: StoreTime,
) -> Result<ClaimAnswer, StoreError> {
    // Without its times the timer would seem to have no further occurrence. So the row stays as it is, for a process that can read them.
    let Ok(times) = row.spec.recurrence.times() else {
        return Ok(ClaimAnswer::Early(now.saturating_add(UNREADABLE_AGAIN)));
    };
    let Occurrences { current, next } = occurrences(&row.spec, &times, row.due, row.left, now);
    // In a row that is claimed for the first time the number of the occurrence counts those that were skipped.
    let next = next.map(|next| successor(&row, next));
    // A row that is there already, however it came there, is never written over.
    let armed = match &next {
        Some(next) => rows.get(next.id)?,
        None => None,
    };
    let entry = match &armed {
        Some(armed) => Some(armed).filter(|armed| armed.state == RowState::Armed).map(DueEntry::from),
        None => next.as_ref().map(DueEntry::from),
    };
    let is_last = next.is_none();
    let is_dead = matches!(current, Current::Dead);
    let claimed = match current {
        Current::Fire { due, stands_for } => {
            let fired = TimerRow { due, stands_for, is_head: row.is_head && is_last, ..row.clone() };
            Some(take(rows, &row, fired, op, now)?)
        }
        Current::Skip => {
            rows.end(&row, EndedAs::Skipped)?;
            None
        }
        Current::Dead => {
            let dead = TimerRow { is_head: row.is_head && is_last, ..row.clone() };
            rows.put(Some(&row), TimerRow { is_head: false, ..dead_row(&dead, "it was missed") })?;
            None
        }
    };
    match next {
        Some(next) if armed.is_none() => rows.put(None, next)?,
        Some(_) => {}
        None if claimed.is_none() => pass_on_head(rows, &row)?,
        None => {}
    }
    Ok(match claimed {
        Some(row) => ClaimAnswer::Claimed { row, next: entry },
        None => ClaimAnswer::GivenUp { is_dead, next: entry },
    })
}

/// What becomes of the occurrence that is claimed, and which one is next.
struct Occurrences {
    current: Current,
    next: Option<Next>,
}

enum Current {
    /// It is delivered, as the occurrence that was due then and stands for so many more.
    Fire { due: StoreTime, stands_for: u64 },
    /// It is skipped.
    Skip,
    /// It becomes a dead letter.
    Dead,
}

struct Next {
    due: StoreTime,
    /// How many occurrences after the claimed one it is.
    steps: u64,
    left: Option<u64>,
}

/// Decides what a claim at `now` means for an occurrence that was due at `due`.
fn occurrences(
    spec: &TimerSpec,
    times: &RecurrenceTimes,
    due: StoreTime,
    left: Option<u64>,
    now: StoreTime,
) -> Occurrences {
    let after = |due: StoreTime, steps: u64| {
        let left = left.map(|left| left.saturating_sub(steps));
        let next_due = times.next_after(due).and_then(|due| spec.in_time(due)).filter(|_| left != Some(0));
        next_due.map(|due| Next { due, steps, left })
    };
    // The last of the occurrences up to a time that the timer still has, at most so many further on, and how many further on it is.
    let last_until = |limit: StoreTime, most: u64| {
        let limit = limit.min(spec.until.unwrap_or(StoreTime::MAX));
        let most = most.min(left.map_or(u64::MAX, |left| left.saturating_sub(1)));
        times.last_until(due, limit, most)
    };
    let late = now.since(due);
    match spec.missed {
        MissedFires::Once => {
            let (last, count) = last_until(now, u64::MAX);
            Occurrences { current: Current::Fire { due: last, stands_for: count }, next: after(last, count + 1) }
        }
        MissedFires::Skip { older_than } if late > older_than => {
            // The first occurrence that is not too old, or else the first that is to come.
            let oldest = now.saturating_sub(older_than + Duration::from_micros(1));
            let (last, count) = last_until(oldest, u64::MAX);
            Occurrences { current: Current::Skip, next: after(last, count + 1) }
        }
        MissedFires::DeadAfter(age) if late > age => Occurrences { current: Current::Dead, next: after(due, 1) },
        MissedFires::All { at_most } => {
            let (_, count) = last_until(now, u64::MAX);
            match count.checked_sub(at_most) {
                // Counted are those after the current one, so `at_most` of them are the newest.
                Some(surplus) => {
                    let (newest_skipped, _) = last_until(now, surplus);
                    Occurrences { current: Current::Skip, next: after(newest_skipped, surplus + 1) }
                }
                None => Occurrences { current: Current::Fire { due, stands_for: 0 }, next: after(due, 1) },
            }
        }
        MissedFires::Skip { .. } | MissedFires::DeadAfter(_) => {
            Occurrences { current: Current::Fire { due, stands_for: 0 }, next: after(due, 1) }
        }
    }
}

/// Returns the row of a later occurrence, armed.
fn successor(row: &TimerRow, next: Next) -> TimerRow {
    TimerRow {
        id: RowId { occurrence: row.id.occurrence + next.steps, ..row.id },
        is_head: row.is_head,
        state: RowState::Armed,
        due: next.due,
        wake: next.due,
        version: row.version + 1,
        attempt: 0,
        returned: 0,
        epoch: 0,
        claim: 0,
        left: next.left,
        stands_for: 0,
        last_error: None,
        ..row.clone()
    }
}

/// Writes a row as claimed, and returns it.
fn take(
    rows: &mut (impl Rows + ?Sized),
    old: &TimerRow,
    row: TimerRow,
    op: &ClaimOp,
    now: StoreTime,
) -> Result<TimerRow, StoreError> {
    let row = TimerRow {
        state: RowState::Claimed,
        wake: now.saturating_add(op.lease),
        version: row.version + 1,
        attempt: row.attempt.saturating_add(1),
        epoch: op.epoch,
        claim: op.token,
        ..row
    };
    rows.put(Some(old), row.clone())?;
    Ok(row)
}

/// Returns the occurrence that was armed when `row` was claimed first, if it still is.
fn armed_after(rows: &mut (impl Rows + ?Sized), row: &TimerRow) -> Result<Option<DueEntry>, StoreError> {
    if !row.spec.is_repeating() {
        return Ok(None);
    }
    let later = rows.of_timer(row.id.timer)?;
    let next = later.iter().find(|other| other.id.occurrence > row.id.occurrence && other.state == RowState::Armed);
    Ok(next.map(DueEntry::from))
}

pub(super) fn finish(
    rows: &mut (impl Rows + ?Sized),
    op: FinishOp,
) -> Result<Result<Option<DueEntry>, StaleDelivery>, StoreError> {
    let Some(row) = current(rows, op.id, op.attempt, op.epoch)? else { return Ok(Err(StaleDelivery)) };
    let now = rows.now();
    let again = match op.verdict {
        Verdict::Done => {
            end_row(rows, &row, EndedAs::Fired)?;
            return Ok(Ok(None));
        }
        Verdict::Dead { error } => {
            bury(rows, row, &error)?;
            return Ok(Ok(None));
        }
        Verdict::Retry { after, error } => {
            let wake = now.saturating_add(after);
            if has_no_attempt_left(&row, wake) {
                bury(rows, row, &error)?;
                return Ok(Ok(None));
            }
            TimerRow { wake, last_error: Some(kept(&error).to_owned()), ..row.clone() }
        }
        // The attempt keeps its number, so that the row is claimed as a retry is: its next occurrence is armed already.
        Verdict::Return { after } => {
            let returned = row.returned.saturating_add(1);
            TimerRow { wake: now.saturating_add(after), returned, ..row.clone() }
        }
    };
    let again = TimerRow { state: RowState::Armed, version: row.version + 1, ..again };
    let entry = DueEntry::from(&again);
    rows.put(Some(&row), again)?;
    Ok(Ok(Some(entry)))
}

pub(super) fn extend(rows: &mut (impl Rows + ?Sized), op: &ExtendOp) -> Result<Result<(), StaleDelivery>, StoreError> {
    let Some(row) = current(rows, op.id, op.attempt, op.epoch)? else { return Ok(Err(StaleDelivery)) };
    let wake = rows.now().saturating_add(op.lease);
    rows.put(Some(&row), TimerRow { wake, version: row.version + 1, ..row.clone() })?;
    Ok(Ok(()))
}

/// Returns the row of a delivery, if the delivery is still the current one (V5) and its node owns the shard (Q7). A row that was pulled
/// belongs to nobody but its worker, whatever nodes come and go.
fn current(
    rows: &mut (impl Rows + ?Sized),
    id: RowId,
    attempt: u32,
    epoch: u64,
) -> Result<Option<TimerRow>, StoreError> {
    let Some(row) = rows.get(id)? else { return Ok(None) };
    let is_current = row.state == RowState::Claimed && row.attempt == attempt && row.epoch == epoch;
    let is_owned = is_pull_fence(epoch) || rows.epoch(row.shard)? == epoch;
    Ok((is_current && is_owned).then_some(row))
}

/// Returns whether a row must not be delivered once more at `wake`.
fn has_no_attempt_left(row: &TimerRow, wake: StoreTime) -> bool {
    row.attempt.saturating_sub(row.returned) >= row.spec.retry.attempts || is_too_old(row, wake)
}

/// Returns whether the policy of a row tries no delivery at `wake` any more.
fn is_too_old(row: &TimerRow, wake: StoreTime) -> bool {
    let since = row.replayed_at.unwrap_or(row.due).max(row.due);
    row.spec.retry.give_up_after.is_some_and(|limit| wake > since.saturating_add(limit))
}

/// Makes a row a dead letter.
fn bury(rows: &mut (impl Rows + ?Sized), row: TimerRow, error: &str) -> Result<(), StoreError> {
    rows.put(Some(&row), dead_row(&row, error))?;
    pass_on_head(rows, &row)
}

fn dead_row(row: &TimerRow, error: &str) -> TimerRow {
    TimerRow {
        state: RowState::Dead,
        is_head: false,
        version: row.version + 1,
        last_error: Some(kept(error).to_owned()),
        ..row.clone()
    }
}

/// Returns as much of an error as a row keeps.
fn kept(error: &str) -> &str {
    let end = (0..=LONGEST_ERROR.min(error.len())).rev().find(|end| error.is_char_boundary(*end));
    &error[..end.unwrap_or(0)]
}
