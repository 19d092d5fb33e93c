//! Batches of operations: what has come while the store wrote the batches before.

use std::collections::VecDeque;

use crate::store::WriteOp;

/// Operations that wait for the store, each with a tag that its answer is for.
///
/// There is no time to wait for more: while the store writes, operations gather, so batches are as large as the load makes them. Cancels and
/// what ends deliveries go before creates and reschedules (O2), because they make room.
#[derive(Debug)]
pub struct Batcher<T> {
    urgent: VecDeque<(WriteOp, T)>,
    other: VecDeque<(WriteOp, T)>,
    /// How many batches the store has.
    writing: usize,
    parallel: usize,
    largest: usize,
}

impl<T> Batcher<T> {
    /// Returns an empty batcher for a store that writes `parallel` batches at the same time, each of at most `largest` operations.
    #[must_use]
    pub fn new(parallel: usize, largest: usize) -> Batcher<T> {
        let (parallel, largest) = (parallel.max(1), largest.max(1));
        Batcher { urgent: VecDeque::new(), other: VecDeque::new(), writing: 0, parallel, largest }
    }

    /// Adds an operation.
    pub fn push(&mut self, op: WriteOp, tag: T) {
        let is_urgent = !matches!(op, WriteOp::Create(_) | WriteOp::Reschedule(_));
        let queue = if is_urgent { &mut self.urgent } else { &mut self.other };
        queue.push_back((op, tag));
    }

    /// Returns the next batch, if there is one and the store can write it now. [`done`](Batcher::done) is called when it is written.
    pub fn next_batch(&mut self) -> Option<(Vec<WriteOp>, Vec<T>)> {
        if self.writing >= self.parallel || self.is_empty() {
            return None;
        }
        self.writing += 1;
        let urgent = self.urgent.len().min(self.largest);
        let other = self.other.len().min(self.largest - urgent);
        Some(self.urgent.drain(..urgent).chain(self.other.drain(..other)).unzip())
    }

    /// Records that a batch was written or has failed.
    pub fn done(&mut self) {
        self.writing = self.writing.saturating_sub(1);
    }

    /// Returns how many operations wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.urgent.len() + self.other.len()
    }

    /// Returns whether no operation waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether no operation waits and the store has none.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.writing == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TimerId;
    use crate::spec::FirstDue;
    use crate::store::{CancelOp, RescheduleOp, Target};

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
}
