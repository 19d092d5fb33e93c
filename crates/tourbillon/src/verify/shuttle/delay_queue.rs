//! A `DelayQueue` that threads share: one thread takes expired items, others insert, reset and remove items.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use shuttle::sync::Mutex;
use shuttle::thread::{self, Thread};
use tourbillon_queue::Time;

use super::checked_engine::{CheckedEngine, micros, one_of};
use super::explore;
use crate::delay_queue::Expired;
use crate::instant::Instant;
use crate::sync::under_shuttle::time;
use crate::{DelayQueue, Engine};

/// The longest time until an item is due, in microseconds.
const MOST: u64 = 20_000;

/// A queue of flags, each of which is set when its item expires.
struct SharedQueue {
    queue: Mutex<DelayQueue<Arc<AtomicBool>>>,
    /// How many items were inserted, expired and removed. (In atomics that shuttle does not see.)
    inserted: AtomicU64,
    expired: AtomicU64,
    removed: AtomicU64,
    /// Whether no thread inserts any more.
    is_complete: AtomicBool,
    /// Whether no thread takes items any more.
    is_left: AtomicBool,
}

/// The thread that takes expired items.
struct Taker(Thread);

impl Wake for Taker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl SharedQueue {
    fn on(engine: &Engine) -> SharedQueue {
        let _entered = engine.enter();
        let [inserted, expired, removed] = std::array::from_fn(|_| AtomicU64::new(0));
        let (is_complete, is_left) = (AtomicBool::new(false), AtomicBool::new(false));
        SharedQueue { queue: Mutex::new(DelayQueue::new()), inserted, expired, removed, is_complete, is_left }
    }

    /// Takes expired items until none is left to come, or the engine was shut down.
    fn take(&self, checked: &CheckedEngine) {
        let waker = Waker::from(Arc::new(Taker(thread::current())));
        loop {
            let mut queue = self.queue.lock().unwrap();
            let (poll, is_over) = (queue.poll_expired(&mut Context::from_waker(&waker)), self.is_over(&queue));
            let due = queue.peek().map_or(Time::NEVER, |key| due(checked, queue.deadline(&key)));
            drop(queue);
            match poll {
                Poll::Ready(Some(expired)) => self.has_expired(checked, expired),
                Poll::Ready(None) if is_over => break,
                // The thread that inserts wakes this thread.
                Poll::Ready(None) => thread::park(),
                Poll::Pending => {
                    let _waits = checked.waits_until(due);
                    thread::park();
                }
            }
        }
        self.is_left.store(true, Ordering::Relaxed);
        checked.changed();
    }

    fn is_over(&self, queue: &DelayQueue<Arc<AtomicBool>>) -> bool {
        queue.is_stopped() || queue.is_empty() && self.is_complete.load(Ordering::Relaxed)
    }

    fn has_expired(&self, checked: &CheckedEngine, expired: Expired<Arc<AtomicBool>>) {
        let due = due(checked, expired.deadline());
        assert!(time() >= due, "expired at {:?}, due at {due:?}", time());
        assert!(!expired.get_ref().swap(true, Ordering::Relaxed), "an item that expired twice");
        self.expired.fetch_add(1, Ordering::Relaxed);
        checked.changed();
    }

    fn use_it(&self, checked: &CheckedEngine, may_end: bool) {
        let mut keys = Vec::new();
        for _ in 0..6 {
            let (after, what) = (micros(0, MOST), one_of(10));
            match (what, keys.last()) {
                (0..4, _) | (_, None) => keys.push(self.queue.lock().unwrap().insert(self.item(), after)),
                (4, Some(key)) => _ = self.queue.lock().unwrap().try_reset(key, after),
                (5, Some(key)) => {
                    let removed = self.queue.lock().unwrap().try_remove(key);
                    self.removed.fetch_add(u64::from(removed.is_some()), Ordering::Relaxed);
                    keys.pop();
                }
                (6, _) if may_end => checked.engine.shutdown(),
                _ => {
                    let item = self.item();
                    self.queue.lock().unwrap().insert(Arc::clone(&item), after);
                    checked.wait_for(after, || item.load(Ordering::Relaxed) || self.is_left.load(Ordering::Relaxed));
                }
            }
        }
    }

    fn item(&self) -> Arc<AtomicBool> {
        self.inserted.fetch_add(1, Ordering::Relaxed);
        Arc::default()
    }

    /// Inserts the last item, which wakes the thread that takes.
    fn complete(&self) {
        let item = self.item();
        let mut queue = self.queue.lock().unwrap();
        self.is_complete.store(true, Ordering::Relaxed);
        queue.insert(item, micros(0, MOST));
    }

    #[track_caller]
    fn check(&self) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let left = self.queue.lock().unwrap().len() as u64;
        assert_eq!(get(&self.inserted), get(&self.expired) + get(&self.removed) + left, "items, {left} of them left");
    }
}

fn due(checked: &CheckedEngine, deadline: Instant) -> Time {
    checked.engine.clock().time_of(deadline.into_std())
}

fn share(checked: CheckedEngine, may_end: bool) {
    let (shared, users) = (Arc::new(SharedQueue::on(&checked.engine)), Arc::new(AtomicU64::new(2)));
    let taken = Arc::clone(&shared);
    checked.spawn(move |checked| taken.take(checked));
    for _ in 0..2 {
        let (shared, users) = (Arc::clone(&shared), Arc::clone(&users));
        checked.spawn(move |checked| {
            shared.use_it(checked, may_end);
            if users.fetch_sub(1, Ordering::Relaxed) == 1 {
                shared.complete();
            }
        });
    }
    checked.run();
    shared.check();
    drop(shared);
    checked.engine.shutdown();
    checked.check_outcomes();
}

#[test]
fn p1_p2_t11_items_of_a_delay_queue_that_threads_share_come_out_once_and_in_time() {
    explore(|| share(CheckedEngine::driven(Engine::builder().shards(1 + one_of(3))), false));
}

#[test]
fn p2_t11_items_of_a_delay_queue_are_all_there_when_its_engine_is_shut_down() {
    explore(|| share(CheckedEngine::turned(Engine::builder(), 2), true));
}
