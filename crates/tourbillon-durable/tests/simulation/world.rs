//! The world: time, messages between nodes and their store, clients, handlers and faults.

use std::collections::BTreeMap;
use std::time::Duration;

use tourbillon_durable::core::{Action, DeliveryId, Input};
use tourbillon_durable::store::{
    DuePage, DueQuery, ExtendOp, FinishOp, Heartbeat, RowState, ShardId, StoreTraits, TimerRow, Verdict, WriteAnswer,
    WriteOp, is_pull_fence,
};
use tourbillon_durable::{StoreError, StoreTime};
use tourbillon_tools::Random;

use super::ledger::Ledger;
use super::node::{DELIVERY_LEASE, FASTEST, NODE_LEASE, Node, NodeFlaw, PAGE, ROWS_IN_MEMORY, Tag, check_groups};
use super::store::{Flaw, SimStore};
use super::totals::Totals;

/// The kinds that nodes have handlers for.
pub(crate) const KINDS: [&str; 2] = ["mail", "tick"];
/// How long requests and answers take at most while nothing is wrong.
pub(crate) const QUICK: Duration = Duration::from_millis(20);
/// How long the requests and answers before a delivery take at most while nothing is wrong, with those that they wait for.
const LONGEST_REQUESTS: Duration = Duration::from_millis(500);
/// The time of the store's clock at the beginning.
const EPOCH: u64 = 1_800_000_000_000_000;
/// How many deliveries of a kind a node has at the same time.
pub(crate) const LIMIT: usize = 3;

/// Which world is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Whether anything breaks besides what `crash` says.
    pub(crate) is_rough: bool,
    /// Whether each node has all handlers, which are quick: then rows wait only for the store and for the looks of nodes.
    pub(crate) is_punctual: bool,
    /// How long clients ask and faults happen, in microseconds.
    pub(crate) trouble: u64,
    /// How long it may take afterwards until everything that is due has ended.
    pub(crate) recovery: u64,
    /// What crashes, and after which step.
    pub(crate) crash: Option<(u64, Crash)>,
    /// The rule that the store breaks.
    pub(crate) flaw: Option<Flaw>,
    /// The rule that all nodes break.
    pub(crate) node_flaw: Option<NodeFlaw>,
}

/// What crashes at a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Crash {
    Node,
    Store,
}

pub(crate) struct World {
    pub(super) random: Random,
    /// Microseconds since the beginning.
    pub(super) time: u64,
    /// What happens when; the second number keeps the order of what happens together.
    pub(super) events: BTreeMap<(u64, u64), Event>,
    last_event: u64,
    pub(super) store: SimStore,
    /// By the number of the change: answers that are sent when the change is durable.
    pub(super) replies: BTreeMap<u64, (u64, Answer)>,
    pub(super) traits: StoreTraits,
    /// How far the store's clock was set, in microseconds.
    pub(super) store_shift: i64,
    /// When the store's clock was set last.
    pub(super) clock_set_at: Option<u64>,
    /// Until when no node can reach the store.
    pub(super) gone_until: u64,
    /// Until when the store has no room.
    pub(super) full_until: u64,
    /// Until when requests take long.
    pub(super) slow_until: u64,
    /// Whether the store crashes before the next change is durable.
    pub(super) crashes_soon: bool,
    pub(super) nodes: BTreeMap<u64, Node>,
    last_node: u64,
    pub(super) ledger: Ledger,
    pub(super) next_id: u128,
    pub(super) is_troubled: bool,
    pub(super) is_rough: bool,
    pub(super) is_punctual: bool,
    pub(super) node_flaw: Option<NodeFlaw>,
    /// Whether nodes have different handlers, which come and go.
    pub(super) has_uneven_nodes: bool,
}

