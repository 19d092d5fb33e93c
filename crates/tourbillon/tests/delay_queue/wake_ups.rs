//! When the polling task is woken.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tourbillon::delay_queue::DelayQueue;

use crate::Story;
use crate::support::{Task, manual, ms, waker, years};

#[test]
fn t11_removing_the_last_item_wakes_the_pending_task() {
    let mut story = Story::new();
    let (one, two) = (story.insert_at(1, 1000), story.insert_at(2, 2000));
    story.assert_pending();
    story.queue.remove(&two);
    assert_eq!(story.task.wakes(), 0, "one item is left to wait for");
    story.queue.remove(&one);
    assert_eq!((story.task.wakes(), story.task.wakers_held()), (1, 0), "the timer is cancelled at once");
    story.assert_empty();
    story.time.advance(ms(5000));
    assert_eq!(story.task.wakes(), 0, "no timer is left for the removed item");
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
    assert_eq!(story.task.wakes(), 0, "the queue was empty");
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
    assert_eq!(story.task.wakes(), 0, "a later item, or an equal one, wakes no task");
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
fn t11_only_the_task_that_polled_last_is_woken() {
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
fn p6_a_waker_that_panics_does_not_harm_the_caller_that_changes_the_queue() {
    let engine = manual();
    let _entered = engine.enter();
    let mut queue = DelayQueue::new();
    // `panic!` would run the hook, which prints.
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
fn p6_an_item_that_panics_when_it_is_dropped_does_not_keep_the_waiting_task_from_being_woken() {
    struct Fragile;

    impl Drop for Fragile {
        fn drop(&mut self) {
            // `panic!` would run the hook, which prints.
            resume_unwind(Box::new("an item panics, on purpose"));
        }
    }

    let mut story = Story::new();
    story.queue.insert(Fragile, years(100));
    story.assert_pending();
    assert!(catch_unwind(AssertUnwindSafe(|| story.queue.clear())).is_err(), "the panic of the item is passed on");
    assert_eq!((story.task.wakes(), story.queue.len()), (1, 0));
    story.assert_empty();
}
