//! Batches of operations: what has come while the store wrote the batches before.

use std::collections::VecDeque;
use std::ops::Range;

use crate::store::WriteOp;

/// The most bytes of payload in a batch, unless it is one group: a store takes only so much in one request, and keeps other operations waiting
/// meanwhile.
pub const BATCH_BYTES: usize = 16 << 20;

/// Operations that wait for the store, each with a tag that its answer is for.
///
/// There is no time to wait for more: while the store writes, operations gather, so batches are as large as the load makes them. Cancels and
/// what ends deliveries go before creates and reschedules (O2), because they make room. A group stays together: its operations are in one batch,
/// in their order.
#[derive(Debug)]
pub struct Batcher<T> {
    urgent: VecDeque<(WriteOp, T)>,
    other: VecDeque<(WriteOp, T)>,
    groups: VecDeque<Vec<(WriteOp, T)>>,
    /// Whether the last batch had no room for the first group: then that group goes first.
    is_group_late: bool,
    /// How many batches the store has.
    writing: usize,
    parallel: usize,
    largest: usize,
}

/// The operations of a batch, their tags, and the places of its groups.
pub type GroupedBatch<T> = (Vec<WriteOp>, Vec<T>, Vec<Range<usize>>);

impl<T> Batcher<T> {
    /// Returns an empty batcher for a store that writes `parallel` batches at the same time, each of at most `largest` operations.
    #[must_use]
    pub fn new(parallel: usize, largest: usize) -> Batcher<T> {
        let (parallel, largest) = (parallel.max(1), largest.max(1));
        let (urgent, other, groups) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Batcher { urgent, other, groups, is_group_late: false, writing: 0, parallel, largest }
    }

    /// Adds an operation.
    pub fn push(&mut self, op: WriteOp, tag: T) {
        let queue = if is_urgent(&op) { &mut self.urgent } else { &mut self.other };
        queue.push_back((op, tag));
    }

    /// Adds operations that are written in one batch, in their order.
    pub fn push_group(&mut self, group: Vec<(WriteOp, T)>) {
        self.groups.push_back(group);
    }

    /// Returns the next batch, if there is one and the store can write it now. [`done`](Batcher::done) is called when it is written.
    pub fn next_batch(&mut self) -> Option<(Vec<WriteOp>, Vec<T>)> {
        self.next_batch_with_groups().map(|(ops, tags, _)| (ops, tags))
    }

    /// Returns the next batch as [`next_batch`](Batcher::next_batch) does, with the places of its groups.
    pub fn next_batch_with_groups(&mut self) -> Option<GroupedBatch<T>> {
        if self.writing >= self.parallel || self.is_empty() {
            return None;
        }
        self.writing += 1;
        // Urgent operations may come without an end, and a group that waits holds places in the queue of requests.
        let late = if self.is_group_late { self.groups.pop_front() } else { None };
        let mut batch = late.unwrap_or_default();
        let mut groups = Vec::new();
        if !batch.is_empty() {
            groups.push(0..batch.len());
        }
        let urgent = self.urgent.len().min(self.largest.saturating_sub(batch.len()));
        batch.extend(self.urgent.drain(..urgent));
        let mut bytes = bytes_of(&batch);
        while let Some(group) = self.groups.front() {
            let of_group = bytes_of(group);
            let fits = batch.len() + group.len() <= self.largest && bytes + of_group <= BATCH_BYTES;
            if !(batch.is_empty() || fits) {
                break;
            }
            bytes += of_group;
            groups.push(batch.len()..batch.len() + group.len());
            batch.extend(self.groups.pop_front().into_iter().flatten());
        }
        self.is_group_late = !self.groups.is_empty();
        while batch.len() < self.largest
            && let Some((op, _)) = self.other.front()
            && (bytes == 0 || bytes + payload_bytes(op) <= BATCH_BYTES)
        {
            bytes += payload_bytes(op);
            batch.extend(self.other.pop_front());
        }
        let (ops, tags) = batch.into_iter().unzip();
        Some((ops, tags, groups))
    }

    /// Records that a batch was written or has failed.
    pub fn done(&mut self) {
        self.writing = self.writing.saturating_sub(1);
    }

    /// Returns how many operations wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.urgent.len() + self.other.len() + self.groups.iter().map(Vec::len).sum::<usize>()
    }

    /// Returns whether no operation waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.other.is_empty() && self.groups.is_empty()
    }

    /// Returns whether no operation waits and the store has none.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.writing == 0
    }
}

fn bytes_of<T>(ops: &[(WriteOp, T)]) -> usize {
    ops.iter().map(|(op, _)| payload_bytes(op)).sum()
}

/// Returns how many bytes of payload an operation brings.
pub fn payload_bytes(op: &WriteOp) -> usize {
    if let WriteOp::Create(create) = op { create.spec.payload.len() } else { 0 }
}