pub(crate) enum Event {
    /// A client asks for something.
    Client,
    /// A worker asks for rows.
    Worker,
    /// Something breaks.
    Fault,
    /// A node looks at the time.
    Tick(u64),
    /// A request reaches the store.
    Request(u64, Request),
    /// The store applies a batch whose sender has been told that it does not know.
    LateWrite(Vec<WriteOp>),
    /// Changes up to this number become durable.
    Synced(u64),
    /// The store ends and begins again.
    StoreCrash,
    /// An answer reaches a node.
    Answer(u64, Answer),
    /// A handler ends.
    HandlerDone(u64, DeliveryId, Verdict),
    /// A worker ends a delivery.
    WorkerDone(FinishOp),
    /// A worker makes a lease longer.
    WorkerExtends(ExtendOp),
}

pub(crate) enum Request {
    Write(Vec<WriteOp>, Vec<Tag>),
    Scan(u64, DueQuery),
    Orphans(String, Vec<ShardId>, usize),
    Heartbeat(Heartbeat, Duration),
    /// A scan for a worker.
    Pull(DueQuery),
}

pub(crate) enum Answer {
    Written(Vec<Tag>, Result<Vec<WriteAnswer>, StoreError>),
    Input(Box<Input>),
    Pulled(DuePage),
}

impl Plan {
    /// A long world in which everything breaks.
    pub(crate) fn rough(seed: u64) -> Plan {
        Plan {
            seed,
            is_rough: true,
            is_punctual: false,
            trouble: 60_000_000,
            recovery: 120_000_000,
            crash: None,
            flaw: None,
            node_flaw: None,
        }
    }

    /// A short world in which nothing breaks.
    pub(crate) fn calm(seed: u64) -> Plan {
        Plan { is_rough: false, trouble: 2_500_000, recovery: 40_000_000, ..Plan::rough(seed) }
    }

    /// A world in which nothing breaks and no timer has to wait for another.
    pub(crate) fn punctual(seed: u64) -> Plan {
        Plan { is_punctual: true, trouble: 30_000_000, ..Plan::calm(seed) }
    }
}

impl World {
    pub(crate) fn run(plan: Plan) -> Totals {
        let mut world = World::new(plan);
        let nodes = if world.traits.has_other_writers() { 1 + world.random.below(3) } else { 1 };
        world.ledger.totals.single_nodes += u64::from(!world.traits.has_other_writers());
        (0..nodes).for_each(|_| world.start_node());
        world.at(0, Event::Client);
        world.at(0, Event::Worker);
        if plan.is_rough {
            world.at(1_000_000, Event::Fault);
        }
        if plan.is_punctual {
            // Until each node has its share of the shards.
            world.ledger.measure_waits();
            world.go_on(2 * NODE_LEASE.as_micros() as u64, None);
            world.ledger.longest_wait = Duration::ZERO;
        }
        world.go_on(plan.trouble, plan.crash);
        if plan.is_punctual {
            let bound = world.traits.rescan.unwrap_or_default() + LONGEST_REQUESTS;
            let wait = world.ledger.longest_wait;
            assert!(wait <= bound, "q4: a timer was late by {wait:?}, which is more than {bound:?}");
            world.ledger.totals.longest_wait_us = wait.as_micros() as u64;
        }
        world.ledger.totals.steps_of_trouble = world.ledger.totals.steps;
        if plan.is_rough && world.random.one_in(4) {
            world.ledger.totals.outages += 1;
            world.gone_until = 2 * plan.trouble;
            world.go_on(2 * plan.trouble, None);
        }
        world.heal();
        world.go_on(world.time + plan.recovery, None);
        world.all_is_delivered();
        world.ledger.check_lives(&world.store.tables);
        world.ledger.totals
    }

