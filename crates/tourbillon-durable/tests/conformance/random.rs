//! The same random operations to a store and to the tables in memory: the same answers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tourbillon_durable::spec::{FirstDue, Limits};
use tourbillon_durable::store::{
    CancelOp, ClaimAnswer, ClaimOp, CreateOp, DeadLetterOp, DueEntry, FinishOp, Heartbeat, ListFilter, MemoryTables,
    NodeId, RescheduleOp, RowId, RowState, Store, Target, TimerRow, Verdict, WriteAnswer, WriteOp,
};
use tourbillon_durable::{MissedFires, NewTimer, OnConflict, RetryPolicy, StoreTime, TimerId};
use tourbillon_tools::Random;

use super::ask::{LEASE, ask};

/// How many batches are compared: `TOURBILLON_BATCHES` asks for more.
fn batches() -> u64 {
    std::env::var("TOURBILLON_BATCHES").ok().and_then(|count| count.parse().ok()).unwrap_or(300)
}

/// Returns the seed: the variable `TOURBILLON_SEED` if it is set, else a new one.
pub(crate) fn seed() -> u64 {
    match std::env::var("TOURBILLON_SEED") {
        Ok(text) => text.parse().expect("TOURBILLON_SEED is a number"),
        Err(_) => std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
    }
}

pub(crate) fn compare_with_memory(new_store: impl Fn() -> Arc<dyn Store>) {
    let seed = seed();
    println!("conformance: random operations, TOURBILLON_SEED={seed}");
    let store = new_store();
    let mut world = RandomWorld {
        random: Random::new(seed),
        tables: MemoryTables::new(store.traits().shards),
        epoch: 0,
        next_id: 1,
        now: StoreTime::from_micros(1_800_000_000_000_000),
    };
    world.change_owner(&*store);
    for number in 0..batches() {
        if world.random.one_in(20) {
            world.change_owner(&*store);
        }
        let batch: Vec<WriteOp> = (0..world.random.below(12)).map(|_| world.operation()).collect();
        let expected = world.tables.write(batch.clone(), world.now).unwrap();
        let found = ask(|reply| store.write(batch.clone(), reply)).unwrap();
        assert_eq!(found.len(), expected.len());
        for ((op, found), expected) in batch.iter().zip(found).zip(expected) {
            assert_eq!(timeless(found), timeless(expected), "batch {number}, {op:?}, TOURBILLON_SEED={seed}");
        }
        world.tables.check().unwrap();
    }
    let filter = ListFilter::default();
    let rows = |rows: Vec<TimerRow>| rows.into_iter().map(timeless_row).collect::<Vec<_>>();
    let found = ask(|reply| store.list(filter.clone(), None, 1_000_000, reply)).unwrap().rows;
    assert_eq!(rows(found), rows(world.tables.list(&filter, None, 1_000_000).rows), "TOURBILLON_SEED={seed}");
}

struct RandomWorld {
    random: Random,
    tables: MemoryTables,
    epoch: u64,
    next_id: u128,
    now: StoreTime,
}

impl RandomWorld {
    /// Lets a new node own all shards, in the store and in the tables.
    fn change_owner(&mut self, store: &dyn Store) {
        let node = |number: u64| NodeId(TimerId::from_u128(u128::from(number)).as_uuid());
        let leave = Heartbeat { node: node(self.epoch), lease: Duration::ZERO, release: Vec::new(), kinds: None };
        self.epoch += 1;
        let come = Heartbeat { node: node(self.epoch), lease: LEASE, release: Vec::new(), kinds: None };
        for heartbeat in [leave, come] {
            ask(|reply| store.heartbeat(heartbeat.clone(), reply)).unwrap();
            self.tables.heartbeat(&heartbeat, self.now);
        }
    }

    fn operation(&mut self) -> WriteOp {
        match self.random.below(10) {
            0..=2 => self.create(),
            3 => WriteOp::Cancel(CancelOp { target: self.target() }),
            4 => WriteOp::Reschedule(RescheduleOp {
                target: self.target(),
                when: FirstDue::At(self.time()),
                if_version: self.random.one_in(3).then_some(self.random.below(4)),
            }),
            5 | 6 => self.claim(),
            7 | 8 => self.finish(),
            _ => {
                let id = self.row(RowState::Dead).map_or(self.any_row(), |row| row.id);
                WriteOp::DeadLetter(DeadLetterOp { id, replay: self.random.one_in(2) })
            }
        }
    }

    /// A time long ago or far away, so that the store's own clock does not matter.
    fn time(&mut self) -> StoreTime {
        let second = self.random.below(5) + if self.random.one_in(3) { 200_000_000_000 } else { 1_000_000 };
        StoreTime::from_micros(second * 1_000_000)
    }

