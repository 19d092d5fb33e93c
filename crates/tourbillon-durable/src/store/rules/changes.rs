//! What users do to timers: create, cancel, reschedule, replay and discard.

use super::super::error::StoreError;
use super::super::op::{
    CancelCounts, CreateAnswer, CreateOp, DeadLetterOp, ImportAnswer, ImportOp, RescheduleAnswer, RescheduleOp, Target,
};
use super::super::query::DueEntry;
use super::super::row::{EndedAs, RowId, RowState, TimerRow};
use super::super::shard::shard_of;
use super::{Rows, end_row, pass_on_head};
use crate::id::TimerId;
use crate::spec::{FirstDue, OnConflict};
use crate::time::StoreTime;

pub(super) fn create(rows: &mut (impl Rows + ?Sized), op: CreateOp) -> Result<CreateAnswer, StoreError> {
    let now = rows.now();
    let due = op.spec.first_due(now);
    let holder = match &op.spec.key {
        Some(key) => rows.head(&op.spec.namespace, key)?,
        None => None,
    };
    let decision = holder.as_ref().map(|holder| on_holder(holder, &op, due));
    if let (Some(holder), Some(HolderDecision::Stays)) = (&holder, &decision) {
        return Ok(existing(holder));
    }
    let Some(due) = due else { return Ok(CreateAnswer::NeverDue) };
    if let Some(holder) = &holder {
        if let Some(HolderDecision::Conflicts) = decision {
            return Ok(CreateAnswer::Conflict { id: holder.id.timer });
        }
        replace(rows, holder.id.timer)?;
    }
    let row = TimerRow {
        id: RowId { timer: op.id, occurrence: 1 },
        shard: shard_of(&op.spec, op.id, rows.shards()),
        is_head: true,
        state: RowState::Armed,
        due,
        wake: due,
        version: 1,
        attempt: 0,
        epoch: 0,
        claim: 0,
        left: op.spec.times,
        stands_for: 0,
        returned: 0,
        created: now,
        replayed_at: None,
        last_error: None,
        spec: op.spec,
    };
    let entry = DueEntry::from(&row);
    rows.put(None, row)?;
    let replaced = holder.as_ref().map(|holder| holder.id.timer);
    Ok(CreateAnswer::Created { entry, due, replaced, in_flight: holder.as_ref().is_some_and(is_in_flight) })
}

/// What happens to the row that holds the key of a new timer.
enum HolderDecision {
    Stays,
    GivesWay,
    Conflicts,
}

/// Decides between the holder of a key and a request that would be due at `due`, if ever.
fn on_holder(holder: &TimerRow, op: &CreateOp, due: Option<StoreTime>) -> HolderDecision {
    let gives_way_if = |gives_way| if gives_way { HolderDecision::GivesWay } else { HolderDecision::Stays };
    let is_same = holder.spec == op.spec;
    // The same request, perhaps sent again because its answer was lost. One with a delay means another time each time that it is sent; a repeating
    // timer stays all the same, because processes create theirs each time that they start.
    let is_repeated = is_same && due.is_none_or(|due| due == holder.due || holder.spec.is_repeating());
    match op.on_conflict {
        OnConflict::Refuse if is_same => HolderDecision::Stays,
        OnConflict::Refuse => HolderDecision::Conflicts,
        OnConflict::Keep => HolderDecision::Stays,
        // A handler that creates its own key again wants one more delivery.
        OnConflict::Replace if is_in_flight(holder) && due.is_some() => HolderDecision::GivesWay,
        _ if is_repeated => HolderDecision::Stays,
        OnConflict::Replace => HolderDecision::GivesWay,
        OnConflict::Earlier => gives_way_if(due.is_none_or(|due| due < holder.due)),
        OnConflict::Later => gives_way_if(due.is_none_or(|due| due > holder.due)),
    }
}

fn is_in_flight(row: &TimerRow) -> bool {
    row.state == RowState::Claimed
}

fn existing(holder: &TimerRow) -> CreateAnswer {
    let in_flight = is_in_flight(holder);
    CreateAnswer::Existing { id: holder.id.timer, due: holder.due, version: holder.version, in_flight }
}

/// Cancels the armed rows of a timer, and takes its key from those that are being delivered.
fn replace(rows: &mut (impl Rows + ?Sized), timer: TimerId) -> Result<(), StoreError> {
    for row in rows.of_timer(timer)? {
        match row.state {
            RowState::Armed => rows.end(&row, EndedAs::Cancelled)?,
            RowState::Claimed if row.is_head => rows.put(Some(&row), TimerRow { is_head: false, ..row.clone() })?,
            RowState::Claimed | RowState::Dead => {}
        }
    }
    Ok(())
}

pub(super) fn cancel(rows: &mut (impl Rows + ?Sized), target: &Target) -> Result<CancelCounts, StoreError> {
    let mut counts = CancelCounts::default();
    let found = match target {
        Target::Name { namespace, name } => rows.of_name(namespace, name)?,
        Target::Id(_) | Target::Key { .. } => match timer_of(rows, target)? {
            Some(timer) => rows.of_timer(timer)?,
            None => Vec::new(),
        },
    };
    for row in &found {
        match row.state {
            RowState::Armed => {
                rows.end(row, EndedAs::Cancelled)?;
                counts.cancelled += 1;
            }
            RowState::Claimed => counts.in_flight += 1,
            RowState::Dead => counts.gone += 1,
        }
    }
    // Only now: an heir of a head must not be one of the rows that end too.
    for row in found.iter().filter(|row| row.state == RowState::Armed) {
        pass_on_head(rows, row)?;
    }
    if !matches!(target, Target::Name { .. }) && counts == CancelCounts::default() {
        counts.gone = 1;
    }
    Ok(counts)
}

