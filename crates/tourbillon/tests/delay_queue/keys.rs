//! Stale and valid keys.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tourbillon::delay_queue::{DelayQueue, Key};
use tourbillon::time::Instant;

use crate::Story;
use crate::support::ms;

#[test]
fn d38_a_stale_key_is_always_refused() {
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
fn d38_the_panicking_methods_say_that_the_key_is_unknown() {
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
fn d38_the_try_methods_do_the_same_as_the_others_with_a_valid_key() {
    let mut story = Story::new();
    let key = story.insert_at("foo", 10);
    assert_eq!(story.queue.try_deadline(&key), Some(story.start + ms(10)));
    assert_eq!(story.queue.try_reset(&key, ms(20)), Some(story.start + ms(10)));
    assert_eq!(story.queue.try_reset_at(&key, story.start + ms(30)), Some(story.start + ms(20)));
    assert_eq!(story.queue.try_remove(&key).unwrap().deadline(), story.start + ms(30));
}
