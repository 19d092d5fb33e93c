//! What a store must hold and answer, decided without the rules of the store: here is what users ask for.

use std::collections::BTreeMap;

use tourbillon_durable::spec::{FirstDue, Recurrence};
use tourbillon_durable::store::{
    CancelCounts, CreateAnswer, CreateOp, DeadLetterOp, DueEntry, EndedAs, RescheduleAnswer, RescheduleOp, RowId,
    RowState, ShardId, Target, TimerRow, WriteAnswer, WriteOp, shard_of,
};
use tourbillon_durable::{OnConflict, StoreTime, TimerId};

/// The seconds of a minute at which timers with [`CRON`] are due.
const CRON_STEP: u64 = 7;
/// The only cron line of the simulation, whose times the model counts itself.
pub(crate) const CRON: &str = "*/7 * * * * *";

/// The rows of a store, and the life of each occurrence.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    shards: u16,
    /// The rows that there are.
    pub(crate) rows: BTreeMap<RowId, TimerRow>,
    /// How each occurrence that is no row any more ended.
    pub(crate) ended: BTreeMap<RowId, EndedAs>,
    /// For each occurrence that was claimed or given up: how many occurrences of its timer it is, with those that it stands for.
    pub(crate) covers: BTreeMap<RowId, u64>,
    /// How many occurrences each timer that was created has; `None` for no limit, or an end that the timer has not come to yet.
    pub(crate) timers: BTreeMap<TimerId, Option<u64>>,
    /// The last claim of each occurrence: its attempt and its token.
    pub(crate) claims: BTreeMap<RowId, (u32, u64)>,
    /// The epoch of each shard.
    epochs: BTreeMap<ShardId, u64>,
}

impl Model {
    pub(crate) fn new(shards: u16) -> Model {
        Model {
            shards,
            rows: BTreeMap::new(),
            ended: BTreeMap::new(),
            covers: BTreeMap::new(),
            timers: BTreeMap::new(),
            claims: BTreeMap::new(),
            epochs: BTreeMap::new(),
        }
    }

    /// Does what an operation asks for, and returns what the store must answer.
    pub(crate) fn apply(&mut self, op: &WriteOp, now: StoreTime) -> WriteAnswer {
        match op {
            WriteOp::Create(op) => WriteAnswer::Create(self.create(op, now)),
            WriteOp::Cancel(op) => WriteAnswer::Cancel(self.cancel(&op.target)),
            WriteOp::Reschedule(op) => WriteAnswer::Reschedule(self.reschedule(op, now)),
            WriteOp::DeadLetter(op) => WriteAnswer::DeadLetter(self.dead_letter(op, now)),
            WriteOp::Claim(op) => WriteAnswer::Claim(self.claim(op, now)),
            WriteOp::Finish(op) => WriteAnswer::Finish(self.finish(op, now)),
            WriteOp::Extend(op) => WriteAnswer::Extend(self.extend(op, now)),
            WriteOp::Import(_) => unreachable!("nobody imports into a simulated store"),
        }
    }

    pub(crate) fn epoch(&self, shard: ShardId) -> u64 {
        self.epochs.get(&shard).copied().unwrap_or(0)
    }

    /// Records the epochs that an answer to a heartbeat names: they never go back.
    pub(crate) fn owned(&mut self, shards: &[(ShardId, u64)]) {
        for (shard, epoch) in shards {
            let last = self.epochs.insert(*shard, *epoch).unwrap_or(0);
            assert!(last <= *epoch, "q7: the epoch of {shard:?} went from {last} to {epoch}");
        }
    }

    fn create(&mut self, op: &CreateOp, now: StoreTime) -> CreateAnswer {
        let due = match op.spec.first {
            FirstDue::At(due) => due,
            FirstDue::After(delay) => now.saturating_add(delay),
            FirstDue::Next => next_slot(&op.spec.recurrence, now).expect("only cron lines begin like this"),
        };
        let is_never_due = op.spec.until.is_some_and(|until| until < due);
        let holder = op.spec.key.as_ref().and_then(|key| self.holder(key)).cloned();
        let in_flight = holder.as_ref().is_some_and(|holder| holder.state == RowState::Claimed);
        if let Some(holder) = &holder {
            let is_same = holder.spec == op.spec;
            let is_same_time = is_never_due || op.spec.is_repeating() || holder.due == due;
            let stays = match op.on_conflict {
                OnConflict::Refuse => is_same,
                OnConflict::Keep => true,
                OnConflict::Replace => is_same && is_same_time && (is_never_due || !in_flight),
                OnConflict::Earlier => is_same && is_same_time || !is_never_due && due >= holder.due,
                OnConflict::Later => is_same && is_same_time || !is_never_due && due <= holder.due,
            };
            if stays {
                let (id, due, version) = (holder.id.timer, holder.due, holder.version);
                return CreateAnswer::Existing { id, due, version, in_flight };
            }
        }
        if is_never_due {
            return CreateAnswer::NeverDue;
        }
        if let Some(holder) = &holder {
            if op.on_conflict == OnConflict::Refuse {
                return CreateAnswer::Conflict { id: holder.id.timer };
            }
            self.replace(holder.id.timer);
        }
        let row = TimerRow {
            id: RowId { timer: op.id, occurrence: 1 },
            shard: shard_of(&op.spec, op.id, self.shards),
            is_head: true,
            state: RowState::Armed,
            due,
            wake: due,
            version: 1,
            attempt: 0,
            returned: 0,
            epoch: 0,
            claim: 0,
            left: op.spec.times,
            stands_for: 0,
            created: now,
            replayed_at: None,
            last_error: None,
            spec: op.spec.clone(),
        };
        let entry = DueEntry::from(&row);
        let limit = if op.spec.is_repeating() { op.spec.times } else { Some(1) };
        assert_eq!(self.timers.insert(op.id, limit), None, "ids are new");
        self.rows.insert(row.id, row);
        CreateAnswer::Created { entry, due, replaced: holder.map(|holder| holder.id.timer), in_flight }
    }

