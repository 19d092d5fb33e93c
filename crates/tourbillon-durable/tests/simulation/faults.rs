//! What breaks, and how it heals.

use std::time::Duration;

use tourbillon_durable::TimerId;
use tourbillon_durable::core::Input;
use tourbillon_durable::store::{
    Heartbeat, ImportAnswer, ImportOp, MemoryTables, NodeId, RowState, WriteAnswer, WriteOp,
};

use super::world::{Event, KINDS, LIMIT, World};

impl World {
    pub(super) fn something_breaks(&mut self) {
        let number = self.any_node();
        let for_a_while = self.time + self.random.below(12_000_000);
        let step = self.random.below(20_000_000) as i64 - 10_000_000;
        match (self.random.below(13), number) {
            (_, Some(number)) if self.has_uneven_nodes && self.random.one_in(4) => self.change_handlers(number),
            (6, number) => self.pause_or_resume(number),
            (7, _) => self.copy(),
            (0 | 1, Some(number)) => self.crash_node(number),
            (8 | 9, _) => self.crashes_soon = true,
            (12, Some(number)) => {
                self.nodes.entry(number).and_modify(|node| node.is_draining = true);
                self.tell(number, Input::Drain);
            }
            (10, _) => self.full_until = for_a_while,
            (11, _) => {
                self.ledger.totals.slow_phases += 1;
                self.slow_until = for_a_while;
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
                self.clock_set_at = Some(self.time);
            }
            (_, Some(number)) => {
                self.ledger.totals.clock_steps += 1;
                self.nodes.entry(number).and_modify(|node| node.skew = step / 10);
            }
            (_, None) => {}
        }
    }

    /// A node dies, and another one begins. A store of one process dies with its process, and is opened again.
    pub(super) fn crash_node(&mut self, number: u64) {
        self.ledger.totals.crashes += 1;
        self.nodes.remove(&number);
        if !self.traits.has_other_writers() {
            self.crash_store();
            self.reopen_store(number);
        }
        self.start_node();
    }

    /// A node has ended, and another one begins.
    pub(super) fn drained(&mut self, number: u64) {
        self.ledger.totals.drained += 1;
        self.nodes.remove(&number);
        if !self.traits.has_other_writers() {
            self.synced(u64::MAX);
            self.reopen_store(number);
        }
        self.start_node();
    }

    /// The store crashes; one of one process takes the process with it.
    pub(super) fn store_crashes(&mut self) {
        match self.any_node().filter(|_| !self.traits.has_other_writers()) {
            Some(number) => self.crash_node(number),
            None => self.crash_store(),
        }
    }

    /// A client pauses the store or ends its pause, by a node that hears of it at once.
    fn pause_or_resume(&mut self, number: Option<u64>) {
        let is_paused = self.random.one_in(2);
        self.store.set_paused(is_paused);
        self.ledger.totals.store_pauses += u64::from(is_paused);
        // A store of one process is paused by that process.
        if let Some(number) = number.filter(|_| !self.traits.has_other_writers() || self.random.one_in(2)) {
            self.tell(number, Input::Paused(is_paused));
        }
    }

    /// An export of all rows is imported into another store, with other shards: it has the same timers, and whole indexes (O4).
    fn copy(&mut self) {
        let mut copy = MemoryTables::new(if self.traits.shards == 1 { 8 } else { 1 });
        let rows = self.store.tables.rows().cloned().collect();
        let ops: Vec<WriteOp> = ImportOp::of_rows(rows).into_iter().map(WriteOp::Import).collect();
        let count = ops.len();
        let answers = copy.write(ops.clone(), self.store_now()).unwrap();
        assert!(answers.iter().all(|answer| *answer == WriteAnswer::Import(ImportAnswer::Written)), "{answers:?}");
        let again = copy.write(ops, self.store_now()).unwrap();
        assert!(again.iter().all(|answer| *answer == WriteAnswer::Import(ImportAnswer::Exists)), "{again:?}");
        copy.check().unwrap();
        assert_eq!(copy.rows().count(), count);
        for (from, to) in self.store.tables.rows().zip(copy.rows()) {
            assert_eq!((from.id, &from.spec, from.due, from.attempt), (to.id, &to.spec, to.due, to.attempt));
            assert!(to.state != RowState::Claimed && to.wake >= from.due.min(from.wake));
        }
        self.ledger.totals.copies += 1;
    }

    /// Does what a store of one process does when it is opened: nobody else can have it.
    fn reopen_store(&mut self, old: u64) {
        let node = NodeId(TimerId::from_u128(u128::from(old)).as_uuid());
        let leave = Heartbeat { node, lease: Duration::ZERO, release: Vec::new(), kinds: None };
        let (number, ownership) = self.store.heartbeat(leave, self.store_now());
        self.ledger.owned(number, &ownership);
        self.synced(number);
        // Requests of the dead process are gone with it, and so are the changes that it would have made durable.
        self.events.retain(|_, event| !matches!(event, Event::Request(node, _) if *node == old));
    }

    pub(super) fn heal(&mut self) {
        self.is_troubled = false;
        (self.full_until, self.slow_until, self.crashes_soon) = (0, 0, false);
        self.store.set_paused(false);
        for node in self.nodes.values_mut() {
            (node.skew, node.cut_off_until, node.paused_until) = (0, 0, 0);
        }
        let draining: Vec<u64> = self.nodes.values().filter(|node| node.is_draining).map(|node| node.number).collect();
        draining.into_iter().for_each(|number| self.crash_node(number));
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
}
