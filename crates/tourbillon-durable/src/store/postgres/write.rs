//! How a batch is applied.
//!
//! 1. `BEGIN`, and lock all rows that the batch touches, in the order of their ids, so that two batches never wait for each other in a circle.
//!    Rows are looked for in a snapshot and locked later; in between another transaction may have changed them, and armed a next occurrence
//!    that the snapshot does not have. So they are looked for again until none has changed in between.
//! 2. Lock the epochs of the shards of what is claimed or finished `FOR SHARE`: a takeover waits until this transaction has ended.
//! 3. Apply the rules in memory, and write the difference with a few statements for all rows together, and `COMMIT`.
//!
//! A transaction of an application can hold a row or a key for long. So a batch waits a short time only; if that is over, its operations are written
//! apart ([`write_in_parts`]), and those whose rows are free do not wait for the others.
//!
//! Two transactions can create the same key at the same time, when there is no row to lock yet. The index of the keys stops the second: it is
//! rolled back and applied again, and finds the row of the first.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use uuid::Uuid;

use super::super::PartReply;
use super::super::error::StoreError;
use super::super::op::{ImportOp, WriteAnswer, WriteOp};
use super::super::row::{RowId, RowState, TimerRow};
use super::super::rules;
use super::super::shard::ShardId;
use super::Shared;
use super::columns::{ChangedRows, EndedRows, NewRows, damaged, store_time, timer_row};
use super::failure::Failure;
use super::session::{Change, LockWait, Params, Session, Sql};
use super::units::units_of;
use super::wanted::{Wanted, shards_of};
use super::working_set::{Difference, WorkingSet};
use crate::catch_panic::catch_panic;
use crate::id::TimerId;
use crate::time::StoreTime;

/// How often a batch is tried again that lost a race.
const MOST_RACES: u32 = 20;
/// How long an operation that meets a lock alone waits until it is tried again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);
/// How often rows are looked for again that other transactions change.
const MOST_LOOKS: u32 = 100;

/// The places of operations that are written together.
type Unit = Vec<usize>;

/// Applies a batch.
pub(super) async fn write(store: &Shared, batch: Vec<WriteOp>) -> Result<Vec<WriteAnswer>, StoreError> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let _permit = store.writers.acquire().await.map_err(|_| StoreError::Closed)?;
    apply(store, batch, LockWait::Long).await.map_err(Failure::into_error)
}

