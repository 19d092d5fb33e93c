//! A `DelayQueue` against a list.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tourbillon::delay_queue::{DelayQueue, Key};
use tourbillon::time::Instant;

use super::{HORIZON, Op, Wakes, World};

pub(crate) struct Delays {
    queue: DelayQueue<u64>,
    items: Vec<Item>,
    stale: Vec<Key>,
    /// How often an item was given a deadline.
    settings: u64,
    wakes: Arc<Wakes>,
    waker: Waker,
    /// Polled, and told to wait.
    is_waiting: bool,
}

struct Item {
    key: Key,
    value: u64,
    due: Instant,
    setting: u64,
}

const MOST: usize = 64;

impl Delays {
    pub(crate) fn new(world: &World) -> Delays {
        let _entered = world.engine.enter();
        let wakes = Arc::new(Wakes::default());
        let (queue, waker) = (DelayQueue::new(), Waker::from(wakes.clone()));
        Delays { queue, items: Vec::new(), stale: Vec::new(), settings: 0, wakes, waker, is_waiting: false }
    }

    pub(crate) fn apply(&mut self, world: &World, op: Op) {
        match op.what % 10 {
            0..3 if self.items.len() < MOST => {
                self.settings += 1;
                let key = self.queue.insert(self.settings, op.delay());
                self.items.push(Item {
                    key,
                    value: self.settings,
                    due: self.queue.deadline(&key),
                    setting: self.settings,
                });
                let due = world.now() + op.delay().min(HORIZON);
                assert!(self.queue.deadline(&key) >= due, "it counts from now");
            }
            3 => {
                if let Some(index) = op.pick(self.items.len()) {
                    let item = self.items.swap_remove(index);
                    assert_eq!(self.queue.remove(&item.key).into_inner(), item.value);
                    self.stale.push(item.key);
                }
            }
            4 | 5 => {
                if let Some(index) = op.pick(self.items.len()) {
                    let item = &mut self.items[index];
                    assert_eq!(self.queue.try_reset(&item.key, op.delay()), Some(item.due));
                    self.settings += 1;
                    (item.due, item.setting) = (self.queue.deadline(&item.key), self.settings);
                }
            }
            6 => {
                if let Some(index) = op.pick(self.stale.len()) {
                    let key = self.stale[index];
                    assert!(self.queue.try_deadline(&key).is_none() && self.queue.try_remove(&key).is_none());
                    assert!(self.queue.try_reset(&key, op.delay()).is_none());
                }
            }
            7 if op.pick == 0xff => {
                self.queue.clear();
                self.stale.extend(self.items.drain(..).map(|item| item.key));
            }
            _ => self.poll(world),
        }
        self.stale.truncate(1000);
    }

    fn poll(&mut self, world: &World) {
        self.wakes.take();
        self.is_waiting = false;
        let poll = self.queue.poll_expired(&mut Context::from_waker(&self.waker));
        let first = self.items.iter().enumerate().min_by_key(|(_, item)| (item.due, item.setting));
        let first = first.map(|(index, _)| index);
        match poll {
            Poll::Ready(Some(expired)) => {
                let item = self.items.swap_remove(first.expect("something was in it"));
                assert!(world.has_been(item.due), "early");
                assert_eq!((expired.deadline(), expired.key()), (item.due, item.key));
                assert_eq!(expired.into_inner(), item.value);
                self.stale.push(item.key);
                return;
            }
            Poll::Ready(None) => {
                assert_eq!(self.queue.is_stopped(), !self.items.is_empty());
                assert!(!self.queue.is_stopped() || world.is_closed());
            }
            Poll::Pending => {
                assert!(!world.is_closed());
                self.is_waiting = true;
            }
        }
        assert!(first.is_none_or(|first| self.items[first].due > world.now()), "late");
    }

    pub(crate) fn check(&mut self, world: &World) {
        assert_eq!(self.queue.len(), self.items.len());
        if self.is_waiting {
            let is_due = self.items.is_empty() || self.items.iter().any(|item| world.must_be_over(item.due));
            assert!(!(is_due || world.is_closed()) || self.wakes.count() > 0, "nobody was told");
        }
    }
}
