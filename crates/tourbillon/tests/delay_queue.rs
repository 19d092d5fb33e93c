//! `DelayQueue`: order, keys, wake-ups.
#![cfg(feature = "test-util")]

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use support::{Paused, Task, manual, ms, waker, years};
use tourbillon::Engine;
use tourbillon::delay_queue::{DelayQueue, Expired, Key};
use tourbillon::time::Instant;

/// A queue, the time that it lives in, and the task that polls it.
struct Story<T> {
    time: Paused,
    task: Task,
    start: Instant,
    queue: DelayQueue<T>,
}

impl<T> Story<T> {
    fn new() -> Story<T> {
        let time = Paused::new();
        Story { time, task: Task::new(), start: Instant::now(), queue: DelayQueue::new() }
    }

    fn poll(&mut self) -> Poll<Option<Expired<T>>> {
        self.queue.poll_expired(&mut self.task.cx())
    }

    fn poll_item(&mut self) -> Expired<T> {
        match self.poll() {
            Poll::Ready(Some(expired)) => expired,
            Poll::Ready(None) => panic!("the queue is empty"),
            Poll::Pending => panic!("nothing has expired"),
        }
    }

    fn assert_pending(&mut self) {
        assert!(self.poll().is_pending());
    }

    fn assert_empty(&mut self) {
        assert!(matches!(self.poll(), Poll::Ready(None)));
    }

    fn insert_at(&mut self, value: T, millis: u64) -> Key {
        self.queue.insert_at(value, self.start + ms(millis))
    }

    fn reset_at(&mut self, key: Key, millis: u64) {
        self.queue.reset_at(&key, self.start + ms(millis));
    }
}

#[test]
fn t11_an_item_that_is_due_at_once_comes_out_at_once() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 0);
    let expired = story.poll_item();
    assert_eq!((*expired.get_ref(), expired.key(), expired.deadline()), ("foo", key, story.start));
    story.assert_empty();
}

#[test]
fn t11_p3_items_of_one_deadline_come_in_the_order_of_insertion() {
    let mut story = Story::new();
    for number in 0..1000 {
        story.insert_at(number, 5);
    }
    story.time.advance(ms(5));
    for number in 0..1000 {
        assert_eq!(story.poll_item().into_inner(), number);
    }
    story.assert_empty();
}

#[test]
fn t11_p1_an_item_comes_out_at_its_deadline_and_not_a_nanosecond_before() {
    for duration in [Duration::from_nanos(1), ms(1), ms(5), ms(64), ms(4096), years(10)] {
        let mut story = Story::new();
        story.queue.insert("foo", duration);
        story.assert_pending();
        story.time.advance(duration - Duration::from_nanos(1));
        assert_eq!(story.task.wakes(), 0);
        story.assert_pending();
        story.time.advance(Duration::from_nanos(1));
        assert_eq!(story.task.wakes(), 1);
        let expired = story.poll_item();
        assert_eq!(expired.deadline(), story.start + duration);
        story.assert_empty();
    }
}

#[test]
fn t11_items_come_in_the_order_of_their_deadlines() {
    let mut story = Story::new();
    let long = 262_144 + 9 * 4096;
    let delays = [1000, 2, 234, long, 60, 10];
    for delay in delays {
        story.insert_at(delay, delay);
    }
    story.assert_pending();
    let mut sorted = delays;
    sorted.sort_unstable();
    for delay in sorted {
        story.time.advance_to(story.start + ms(delay) - ms(1));
        story.assert_pending();
        assert_eq!(story.task.wakes(), 0);
        story.time.advance(ms(1));
        assert_eq!(story.task.wakes(), 1);
        assert_eq!(story.poll_item().into_inner(), delay);
    }
    story.assert_empty();
}

