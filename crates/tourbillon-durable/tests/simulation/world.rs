//! The world: time, messages between nodes and their store, clients, handlers and faults.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tourbillon_durable::core::{Action, DeliveryId, Input};
use tourbillon_durable::spec::{FirstDue, Limits};
use tourbillon_durable::store::{
    CancelOp, CreateAnswer, CreateOp, DueQuery, Heartbeat, ImportAnswer, ImportOp, MemoryTables, NodeId,
    RescheduleAnswer, RescheduleOp, RowState, ShardId, StoreTraits, Target, TimerRow, Verdict, WriteAnswer, WriteOp,
    is_pull_fence,
};
use tourbillon_durable::{MissedFires, NewTimer, OnConflict, RetryPolicy, StoreError, StoreTime, TimerId};
use tourbillon_tools::Random;

use super::QUICK;
use super::ledger::{Ledger, Totals};
use super::node::{Node, PAGE, ROWS_IN_MEMORY, Tag};

const KINDS: [&str; 2] = ["mail", "tick"];
/// The time of the store's clock at the beginning.
const EPOCH: u64 = 1_800_000_000_000_000;
/// How long clients ask and faults happen, in microseconds.
const TROUBLED: u64 = 60_000_000;
/// How long the store cannot be reached at all after that, in some worlds.
const OUTAGE: u64 = 60_000_000;
/// How long it may take afterwards until everything that is due has ended.
const RECOVERY: u64 = 120_000_000;
/// How many deliveries of a kind a node has at the same time.
const LIMIT: usize = 3;

pub(crate) struct World {
    random: Random,
    /// Microseconds since the beginning.
    time: u64,
    /// What happens when; the second number keeps the order of what happens together.
    events: BTreeMap<(u64, u64), Event>,
    last_event: u64,
    tables: MemoryTables,
    traits: StoreTraits,
    /// How far the store's clock was set, in microseconds.
    store_shift: i64,
    /// Until when no node can reach the store.
    gone_until: u64,
    nodes: BTreeMap<u64, Node>,
    last_node: u64,
    ledger: Ledger,
    next_id: u128,
    is_troubled: bool,
    /// Whether nodes have different handlers, which come and go.
    has_uneven_nodes: bool,
}

enum Event {
    /// A client asks for something.
    Client,
    /// Something breaks.
    Fault,
    /// A node looks at the time.
    Tick(u64),
    /// A request reaches the store.
    Request(u64, Request),
    /// An answer reaches a node.
    Answer(u64, Answer),
    /// A handler ends.
    HandlerDone(u64, DeliveryId, Verdict),
}

enum Request {
    Write(Vec<WriteOp>, Vec<Tag>),
    Scan(u64, DueQuery),
    Orphans(String, Vec<ShardId>, usize),
    Heartbeat(Heartbeat, Duration),
}

enum Answer {
    Written(Vec<Tag>, Result<Vec<WriteAnswer>, StoreError>),
    Input(Box<Input>),
}

impl World {
    pub(crate) fn run(seed: u64) -> Totals {
        let mut random = Random::new(seed);
        let shards = if random.one_in(3) { 1 } else { 8 };
        let has_other_writers = shards > 1;
        let rescan = Duration::from_millis(if random.one_in(2) { 250 } else { 1_000 });
        let has_uneven_nodes = has_other_writers && random.one_in(2);
        let traits = StoreTraits { shards, parallel_writes: 2, rescan: has_other_writers.then_some(rescan) };
        let mut world = World {
            random,
            time: 0,
            events: BTreeMap::new(),
            last_event: 0,
            tables: MemoryTables::new(shards),
            traits,
            store_shift: 0,
            gone_until: 0,
            nodes: BTreeMap::new(),
            last_node: 0,
            ledger: Ledger::default(),
            next_id: 1,
            is_troubled: true,
            has_uneven_nodes,
        };
        let nodes = if has_other_writers { 1 + world.random.below(3) } else { 1 };
        (0..nodes).for_each(|_| world.start_node());
        world.at(0, Event::Client);
        world.at(1_000_000, Event::Fault);
        world.go_on(TROUBLED);
        if world.random.one_in(4) {
            world.ledger.totals.outages += 1;
            world.gone_until = TROUBLED + OUTAGE;
            world.go_on(TROUBLED + OUTAGE);
        }
        world.heal();
        world.go_on(world.time + RECOVERY);
        world.all_is_delivered(seed);
        world.ledger.totals
    }

    fn store_now(&self) -> StoreTime {
        StoreTime::from_micros((EPOCH + self.time).saturating_add_signed(self.store_shift))
    }

