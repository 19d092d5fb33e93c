//! The four queues of `tourbillon-queue`.

use tourbillon_queue::{Key, Keyed, RawHeap, RawListTree, RawQueue, RawRounds, RawWheel, Time, Timer, TimerQueue};

use super::QueueSystem;

/// Name of a queue in the tables.
pub(crate) trait QueueName {
    const NAME: &'static str;
}

impl<Id> QueueName for RawWheel<Id> {
    const NAME: &'static str = "wheel";
}

impl<Id> QueueName for RawHeap<Id> {
    const NAME: &'static str = "heap";
}

impl<Id> QueueName for RawListTree<Id> {
    const NAME: &'static str = "list_tree";
}

impl<Id> QueueName for RawRounds<Id> {
    const NAME: &'static str = "rounds";
}

impl<R: RawQueue<Timer<u64>> + Default + QueueName> QueueSystem for Keyed<u64, R> {
    const NAME: &'static str = R::NAME;
    type SystemDeadline = Time;
    type SystemHandle = Key;

    fn new(_: usize) -> Self {
        Keyed::new()
    }

    fn deadline(&self, nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[inline(always)]
    fn insert(&mut self, deadline: Time, value: u64) -> Key {
        TimerQueue::insert(self, deadline, value)
    }

    #[inline(always)]
    fn remove(&mut self, key: Key) -> Option<u64> {
        TimerQueue::remove(self, key)
    }

    #[inline(always)]
    fn reschedule(&mut self, key: Key, deadline: Time) -> Key {
        TimerQueue::reschedule(self, key, deadline);
        key
    }

    #[inline(always)]
    fn expire(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        TimerQueue::expire(self, Time::from_nanos(now), |timer| sink(timer.value));
    }
}