#[test]
fn t11_the_past_comes_first_and_in_order() {
    let mut story = Story::new();
    story.time.advance(ms(100));
    story.insert_at("later", 50);
    story.insert_at("earlier", 20);
    let before_it_was_made = story.start - ms(1000);
    story.queue.insert_at("long ago", before_it_was_made);
    story.insert_at("now", 100);
    let order: Vec<_> = (0..4).map(|_| story.poll_item().into_inner()).collect();
    assert_eq!(order, ["long ago", "earlier", "later", "now"]);
}

#[test]
fn t11_a_removed_item_never_comes_out_and_is_given_back() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 5);
    story.assert_pending();
    let removed = story.queue.remove(&key);
    assert_eq!((*removed.get_ref(), removed.deadline(), removed.key()), ("foo", story.start + ms(5), key));
    story.time.advance(ms(10));
    story.assert_empty();
}

#[test]
fn t11_an_item_that_has_expired_but_not_come_out_can_still_be_removed() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 5);
    story.time.advance(ms(10));
    assert_eq!(story.queue.remove(&key).into_inner(), "foo");
    story.assert_empty();
}

#[test]
fn t11_removing_the_last_item_wakes_the_pending_task() {
    let mut story = Story::new();
    let (one, two) = (story.insert_at(1, 1000), story.insert_at(2, 2000));
    story.assert_pending();
    story.queue.remove(&two);
    assert_eq!(story.task.wakes(), 0, "there is still something to wait for");
    story.queue.remove(&one);
    assert_eq!((story.task.wakes(), story.task.wakers_held()), (1, 0), "the timer is cancelled at once");
    story.assert_empty();
    story.time.advance(ms(5000));
    assert_eq!(story.task.wakes(), 0, "nothing is armed for what is gone");
}

#[test]
fn t11_clearing_wakes_the_pending_task_and_makes_keys_stale() {
    let mut story = Story::new();
    let key = story.insert_at(1, 1000);
    story.queue.insert(2, Duration::MAX);
    story.assert_pending();
    story.queue.clear();
    assert_eq!(story.task.wakes(), 1);
    assert!(story.queue.is_empty());
    assert!(story.queue.try_remove(&key).is_none());
    story.assert_empty();
    story.queue.clear();
    assert_eq!(story.task.wakes(), 0, "it was empty");
}

#[test]
fn t11_after_empty_the_queue_can_be_resumed_and_an_insert_wakes_the_task() {
    let mut story = Story::new();
    story.assert_empty();
    story.insert_at("foo", 10);
    assert_eq!(story.task.wakes(), 1);
    story.assert_pending();
    story.time.advance(ms(10));
    assert_eq!(story.poll_item().into_inner(), "foo");
    story.assert_empty();
    story.insert_at("bar", 10);
    assert_eq!(story.poll_item().into_inner(), "bar");
}

#[test]
fn t11_inserting_an_earlier_item_wakes_a_pending_poll() {
    let mut story = Story::new();
    story.insert_at("one", 200);
    story.assert_pending();
    story.insert_at("three", 300);
    story.insert_at("as early", 200);
    assert_eq!(story.task.wakes(), 0, "a later item, or an equal one, wakes nobody");
    story.insert_at("two", 100);
    assert_eq!(story.task.wakes(), 1);
    story.assert_pending();
    story.time.advance(ms(99));
    assert_eq!(story.task.wakes(), 0);
    story.time.advance(ms(1));
    assert_eq!(story.task.wakes(), 1);
    assert_eq!(story.poll_item().into_inner(), "two");
}

#[test]
fn t11_inserting_into_the_past_wakes_a_pending_poll_at_once() {
    let mut story = Story::new();
    story.insert_at("foo", 200);
    story.assert_pending();
    story.time.advance(ms(80));
    assert_eq!(story.task.wakes(), 0);
    story.insert_at("bar", 40);
    assert_eq!(story.task.wakes(), 1);
    assert_eq!(story.poll_item().into_inner(), "bar");
    story.assert_pending();
}

