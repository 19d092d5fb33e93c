//! Rows as columns, and back.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};
use uuid::Uuid;

use super::super::error::StoreError;
use super::super::row::{EndedAs, HistoryEntry, RowId, RowState, TimerRow};
use super::super::shard::ShardId;
use super::plan::{Plan, SpecColumns};
use crate::id::TimerId;
use crate::time::StoreTime;

/// The columns of a timer that change, behind its identity, as [`ChangedRows`] writes and [`timer_row`] reads them.
pub(super) const CHANGED_COLUMNS: &str = "id, occurrence, due, wake, version, epoch, claim, attempt, remaining, stands_for, replayed_at, state, is_head, last_error, returned";

/// The columns of a timer that never change, as [`NewRows`] writes and [`timer_row`] reads them behind those that do.
pub(super) const FIXED_COLUMNS: &str = "created, shard, namespace, kind, key, name, content_type, plan, payload";

/// The columns of the history, as they are written by [`EndedRows`].
pub(super) const HISTORY_COLUMNS: &str =
    "id, occurrence, at, due, attempts, ended_as, namespace, kind, key, name, error";

type Param<'a> = &'a (dyn ToSql + Sync);

/// Reads the columns of a row one after the other.
struct Reader<'r> {
    row: &'r Row,
    next: usize,
}

impl<'r> Reader<'r> {
    fn get<T: FromSql<'r>>(&mut self) -> Result<T, StoreError> {
        let index = self.next;
        self.next += 1;
        self.row.try_get(index).map_err(|error| damaged(format!("column {index}: {error}")))
    }

    fn time(&mut self) -> Result<StoreTime, StoreError> {
        self.get().map(store_time)
    }

    fn count(&mut self) -> Result<u64, StoreError> {
        self.get().map(i64::cast_unsigned)
    }

    fn attempt(&mut self) -> Result<u32, StoreError> {
        self.count().map(|attempt| u32::try_from(attempt).unwrap_or(u32::MAX))
    }

    fn id(&mut self) -> Result<RowId, StoreError> {
        Ok(RowId { timer: timer_id(self.get()?), occurrence: self.count()? })
    }
}

/// Reads a timer from its [`CHANGED_COLUMNS`] and [`FIXED_COLUMNS`], which begin at the column `first`.
///
/// # Errors
/// [`StoreError::Damaged`]: a column does not have what it should.
pub(super) fn timer_row(row: &Row, first: usize) -> Result<TimerRow, StoreError> {
    let mut read = Reader { row, next: first };
    let id = read.id()?;
    let (due, wake) = (read.time()?, read.time()?);
    let (version, epoch, claim) = (read.count()?, read.count()?, read.count()?);
    let attempt = read.attempt()?;
    let left = read.get::<Option<i64>>()?.map(i64::cast_unsigned);
    let stands_for = read.count()?;
    let replayed_at = read.get::<Option<i64>>()?.map(store_time);
    let state =
        row_state(read.get()?).ok_or_else(|| damaged(format!("the timer {} has an unknown state", id.timer)))?;
    let is_head = read.get()?;
    let last_error = read.get()?;
    let returned = read.attempt()?;
    let created = read.time()?;
    let shard = ShardId(read.get::<i16>()?.cast_unsigned());
    let (namespace, kind) = (read.get()?, read.get()?);
    let (key, name, content_type) = (read.get()?, read.get()?, read.get()?);
    let plan = Plan::parse(read.get()?)
        .map_err(|error| damaged(format!("the plan of the timer {} cannot be read: {error}", id.timer)))?;
    let payload = Arc::from(read.get::<&[u8]>()?);
    let spec = Arc::new(plan.into_spec(SpecColumns { namespace, key, name, kind, payload, content_type }));
    Ok(TimerRow {
        id,
        shard,
        is_head,
        state,
        due,
        wake,
        version,
        attempt,
        returned,
        epoch,
        claim,
        left,
        stands_for,
        created,
        replayed_at,
        last_error,
        spec,
    })
}