    fn replace(&mut self, timer: TimerId) {
        for row in self.of_timer(timer) {
            match row.state {
                RowState::Armed => self.end(row.id, EndedAs::Cancelled),
                RowState::Claimed | RowState::Dead => self.row(row.id).is_head = false,
            }
        }
    }

    fn cancel(&mut self, target: &Target) -> CancelCounts {
        let found: Vec<TimerRow> = match target {
            Target::Id(id) => self.of_timer(*id),
            Target::Key { key, .. } => {
                self.holder(key).map(|row| row.id.timer).map_or(Vec::new(), |timer| self.of_timer(timer))
            }
            Target::Name { name, .. } => {
                self.rows.values().filter(|row| row.spec.name.as_ref() == Some(name)).cloned().collect()
            }
        };
        let count = |state| found.iter().filter(|row| row.state == state).count() as u64;
        let (cancelled, in_flight, dead) = (count(RowState::Armed), count(RowState::Claimed), count(RowState::Dead));
        let armed = || found.iter().filter(|row| row.state == RowState::Armed);
        armed().for_each(|row| self.end(row.id, EndedAs::Cancelled));
        armed().for_each(|row| self.inherit(row));
        let is_nothing = found.is_empty() && !matches!(target, Target::Name { .. });
        CancelCounts { cancelled, in_flight, gone: dead + u64::from(is_nothing) }
    }

    fn reschedule(&mut self, op: &RescheduleOp, now: StoreTime) -> RescheduleAnswer {
        let timer = match &op.target {
            Target::Id(id) => Some(*id),
            Target::Key { key, .. } => self.holder(key).map(|row| row.id.timer),
            Target::Name { .. } => None,
        };
        let rows = timer.map_or(Vec::new(), |timer| self.of_timer(timer));
        let Some(row) = rows.into_iter().rfind(|row| row.state != RowState::Dead) else {
            return RescheduleAnswer::NotFound;
        };
        if op.if_version.is_some_and(|version| version != row.version) {
            return RescheduleAnswer::VersionIs(row.version);
        }
        if row.state == RowState::Claimed {
            return RescheduleAnswer::InFlight;
        }
        let due = match op.when {
            FirstDue::At(due) => due,
            FirstDue::After(delay) => now.saturating_add(delay),
            FirstDue::Next => match next_slot(&row.spec.recurrence, row.due) {
                Some(due) => due,
                None => return RescheduleAnswer::OutOfRange,
            },
        };
        if row.spec.until.is_some_and(|until| until < due) {
            return RescheduleAnswer::OutOfRange;
        }
        let row = self.row(row.id);
        (row.due, row.wake, row.version) = (due, due, row.version + 1);
        RescheduleAnswer::Moved { entry: DueEntry::from(&*row), kind: row.spec.kind.clone(), due }
    }

    fn dead_letter(&mut self, op: &DeadLetterOp, now: StoreTime) -> Option<Option<DueEntry>> {
        let row = self.rows.get_mut(&op.id).filter(|row| row.state == RowState::Dead)?;
        if !op.replay {
            self.end(op.id, EndedAs::Dead);
            return Some(None);
        }
        (row.state, row.wake, row.version, row.replayed_at) = (RowState::Armed, now, row.version + 1, Some(now));
        Some(Some(DueEntry::from(&*row)))
    }

    pub(crate) fn row(&mut self, id: RowId) -> &mut TimerRow {
        self.rows.get_mut(&id).expect("the row was found before")
    }

    /// Returns the rows of a timer, the latest occurrence last.
    pub(crate) fn of_timer(&self, timer: TimerId) -> Vec<TimerRow> {
        self.rows.values().filter(|row| row.id.timer == timer).cloned().collect()
    }

    fn holder(&self, key: &str) -> Option<&TimerRow> {
        self.rows.values().find(|row| row.is_head && row.spec.key.as_deref() == Some(key))
    }

    /// Ends an occurrence: it has one outcome (Q2).
    pub(crate) fn end(&mut self, id: RowId, ended_as: EndedAs) {
        assert!(self.rows.remove(&id).is_some(), "{id:?} is no row");
        let other = self.ended.insert(id, ended_as);
        assert_eq!(other, None, "q2: {id:?} ends a second time, as {ended_as:?}");
    }

    /// Gives the key of a row that has ended or died to the latest other row of its timer.
    pub(crate) fn inherit(&mut self, row: &TimerRow) {
        if row.is_head && row.spec.is_repeating() {
            let of_timer = self.rows.values_mut().filter(|other| other.id.timer == row.id.timer);
            let heir = of_timer.filter(|other| other.id != row.id && other.state != RowState::Dead).last();
            heir.into_iter().for_each(|heir| heir.is_head = true);
        }
    }
}

/// Returns the time of a recurrence that comes after another.
pub(crate) fn next_slot(recurrence: &Recurrence, after: StoreTime) -> Option<StoreTime> {
    match recurrence {
        Recurrence::Once => None,
        Recurrence::Every(interval) => Some(after.saturating_add(*interval)),
        Recurrence::Cron { line, .. } => {
            assert_eq!(line, CRON);
            let mut seconds = after.as_micros() / 1_000_000 + 1;
            while !(seconds % 60).is_multiple_of(CRON_STEP) {
                seconds += 1;
            }
            Some(StoreTime::from_micros(seconds * 1_000_000))
        }
    }
}