#[test]
fn t11_a_reset_item_comes_out_at_its_new_time_only() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 5);
    story.assert_pending();
    story.time.advance(ms(4));
    story.reset_at(key, 10);
    assert_eq!(story.queue.deadline(&key), story.start + ms(10));
    story.time.advance(ms(5));
    story.assert_pending();
    story.time.advance(ms(1));
    assert!(story.task.wakes() >= 1);
    assert_eq!(story.poll_item().into_inner(), "foo");
    story.assert_empty();
}

#[test]
fn t11_a_reset_to_an_earlier_time_wakes_a_pending_poll() {
    for first in [true, false] {
        let mut story = Story::new();
        let (one, two) = (story.insert_at("one", 200), story.insert_at("two", 250));
        story.assert_pending();
        story.reset_at(if first { one } else { two }, 100);
        assert_eq!(story.task.wakes(), 1);
        story.assert_pending();
        story.time.advance(ms(100));
        assert_eq!(story.task.wakes(), 1);
        assert_eq!(story.poll_item().into_inner(), if first { "one" } else { "two" });
    }
}

#[test]
fn t11_a_reset_into_the_past_wakes_a_pending_poll_at_once() {
    let mut story = Story::new();
    story.time.advance(ms(500));
    let key = story.queue.insert("foo", ms(10_000));
    story.assert_pending();
    story.reset_at(key, 400);
    assert_eq!(story.task.wakes(), 1);
    assert_eq!(story.poll_item().into_inner(), "foo");
    story.assert_empty();
}

#[test]
fn t11_when_the_first_item_is_reset_to_later_the_second_wakes() {
    let mut story = Story::new();
    let one = story.insert_at("one", 200);
    story.insert_at("two", 250);
    story.assert_pending();
    story.reset_at(one, 300);
    for (at, item) in [(250, "two"), (300, "one")] {
        story.time.advance_to(story.start + ms(at - 1));
        story.task.wakes();
        story.assert_pending();
        story.time.advance(ms(1));
        assert_eq!(story.task.wakes(), 1);
        assert_eq!(story.poll_item().into_inner(), item);
    }
    story.assert_empty();
}

#[test]
fn t11_resets_again_and_again_leave_only_the_last() {
    let mut story = Story::new();
    let (one, two) = (story.insert_at("one", 200), story.insert_at("two", 250));
    story.assert_pending();
    story.reset_at(one, 300);
    story.reset_at(two, 350);
    story.reset_at(one, 400);
    story.time.advance(ms(310));
    story.assert_pending();
    story.time.advance(ms(50));
    assert_eq!(story.poll_item().into_inner(), "two");
    story.assert_pending();
    story.time.advance(ms(50));
    assert_eq!(story.poll_item().into_inner(), "one");
    story.assert_empty();
}

#[test]
fn t11_p3_a_reset_to_the_same_deadline_goes_to_the_end_of_the_line() {
    let mut story = Story::new();
    let one = story.insert_at("one", 10);
    story.insert_at("two", 10);
    story.reset_at(one, 10);
    story.time.advance(ms(10));
    assert_eq!(story.poll_item().into_inner(), "two");
    assert_eq!(story.poll_item().into_inner(), "one");
}

#[test]
fn t11_an_item_that_has_expired_but_not_come_out_can_be_reset() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 0);
    for _ in 0..3 {
        story.time.advance(ms(10));
        story.queue.reset(&key, ms(20));
        story.assert_pending();
    }
    story.time.advance(ms(20));
    assert_eq!(story.poll_item().into_inner(), "foo");
}

#[test]
fn t11_peek_names_the_item_that_comes_out_next() {
    let mut story = Story::new();
    assert_eq!(story.queue.peek(), None);
    let never = story.queue.insert("never", Duration::MAX);
    assert_eq!(story.queue.peek(), None);
    let keys = [(10, "baz"), (5, "foo"), (0, "bar"), (5, "foo too")].map(|(at, item)| story.insert_at(item, at));
    for (key, item) in [(keys[2], "bar"), (keys[1], "foo"), (keys[3], "foo too"), (keys[0], "baz")] {
        assert_eq!(story.queue.peek(), Some(key));
        story.time.advance(ms(10));
        assert_eq!(story.queue.peek(), Some(key));
        assert_eq!(story.poll_item().into_inner(), item);
    }
    assert_eq!(story.queue.peek(), None);
    assert_eq!(story.queue.remove(&never).into_inner(), "never");
}

