//! The ledger of a world: what the store has promised, and the checks that it keeps its promises.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tourbillon_durable::store::{
    CancelOp, ClaimAnswer, ClaimOp, CreateAnswer, EndedAs, Heartbeat, MemoryTables, NodeId, Ownership,
    RescheduleAnswer, RowId, RowState, ShardId, Target, TimerRow, WriteAnswer, WriteOp, is_pull_fence,
};
use tourbillon_durable::{StoreTime, TimerId};

use super::model::Model;
use super::totals::Totals;

/// What the store has done and answered, next to a model of what it must do.
pub(crate) struct Ledger {
    /// The store as it must be.
    present: Model,
    /// The store as it must be at least after a crash: with everything that it has answered.
    promised: Model,
    /// What `present` has beyond `promised`, in order.
    unpromised: VecDeque<(u64, Change)>,
    /// Timers of which clients know that they were created.
    known: BTreeSet<TimerId>,
    /// The deliveries that were answered to a claim, begun, and those that have begun.
    claimed: BTreeSet<(RowId, u32)>,
    delivered: BTreeSet<(RowId, u32)>,
    /// The version of each row, and since when it has it, if lateness is measured.
    versions: Option<BTreeMap<RowId, (u64, StoreTime)>>,
    /// The longest time that a row could have been claimed before a node claimed it.
    pub(crate) longest_wait: Duration,
    pub(crate) totals: Totals,
}

enum Change {
    /// The operations that were not refused for lack of room.
    Write(Vec<WriteOp>, StoreTime),
    Owned(Vec<(ShardId, u64)>),
}

impl Ledger {
    pub(crate) fn new(shards: u16) -> Ledger {
        Ledger {
            present: Model::new(shards),
            promised: Model::new(shards),
            unpromised: VecDeque::new(),
            known: BTreeSet::new(),
            claimed: BTreeSet::new(),
            delivered: BTreeSet::new(),
            versions: None,
            longest_wait: Duration::ZERO,
            totals: Totals::default(),
        }
    }

    /// Measures from now on how long rows wait.
    pub(crate) fn measure_waits(&mut self) {
        self.versions = Some(BTreeMap::new());
    }

    /// Records how long a row has waited that is claimed now: since its time, or since it has this time.
    fn measure_wait(&mut self, op: &ClaimOp, now: StoreTime) {
        let row = self.present.rows.get(&op.id).filter(|row| row.state == RowState::Armed);
        let version = self.versions.as_ref().and_then(|versions| versions.get(&op.id));
        if let (Some(row), Some((_, since))) = (row, version)
            && !is_pull_fence(op.epoch)
        {
            self.longest_wait = self.longest_wait.max(now.since(row.wake.max(*since)));
        }
    }

    fn note_versions(&mut self, now: StoreTime) {
        let Some(versions) = &mut self.versions else { return };
        for row in self.present.rows.values() {
            let known = versions.entry(row.id).or_insert((row.version, now));
            if known.0 != row.version {
                *known = (row.version, now);
            }
        }
    }

