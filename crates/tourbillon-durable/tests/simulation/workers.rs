//! Workers, which pull rows by a node and acknowledge them later, perhaps to another node.

use std::time::Duration;

use tourbillon_durable::StoreError;
use tourbillon_durable::store::{
    ClaimAnswer, ClaimOp, DuePage, DueQuery, FinishOp, ShardId, TimerRow, Verdict, WriteAnswer, WriteOp, pull_fence,
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
        let takes = self.handler_takes();
        self.after(takes, Event::WorkerDone(finish));
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
        let is_slow = self.is_troubled && self.random.one_in(10);
        self.random.duration(if is_slow { Duration::from_secs(10) } else { Duration::from_millis(50) })
    }
}