/// Reads an entry of the history from its [`HISTORY_COLUMNS`].
///
/// # Errors
/// [`StoreError::Damaged`]: a column does not have what it should.
pub(super) fn history_entry(row: &Row) -> Result<HistoryEntry, StoreError> {
    let mut read = Reader { row, next: 0 };
    let id = read.id()?;
    let (at, due) = (read.time()?, read.time()?);
    let attempts = read.attempt()?;
    let ended_as = match read.get::<i16>()? {
        0 => EndedAs::Fired,
        1 => EndedAs::Cancelled,
        2 => EndedAs::Dead,
        3 => EndedAs::Skipped,
        _ => return Err(damaged(format!("the history of the timer {} has an unknown end", id.timer))),
    };
    let (namespace, kind) = (read.get()?, read.get()?);
    let (key, name, error) = (read.get()?, read.get()?, read.get()?);
    Ok(HistoryEntry { id, ended_as, at, due, attempts, namespace, key, name, kind, error })
}

pub(super) fn damaged(what: String) -> StoreError {
    StoreError::Damaged(format!("the tables in PostgreSQL: {what}"))
}

pub(super) fn store_time(micros: i64) -> StoreTime {
    StoreTime::from_micros(u64::try_from(micros).unwrap_or_default())
}

pub(super) fn micros(time: StoreTime) -> i64 {
    time.as_micros().cast_signed()
}

pub(super) fn timer_id(id: Uuid) -> TimerId {
    TimerId::from_u128(id.as_u128())
}

pub(super) fn state_number(state: RowState) -> i16 {
    match state {
        RowState::Armed => 0,
        RowState::Claimed => 1,
        RowState::Dead => 2,
    }
}

fn row_state(number: i16) -> Option<RowState> {
    [RowState::Armed, RowState::Claimed, RowState::Dead].into_iter().find(|state| state_number(*state) == number)
}

/// Returns a text that PostgreSQL takes: it has no way to store the character zero.
fn without_zeros(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The columns of rows that change.
#[derive(Default)]
pub(super) struct ChangedRows {
    ids: Vec<Uuid>,
    occurrences: Vec<i64>,
    dues: Vec<i64>,
    wakes: Vec<i64>,
    versions: Vec<i64>,
    epochs: Vec<i64>,
    claims: Vec<i64>,
    attempts: Vec<i64>,
    lefts: Vec<Option<i64>>,
    stands_for: Vec<i64>,
    replays: Vec<Option<i64>>,
    states: Vec<i16>,
    heads: Vec<bool>,
    errors: Vec<Option<String>>,
    returned: Vec<i64>,
}

impl ChangedRows {
    pub(super) const TYPES: [Type; 15] = [
        Type::UUID_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT8_ARRAY,
        Type::INT2_ARRAY,
        Type::BOOL_ARRAY,
        Type::TEXT_ARRAY,
        Type::INT8_ARRAY,
    ];

    pub(super) fn push(&mut self, row: &TimerRow) {
        self.ids.push(row.id.timer.as_uuid());
        self.occurrences.push(row.id.occurrence.cast_signed());
        self.dues.push(micros(row.due));
        self.wakes.push(micros(row.wake));
        self.versions.push(row.version.cast_signed());
        self.epochs.push(row.epoch.cast_signed());
        self.claims.push(row.claim.cast_signed());
        self.attempts.push(i64::from(row.attempt));
        self.lefts.push(row.left.map(u64::cast_signed));
        self.stands_for.push(row.stands_for.cast_signed());
        self.replays.push(row.replayed_at.map(micros));
        self.states.push(state_number(row.state));
        self.heads.push(row.is_head);
        self.errors.push(row.last_error.as_deref().map(without_zeros));
        self.returned.push(i64::from(row.returned));
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![
            &self.ids,
            &self.occurrences,
            &self.dues,
            &self.wakes,
            &self.versions,
            &self.epochs,
            &self.claims,
            &self.attempts,
            &self.lefts,
            &self.stands_for,
            &self.replays,
            &self.states,
            &self.heads,
            &self.errors,
            &self.returned,
        ]
    }
}

/// The columns of new rows.
#[derive(Default)]
pub(super) struct NewRows<'r> {
    changed: ChangedRows,
    created: Vec<i64>,
    shards: Vec<i16>,
    namespaces: Vec<&'r str>,
    kinds: Vec<&'r str>,
    keys: Vec<Option<&'r str>>,
    names: Vec<Option<&'r str>>,
    content_types: Vec<Option<&'r str>>,
    plans: Vec<String>,
    payloads: Vec<&'r [u8]>,
}

