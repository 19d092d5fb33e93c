//! What clients ask for, and what they learn.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::{FirstDue, Limits};
use tourbillon_durable::store::{
    CancelOp, CreateOp, DeadLetterOp, RescheduleOp, RowState, Target, TimerRow, WriteAnswer, WriteOp,
};
use tourbillon_durable::{MissedFires, NewTimer, OnConflict, RetryPolicy, StoreError, TimerId};

use super::model::CRON;
use super::node::{GroupPlace, Tag};
use super::workers::WORK;
use super::world::{KINDS, World};

impl World {
    pub(super) fn client_asks(&mut self) {
        let Some(number) = self.any_node() else { return };
        let mut ops = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            ops.push(match self.random.below(10) {
                0 | 1 => WriteOp::Cancel(CancelOp { target: self.target() }),
                2 => self.reschedule(),
                3 => match self.dead_letter() {
                    Some(op) => op,
                    None => continue,
                },
                _ => self.create(),
            });
        }
        match self.random.one_in(3) {
            true => self.ask_together(number, ops),
            false => ops.into_iter().for_each(|op| self.ask(number, op)),
        }
        self.send_batches(number);
    }

    fn ask(&mut self, number: u64, op: WriteOp) {
        if let Some(node) = self.nodes.get_mut(&number) {
            let tag = client_tag(&op, None);
            node.batcher.push(op, tag);
        }
    }

    /// Asks for all of it in one transaction.
    fn ask_together(&mut self, number: u64, ops: Vec<WriteOp>) {
        let (group, size) = (self.new_id().as_u128(), ops.len());
        self.ledger.totals.groups += u64::from(size > 1);
        let tagged = ops.into_iter().enumerate().map(|(index, op)| {
            let tag = client_tag(&op, Some(GroupPlace { group, index, size }));
            (op, tag)
        });
        if let Some(node) = self.nodes.get_mut(&number) {
            node.batcher.push_group(tagged.collect());
        }
    }

    /// A client learns what became of its request.
    pub(super) fn client_learns(
        &mut self,
        number: u64,
        create: Option<CreateOp>,
        answer: &Result<WriteAnswer, StoreError>,
    ) {
        match (create, answer) {
            (_, Ok(answer)) => self.ledger.client_knows(answer),
            // A client that does not know may ask once more: the key makes both one timer.
            (Some(create), Err(_)) if self.is_troubled && self.random.one_in(2) => {
                let again = WriteOp::Create(CreateOp { id: self.new_id(), ..create });
                self.ask(number, again);
            }
            (_, Err(_)) => {}
        }
    }

    fn create(&mut self) -> WriteOp {
        let kind = self.random.one_of(&[KINDS[0], KINDS[1], WORK]);
        let mut timer = self.new_timer(kind);
        if self.random.one_in(2) {
            timer = timer.key(format!("{kind} {}", self.random.below(6)));
        }
        if self.random.one_in(3) {
            timer = timer.name(format!("name {}", self.random.below(3)));
        }
        let missed = [
            MissedFires::Once,
            MissedFires::All { at_most: 3 },
            MissedFires::Skip { older_than: Duration::from_secs(1) },
            MissedFires::DeadAfter(Duration::from_secs(20)),
        ];
        let mut retry = RetryPolicy::attempts(1 + self.random.below(4) as u32);
        retry.give_up_after = self.random.one_in(4).then_some(Duration::from_secs(6));
        timer = timer.missed(self.random.one_of(&missed)).retry(retry).on_conflict(self.random.one_of(&[
            OnConflict::Refuse,
            OnConflict::Keep,
            OnConflict::Replace,
            OnConflict::Earlier,
            OnConflict::Later,
        ]));
        let (spec, on_conflict) = timer.check(Limits::default()).unwrap();
        WriteOp::Create(CreateOp { id: self.new_id(), spec: Arc::new(spec), on_conflict })
    }

    fn new_timer(&mut self, kind: &str) -> NewTimer {
        let longest = Duration::from_secs(if self.random.one_in(4) { 60 } else { 4 });
        let delay = self.random.duration(longest);
        let times = 1 + self.random.below(5);
        match self.random.below(10) {
            0 | 1 => NewTimer::every(kind, Duration::from_millis(200 + self.random.below(3_000))).times(times),
            2 => NewTimer::cron(kind, CRON, "UTC").times(times),
            // It ends at some time, so that some moves lead beyond its end.
            3 if self.random.one_in(3) => {
                let end = self.store_now().saturating_add(Duration::from_secs(1 + self.random.below(20)));
                NewTimer::every(kind, Duration::from_millis(300 + self.random.below(4_000))).until(end.to_system())
            }
            // These have no limit.
            3 if self.random.one_in(3) => {
                NewTimer::every(kind, Duration::from_millis(5_000 + self.random.below(9_000)))
            }
            3 if self.random.one_in(3) => NewTimer::cron(kind, CRON, "UTC"),
            4 | 5 => {
                NewTimer::at(kind, SystemTime::UNIX_EPOCH + Duration::from_micros(self.store_now().as_micros() - 5))
            }
            _ => NewTimer::after(kind, delay),
        }
    }

    fn new_id(&mut self) -> TimerId {
        self.next_id += 1;
        TimerId::from_u128(self.next_id)
    }

    fn target(&mut self) -> Target {
        if self.random.one_in(3) {
            return Target::name(format!("name {}", self.random.below(3)));
        }
        match self.any_row(|_| true).filter(|_| self.random.one_in(2)) {
            Some(row) => Target::Id(row.id.timer),
            None => {
                let kind = self.random.one_of(&[KINDS[0], KINDS[1], WORK]);
                Target::key(format!("{kind} {}", self.random.below(6)))
            }
        }
    }

    fn reschedule(&mut self) -> WriteOp {
        let when = match self.random.below(4) {
            0 => FirstDue::Next,
            1 => FirstDue::At(self.store_now()),
            _ => FirstDue::After(self.random.duration(Duration::from_secs(10))),
        };
        let row = self.any_row(|row| row.state == RowState::Armed).filter(|_| self.random.one_in(2));
        match row {
            Some(row) => {
                let version = row.version + self.random.below(2);
                WriteOp::Reschedule(RescheduleOp { target: Target::Id(row.id.timer), when, if_version: Some(version) })
            }
            None => WriteOp::Reschedule(RescheduleOp { target: self.target(), when, if_version: None }),
        }
    }

    /// Returns what a client does with a dead letter, if there is one: it is replayed, or discarded.
    fn dead_letter(&mut self) -> Option<WriteOp> {
        let row = self.any_row(|row| row.state == RowState::Dead)?;
        Some(WriteOp::DeadLetter(DeadLetterOp { id: row.id, replay: !self.random.one_in(4) }))
    }

    fn any_row(&mut self, is_wanted: impl Fn(&TimerRow) -> bool) -> Option<TimerRow> {
        let rows: Vec<&TimerRow> = self.ledger.rows().filter(|row| is_wanted(row)).collect();
        (!rows.is_empty()).then(|| rows[self.random.index(rows.len())].clone())
    }
}

fn client_tag(op: &WriteOp, place: Option<GroupPlace>) -> Tag {
    let create = if let WriteOp::Create(op) = op { Some(op.clone()) } else { None };
    let kind = create.as_ref().map_or(String::new(), |create| create.spec.kind.clone());
    Tag::Client(kind, create, place)
}