/// Applies a batch, and replies as soon as it has answers to some operations.
///
/// If another transaction holds a row or a key of the batch, its operations are written apart: first what belongs to deliveries, then halves of the
/// rest, and halves of those halves that still meet a lock. What meets one alone is tried again until the lock timeout is over.
pub(super) async fn write_in_parts(store: &Shared, batch: &[WriteOp], groups: &[Range<usize>], reply: &PartReply) {
    let reply = |places: &[usize], result: Result<Vec<WriteAnswer>, StoreError>| {
        catch_panic(|| reply(places, result));
    };
    let all: Vec<usize> = (0..batch.len()).collect();
    if all.is_empty() {
        return reply(&all, Ok(Vec::new()));
    }
    let begin = Instant::now();
    let Ok(permit) = store.writers.acquire().await else { return reply(&all, Err(StoreError::Closed)) };
    match apply(store, batch.to_vec(), LockWait::Short).await {
        Err(Failure::Locked(_)) => {}
        result => return reply(&all, result.map_err(Failure::into_error)),
    }
    let is_of_delivery = |op: &WriteOp| matches!(op, WriteOp::Claim(_) | WriteOp::Finish(_) | WriteOp::Extend(_));
    let units = units_of(batch, groups).into_iter();
    let (deliveries, others): (Vec<Unit>, Vec<Unit>) =
        units.partition(|unit| unit.iter().all(|place| is_of_delivery(&batch[*place])));
    let mut parts = vec![others];
    if !deliveries.is_empty() && !parts[0].is_empty() {
        match write_part(store, batch, &deliveries).await {
            (_, Err(Failure::Locked(_))) => parts.push(deliveries),
            (places, result) => reply(&places, result.map_err(Failure::into_error)),
        }
    } else {
        parts.push(deliveries);
    }
    drop(permit);
    // The batch no longer takes the place of another one.
    reply(&[], Ok(Vec::new()));
    parts.retain(|part| !part.is_empty());
    let mut pause = SHORTEST_PAUSE;
    while !parts.is_empty() {
        let mut later = Vec::new();
        let mut was_halved = false;
        for mut part in parts {
            let (Ok(_turn), Ok(_permit)) = (store.apart.acquire().await, store.writers.acquire().await) else {
                reply(&part.concat(), Err(StoreError::Closed));
                continue;
            };
            match write_part(store, batch, &part).await {
                (_, Err(Failure::Locked(_))) if begin.elapsed() < store.lock_timeout => {
                    let second_half = part.split_off(part.len() / 2);
                    was_halved |= !part.is_empty();
                    later.extend([part, second_half]);
                }
                (places, result) => reply(&places, result.map_err(Failure::into_error)),
            }
        }
        later.retain(|part: &Vec<Unit>| !part.is_empty());
        parts = later;
        if !was_halved && !parts.is_empty() {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

/// Applies some units of a batch in one transaction, in their order, and returns their places too.
async fn write_part(
    store: &Shared,
    batch: &[WriteOp],
    part: &[Unit],
) -> (Vec<usize>, Result<Vec<WriteAnswer>, Failure>) {
    let mut places = part.concat();
    places.sort_unstable();
    let ops = places.iter().map(|place| batch[*place].clone()).collect();
    let result = apply(store, ops, LockWait::Short).await;
    (places, result)
}

/// Applies a batch; without what needs room, if the server has none.
async fn apply(store: &Shared, batch: Vec<WriteOp>, wait: LockWait) -> Result<Vec<WriteAnswer>, Failure> {
    match until_won(store, &batch, wait).await {
        Err(Failure::Refused(StoreError::Full(text))) => without_creates(store, batch, text, wait).await,
        result => result,
    }
}

/// Applies what needs no room, if the server has none: cancels and deliveries go on.
async fn without_creates(
    store: &Shared,
    batch: Vec<WriteOp>,
    text: String,
    wait: LockWait,
) -> Result<Vec<WriteAnswer>, Failure> {
    let needs_room: Vec<bool> = batch.iter().map(WriteOp::needs_room).collect();
    let others: Vec<WriteOp> = batch.into_iter().filter(|op| !op.needs_room()).collect();
    if others.is_empty() || others.len() == needs_room.len() {
        return Err(StoreError::Full(text).into());
    }
    let mut answers = until_won(store, &others, wait).await?.into_iter();
    Ok(needs_room.into_iter().filter_map(|full| if full { Some(WriteAnswer::Full) } else { answers.next() }).collect())
}

/// Applies a batch, again and again while other transactions are quicker.
async fn until_won(store: &Shared, batch: &[WriteOp], wait: LockWait) -> Result<Vec<WriteAnswer>, Failure> {
    let mut races = 0;
    loop {
        let (begin, commit_sent) = (Instant::now(), AtomicBool::new(false));
        let result = match tokio::time::timeout(store.request_timeout, once(store, batch, wait, &commit_sent)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Lost(timed_out(store.request_timeout, commit_sent.load(Ordering::Relaxed)))),
        };
        if let Err(Failure::Lost(_)) = result {
            store.pools.forget_older_than(begin);
        }
        match result {
            Ok(answers) => return Ok(answers),
            Err(Failure::Raced(_)) if races < MOST_RACES => races += 1,
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(Duration::from_millis(u64::from(races))).await;
    }
}

fn timed_out(timeout: Duration, commit_sent: bool) -> StoreError {
    let text = format!("PostgreSQL did not answer within {timeout:?}");
    if commit_sent { StoreError::Uncertain(text) } else { StoreError::Unavailable(text) }
}

/// Applies a batch in one transaction.
async fn once(
    store: &Shared,
    batch: &[WriteOp],
    wait: LockWait,
    commit_sent: &AtomicBool,
) -> Result<Vec<WriteAnswer>, Failure> {
    let mut session = store.pools.session(&store.pools.work).await?;
    let result = transact(store, &mut session, batch, wait, commit_sent).await;
    if let Err(failure) = &result {
        session.roll_back(failure).await;
    }
    result
}

async fn transact(
    store: &Shared,
    session: &mut Session<'_>,
    batch: &[WriteOp],
    wait: LockWait,
    commit_sent: &AtomicBool,
) -> Result<Vec<WriteAnswer>, Failure> {
    let mut rows = lock(store, session, &Wanted::of(batch), wait).await?;
    let shards: Vec<i16> = shards_of(batch, &rows).iter().map(|shard| shard.0.cast_signed()).collect();
    if !shards.is_empty() {
        for row in session.rows(&store.sql.lock_epochs, &[&shards]).await? {
            rows.set_epoch(ShardId(row.get::<_, i16>(0).cast_unsigned()), row.get::<_, i64>(1).cast_unsigned());
        }
    }
    let imported: Vec<Uuid> = batch
        .iter()
        .filter_map(|op| match op {
            WriteOp::Import(ImportOp { row, .. }) => Some(row.id.timer.as_uuid()),
            _ => None,
        })
        .collect();
    if !imported.is_empty() {
        // Behind the locks: what ended while this batch waited for them is in the history by now.
        for row in session.rows(&store.sql.last_ended, &[&imported]).await? {
            let timer = TimerId::from_u128(row.get::<_, Uuid>(0).as_u128());
            rows.set_last_ended(timer, row.get::<_, i64>(1).cast_unsigned());
        }
    }
    let answers = batch.iter().map(|op| rules::apply(&mut rows, op.clone())).collect::<Result<Vec<_>, StoreError>>()?;
    finish(store, session, &rows.difference(), rules::Rows::now(&rows), commit_sent).await?;
    Ok(answers)
}

/// Begins the transaction, and locks and reads what the batch may touch.
async fn lock(
    store: &Shared,
    session: &mut Session<'_>,
    wanted: &Wanted<'_>,
    wait: LockWait,
) -> Result<WorkingSet, Failure> {
    let ids = |timers: &mut dyn Iterator<Item = &TimerId>| timers.map(|timer| timer.as_uuid()).collect::<Vec<Uuid>>();
    let waiting = ids(&mut wanted.timers.iter());
    let claims = ids(&mut wanted.claims.iter());
    let (key_spaces, keys): (Vec<&str>, Vec<&str>) = wanted.keys.iter().copied().unzip();
    let (name_spaces, names): (Vec<&str>, Vec<&str>) = wanted.names.iter().copied().unzip();
    let nothing: Vec<&str> = Vec::new();
    let lock_rows: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
        [&waiting, &key_spaces, &keys, &name_spaces, &names];
    // What only ends or moves timers changes no payload, and may be for very many of them.
    let sql = if wanted.needs_payloads { &store.sql.lock_rows } else { &store.sql.lock_light_rows };
    let mut first: Vec<Change<'_>> = Vec::new();
    if wanted.has_rows_to_wait_for() {
        first.push((sql, lock_rows.to_vec()));
    }
    if !claims.is_empty() {
        first.push((&store.sql.lock_free_rows, vec![&claims, &nothing, &nothing, &nothing, &nothing]));
    }
    if first.is_empty() {
        first.push((&store.sql.clock, Vec::new()));
    }
    let mut found = session.begin_with(wait, &first).await?.into_iter();
    let mut rows = WorkingSet::default();
    if wanted.has_rows_to_wait_for() {
        let locked = LockedRows::read(&found.next().unwrap_or_default())?;
        let locked = until_stable(session, sql, &lock_rows, locked).await?;
        rows.set_now(locked.now);
        locked.rows.into_iter().for_each(|row| rows.add_stored(row));
    }
    if !claims.is_empty() {
        let locked = LockedRows::read(&found.next().unwrap_or_default())?;
        rows.set_now(locked.now);
        locked.whole_timers().for_each(|row| rows.add_stored(row));
    }
    if let Some(clock) = found.next().and_then(|rows| rows.into_iter().next()) {
        rows.set_now(store_time(clock.get(0)));
    }
    Ok(rows)
}

/// Looks for the rows again while others change them before they are locked.
async fn until_stable(
    session: &Session<'_>,
    sql: &Sql,
    params: &Params<'_>,
    mut locked: LockedRows,
) -> Result<LockedRows, Failure> {
    let mut looks = 0;
    while !locked.is_stable() {
        looks += 1;
        if looks > MOST_LOOKS {
            return Err(Failure::Raced(StoreError::Unavailable(
                "other transactions change the same timers".to_owned(),
            )));
        }
        locked = LockedRows::read(&session.rows(sql, params).await?)?;
    }
    Ok(locked)
}

/// The answer to a statement that looks for rows and locks them.
struct LockedRows {
    now: StoreTime,
    /// How many rows were found; those that are gone since are not among the rows.
    total: i64,
    /// Whether each row is as it was when it was found.
    all_same: bool,
    rows: Vec<TimerRow>,
    /// How many rows were found of each timer, and how many of them are locked and as they were.
    of_timer: HashMap<TimerId, (i64, i64)>,
}

impl LockedRows {
    fn read(answer: &[Row]) -> Result<LockedRows, StoreError> {
        let Some(first) = answer.first() else { return Err(damaged("a lock has no answer".to_owned())) };
        let mut locked = LockedRows {
            now: store_time(first.get(1)),
            total: first.get(0),
            all_same: true,
            rows: Vec::with_capacity(answer.len()),
            of_timer: HashMap::new(),
        };
        for row in answer {
            let Some(is_same) = row.get::<_, Option<bool>>(2) else { continue };
            let timer_row = timer_row(row, 4)?;
            let (_, same) = locked.of_timer.entry(timer_row.id.timer).or_insert((row.get(3), 0));
            *same += i64::from(is_same);
            locked.all_same &= is_same;
            locked.rows.push(timer_row);
        }
        Ok(locked)
    }

    fn is_stable(&self) -> bool {
        self.all_same && self.total == self.rows.len() as i64
    }

    /// Returns the rows of timers of which every row was locked unchanged.
    fn whole_timers(self) -> impl Iterator<Item = TimerRow> {
        let of_timer = self.of_timer;
        let is_whole = move |timer| of_timer.get(&timer).is_some_and(|(found, same)| found == same);
        self.rows.into_iter().filter(move |row| is_whole(row.id.timer))
    }
}

/// Writes what the rules have changed, and commits.
async fn finish(
    store: &Shared,
    session: &mut Session<'_>,
    difference: &Difference<'_>,
    now: StoreTime,
    commit_sent: &AtomicBool,
) -> Result<(), Failure> {
    let deleted: (Vec<Uuid>, Vec<i64>) = difference
        .deleted
        .iter()
        .map(|RowId { timer, occurrence }| (timer.as_uuid(), occurrence.cast_signed()))
        .unzip();
    // A key passes from one row to another: the index of the keys is checked row by row, so the one that loses it is written first.
    let mut changed = BTreeMap::from([(false, ChangedRows::default()), (true, ChangedRows::default())]);
    for row in &difference.changed {
        changed.entry(row.is_head).or_default().push(row);
    }
    let (mut new, mut ended) = (NewRows::default(), EndedRows::default());
    difference.new.iter().for_each(|row| new.push(row));
    difference.ended.iter().for_each(|entry| ended.push(entry));

    let mut last: Vec<(Change<'_>, usize)> = vec![((&store.sql.delete, vec![&deleted.0, &deleted.1]), deleted.0.len())];
    last.extend(changed.values().map(|rows| ((&store.sql.update, rows.params()), rows.len())));
    last.push(((&store.sql.insert, new.params()), new.len()));
    last.push(((&store.sql.record, ended.params()), ended.len()));
    last.retain(|(_, count)| *count > 0);
    let (last, expected): (Vec<Change<'_>>, Vec<usize>) = last.into_iter().unzip();
    let counts = session.commit(&last, || commit_sent.store(true, Ordering::Relaxed)).await?;
    if counts.iter().zip(expected).any(|(count, expected)| *count != expected as u64) {
        return Err(damaged("rows that were locked are not there".to_owned()).into());
    }
    if let Some(wake) = earliest(difference, now, store) {
        store.hint.set(wake);
    }
    Ok(())
}

/// Returns when the first of the rows that others have to look at is due, if that is soon.
fn earliest(difference: &Difference<'_>, now: StoreTime, store: &Shared) -> Option<StoreTime> {
    let rows = difference.new.iter().chain(&difference.changed);
    let armed = rows.filter(|row| row.state == RowState::Armed && row.wake < now.saturating_add(super::hints::SOON));
    let of_others = armed.filter(|row| !store.delivers(row.shard, &row.spec.kind));
    of_others.map(|row| row.wake).min()
}
