//! A standard `BTreeMap` by deadline and sequence number: exact order.

use std::collections::BTreeMap;

use super::QueueSystem;

#[derive(Default)]
pub(super) struct Tree {
    timers: BTreeMap<(u64, u64), u64>,
    sequence: u64,
}

impl QueueSystem for Tree {
    const NAME: &'static str = "btreemap";
    type SystemDeadline = u64;
    type SystemHandle = (u64, u64);

    fn new(_: usize) -> Tree {
        Tree::default()
    }

    fn deadline(&self, nanos: u64) -> u64 {
        nanos
    }

    #[inline(always)]
    fn insert(&mut self, deadline: u64, value: u64) -> (u64, u64) {
        let key = (deadline, self.sequence);
        self.sequence += 1;
        self.timers.insert(key, value);
        key
    }

    #[inline(always)]
    fn remove(&mut self, key: (u64, u64)) -> Option<u64> {
        self.timers.remove(&key)
    }

    #[inline(always)]
    fn reschedule(&mut self, key: (u64, u64), deadline: u64) -> (u64, u64) {
        match self.timers.remove(&key) {
            Some(value) => self.insert(deadline, value),
            None => key,
        }
    }

    #[inline(always)]
    fn expire(&mut self, now: u64, mut sink: impl FnMut(u64)) {
        while let Some(first) = self.timers.first_entry() {
            if first.key().0 > now {
                break;
            }
            sink(first.remove());
        }
    }
}