    /// Returns the rows that the store must have.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &TimerRow> {
        self.present.rows.values()
    }

    /// Checks the answers of the store to a batch, and its tables behind it.
    pub(crate) fn wrote(
        &mut self,
        number: u64,
        ops: &[WriteOp],
        answers: &[WriteAnswer],
        tables: &MemoryTables,
        now: StoreTime,
    ) {
        assert_eq!(ops.len(), answers.len(), "each operation has an answer");
        let (mut applied, mut wrong) = (Vec::new(), Vec::new());
        for (op, answer) in ops.iter().zip(answers) {
            if *answer == WriteAnswer::Full {
                assert!(op.needs_room(), "o2: {op:?} was refused by a full store");
                self.totals.full_answers += 1;
                continue;
            }
            if let (WriteOp::Claim(op), WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. })) = (op, answer) {
                self.check_claim(op, row, now);
                self.measure_wait(op, now);
            }
            self.count_late_extension(op, now);
            let expected = self.present.apply(op, now);
            if textless(&expected) != textless(answer) {
                let promise = promise_of(op);
                wrong.push(format!("{promise}: the answer to {op:?} is\n{answer:?} instead of\n{expected:?}"));
            }
            self.count(op, answer);
            applied.push(op.clone());
        }
        if let Some(difference) = difference(&self.present, tables) {
            panic!("{difference}\nafter {ops:?}\nwith the answers {answers:?}");
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        self.note_versions(now);
        self.unpromised.push_back((number, Change::Write(applied, now)));
    }

    /// Checks that a request which was answered with an error has changed nothing.
    pub(crate) fn failed(&self, tables: &MemoryTables) {
        let difference = difference(&self.present, tables);
        assert!(difference.is_none(), "q2: a request that has failed has changed the store: {difference:?}");
    }

    /// Checks the answer to a heartbeat.
    pub(crate) fn owned(&mut self, number: u64, ownership: &Ownership) {
        self.present.owned(&ownership.shards);
        self.unpromised.push_back((number, Change::Owned(ownership.shards.clone())));
    }

    /// Records that a request and all before it survive a crash, because the store has answered.
    pub(crate) fn answered(&mut self, number: u64) {
        let count = self.unpromised.partition_point(|(unpromised, _)| *unpromised <= number);
        self.unpromised.drain(..count).for_each(|(_, change)| change.repeat(&mut self.promised));
    }

    /// Checks the tables after a crash: they have what was answered, and of the rest whole batches, the first ones.
    pub(crate) fn recovered(&mut self, tables: &MemoryTables) {
        let difference = |model: &Model| difference(model, tables).or_else(|| difference_of_epochs(model, tables));
        let lost = difference(&self.promised);
        let mut changes = std::mem::take(&mut self.unpromised);
        while difference(&self.promised).is_some() {
            let Some((_, change)) = changes.pop_front() else {
                panic!("q1: after a crash the store differs from what it has answered: {lost:?}");
            };
            change.repeat(&mut self.promised);
        }
        self.present = self.promised.clone();
    }

    /// Records that a client knows that its timer was created.
    pub(crate) fn client_knows(&mut self, answer: &WriteAnswer) {
        if let WriteAnswer::Create(CreateAnswer::Created { entry, .. }) = answer {
            assert!(self.present.timers.contains_key(&entry.id.timer), "q1: {entry:?} was created and is not there");
            self.known.insert(entry.id.timer);
        }
    }

    /// Checks a delivery that a node or a worker begins. While the leases of both the node and the delivery last, the row is still theirs: nobody else can
    /// have claimed or ended it (Q7). Without them, or if the store's clock was set meanwhile, another may have had the row in between.
    pub(crate) fn deliver(&mut self, row: &TimerRow, has_lease: bool) {
        let attempt = (row.id, row.attempt);
        assert!(self.claimed.contains(&attempt), "q2: {row:?} was not claimed");
        assert!(self.delivered.insert(attempt), "q3: one attempt was delivered twice: {row:?}");
        let ended_as = self.present.ended.get(&row.id);
        assert!(ended_as != Some(&EndedAs::Cancelled) || !has_lease, "q2: {row:?} is delivered after it was cancelled");
        let present = self.present.rows.get(&row.id).filter(|present| present.state == RowState::Claimed);
        let is_theirs = present.is_some_and(|present| (present.attempt, present.epoch) == (row.attempt, row.epoch));
        assert!(is_theirs || !has_lease, "q7: {row:?} is delivered, but the store has {present:?}");
        self.totals.delivered += 1;
    }

    fn check_claim(&mut self, op: &ClaimOp, row: &TimerRow, now: StoreTime) {
        assert!(!self.present.ended.contains_key(&op.id), "q2: {row:?} was claimed after its end");
        let claim = (row.attempt, op.token);
        let last = self.present.claims.get(&row.id).copied();
        self.claimed.insert((row.id, row.attempt));
        // The answer to a claim may be asked for again, after the clock was set back.
        if last == Some(claim) {
            return;
        }
        assert!(row.due <= now, "q4: {row:?} was claimed early, at {now}");
        assert!(last.is_none_or(|(last, _)| last < row.attempt), "q3: attempt {last:?} before {row:?}");
    }

    /// Counts an extension that comes after the lease, before the row was claimed again.
    fn count_late_extension(&mut self, op: &WriteOp, now: StoreTime) {
        let WriteOp::Extend(op) = op else { return };
        let row = self.present.rows.get(&op.id).filter(|row| row.state == RowState::Claimed && row.wake < now);
        let is_late = row.is_some_and(|row| (row.attempt, row.epoch) == (op.attempt, op.epoch));
        self.totals.late_extensions += u64::from(is_late);
    }

    fn count(&mut self, op: &WriteOp, answer: &WriteAnswer) {
        let totals = &mut self.totals;
        match answer {
            WriteAnswer::Create(CreateAnswer::Created { .. }) => totals.created += 1,
            WriteAnswer::Cancel(counts) => {
                let is_by_name = matches!(op, WriteOp::Cancel(CancelOp { target: Target::Name { .. } }));
                totals.cancelled += counts.cancelled;
                totals.cancelled_by_name += if is_by_name { counts.cancelled } else { 0 };
            }
            WriteAnswer::Reschedule(RescheduleAnswer::Moved { .. }) => totals.moved += 1,
            WriteAnswer::Reschedule(RescheduleAnswer::OutOfRange) => totals.beyond_end += 1,
            WriteAnswer::DeadLetter(Some(Some(_))) => totals.replayed += 1,
            WriteAnswer::Claim(ClaimAnswer::Claimed { next: Some(_), .. }) => totals.repeated += 1,
            WriteAnswer::Claim(ClaimAnswer::GivenUp { is_dead: false, .. }) => totals.skipped += 1,
            WriteAnswer::Finish(Ok(_)) => totals.acknowledged += 1,
            WriteAnswer::Finish(Err(_)) => totals.refused += 1,
            _ => {}
        }
    }

    /// Checks the lives of all timers at the end of a world.
    pub(crate) fn check_lives(&self, tables: &MemoryTables) {
        for timer in &self.known {
            assert!(self.present.timers.contains_key(timer), "q1: {timer} was created and is forgotten");
        }
        for (timer, limit) in &self.present.timers {
            let history = tables.history_of(*timer);
            let found: BTreeMap<RowId, EndedAs> = history.iter().map(|entry| (entry.id, entry.ended_as)).collect();
            assert_eq!(history.len(), found.len(), "q2: an occurrence of {timer} has two outcomes: {history:?}");
            let occurrence = |occurrence| RowId { timer: *timer, occurrence };
            let ended: BTreeMap<RowId, EndedAs> =
                self.present.ended.range(occurrence(0)..=occurrence(u64::MAX)).map(|(id, end)| (*id, *end)).collect();
            assert_eq!(found, ended, "q2: the outcomes of {timer}");
            for id in ended.iter().filter(|(_, ended_as)| **ended_as == EndedAs::Fired).map(|(id, _)| id) {
                let was_delivered = self.delivered.range((*id, 0)..=(*id, u32::MAX)).next().is_some();
                assert!(was_delivered, "q3: {id:?} was acknowledged and never delivered");
            }
            self.check_occurrences(*timer, *limit);
        }
    }

    /// Checks that the occurrences of a timer have all numbers from 1 to their limit, each once (D52).
    fn check_occurrences(&self, timer: TimerId, limit: Option<u64>) {
        let model = &self.present;
        let mut number = 1;
        loop {
            let id = RowId { timer, occurrence: number };
            let row = model.rows.get(&id);
            let ended_as = model.ended.get(&id);
            assert!(row.is_some() != ended_as.is_some(), "d52: {id:?} has no outcome: {row:?}, {ended_as:?}");
            // An armed occurrence that was not claimed is the last so far; a cancel ends it and all that would have followed.
            let Some(covered) = model.covers.get(&id) else {
                let is_waiting = row.is_some_and(|row| row.state == RowState::Armed);
                assert!(is_waiting || ended_as == Some(&EndedAs::Cancelled), "d52: {id:?} has no successor");
                return;
            };
            number += covered;
            assert!(
                limit.is_none_or(|limit| number <= limit + 1),
                "d52: {timer} has {number} occurrences of {limit:?}"
            );
            if limit == Some(number - 1) {
                return;
            }
        }
    }
}

