//! The surface `DelayQueue`: items are inserted, moved and removed, and come out once when they have expired.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::delay_queue::{DelayQueue, Key};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::promise::Promise;
use super::tally::SurfaceTally;
use crate::clock::{monotonic, nanos};

/// Number of items at a time.
const ITEMS: usize = 1_000;
const LONGEST: Duration = Duration::from_millis(200);

/// An item in the queue.
struct PendingItem {
    key: Key,
    due: u64,
}

struct ChannelWaker(Sender<()>);

impl Wake for ChannelWaker {
    fn wake(self: Arc<Self>) {
        // An error means that the receiver is gone.
        let _ = self.0.send(());
    }
}

struct QueueUser {
    queue: DelayQueue<usize>,
    items: Vec<Option<PendingItem>>,
    random: Random,
    tally: SurfaceTally,
}

/// Uses a delay queue on `engine` until the part of the run under load ends, and returns what it found.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let _entered = engine.enter();
    let (sender, receiver) = channel();
    let waker = Waker::from(Arc::new(ChannelWaker(sender)));
    let mut user = QueueUser {
        queue: DelayQueue::new(),
        items: (0..ITEMS).map(|_| None).collect(),
        random: check.random("delay queue", 0),
        tally: SurfaceTally::new("delay queue"),
    };
    (0..ITEMS).for_each(|item| user.insert(item));
    while check.is_under_load() {
        while let Poll::Ready(Some(expired)) = user.queue.poll_expired(&mut Context::from_waker(&waker)) {
            user.check_expired(*expired.get_ref());
            user.disturb();
            if !check.is_under_load() {
                break;
            }
        }
        let _ = receiver.recv_timeout(Duration::from_millis(5));
    }
    user.finish()
}

impl QueueUser {
    fn insert(&mut self, item: usize) {
        let duration = self.random.duration(LONGEST);
        let due = monotonic() + nanos(duration);
        let key = self.queue.insert(item, duration);
        self.items[item] = Some(PendingItem { key, due });
        self.tally.armed += 1;
    }

    /// Checks an item that came out of the queue.
    fn check_expired(&mut self, item: usize) {
        let seen = monotonic();
        match self.items[item].take() {
            Some(PendingItem { due, .. }) => {
                self.tally.check(due, seen);
                self.tally.fired += 1;
            }
            None => self.tally.complain(Promise::P2, "delay queue: an item came out that was no longer in the queue"),
        }
        self.insert(item);
    }

    /// Removes or moves another item.
    fn disturb(&mut self) {
        let other = self.random.below(ITEMS as u64) as usize;
        let Some(PendingItem { key, due }) = &mut self.items[other] else { return };
        match self.random.below(8) {
            0 => {
                // As far as we know the item is in the queue, so its key must be valid.
                match self.queue.try_remove(key) {
                    Some(_) => self.tally.cancelled += 1,
                    None => self.tally.complain(Promise::P2, "delay queue: a queued item cannot be removed"),
                }
                self.items[other] = None;
                self.insert(other);
            }
            1 => {
                let duration = self.random.duration(LONGEST);
                *due = monotonic() + nanos(duration);
                if self.queue.try_reset(key, duration).is_none() {
                    self.tally.complain(Promise::P2, "delay queue: a queued item cannot be moved");
                }
            }
            _ => {}
        }
    }

    fn finish(mut self) -> Findings {
        self.tally.cancelled += self.queue.len() as u64;
        self.queue.clear();
        self.tally.balance();
        Findings { tallies: vec![self.tally], ..Findings::default() }
    }
}