#[test]
fn d38_a_stale_key_is_refused_for_ever() {
    let mut story = Story::new();
    let mut stale = Vec::new();
    for round in 0..if cfg!(miri) { 30 } else { 1000 } {
        let (expires, removed) = (story.queue.insert(round, ms(1)), story.queue.insert(round, ms(5)));
        for key in &stale {
            assert_ne!((*key, *key), (expires, removed));
        }
        story.queue.remove(&removed);
        story.time.advance(ms(1));
        assert_eq!(story.poll_item().key(), expires);
        stale.extend([expires, removed]);
    }
    let live = story.queue.insert(0, ms(100));
    let deadline = story.queue.deadline(&live);
    for key in &stale {
        assert!(story.queue.try_remove(key).is_none());
        assert_eq!(story.queue.try_reset(key, ms(1)), None);
        assert_eq!(story.queue.try_reset_at(key, story.start), None);
        assert_eq!(story.queue.try_deadline(key), None);
    }
    assert_eq!((story.queue.len(), story.queue.deadline(&live)), (1, deadline));
}

#[test]
fn d38_stale_keys_stay_stale_after_clear_and_compact() {
    let mut story = Story::new();
    let old = story.queue.insert("old", ms(10));
    story.queue.clear();
    story.queue.compact();
    let new = story.queue.insert("new", ms(10));
    assert_ne!(old, new);
    assert!(story.queue.try_remove(&old).is_none());
    let keep = story.queue.insert("keep", ms(20));
    story.queue.remove(&new);
    story.queue.compact();
    story.queue.shrink_to_fit();
    assert!(story.queue.try_remove(&new).is_none());
    assert_eq!(story.queue.remove(&keep).into_inner(), "keep");
}

#[test]
fn d38_the_forms_that_panic_say_that_the_key_is_unknown() {
    let mut story = Story::new();
    let key = story.insert_at(1, 0);
    story.queue.remove(&key);
    let start = story.start;
    let uses: [fn(&mut DelayQueue<i32>, &Key, Instant); 4] = [
        |queue, key, _| _ = queue.remove(key),
        |queue, key, _| queue.reset(key, ms(1)),
        |queue, key, start| queue.reset_at(key, start),
        |queue, key, _| _ = queue.deadline(key),
    ];
    for used in uses {
        let payload = catch_unwind(AssertUnwindSafe(|| used(&mut story.queue, &key, start))).expect_err("no panic");
        let words = payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        assert!(words.is_some_and(|words| words.contains("unknown key")), "{words:?}");
    }
    story.assert_empty();
}

#[test]
fn d38_the_try_forms_do_the_same_as_the_others_with_a_good_key() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 10);
    assert_eq!(story.queue.try_deadline(&key), Some(story.start + ms(10)));
    assert_eq!(story.queue.try_reset(&key, ms(20)), Some(story.start + ms(10)));
    assert_eq!(story.queue.try_reset_at(&key, story.start + ms(30)), Some(story.start + ms(20)));
    assert_eq!(story.queue.try_remove(&key).unwrap().deadline(), story.start + ms(30));
}

#[test]
fn d37_after_a_hundred_years_everything_is_as_on_the_first_day() {
    let mut story = Story::new();
    let decade = years(10);
    for _ in 0..10 {
        story.time.advance(decade);
        let now = Instant::now();
        let short = story.queue.insert("short", ms(1));
        let long = story.queue.insert("long", decade - ms(1));
        story.assert_pending();
        story.time.advance(ms(1));
        let expired = story.poll_item();
        assert_eq!((expired.key(), expired.deadline()), (short, now + ms(1)));
        story.assert_pending();
        story.task.wakes();
        story.time.advance(decade - ms(3));
        story.assert_pending();
        story.time.advance(ms(1));
        assert!(story.task.wakes() >= 1);
        assert_eq!(story.poll_item().key(), long);
        story.assert_empty();
    }
}