    fn new(plan: Plan) -> World {
        let mut random = Random::new(plan.seed);
        let shards = if random.one_in(3) { 1 } else { 8 };
        let has_other_writers = shards > 1;
        let rescan = Duration::from_millis(if random.one_in(2) { 250 } else { 1_000 });
        let has_uneven_nodes = has_other_writers && random.one_in(2) && !plan.is_punctual;
        World {
            random,
            time: 0,
            events: BTreeMap::new(),
            last_event: 0,
            store: SimStore::new(shards, plan.flaw),
            replies: BTreeMap::new(),
            traits: StoreTraits { shards, parallel_writes: 2, rescan: has_other_writers.then_some(rescan) },
            store_shift: 0,
            clock_set_at: None,
            gone_until: 0,
            full_until: 0,
            slow_until: 0,
            crashes_soon: false,
            nodes: BTreeMap::new(),
            last_node: 0,
            ledger: Ledger::new(shards),
            next_id: 1,
            is_troubled: true,
            is_rough: plan.is_rough,
            is_punctual: plan.is_punctual,
            node_flaw: plan.node_flaw,
            has_uneven_nodes,
        }
    }

    pub(super) fn store_now(&self) -> StoreTime {
        StoreTime::from_micros((EPOCH + self.time).saturating_add_signed(self.store_shift))
    }

