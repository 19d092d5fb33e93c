//! `DelayQueue`: order, keys, wake-ups.
#![cfg(feature = "test-util")]

mod changes;
mod keys;
mod order;
#[path = "../support/mod.rs"]
mod support;
mod wake_ups;

use std::task::Poll;
use std::time::Duration;

use support::{Paused, Task, ms, years};
use tourbillon::Engine;
use tourbillon::delay_queue::{DelayQueue, Expired, Key};
use tourbillon::time::Instant;

/// A queue in paused time, and the task that polls it.
pub(crate) struct Story<T> {
    pub(crate) time: Paused,
    pub(crate) task: Task,
    pub(crate) start: Instant,
    pub(crate) queue: DelayQueue<T>,
}

impl<T> Story<T> {
    pub(crate) fn new() -> Story<T> {
        let time = Paused::new();
        Story { time, task: Task::new(), start: Instant::now(), queue: DelayQueue::new() }
    }

    pub(crate) fn poll(&mut self) -> Poll<Option<Expired<T>>> {
        self.queue.poll_expired(&mut self.task.cx())
    }

    pub(crate) fn poll_item(&mut self) -> Expired<T> {
        match self.poll() {
            Poll::Ready(Some(expired)) => expired,
            Poll::Ready(None) => panic!("the queue is empty"),
            Poll::Pending => panic!("nothing has expired"),
        }
    }

    pub(crate) fn assert_pending(&mut self) {
        assert!(self.poll().is_pending());
    }

    pub(crate) fn assert_empty(&mut self) {
        assert!(matches!(self.poll(), Poll::Ready(None)));
    }

    pub(crate) fn insert_at(&mut self, value: T, millis: u64) -> Key {
        self.queue.insert_at(value, self.start + ms(millis))
    }

    pub(crate) fn reset_at(&mut self, key: Key, millis: u64) {
        self.queue.reset_at(&key, self.start + ms(millis));
    }
}

#[test]
fn t11_len_counts_the_items_and_capacity_the_room_for_them() {
    let mut story = Story::new();
    assert_eq!(DelayQueue::<u8>::with_capacity(10).capacity(), 10);
    assert_eq!(DelayQueue::<u8>::default().capacity(), 0);
    assert_eq!((story.queue.len(), story.queue.is_empty()), (0, true));
    story.insert_at("hello", 10);
    assert_eq!((story.queue.len(), story.queue.is_empty()), (1, false));
    story.queue.reserve(10);
    assert!(story.queue.capacity() >= 11);
    story.insert_at("again", 20);
    story.queue.compact();
    assert_eq!(story.queue.capacity(), 2);
    story.time.advance(ms(15));
    assert_eq!(story.queue.len(), 2, "two items have expired, and none has come out");
    story.poll_item();
    assert_eq!(story.queue.len(), 1);
}

#[test]
fn t11_p7_a_dropped_queue_drops_its_items_and_leaves_no_timer_armed() {
    let item = std::rc::Rc::new(());
    let mut story = Story::new();
    for n in 0..100 {
        story.insert_at(std::rc::Rc::clone(&item), n);
    }
    story.insert_at(std::rc::Rc::clone(&item), 1000);
    story.time.advance(ms(100));
    while story.poll().is_ready() {}
    assert_eq!(std::rc::Rc::strong_count(&item), 2);
    let Story { time, task, queue, .. } = story;
    drop(queue);
    assert_eq!((std::rc::Rc::strong_count(&item), task.wakers_held()), (1, 0));
    time.advance(ms(1000));
    assert_eq!(task.wakes(), 0);
}

#[test]
fn d32_on_a_stopped_engine_a_queue_returns_the_due_items_and_then_none_and_keeps_the_rest() {
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let mut queue = DelayQueue::new();
    let far = queue.insert("far", years(1));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    engine.shutdown();
    assert_eq!(task.wakes(), 1);

    let due = queue.insert("due", Duration::ZERO);
    match queue.poll_expired(&mut task.cx()) {
        Poll::Ready(Some(expired)) => assert_eq!(expired.key(), due),
        other => panic!("{other:?}"),
    }
    for _ in 0..3 {
        assert!(
            matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)),
            "the poll neither hangs nor returns an early item"
        );
        assert!(queue.is_stopped());
    }
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.remove(&far).into_inner(), "far");
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    assert!(!queue.is_stopped(), "the queue is only empty");

    queue.insert("never", Duration::MAX);
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    assert!(queue.is_stopped());
}

#[test]
fn d32_the_end_of_the_engine_wakes_a_task_that_waits_for_an_item_that_never_expires() {
    let engine = Engine::builder().build().unwrap();
    let _entered = engine.enter();
    let task = Task::new();
    let mut queue = DelayQueue::new();
    queue.insert("never", Duration::MAX);
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    engine.shutdown();
    assert_eq!(task.wakes(), 1);
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
}

#[test]
fn t11_a_queue_can_be_sent_shared_and_moved_as_its_items_can() {
    fn is_send_sync_unpin<T: Send + Sync + Unpin>() {}
    is_send_sync_unpin::<DelayQueue<u8>>();
    let mut story = Story::new();
    story.insert_at("foo", 5);
    assert!(format!("{:?}", story.queue).contains("DelayQueue"));
    story.assert_pending();
    let mut moved = Box::new(story.queue);
    story.time.advance(ms(5));
    assert_eq!(story.task.wakes(), 1);
    assert!(moved.poll_expired(&mut story.task.cx()).is_ready());
}

#[cfg(feature = "futures")]
#[test]
#[cfg_attr(miri, ignore = "virtual time moves by itself only where the kernel reports which threads wait")]
fn t11_a_queue_is_a_stream_of_expired_items() {
    use futures_lite::StreamExt;
    let mut story = Story::new();
    for at in [3, 1, 2] {
        story.insert_at(at, at);
    }
    story.time.advance(ms(3));
    let items: Vec<u64> = futures_lite::future::block_on(story.queue.map(Expired::into_inner).collect());
    assert_eq!(items, [1, 2, 3]);
}