/// Returns the timer of an id or a key; `None` for a name, and if no row has the key.
fn timer_of(rows: &mut (impl Rows + ?Sized), target: &Target) -> Result<Option<TimerId>, StoreError> {
    match target {
        Target::Id(id) => Ok(Some(*id)),
        Target::Key { namespace, key } => Ok(rows.head(namespace, key)?.map(|head| head.id.timer)),
        Target::Name { .. } => Ok(None),
    }
}

pub(super) fn reschedule(rows: &mut (impl Rows + ?Sized), op: &RescheduleOp) -> Result<RescheduleAnswer, StoreError> {
    let of_timer = match timer_of(rows, &op.target)? {
        Some(timer) => rows.of_timer(timer)?,
        None => Vec::new(),
    };
    // The latest occurrence is the one that a user means by "the timer"; earlier ones are deliveries that have begun.
    let Some(row) = of_timer.into_iter().rev().find(|row| row.state != RowState::Dead) else {
        return Ok(RescheduleAnswer::NotFound);
    };
    if op.if_version.is_some_and(|version| version != row.version) {
        return Ok(RescheduleAnswer::VersionIs(row.version));
    }
    if row.state == RowState::Claimed {
        return Ok(RescheduleAnswer::InFlight);
    }
    let now = rows.now();
    let due = match op.when {
        FirstDue::At(due) => Some(due),
        FirstDue::After(delay) => now.checked_add(delay),
        FirstDue::Next => row.spec.next_due(row.due),
    };
    let Some(due) = due.filter(|due| row.spec.until.is_none_or(|until| *due <= until)) else {
        return Ok(RescheduleAnswer::OutOfRange);
    };
    // The attempts stay counted: no two deliveries have the same number.
    let moved = TimerRow { due, wake: due, version: row.version + 1, ..row.clone() };
    let (entry, kind) = (DueEntry::from(&moved), moved.spec.kind.clone());
    rows.put(Some(&row), moved)?;
    Ok(RescheduleAnswer::Moved { entry, kind, due })
}

pub(super) fn dead_letter(
    rows: &mut (impl Rows + ?Sized),
    op: &DeadLetterOp,
) -> Result<Option<Option<DueEntry>>, StoreError> {
    let Some(row) = rows.get(op.id)?.filter(|row| row.state == RowState::Dead) else { return Ok(None) };
    if !op.replay {
        end_row(rows, &row, EndedAs::Dead)?;
        return Ok(Some(None));
    }
    // Its key may be another timer's by now: a replay does not make it the head, and it is found by its id and its name.
    let armed = TimerRow {
        state: RowState::Armed,
        wake: rows.now(),
        version: row.version + 1,
        replayed_at: Some(rows.now()),
        ..row.clone()
    };
    let entry = DueEntry::from(&armed);
    rows.put(Some(&row), armed)?;
    Ok(Some(Some(entry)))
}

/// Writes a row of another store. Owners and shards are this store's: a row that was being delivered is armed, and is delivered again.
///
/// A row that the store has had before is not written, so that an import that is repeated revives nothing (Q2).
pub(super) fn import(rows: &mut (impl Rows + ?Sized), op: ImportOp) -> Result<ImportAnswer, StoreError> {
    let ImportOp { row, has_heir } = op;
    // An earlier occurrence that was never claimed arms the later ones itself.
    let is_unclaimed = |row: &TimerRow| row.state == RowState::Armed && row.attempt == 0 && row.replayed_at.is_none();
    let has_it = |other: &TimerRow| other.id.occurrence >= row.id.occurrence || is_unclaimed(other);
    if rows.of_timer(row.id.timer)?.iter().any(has_it) {
        return Ok(ImportAnswer::Exists);
    }
    if rows.last_ended(row.id.timer)?.is_some_and(|last| last >= row.id.occurrence) {
        return Ok(ImportAnswer::Ended);
    }
    // An occurrence that is being delivered needs the key for the one after it, so that it does not come without that one. A dead letter has no part
    // in the series, and one whose key was given to another timer has no heir.
    let is_of_series = has_heir && row.state != RowState::Dead && row.replayed_at.is_none();
    if let Some(key) = row.spec.key.as_ref().filter(|_| row.is_head || is_of_series)
        && let Some(holder) = rows.head(&row.spec.namespace, key)?
        && (row.is_head || holder.id.timer != row.id.timer)
    {
        return Ok(ImportAnswer::Conflict(holder.id.timer));
    }
    let was_claimed = row.state == RowState::Claimed;
    let imported = TimerRow {
        shard: shard_of(&row.spec, row.id.timer, rows.shards()),
        state: if was_claimed { RowState::Armed } else { row.state },
        wake: if was_claimed { row.due } else { row.wake },
        epoch: 0,
        claim: 0,
        ..row
    };
    rows.put(None, imported)?;
    Ok(ImportAnswer::Written)
}