#[test]
fn p5_d31_an_item_with_the_longest_duration_never_comes_out_and_hides_no_other() {
    let mut story = Story::new();
    let never = story.queue.insert("never", Duration::MAX);
    story.assert_pending();
    let soon = story.queue.insert("soon", ms(10));
    assert_eq!(story.task.wakes(), 1);
    story.assert_pending();
    story.time.advance(ms(10));
    assert_eq!(story.poll_item().key(), soon);
    story.time.advance(years(100));
    story.assert_pending();
    assert_eq!((story.queue.len(), story.queue.peek()), (1, None));
    assert!(story.queue.deadline(&never) > story.start + years(500));
    story.queue.reset(&never, ms(1));
    story.assert_pending();
    story.time.advance(ms(1));
    assert_eq!(story.poll_item().into_inner(), "never");
    story.assert_empty();
}

#[test]
fn t11_next_is_cancel_safe() {
    let mut story = Story::new();
    story.insert_at("foo", 10);
    assert!(story.task.poll(pin!(story.queue.next())).is_pending());
    assert!(story.task.poll(pin!(story.queue.next())).is_pending());
    story.time.advance(ms(10));
    drop(story.queue.next());
    assert_eq!(story.queue.len(), 1);
    let Poll::Ready(Some(mut foo)) = story.task.poll(pin!(story.queue.next())) else { panic!("an item is lost") };
    *foo.get_mut() = "changed";
    assert_eq!(foo.into_inner(), "changed");
}

#[test]
fn t11_the_task_that_polled_last_is_the_one_that_is_woken() {
    let mut story = Story::new();
    let other = Task::new();
    let key = story.insert_at("foo", 10);
    assert!(story.queue.poll_expired(&mut other.cx()).is_pending());
    story.assert_pending();
    story.reset_at(key, 5);
    assert_eq!((other.wakes(), story.task.wakes()), (0, 1));
    assert!(story.queue.poll_expired(&mut other.cx()).is_pending());
    story.time.advance(ms(5));
    assert_eq!((other.wakes(), story.task.wakes()), (1, 0));
}

#[test]
fn t11_len_and_capacity_say_what_is_there_and_what_is_expected() {
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
    assert_eq!(story.queue.len(), 2, "expired, and not come out");
    story.poll_item();
    assert_eq!(story.queue.len(), 1);
}

#[test]
fn t11_p7_a_dropped_queue_drops_its_items_and_leaves_nothing_armed() {
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
fn t11_ten_thousand_items_come_out_in_order_each_time_alike() {
    let count = if cfg!(miri) { 300 } else { 10_000 };
    let run = || {
        let mut story = Story::new();
        let mut number = 1_u64;
        for n in 0..count {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = story.queue.insert(n, Duration::from_nanos(number >> 30));
            if number.is_multiple_of(3) {
                story.queue.reset(&key, Duration::from_nanos(number >> 31));
            }
        }
        let mut order = Vec::new();
        let mut last = story.start;
        while !story.queue.is_empty() {
            match story.poll() {
                Poll::Ready(Some(expired)) => {
                    assert!(expired.deadline() >= last && expired.deadline() <= Instant::now());
                    last = expired.deadline();
                    order.push(expired.into_inner());
                }
                _ => story.time.advance(ms(13)),
            }
        }
        order
    };
    let first = run();
    assert_eq!(first.len(), count);
    assert!(first == run());
}

#[test]
fn d32_a_stopped_engine_gives_what_is_due_and_then_none_and_keeps_the_rest() {
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
        assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)), "neither a hang nor an item early");
        assert!(queue.is_stopped());
    }
    assert_eq!(queue.len(), 1);
    assert_eq!(queue.remove(&far).into_inner(), "far");
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    assert!(!queue.is_stopped(), "it is just empty");

    queue.insert("never", Duration::MAX);
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    assert!(queue.is_stopped());
}