impl Change {
    fn repeat(self, model: &mut Model) {
        match self {
            Change::Write(ops, now) => ops.iter().for_each(|op| _ = model.apply(op, now)),
            Change::Owned(shards) => model.owned(&shards),
        }
    }
}

/// Returns the first row in which the tables differ from the model, in words.
fn difference(model: &Model, tables: &MemoryTables) -> Option<String> {
    let found: BTreeMap<RowId, &TimerRow> = tables.rows().map(|row| (row.id, row)).collect();
    if let Some((id, row)) = found.iter().find(|(id, _)| !model.rows.contains_key(id)) {
        return Some(match model.ended.get(id) {
            Some(ended_as) => format!("q2: {row:?} is there after it has ended as {ended_as:?}"),
            None if id.occurrence > 1 => format!("d52: {row:?} is an occurrence too many"),
            None => format!("q2: nobody has created {row:?}"),
        });
    }
    if let Some(row) = model.rows.values().find(|row| !found.contains_key(&row.id)) {
        let is_successor = row.id.occurrence > 1 && row.attempt == 0 && row.state == RowState::Armed;
        return Some(match is_successor {
            true => format!("d52: the next occurrence is not armed: {row:?}"),
            false => format!("q1: {row:?} is gone, and nothing has ended it"),
        });
    }
    let pairs = model.rows.values().zip(found.values());
    let mut differing = pairs.filter(|(row, found)| textless_row(row) != textless_row(found));
    differing.next().map(|(row, found)| format!("q1: the row is\n{found:?} instead of\n{row:?}"))
}