    /// Returns whether the leases of nodes and of present deliveries are as long by the store's clock as by the clocks of the nodes.
    pub(super) fn clock_was_steady(&self) -> bool {
        let longest = NODE_LEASE.max(DELIVERY_LEASE);
        self.clock_set_at.is_none_or(|at| at + longest.as_micros() as u64 <= self.time)
    }

    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.last_event += 1;
        self.events.insert((time.max(self.time), self.last_event), event);
    }

    pub(super) fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.time + delay.as_micros() as u64, event);
    }

    /// Lets things happen until a time. At a step something may crash.
    fn go_on(&mut self, until: u64, crash: Option<(u64, Crash)>) {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > until {
                self.at(time, event);
                break;
            }
            self.time = time;
            self.happens(event);
            self.ledger.totals.steps += 1;
            match crash.filter(|(step, _)| *step == self.ledger.totals.steps) {
                Some((_, Crash::Store)) => self.store_crashes(),
                Some((_, Crash::Node)) => self.any_node().into_iter().for_each(|number| self.crash_node(number)),
                None => {}
            }
        }
        self.time = until;
    }

    pub(super) fn any_node(&mut self) -> Option<u64> {
        let numbers: Vec<u64> = self.nodes.keys().copied().collect();
        (!numbers.is_empty()).then(|| numbers[self.random.index(numbers.len())])
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
            Event::Worker => self.worker_asks(),
            Event::WorkerDone(finish) => self.worker_acknowledges(finish),
            Event::WorkerExtends(extension) => self.worker_extends(extension),
            Event::Request(node, request) => self.store_answers(node, request),
            Event::LateWrite(ops) => self.store_writes_late(&ops),
            Event::Synced(number) => self.synced(number),
            Event::StoreCrash if self.is_troubled => self.store_crashes(),
            Event::StoreCrash => {}
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
                (None, Answer::Pulled(page)) => self.worker_claims(node, page),
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

    pub(super) fn start_node(&mut self) {
        self.last_node += 1;
        let number = self.last_node;
        let rate = match self.node_flaw {
            Some(NodeFlaw::HasSlowClock) => -500,
            _ if self.is_rough => self.random.below(2 * FASTEST.unsigned_abs() + 1) as i64 - FASTEST,
            _ => 0,
        };
        self.nodes.insert(number, Node::new(number, self.traits, rate));
        // Of nodes that share a store some have only one of the handlers (D53).
        let only = (self.has_uneven_nodes && !self.random.one_in(4)).then(|| self.random.one_of(&KINDS));
        for kind in KINDS.into_iter().filter(|kind| only.is_none_or(|only| only == *kind)) {
            self.register(number, kind, LIMIT);
        }
    }

    pub(super) fn register(&mut self, number: u64, kind: &'static str, limit: usize) {
        if let Some(node) = self.nodes.get_mut(&number) {
            match limit {
                0 => _ = node.kinds.remove(kind),
                _ => _ = node.kinds.insert(kind),
            }
        }
        self.tell(number, Input::Registered { kind: kind.into(), limit });
    }

    /// A node gets a handler, or loses one.
    pub(super) fn change_handlers(&mut self, number: u64) {
        let kind = self.random.one_of(&KINDS);
        let has_it = self.nodes.get(&number).is_some_and(|node| node.kinds.contains(kind));
        self.ledger.totals.handler_changes += 1;
        self.register(number, kind, if has_it { 0 } else { LIMIT });
    }

    /// Tells a node's core something, and does what it answers.
    pub(super) fn tell(&mut self, number: u64, mut input: Input) {
        if let (Some(NodeFlaw::IgnoresLeaseEnd), Input::Owned { sent, .. }) = (self.node_flaw, &mut input)
            && let Some(node) = self.nodes.get(&number)
        {
            *sent = node.steady(self.time) + NODE_LEASE;
        }
        if self.node_flaw == Some(NodeFlaw::DropsNotices) && matches!(input, Input::Noticed { .. }) {
            return;
        }
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
                let Some(sent) = self.nodes.get(&number).map(|node| node.steady(self.time)) else { return };
                self.send(number, Request::Heartbeat(heartbeat, sent));
            }
            Action::Deliver(id, row) => self.deliver(number, id, &row),
            Action::Abandon(_) => {}
            Action::Drained => self.drained(number),
            Action::StoreFails(_) => self.ledger.totals.reported_failures += 1,
            Action::StoreRecovered => self.ledger.totals.recoveries += 1,
            Action::StoreFailed(error) => panic!("the store has failed: {error}"),
        }
    }

    fn deliver(&mut self, node: u64, id: DeliveryId, row: &TimerRow) {
        let is_paused = self.nodes.get(&node).is_some_and(|node| node.core.is_paused());
        assert!(!is_paused, "o4: a node that knows of the pause delivers {row:?}");
        let has_handler = self.nodes.get(&node).is_some_and(|node| node.kinds.contains(&*row.spec.kind));
        assert!(has_handler, "d53: a node without a handler for it delivers {row:?}");
        self.ledger.totals.delegated += u64::from(is_pull_fence(row.epoch));
        let is_certain = self.clock_was_steady();
        self.ledger.deliver(row, is_certain);
        let verdict = self.verdict(row);
        let takes = self.handler_takes();
        self.after(takes, Event::HandlerDone(node, id, verdict));
    }

    pub(super) fn send_batches(&mut self, number: u64) {
        while let Some((ops, tags)) = self.nodes.get_mut(&number).and_then(|node| node.batcher.next_batch()) {
            check_groups(&tags);
            self.send(number, Request::Write(ops, tags));
        }
    }

    pub(super) fn plan_tick(&mut self, number: u64) {
        let store = self.store_now();
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let now = node.now(self.time, store);
        let wakeup = node.core.next_wakeup();
        let steady = wakeup.steady.map(|at| node.time_of(at));
        let by_store = wakeup.store.map(|at| self.time + at.since(now.store).as_micros() as u64);
        let Some(at) = steady.into_iter().chain(by_store).min().map(|at| at.max(self.time + 1)) else { return };
        if node.tick_at.is_none_or(|planned| planned > at || planned < self.time) {
            node.tick_at = Some(at);
            self.at(at, Event::Tick(number));
        }
    }

    /// Nothing that was due is left: what the store acknowledged was delivered, cancelled or given up.
    fn all_is_delivered(&self) {
        let due = self.store_now().saturating_sub(Duration::from_secs(1));
        for row in self.store.tables.rows().filter(|row| row.state != RowState::Dead) {
            let is_late = row.wake < due || row.state == RowState::Claimed && row.wake < self.store_now();
            assert!(!is_late, "q1, d45: {row:?} is left at {}", self.store_now());
        }
        let nodes: Vec<u64> = self.nodes.values().map(|node| node.number).collect();
        assert!(!nodes.is_empty(), "nodes that crash are started again");
    }
}
