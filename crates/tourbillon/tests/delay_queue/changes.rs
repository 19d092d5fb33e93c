//! Items that are removed or reset.

use crate::Story;
use crate::support::ms;

#[test]
fn t11_a_removed_item_is_returned_and_never_comes_out() {
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