impl<'r> NewRows<'r> {
    pub(super) fn types() -> Vec<Type> {
        let fixed = [Type::INT8_ARRAY, Type::INT2_ARRAY].into_iter().chain(vec![Type::TEXT_ARRAY; 6]);
        ChangedRows::TYPES.into_iter().chain(fixed).chain([Type::BYTEA_ARRAY]).collect()
    }

    pub(super) fn push(&mut self, row: &'r TimerRow) {
        let spec = &*row.spec;
        self.changed.push(row);
        self.created.push(micros(row.created));
        self.shards.push(row.shard.0.cast_signed());
        self.namespaces.push(&spec.namespace);
        self.kinds.push(&spec.kind);
        self.keys.push(spec.key.as_deref());
        self.names.push(spec.name.as_deref());
        self.content_types.push(spec.content_type.as_deref());
        self.plans.push(serde_json::to_string(&Plan::of(spec)).expect("a plan has nothing that JSON has not"));
        self.payloads.push(&spec.payload);
    }

    pub(super) fn len(&self) -> usize {
        self.changed.len()
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        let mut params = self.changed.params();
        let fixed: [Param<'_>; 9] = [
            &self.created,
            &self.shards,
            &self.namespaces,
            &self.kinds,
            &self.keys,
            &self.names,
            &self.content_types,
            &self.plans,
            &self.payloads,
        ];
        params.extend(fixed);
        params
    }
}

/// The columns of entries of the history.
#[derive(Default)]
pub(super) struct EndedRows<'r> {
    ids: Vec<Uuid>,
    occurrences: Vec<i64>,
    ats: Vec<i64>,
    dues: Vec<i64>,
    attempts: Vec<i64>,
    ends: Vec<i16>,
    namespaces: Vec<&'r str>,
    kinds: Vec<&'r str>,
    keys: Vec<Option<&'r str>>,
    names: Vec<Option<&'r str>>,
    errors: Vec<Option<String>>,
}

impl<'r> EndedRows<'r> {
    pub(super) fn types() -> Vec<Type> {
        let mut types = vec![Type::UUID_ARRAY];
        types.extend(vec![Type::INT8_ARRAY; 4]);
        types.push(Type::INT2_ARRAY);
        types.extend(vec![Type::TEXT_ARRAY; 5]);
        types
    }

    pub(super) fn push(&mut self, entry: &'r HistoryEntry) {
        self.ids.push(entry.id.timer.as_uuid());
        self.occurrences.push(entry.id.occurrence.cast_signed());
        self.ats.push(micros(entry.at));
        self.dues.push(micros(entry.due));
        self.attempts.push(i64::from(entry.attempts));
        self.ends.push(match entry.ended_as {
            EndedAs::Fired => 0,
            EndedAs::Cancelled => 1,
            EndedAs::Dead => 2,
            EndedAs::Skipped => 3,
        });
        self.namespaces.push(&entry.namespace);
        self.kinds.push(&entry.kind);
        self.keys.push(entry.key.as_deref());
        self.names.push(entry.name.as_deref());
        self.errors.push(entry.error.as_deref().map(without_zeros));
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn params(&self) -> Vec<Param<'_>> {
        vec![
            &self.ids,
            &self.occurrences,
            &self.ats,
            &self.dues,
            &self.attempts,
            &self.ends,
            &self.namespaces,
            &self.kinds,
            &self.keys,
            &self.names,
            &self.errors,
        ]
    }
}
