//! The order and the time in which items come out.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use tourbillon::delay_queue::DelayQueue;
use tourbillon::time::Instant;
use tourbillon::{Clock, Engine};

use crate::Story;
use crate::support::{Task, manual, ms, years};

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
fn t11_items_due_in_the_past_come_first_and_in_order() {
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
fn t11_p3_a_reset_to_the_same_deadline_goes_behind_its_equals() {
    let mut story = Story::new();
    let one = story.insert_at("one", 10);
    story.insert_at("two", 10);
    story.reset_at(one, 10);
    story.time.advance(ms(10));
    assert_eq!(story.poll_item().into_inner(), "two");
    assert_eq!(story.poll_item().into_inner(), "one");
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
fn d37_after_a_hundred_years_a_queue_works_as_on_the_first_day() {
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
fn t11_ten_thousand_items_come_out_in_order_and_in_the_same_order_each_time() {
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
fn p1_an_item_is_not_early_on_a_clock_that_was_set_back_to_before_the_queue_was_made() {
    let engine = manual();
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
    let engine = manual();
    let _entered = engine.enter();
    let (mut queue, task) = (DelayQueue::new(), Task::new());
    queue.insert("foo", ms(10));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    let start = engine.clock().now();
    // The item is due; but the clock is set back before the queue is polled.
    assert_eq!(engine.advance(ms(10)), 1);
    engine.clock().set(start);
    queue.insert("bar", ms(10));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    for item in ["foo", "bar"] {
        let Poll::Ready(Some(expired)) = queue.poll_expired(&mut task.cx()) else { panic!("the item is due") };
        assert_eq!(expired.into_inner(), item);
    }
}

/// On these clocks an instant is one of the standard library's.
#[test]
#[cfg_attr(miri, ignore = "there is no boot-time clock")]
fn p1_p8_no_item_is_early_on_any_clock_of_the_system() {
    for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
        let engine = Engine::builder().clock(clock).build().unwrap();
        let mut queue = DelayQueue::on(&engine);
        let begun = std::time::Instant::now();
        // Between which times each item is due: on a busy machine an insert may come milliseconds after the one before it.
        let mut due = BTreeMap::new();
        for millis in [4, 1, 3, 2] {
            let before = begun.elapsed();
            queue.insert(millis, ms(millis));
            due.insert(millis, (before + ms(millis), begun.elapsed() + ms(millis)));
        }
        let mut last = Duration::ZERO;
        while let Some(expired) = futures_lite::future::block_on(queue.next()) {
            let (millis, elapsed) = (expired.into_inner(), begun.elapsed());
            let (earliest, latest) = due.remove(&millis).unwrap();
            assert!(elapsed >= ms(millis), "{:?}: {millis} ms after {elapsed:?}", engine.clock());
            assert!(latest >= last, "{:?}: {millis} ms came after an item that is due later", engine.clock());
            last = last.max(earliest);
        }
        assert!(due.is_empty(), "{due:?} did not come");
    }
}