    fn create(&mut self) -> WriteOp {
        let at = SystemTime::UNIX_EPOCH + Duration::from_micros(self.time().as_micros());
        let mut timer = match self.random.below(4) {
            // So many times that no store follows them one by one, all of them long ago or far away.
            0 => {
                NewTimer::cron("mail", "* * * * * *", "Europe/Berlin").first_at(at).times(20_000 + self.random.below(3))
            }
            1 => NewTimer::every("mail", Duration::from_secs(1 << 40)).first_at(at).times(1 + self.random.below(3)),
            _ => NewTimer::at("mail", at),
        };
        if self.random.one_in(2) {
            timer = timer.key(format!("key {}", self.random.below(4)));
        }
        if self.random.one_in(2) {
            timer = timer.name(format!("name {}", self.random.below(3)));
        }
        let modes = [OnConflict::Refuse, OnConflict::Keep, OnConflict::Replace, OnConflict::Earlier, OnConflict::Later];
        let second = Duration::from_secs(1);
        let missed = [
            MissedFires::Once,
            MissedFires::Skip { older_than: second },
            MissedFires::All { at_most: 2 },
            MissedFires::DeadAfter(second),
        ];
        timer = timer
            .on_conflict(modes[self.random.index(modes.len())])
            .missed(missed[self.random.index(missed.len())])
            .retry(RetryPolicy::attempts(1 + self.random.below(3) as u32))
            .payload(vec![0; self.random.index(100)]);
        let (spec, on_conflict) = timer.check(Limits::default()).unwrap();
        self.next_id += 1;
        WriteOp::Create(CreateOp { id: TimerId::from_u128(self.next_id), spec: Arc::new(spec), on_conflict })
    }

    fn target(&mut self) -> Target {
        let namespace = "default".to_owned();
        match self.random.below(3) {
            0 => Target::Id(self.any_row().timer),
            1 => Target::Key { namespace, key: format!("key {}", self.random.below(4)) },
            _ => Target::Name { namespace, name: format!("name {}", self.random.below(3)) },
        }
    }

    /// The id of a row that may not exist.
    fn any_row(&mut self) -> RowId {
        let timer = TimerId::from_u128(1 + u128::from(self.random.below(self.next_id as u64 + 2)));
        RowId { timer, occurrence: 1 + self.random.below(3) }
    }

    fn row(&mut self, state: RowState) -> Option<TimerRow> {
        let rows: Vec<&TimerRow> = self.tables.rows().filter(|row| row.state == state).collect();
        (!rows.is_empty()).then(|| rows[self.random.index(rows.len())].clone())
    }

    fn claim(&mut self) -> WriteOp {
        let state = if self.random.one_in(4) { RowState::Claimed } else { RowState::Armed };
        let (id, version) = match self.row(state) {
            Some(row) => (row.id, if self.random.one_in(8) { row.version + 1 } else { row.version }),
            None => (self.any_row(), 1),
        };
        let epoch = if self.random.one_in(8) { self.epoch - 1 } else { self.epoch };
        WriteOp::Claim(ClaimOp { id, version, epoch, token: self.random.below(3), lease: LEASE })
    }

    fn finish(&mut self) -> WriteOp {
        let (id, attempt) = match self.row(RowState::Claimed) {
            Some(row) => (row.id, if self.random.one_in(8) { row.attempt + 1 } else { row.attempt }),
            None => (self.any_row(), 1),
        };
        let verdict = match self.random.below(4) {
            0 => Verdict::Done,
            1 => Verdict::Dead { error: "dead".into() },
            2 => Verdict::Return { after: Duration::from_secs(3600 * self.random.below(2)) },
            _ => Verdict::Retry { after: Duration::from_secs(self.random.below(2) * 1_000_000), error: "again".into() },
        };
        WriteOp::Finish(FinishOp { id, attempt, epoch: self.epoch, verdict })
    }
}

/// Returns the answer without the times of the store's own clock.
fn timeless(answer: WriteAnswer) -> WriteAnswer {
    match answer {
        WriteAnswer::Claim(ClaimAnswer::Claimed { row, next }) => {
            WriteAnswer::Claim(ClaimAnswer::Claimed { row: timeless_row(row), next: next.map(timeless_entry) })
        }
        WriteAnswer::Claim(ClaimAnswer::Early(_)) => WriteAnswer::Claim(ClaimAnswer::Early(StoreTime::ZERO)),
        WriteAnswer::Finish(Ok(Some(entry))) => WriteAnswer::Finish(Ok(Some(timeless_entry(entry)))),
        WriteAnswer::DeadLetter(Some(Some(entry))) => WriteAnswer::DeadLetter(Some(Some(timeless_entry(entry)))),
        other => other,
    }
}

/// Returns the entry without a time of the clock. The times that operations name are long before the year 2001 or long after 5138.
fn timeless_entry(entry: DueEntry) -> DueEntry {
    let is_of_clock = (1_000_000_000..100_000_000_000).contains(&(entry.wake.as_micros() / 1_000_000));
    DueEntry { wake: if is_of_clock { StoreTime::ZERO } else { entry.wake }, ..entry }
}

fn timeless_row(row: TimerRow) -> TimerRow {
    TimerRow {
        wake: StoreTime::ZERO,
        created: StoreTime::ZERO,
        replayed_at: row.replayed_at.map(|_| StoreTime::ZERO),
        ..row
    }
}