    fn at(&mut self, time: u64, event: Event) {
        self.last_event += 1;
        self.events.insert((time.max(self.time), self.last_event), event);
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.time + delay.as_micros() as u64, event);
    }

    fn go_on(&mut self, until: u64) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > until {
                self.at(time, event);
                break;
            }
            self.time = time;
            self.happens(event);
        }
        self.time = until;
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Client if self.is_troubled => {
                self.client_asks();
                let pause = self.random.duration(Duration::from_millis(300));
                self.after(pause, Event::Client);
            }
            Event::Fault if self.is_troubled => {
                self.something_breaks();
                let pause = self.random.duration(Duration::from_secs(6));
                self.after(pause, Event::Fault);
            }
            Event::Client | Event::Fault => {}
            Event::Request(node, request) => self.store_answers(node, request),
            Event::Tick(node) => {
                if let Some(at) = self.paused(node) {
                    return self.at(at, Event::Tick(node));
                }
                self.nodes.entry(node).and_modify(|node| node.tick_at = None);
                self.tell(node, Input::Tick);
            }
            Event::Answer(node, answer) => match (self.paused(node), answer) {
                (Some(at), answer) => self.at(at, Event::Answer(node, answer)),
                (None, Answer::Input(input)) => self.tell(node, *input),
                (None, Answer::Written(tags, result)) => self.written(node, tags, result),
            },
            Event::HandlerDone(node, id, verdict) => match self.paused(node) {
                Some(at) => self.at(at, Event::HandlerDone(node, id, verdict)),
                None => self.tell(node, Input::HandlerDone(id, verdict)),
            },
        }
    }

    /// Returns until when a node is paused, if it is.
    fn paused(&self, node: u64) -> Option<u64> {
        self.nodes.get(&node).map(|node| node.paused_until).filter(|until| *until > self.time)
    }

    fn start_node(&mut self) {
        self.last_node += 1;
        let number = self.last_node;
        self.nodes.insert(number, Node::new(number, self.traits));
        // Of nodes that share a store some have only one of the handlers (D53).
        let only = (self.has_uneven_nodes && !self.random.one_in(4)).then(|| self.random.one_of(&KINDS));
        for kind in KINDS.into_iter().filter(|kind| only.is_none_or(|only| only == *kind)) {
            self.register(number, kind, LIMIT);
        }
    }

    fn register(&mut self, number: u64, kind: &'static str, limit: usize) {
        if let Some(node) = self.nodes.get_mut(&number) {
            match limit {
                0 => _ = node.kinds.remove(kind),
                _ => _ = node.kinds.insert(kind),
            }
        }
        self.tell(number, Input::Registered { kind: kind.into(), limit });
    }

    /// A node gets a handler, or loses one.
    fn change_handlers(&mut self, number: u64) {
        let kind = self.random.one_of(&KINDS);
        let has_it = self.nodes.get(&number).is_some_and(|node| node.kinds.contains(kind));
        self.ledger.totals.handler_changes += 1;
        self.register(number, kind, if has_it { 0 } else { LIMIT });
    }

    /// Tells a node's core something, and does what it answers.
    fn tell(&mut self, number: u64, input: Input) {
        let store = self.store_now();
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let actions = node.core.handle(node.now(self.time, store), input);
        let rows = node.core.rows_in_memory();
        assert!(
            rows <= ROWS_IN_MEMORY + 2 * PAGE + 2 * LIMIT * KINDS.len() + ROWS_IN_MEMORY,
            "q5: {rows} rows are in memory"
        );
        actions.into_iter().for_each(|action| self.act(number, action));
        self.send_batches(number);
        self.plan_tick(number);
    }

    fn act(&mut self, number: u64, action: Action) {
        match action {
            Action::Write(tag, op) => {
                if let Some(node) = self.nodes.get_mut(&number) {
                    node.batcher.push(op, Tag::Core(tag));
                }
            }
            Action::Scan(scan, query) => self.send(number, Request::Scan(scan, query)),
            Action::Orphans { kind, shards, limit } => self.send(number, Request::Orphans(kind, shards, limit)),
            Action::Heartbeat(heartbeat) => {
                let sent = Duration::from_micros(self.time);
                self.send(number, Request::Heartbeat(heartbeat, sent));
            }
            Action::Deliver(id, row) => self.deliver(number, id, &row),
            Action::Abandon(_) | Action::Drained => {}
            Action::StoreFailed(error) => panic!("the store has failed: {error}"),
        }
    }

    fn deliver(&mut self, node: u64, id: DeliveryId, row: &TimerRow) {
        let is_paused = self.nodes.get(&node).is_some_and(|node| node.core.is_paused());
        assert!(!is_paused, "o4: a node that knows of the pause delivers {row:?}");
        let has_handler = self.nodes.get(&node).is_some_and(|node| node.kinds.contains(&*row.spec.kind));
        assert!(has_handler, "d53: a node without a handler for it delivers {row:?}");
        self.ledger.totals.delegated += u64::from(is_pull_fence(row.epoch));
        self.ledger.deliver(row);
        let verdict = match self.random.below(8) {
            0 if self.is_troubled => Verdict::Dead { error: "dead".into() },
            1 | 2 if self.is_troubled => {
                let after = row.spec.retry.delay(row.attempt, self.random.any());
                Verdict::Retry { after, error: "again".into() }
            }
            _ => Verdict::Done,
        };
        let mut takes = self.random.duration(Duration::from_millis(50));
        if self.is_troubled && self.random.one_in(10) {
            takes = self.random.duration(Duration::from_secs(10));
        }
        self.after(takes, Event::HandlerDone(node, id, verdict));
    }

    fn send_batches(&mut self, number: u64) {
        while let Some((ops, tags)) = self.nodes.get_mut(&number).and_then(|node| node.batcher.next_batch()) {
            self.send(number, Request::Write(ops, tags));
        }
    }

    fn plan_tick(&mut self, number: u64) {
        let store = self.store_now();
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let now = node.now(self.time, store);
        let wakeup = node.core.next_wakeup();
        let steady = wakeup.steady.map(|at| at.as_micros() as u64);
        let by_store = wakeup.store.map(|at| self.time + at.since(now.store).as_micros() as u64);
        let Some(at) = steady.into_iter().chain(by_store).min().map(|at| at.max(self.time + 1)) else { return };
        if node.tick_at.is_none_or(|planned| planned > at || planned < self.time) {
            node.tick_at = Some(at);
            self.at(at, Event::Tick(number));
        }
    }

    fn latency(&mut self) -> Duration {
        let slow = self.is_troubled && self.random.one_in(20);
        self.random.duration(if slow { Duration::from_secs(4) } else { QUICK })
    }

    fn send(&mut self, node: u64, request: Request) {
        let latency = self.latency();
        self.after(latency, Event::Request(node, request));
    }

    fn answer(&mut self, node: u64, answer: Answer) {
        let latency = self.latency();
        self.after(latency, Event::Answer(node, answer));
    }

    /// The store takes a request, perhaps of a node that is dead by now.
    fn store_answers(&mut self, node: u64, request: Request) {
        let cut_off_until = self.nodes.get(&node).map_or(0, |node| node.cut_off_until);
        let is_cut_off = cut_off_until.max(self.gone_until) > self.time;
        if is_cut_off || (self.is_troubled && self.random.one_in(40)) {
            self.ledger.totals.lost_requests += 1;
            let error = || StoreError::Unavailable("cut off".into());
            return self.fail(node, request, error());
        }
        let now = self.store_now();
        match request {
            Request::Write(ops, tags) => {
                let before = self.tables.rows().map(|row| row.id).collect();
                let answers = self.tables.write(ops.clone(), now).unwrap();
                self.tables.check().unwrap();
                self.ledger.committed(&ops, &answers, &before, &self.tables, now);
                let is_lost = self.is_troubled && self.random.one_in(25);
                self.ledger.totals.lost_answers += u64::from(is_lost);
                let result = if is_lost { Err(StoreError::Uncertain("lost".into())) } else { Ok(answers) };
                self.answer(node, Answer::Written(tags, result));
            }
            Request::Scan(scan, query) => {
                let result = Ok(self.tables.due(&query));
                self.answer(node, Answer::Input(Box::new(Input::Scanned { kind: query.kind, scan, result })));
            }
            Request::Orphans(kind, shards, limit) => {
                let result = Ok(self.tables.orphans(&kind, &shards, limit));
                self.answer(node, Answer::Input(Box::new(Input::OrphansFound { kind, result })));
            }
            Request::Heartbeat(heartbeat, sent) => {
                let result = Ok(self.tables.heartbeat(&heartbeat, now));
                self.answer(node, Answer::Input(Box::new(Input::Owned { sent, result })));
            }
        }
    }

    fn fail(&mut self, node: u64, request: Request, error: StoreError) {
        let answer = match request {
            Request::Write(_, tags) => Answer::Written(tags, Err(error)),
            Request::Scan(scan, query) => {
                Answer::Input(Box::new(Input::Scanned { kind: query.kind, scan, result: Err(error) }))
            }
            Request::Orphans(kind, ..) => Answer::Input(Box::new(Input::OrphansFound { kind, result: Err(error) })),
            Request::Heartbeat(_, sent) => Answer::Input(Box::new(Input::Owned { sent, result: Err(error) })),
        };
        self.answer(node, answer);
    }

    /// A node learns what became of its batch.
    fn written(&mut self, number: u64, tags: Vec<Tag>, result: Result<Vec<WriteAnswer>, StoreError>) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        node.batcher.done();
        let answers: Vec<Result<WriteAnswer, StoreError>> = match result {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => tags.iter().map(|_| Err(error.clone())).collect(),
        };
        for (tag, answer) in tags.into_iter().zip(answers) {
            match (tag, answer) {
                (Tag::Core(tag), answer) => self.tell(number, Input::Written(tag, answer)),
                (
                    Tag::Client(kind),
                    Ok(
                        WriteAnswer::Create(CreateAnswer::Created { entry, .. })
                        | WriteAnswer::Reschedule(RescheduleAnswer::Moved { entry, .. }),
                    ),
                ) => self.tell(number, Input::Noticed { kind, entry }),
                (Tag::Client(_), Ok(_)) => {}
                // The row may be armed, and its notice is lost: the window is looked at again.
                (Tag::Client(_), Err(_)) => self.tell(number, Input::Hinted),
            }
        }
        self.send_batches(number);
    }

    fn client_asks(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        let Some(number) = (!numbers.is_empty()).then(|| numbers[self.random.index(numbers.len())]) else { return };
        for _ in 0..1 + self.random.below(4) {
            let kind = self.random.one_of(&KINDS);
            let op = match self.random.below(6) {
                0 => WriteOp::Cancel(CancelOp { target: self.target() }),
                1 => WriteOp::Reschedule(RescheduleOp {
                    target: self.target(),
                    when: FirstDue::After(self.random.duration(Duration::from_secs(10))),
                    if_version: None,
                }),
                _ => self.create(kind),
            };
            // The kind of a rescheduled timer is in its key.
            let kind = match &op {
                WriteOp::Reschedule(RescheduleOp { target: Target::Key { key, .. }, .. }) => key[..4].to_owned(),
                _ => kind.to_owned(),
            };
            if let Some(node) = self.nodes.get_mut(&number) {
                node.batcher.push(op, Tag::Client(kind));
            }
        }
        self.send_batches(number);
    }

    fn create(&mut self, kind: &str) -> WriteOp {
        let longest = Duration::from_secs(if self.random.one_in(4) { 60 } else { 4 });
        let delay = self.random.duration(longest);
        let mut timer = match self.random.below(4) {
            0 => NewTimer::every(kind, Duration::from_millis(200 + self.random.below(3000)))
                .times(1 + self.random.below(5)),
            1 => NewTimer::at(kind, SystemTime::UNIX_EPOCH + Duration::from_micros(self.store_now().as_micros() - 5)),
            _ => NewTimer::after(kind, delay),
        };
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
        ];
        timer = timer
            .missed(self.random.one_of(&missed))
            .retry(RetryPolicy::attempts(1 + self.random.below(4) as u32))
            .on_conflict(self.random.one_of(&[OnConflict::Refuse, OnConflict::Replace, OnConflict::Earlier]));
        let (spec, on_conflict) = timer.check(Limits::default()).unwrap();
        self.next_id += 1;
        WriteOp::Create(CreateOp { id: TimerId::from_u128(self.next_id), spec: Arc::new(spec), on_conflict })
    }

    fn target(&mut self) -> Target {
        let namespace = "default".to_owned();
        if self.random.one_in(3) {
            return Target::Name { namespace, name: format!("name {}", self.random.below(3)) };
        }
        let kind = self.random.one_of(&KINDS);
        Target::Key { namespace, key: format!("{kind} {}", self.random.below(6)) }
    }

    fn something_breaks(&mut self) {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        let number = (!numbers.is_empty()).then(|| numbers[self.random.index(numbers.len())]);
        let for_a_while = self.time + self.random.below(12_000_000);
        let step = self.random.below(20_000_000) as i64 - 10_000_000;
        match (self.random.below(8), number) {
            (_, Some(number)) if self.has_uneven_nodes && self.random.one_in(4) => self.change_handlers(number),
            (6, number) => self.pause_or_resume(number),
            (7, _) => self.copy(),
            // A store of one process is opened again only after the process is dead.
            (0 | 1, Some(number)) => {
                self.ledger.totals.crashes += 1;
                self.nodes.remove(&number);
                if !self.traits.has_other_writers() {
                    self.reopen_store(number);
                }
                self.start_node();
            }
            (2, Some(number)) => {
                self.ledger.totals.pauses += 1;
                self.nodes.entry(number).and_modify(|node| node.paused_until = for_a_while);
            }
            (3, Some(number)) => {
                self.nodes.entry(number).and_modify(|node| node.cut_off_until = for_a_while);
            }
            (4, _) => {
                self.ledger.totals.clock_steps += 1;
                self.store_shift += step;
            }
            (_, Some(number)) => {
                self.ledger.totals.clock_steps += 1;
                self.nodes.entry(number).and_modify(|node| node.skew = step / 10);
            }
            (_, None) => {}
        }
    }

    /// A client pauses the store or ends its pause, by a node that hears of it at once.
    fn pause_or_resume(&mut self, number: Option<u64>) {
        let is_paused = self.random.one_in(2);
        self.tables.set_paused(is_paused);
        self.ledger.totals.store_pauses += u64::from(is_paused);
        // A store of one process is paused by that process.
        if let Some(number) = number.filter(|_| !self.traits.has_other_writers() || self.random.one_in(2)) {
            self.tell(number, Input::Paused(is_paused));
        }
    }

    /// An export of all rows is imported into another store, with other shards: it has the same timers, and whole indexes (O4).
    fn copy(&mut self) {
        let mut copy = MemoryTables::new(if self.traits.shards == 1 { 8 } else { 1 });
        let import = |row: &TimerRow| WriteOp::Import(ImportOp { row: row.clone() });
        let ops: Vec<WriteOp> = self.tables.rows().map(import).collect();
        let count = ops.len();
        let answers = copy.write(ops.clone(), self.store_now()).unwrap();
        assert!(answers.iter().all(|answer| *answer == WriteAnswer::Import(ImportAnswer::Written)), "{answers:?}");
        let again = copy.write(ops, self.store_now()).unwrap();
        assert!(again.iter().all(|answer| *answer == WriteAnswer::Import(ImportAnswer::Exists)), "{again:?}");
        copy.check().unwrap();
        assert_eq!(copy.rows().count(), count);
        for (from, to) in self.tables.rows().zip(copy.rows()) {
            assert_eq!((from.id, &from.spec, from.due, from.attempt), (to.id, &to.spec, to.due, to.attempt));
            assert!(to.state != RowState::Claimed && to.wake >= from.due.min(from.wake));
        }
        self.ledger.totals.copies += 1;
    }

    /// Does what a store of one process does when it is opened: nobody else can have it.
    fn reopen_store(&mut self, old: u64) {
        let node = NodeId(TimerId::from_u128(u128::from(old)).as_uuid());
        let leave = Heartbeat { node, lease: Duration::ZERO, release: Vec::new(), kinds: None };
        self.tables.heartbeat(&leave, self.store_now());
        // Requests of the dead process are gone with it.
        self.events.retain(|_, event| !matches!(event, Event::Request(node, _) if *node == old));
    }

    fn heal(&mut self) {
        self.is_troubled = false;
        self.tables.set_paused(false);
        for node in self.nodes.values_mut() {
            (node.skew, node.cut_off_until, node.paused_until) = (0, 0, 0);
        }
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        // Each kind has a handler somewhere, on one node at least.
        for kind in KINDS {
            if !self.nodes.values().any(|node| node.kinds.contains(kind)) {
                let number = numbers[self.random.index(numbers.len())];
                self.register(number, kind, LIMIT);
            }
        }
        for number in numbers {
            self.tell(number, Input::Paused(false));
            self.plan_tick(number);
        }
    }

    /// Nothing that was due is left: what the store acknowledged was delivered, cancelled or given up.
    fn all_is_delivered(&self, seed: u64) {
        let due = self.store_now().saturating_sub(Duration::from_secs(1));
        for row in self.tables.rows().filter(|row| row.state != RowState::Dead) {
            let is_late = row.wake < due || row.state == RowState::Claimed && row.wake < self.store_now();
            assert!(!is_late, "q1, d45: {row:?} is left at {}, TOURBILLON_SEED={seed}", self.store_now());
        }
        let nodes: Vec<u64> = self.nodes.values().map(|node| node.number).collect();
        assert!(!nodes.is_empty(), "TOURBILLON_SEED={seed}");
    }
}