/// Returns whether an operation goes before creates and reschedules.
pub fn is_urgent(op: &WriteOp) -> bool {
    !matches!(op, WriteOp::Create(_) | WriteOp::Reschedule(_))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::spec::{FirstDue, HIGHEST_PAYLOAD_LIMIT, Limits};
    use crate::store::{CancelOp, CreateOp, RescheduleOp, Target};
    use crate::{NewTimer, TimerId};

    #[test]
    fn o2_cancels_go_before_what_makes_work_and_batches_wait_for_the_store() {
        let target = || Target::Id(TimerId::from_u128(1));
        let reschedule =
            || WriteOp::Reschedule(RescheduleOp { target: target(), when: FirstDue::Next, if_version: None });
        let mut batcher = Batcher::new(1, 3);
        for tag in 0..3 {
            batcher.push(reschedule(), tag);
        }
        batcher.push(WriteOp::Cancel(CancelOp { target: target() }), 3);
        assert_eq!(batcher.next_batch().map(|(_, tags)| tags), Some(vec![3, 0, 1]));
        assert!(batcher.next_batch().is_none(), "the store is busy");
        batcher.done();
        assert_eq!(batcher.next_batch().map(|(_, tags)| tags), Some(vec![2]));
        batcher.done();
        assert!(batcher.next_batch().is_none() && batcher.is_idle());
    }

    #[test]
    fn u1_u2_a_group_stays_together_and_in_its_order() {
        let target = || Target::Id(TimerId::from_u128(1));
        let reschedule =
            || WriteOp::Reschedule(RescheduleOp { target: target(), when: FirstDue::Next, if_version: None });
        let cancel = || WriteOp::Cancel(CancelOp { target: target() });
        let mut batcher = Batcher::new(2, 3);
        batcher.push(reschedule(), 0);
        batcher.push_group(vec![(reschedule(), 1), (cancel(), 2)]);
        batcher.push_group(vec![(reschedule(), 3), (cancel(), 4), (reschedule(), 5), (cancel(), 6)]);
        assert_eq!(batcher.len(), 7);
        let (_, tags, groups) = batcher.next_batch_with_groups().unwrap();
        let groups: Vec<(usize, usize)> = groups.into_iter().map(|group| (group.start, group.end)).collect();
        assert_eq!((tags, groups), (vec![1, 2, 0], vec![(0, 2)]));
        assert_eq!(batcher.next_batch().map(|(_, tags)| tags), Some(vec![3, 4, 5, 6]), "even if it is too long");
    }

    #[test]
    fn o2_a_batch_has_a_bounded_number_of_bytes_unless_it_is_one_group() {
        let timer = NewTimer::after("mail", Duration::ZERO).payload(vec![0; HIGHEST_PAYLOAD_LIMIT]);
        let (spec, on_conflict) = timer.check(Limits { payload: HIGHEST_PAYLOAD_LIMIT }).unwrap();
        let spec = Arc::new(spec);
        let create = || WriteOp::Create(CreateOp { id: TimerId::from_u128(1), spec: Arc::clone(&spec), on_conflict });
        let most = BATCH_BYTES / HIGHEST_PAYLOAD_LIMIT;
        let mut batcher = Batcher::new(1, 1_024);
        (0..most + 1).for_each(|_| batcher.push(create(), 0));
        batcher.push_group((0..most + 2).map(|_| (create(), 1)).collect());
        let target = Target::Id(TimerId::from_u128(1));
        batcher.push(WriteOp::Cancel(CancelOp { target }), 2);
        let batches = std::iter::from_fn(|| {
            let (_, tags) = batcher.next_batch()?;
            batcher.done();
            Some([0, 1, 2].map(|of| tags.iter().filter(|tag| **tag == of).count()))
        });
        assert_eq!(batches.collect::<Vec<_>>(), [[most, 0, 1], [0, most + 2, 0], [1, 0, 0]]);
    }

    #[test]
    fn o2_a_group_is_passed_over_once_however_many_cancels_come() {
        let target = || Target::Id(TimerId::from_u128(1));
        let cancel = || WriteOp::Cancel(CancelOp { target: target() });
        let mut batcher = Batcher::new(1, 2);
        batcher.push_group(vec![(cancel(), 10), (cancel(), 11)]);
        let next = |batcher: &mut Batcher<u32>| {
            batcher.push(cancel(), 0);
            batcher.push(cancel(), 1);
            batcher.done();
            batcher.next_batch().map(|(_, tags)| tags)
        };
        assert_eq!(next(&mut batcher), Some(vec![0, 1]));
        assert_eq!(next(&mut batcher), Some(vec![10, 11]), "there are cancels still, and more come");
        assert_eq!(next(&mut batcher), Some(vec![0, 1]));
    }
}
