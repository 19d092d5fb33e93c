//! Deliveries that have begun and not ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::ownership::OwnedShards;
use super::{DeliveryId, WriteTag};
use crate::store::{ExtendOp, FinishOp, RowId, ShardId, TimerRow, Verdict, WriteOp, is_pull_fence};

/// The deliveries of a node.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    begun: BTreeMap<DeliveryId, Delivering>,
    /// No extension and no repeated finish is due before this time; `None` if none is due at all.
    next_look: Option<Duration>,
}

#[derive(Debug)]
struct Delivering {
    id: RowId,
    kind: String,
    shard: ShardId,
    attempt: u32,
    epoch: u64,
    step: Step,
}

#[derive(Debug)]
enum Step {
    /// The handler works. Its lease is made longer at that time; `None` while the store is asked to.
    Handling { extend_at: Option<Duration> },
    /// The handler has ended, and the store is to be told; again at that time, if it could not be.
    Finishing { verdict: Verdict, again_at: Option<Duration> },
    /// Another node has the row: the handler's result does not count.
    Abandoned,
}

impl Deliveries {
    pub(super) fn len(&self) -> usize {
        self.begun.len()
    }

    pub(super) fn kind(&self, id: DeliveryId) -> Option<&str> {
        self.begun.get(&id).map(|delivering| &*delivering.kind)
    }

    /// Returns whether a handler works on a delivery that is still this node's.
    pub(super) fn is_handled(&self, id: DeliveryId) -> bool {
        self.begun.get(&id).is_some_and(|delivering| matches!(delivering.step, Step::Handling { .. }))
    }

    pub(super) fn ids(&self) -> Vec<DeliveryId> {
        self.begun.keys().copied().collect()
    }

    /// Returns the shards that have deliveries.
    pub(super) fn shards(&self) -> BTreeSet<ShardId> {
        self.begun.values().map(|delivery| delivery.shard).collect()
    }

    pub(super) fn begin(&mut self, id: DeliveryId, row: &TimerRow, steady: Duration, lease: Duration) {
        let delivering = Delivering {
            id: row.id,
            kind: row.spec.kind.clone(),
            shard: row.shard,
            attempt: row.attempt,
            epoch: row.epoch,
            step: Step::Handling { extend_at: Some(steady + lease / 2) },
        };
        self.begun.insert(id, delivering);
        self.look_at(steady + lease / 2);
    }

    /// Takes the result of a handler, and returns what the store is to be told.
    pub(super) fn handler_done(&mut self, id: DeliveryId, verdict: Verdict) -> Option<WriteOp> {
        let delivering = self.begun.get_mut(&id)?;
        if let Step::Abandoned = delivering.step {
            self.begun.remove(&id);
            return None;
        }
        let op = delivering.finish(&verdict);
        delivering.step = Step::Finishing { verdict, again_at: None };
        Some(op)
    }

    /// Forgets a delivery that has ended, and returns its kind.
    pub(super) fn remove(&mut self, id: DeliveryId) -> Option<String> {
        self.begun.remove(&id).map(|delivering| delivering.kind)
    }

    pub(super) fn extended(&mut self, id: DeliveryId, steady: Duration, lease: Duration) {
        self.extend_again(id, steady + lease / 2);
    }

    pub(super) fn extend_again(&mut self, id: DeliveryId, at: Duration) {
        if let Some(Delivering { step: Step::Handling { extend_at }, .. }) = self.begun.get_mut(&id) {
            *extend_at = Some(at);
            self.look_at(at);
        }
    }

    pub(super) fn finish_again(&mut self, id: DeliveryId, at: Duration) {
        if let Some(Delivering { step: Step::Finishing { again_at, .. }, .. }) = self.begun.get_mut(&id) {
            *again_at = Some(at);
            self.look_at(at);
        }
    }

    /// Records that the row is another node's. Returns whether a handler works on it. A finish that is under way is answered by the store.
    pub(super) fn abandon(&mut self, id: DeliveryId) -> bool {
        match self.begun.get_mut(&id) {
            Some(delivering) if matches!(delivering.step, Step::Handling { .. }) => {
                delivering.step = Step::Abandoned;
                true
            }
            _ => false,
        }
    }

    /// Returns the deliveries of shards that the node does not own any more, or under another epoch.
    pub(super) fn not_owned(&self, owned: &OwnedShards) -> Vec<DeliveryId> {
        // A row that was claimed for another node's shard is this node's until the lease of the delivery is over.
        let is_lost = |delivering: &Delivering| {
            !is_pull_fence(delivering.epoch) && owned.epoch(delivering.shard) != Some(delivering.epoch)
        };
        let lost = self.begun.iter().filter(|(_, delivering)| is_lost(delivering));
        lost.map(|(id, _)| *id).collect()
    }

    /// Returns the extensions and repeated finishes that are due.
    pub(super) fn due_again(&mut self, steady: Duration, lease: Duration) -> Vec<(WriteTag, WriteOp)> {
        let mut due = Vec::new();
        if self.next_look.is_none_or(|at| steady < at) {
            return due;
        }
        for (id, delivering) in &mut self.begun {
            let extension = ExtendOp { id: delivering.id, attempt: delivering.attempt, epoch: delivering.epoch, lease };
            let finish = delivering.again(steady);
            match &mut delivering.step {
                Step::Handling { extend_at } if extend_at.is_some_and(|at| at <= steady) => {
                    *extend_at = None;
                    due.push((WriteTag::Extend(*id), WriteOp::Extend(extension)));
                }
                Step::Finishing { again_at, .. } => {
                    if let Some(op) = finish {
                        *again_at = None;
                        due.push((WriteTag::Finish(*id), op));
                    }
                }
                Step::Handling { .. } | Step::Abandoned => {}
            }
        }
        self.next_look = self.begun.values().filter_map(Delivering::next_look).min();
        due
    }

    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        self.next_look
    }

    fn look_at(&mut self, at: Duration) {
        self.next_look = super::earlier(self.next_look, Some(at));
    }
}

impl Delivering {
    fn finish(&self, verdict: &Verdict) -> WriteOp {
        let verdict = verdict.clone();
        WriteOp::Finish(FinishOp { id: self.id, attempt: self.attempt, epoch: self.epoch, verdict })
    }

    fn next_look(&self) -> Option<Duration> {
        match self.step {
            Step::Handling { extend_at } => extend_at,
            Step::Finishing { again_at, .. } => again_at,
            Step::Abandoned => None,
        }
    }

    /// Returns the finish that is to be sent again.
    fn again(&self, steady: Duration) -> Option<WriteOp> {
        match &self.step {
            Step::Finishing { verdict, again_at: Some(at) } if *at <= steady => Some(self.finish(verdict)),
            _ => None,
        }
    }
}