/// Returns the first shard whose epoch differs from the model, in words. A node that takes over all shards of a copy is told the epochs.
fn difference_of_epochs(model: &Model, tables: &MemoryTables) -> Option<String> {
    let (node, lease) = (NodeId(TimerId::from_u128(u128::MAX).as_uuid()), Duration::from_secs(1));
    let heir = Heartbeat { node, lease, release: Vec::new(), kinds: None };
    let taken = tables.clone().heartbeat(&heir, StoreTime::MAX.saturating_sub(lease)).shards;
    let differing = taken.into_iter().find(|(shard, epoch)| model.epoch(*shard) + 1 != *epoch);
    differing.map(|(shard, epoch)| format!("q7: the epoch of {shard:?} is {}, not {}", epoch - 1, model.epoch(shard)))
}

/// Returns the id of what an operation promises.
fn promise_of(op: &WriteOp) -> &'static str {
    match op {
        WriteOp::Create(_) => "u1",
        WriteOp::Cancel(_) => "u2",
        WriteOp::Reschedule(_) => "u3",
        WriteOp::DeadLetter(_) => "v4",
        WriteOp::Claim(_) => "q3",
        WriteOp::Finish(_) | WriteOp::Extend(_) => "v5",
        WriteOp::Import(_) => "o4",
    }
}

/// Returns an answer without the words of errors, which are for people.
fn textless(answer: &WriteAnswer) -> WriteAnswer {
    match answer.clone() {
        WriteAnswer::Claim(ClaimAnswer::Claimed { row, next }) => {
            WriteAnswer::Claim(ClaimAnswer::Claimed { row: textless_row(&row), next })
        }
        answer => answer,
    }
}

fn textless_row(row: &TimerRow) -> TimerRow {
    TimerRow { last_error: row.last_error.as_ref().map(|_| String::new()), ..row.clone() }
}
