//! Workers, which pull rows by a node, and extend and acknowledge them later, perhaps by another node.

use std::time::Duration;

use tourbillon_durable::StoreError;
use tourbillon_durable::store::{
    ClaimAnswer, ClaimOp, DuePage, DueQuery, ExtendOp, FinishOp, ShardId, StaleDelivery, TimerRow, Verdict,
    WriteAnswer, WriteOp, pull_fence,
};

use super::node::{DELIVERY_LEASE, PAGE, Tag};
use super::world::{Event, KINDS, Request, World};

/// The kind that no node has a handler for.
pub(crate) const WORK: &str = "work";

/// How long workers wait at most before they pull again.
const PAUSE: Duration = Duration::from_millis(400);

impl World {
    /// A worker asks a node for rows.
    pub(super) fn worker_asks(&mut self) {
        let pause = self.random.duration(PAUSE);
        self.after(pause, Event::Worker);
        let Some(number) = self.any_node() else { return };
        let store = self.store_now();
        let Some(node) = self.nodes.get(&number).filter(|node| !node.core.is_paused()) else { return };
        let until = node.now(self.time, store).store;
        let shards = (0..self.traits.shards).map(ShardId).collect();
        // Now and then a worker takes what a handler would get.
        let kind = if self.goes_wrong(8) { self.random.one_of(&KINDS) } else { WORK };
        let query = DueQuery { kind: kind.to_owned(), shards, after: None, until, limit: PAGE };
        self.send(number, Request::Pull(query));
    }

    /// The node claims the rows for the worker.
    pub(super) fn worker_claims(&mut self, number: u64, page: DuePage) {
        for entry in page.entries {
            let (epoch, token) = (pull_fence(self.random.any()), self.random.any());
            let op = ClaimOp { id: entry.id, version: entry.version, epoch, token, lease: DELIVERY_LEASE };
            if let Some(node) = self.nodes.get_mut(&number) {
                node.batcher.push(WriteOp::Claim(op), Tag::Pull(self.time));
            }
        }
        self.send_batches(number);
    }

    /// A worker gets a row, or does not.
    pub(super) fn worker_pulls(&mut self, since: u64, answer: &Result<WriteAnswer, StoreError>) {
        let Ok(WriteAnswer::Claim(ClaimAnswer::Claimed { row, .. })) = answer else { return };
        let has_lease = self.time < since + DELIVERY_LEASE.as_micros() as u64;
        self.ledger.totals.pulled += 1;
        self.ledger.deliver(row, has_lease && self.clock_was_steady());
        // A worker that dies says nothing.
        if self.is_troubled && self.random.one_in(10) {
            return;
        }
        let verdict = self.verdict(row);
        let finish = FinishOp { id: row.id, attempt: row.attempt, epoch: row.epoch, verdict };
        let mut takes = self.handler_takes();
        if self.is_troubled && self.random.one_in(3) {
            takes += self.extensions_of(row);
        }
        self.after(takes, Event::WorkerDone(finish));
    }

    /// Has a worker make its lease longer: in time or too late, once or twice at the same time by different nodes, and now and then for an older
    /// attempt or with a fence that is not its own. Returns how much longer the worker takes.
    fn extensions_of(&mut self, row: &TimerRow) -> Duration {
        let mut last = Duration::ZERO;
        for _ in 0..1 + self.random.below(3) {
            let longest = if self.random.one_in(3) { 2 * DELIVERY_LEASE } else { DELIVERY_LEASE };
            last += self.random.duration(longest);
            let lease = self.random.duration(2 * DELIVERY_LEASE);
            let extension = ExtendOp { id: row.id, attempt: row.attempt, epoch: row.epoch, lease };
            let extension = match self.random.below(8) {
                0 => ExtendOp { attempt: row.attempt.saturating_sub(1), ..extension },
                1 => ExtendOp { epoch: pull_fence(self.random.any()), ..extension },
                2 => {
                    self.after(last, Event::WorkerExtends(extension.clone()));
                    extension
                }
                _ => extension,
            };
            self.after(last, Event::WorkerExtends(extension));
        }
        last
    }

    pub(super) fn worker_extends(&mut self, extension: ExtendOp) {
        let Some(number) = self.any_node() else { return };
        if let Some(node) = self.nodes.get_mut(&number) {
            node.batcher.push(WriteOp::Extend(extension), Tag::Extension);
        }
        self.send_batches(number);
    }

    pub(super) fn count_extension(&mut self, answer: &Result<WriteAnswer, StoreError>) {
        match answer {
            Ok(WriteAnswer::Extend(Ok(()))) => self.ledger.totals.extended += 1,
            Ok(WriteAnswer::Extend(Err(StaleDelivery))) => self.ledger.totals.extensions_refused += 1,
            _ => {}
        }
    }

    /// A worker learns of the end of its delivery. A request that has failed may be made again.
    pub(super) fn worker_learns(&mut self, finish: FinishOp, answer: &Result<WriteAnswer, StoreError>) {
        if answer.is_err() && self.random.one_in(2) {
            self.after(PAUSE, Event::WorkerDone(finish));
        }
    }

    pub(super) fn worker_acknowledges(&mut self, finish: FinishOp) {
        let Some(number) = self.any_node() else { return };
        if let Some(node) = self.nodes.get_mut(&number) {
            node.batcher.push(WriteOp::Finish(finish.clone()), Tag::Worker(finish));
        }
        self.send_batches(number);
    }

    /// Returns how a delivery ends.
    pub(super) fn verdict(&mut self, row: &TimerRow) -> Verdict {
        match self.random.below(8) {
            0 if self.is_troubled => Verdict::Dead { error: "dead".into() },
            1 | 2 if self.is_troubled => {
                let after = row.retry_delay(self.random.any());
                Verdict::Retry { after, error: "again".into() }
            }
            3 if self.is_troubled => Verdict::Return { after: self.random.duration(Duration::from_secs(1)) },
            _ => Verdict::Done,
        }
    }

    pub(super) fn handler_takes(&mut self) -> Duration {
        let is_slow = self.is_troubled && self.random.one_in(10) && !self.is_punctual;
        self.random.duration(if is_slow { Duration::from_secs(10) } else { Duration::from_millis(50) })
    }
}