#[test]
fn d32_the_end_of_the_engine_wakes_who_waits_for_what_never_expires() {
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
#[cfg_attr(miri, ignore = "virtual time moves by itself only where the kernel says who waits")]
fn t11_a_queue_is_a_stream_of_what_has_expired() {
    use futures_lite::StreamExt;
    let mut story = Story::new();
    for at in [3, 1, 2] {
        story.insert_at(at, at);
    }
    story.time.advance(ms(3));
    let items: Vec<u64> = futures_lite::future::block_on(story.queue.map(Expired::into_inner).collect());
    assert_eq!(items, [1, 2, 3]);
}

#[test]
fn p1_an_item_is_not_early_on_a_clock_that_was_set_back_to_before_the_queue_was_made() {
    let engine = support::manual();
    let _entered = engine.enter();
    let before = engine.clock().now();
    engine.clock().advance(ms(50));
    let (mut queue, task) = (DelayQueue::new(), Task::new());
    engine.clock().set(before);
    let key = queue.insert("foo", ms(20));
    assert_eq!(queue.deadline(&key), Instant::now() + ms(20));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    engine.advance(ms(19));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    assert_eq!((engine.advance(ms(1)), task.wakes()), (1, 1));
    assert!(queue.poll_expired(&mut task.cx()).is_ready());
}

#[test]
fn p1_an_item_of_the_same_deadline_waits_for_it_after_the_clock_was_set_back() {
    let engine = support::manual();
    let _entered = engine.enter();
    let (mut queue, task) = (DelayQueue::new(), Task::new());
    queue.insert("foo", ms(10));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    let start = engine.clock().now();
    // It is time; but before anybody asks, it is not.
    assert_eq!(engine.advance(ms(10)), 1);
    engine.clock().set(start);
    queue.insert("bar", ms(10));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    for item in ["foo", "bar"] {
        let Poll::Ready(Some(expired)) = queue.poll_expired(&mut task.cx()) else { panic!("it is time") };
        assert_eq!(expired.into_inner(), item);
    }
}

#[test]
fn p6_a_waker_that_panics_does_not_harm_who_changes_the_queue() {
    let engine = manual();
    let _entered = engine.enter();
    let mut queue = DelayQueue::new();
    // Not by the macro: the hook would print it.
    let panics = waker(|| resume_unwind(Box::new("a waker panics, on purpose")));
    let mut context = Context::from_waker(&panics);
    let far = queue.insert("far", ms(10));
    assert!(queue.poll_expired(&mut context).is_pending());
    let near = queue.insert("near", ms(5));
    assert_eq!((queue.len(), engine.stats().waker_panics), (2, 1));
    assert!(queue.poll_expired(&mut context).is_pending());
    queue.reset(&far, ms(1));
    assert_eq!((queue.deadline(&far) < queue.deadline(&near), engine.stats().waker_panics), (true, 2));
    assert!(queue.poll_expired(&mut context).is_pending());
    assert_eq!(queue.remove(&far).into_inner(), "far");
    assert_eq!(queue.remove(&near).into_inner(), "near");
    assert_eq!((queue.len(), engine.stats().waker_panics), (0, 3));
    queue.insert("last", ms(5));
    assert!(queue.poll_expired(&mut context).is_pending());
    queue.clear();
    assert_eq!((queue.len(), engine.stats().waker_panics, engine.stats().pending), (0, 4, 0));
}

#[test]
fn p6_an_item_that_panics_when_it_is_dropped_does_not_keep_who_waits_from_being_woken() {
    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            // Not by the macro: the hook would print it.
            resume_unwind(Box::new("an item panics, on purpose"));
        }
    }

    let mut story = Story::new();
    story.queue.insert(Fragile, years(100));
    story.assert_pending();
    assert!(catch_unwind(AssertUnwindSafe(|| story.queue.clear())).is_err(), "the item's own affair");
    assert_eq!((story.task.wakes(), story.queue.len()), (1, 0));
    story.assert_empty();
}
