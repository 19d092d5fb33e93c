//! Sinks and destructors that panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tourbillon_queue::{Expired, Key, Time, TimerQueue};

use crate::support::on_every_queue;
use crate::{HOUR, MILLI, MINUTE, SECOND, assert_refused, at, fired};

#[test]
fn a_sink_that_panics_leaves_the_timers_it_was_not_given_in_the_queue() {
    fn panicking_sink<Q: TimerQueue<u64> + Clone>(empty: Q) {
        // All at one instant, in neighbouring slots, many in a slot.
        for spacing in [0, 1, 1000, MILLI] {
            let mut queue = empty.clone();
            let keys: Vec<Key> = (0..1000).map(|number| queue.insert(at(5 + number * spacing), number)).collect();
            let sink = |timer: Expired<u64>| assert!(timer.value < 300, "the sink panics");
            assert!(catch_unwind(AssertUnwindSafe(|| queue.expire(at(MINUTE), sink))).is_err());
            assert_eq!(queue.len(), 699, "the sink was given 0 to 299, and panicked at 300");
            queue.check().unwrap();
            assert_refused(&mut queue, keys[300]);
            assert_eq!(queue.remove(keys[301]), Some(301));
            assert_eq!(fired(&mut queue, MINUTE), (302..1000).collect::<Vec<_>>());
        }
    }
    on_every_queue!(panicking_sink);
}

/// A value that may panic when it is dropped.
struct Fragile {
    breaks: bool,
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(!self.breaks, "a destructor panics");
    }
}

/// Clears a queue at `now` that has three timers at each of `deadlines`. One of those at the last deadline panics when
/// it is dropped.
fn clear_with_a_panic<Q: TimerQueue<Fragile>>(queue: &mut Q, now: Time, deadlines: &[Time]) {
    // A timer that fires, so that the queue has advanced to `now`.
    queue.insert(now, Fragile { breaks: false });
    assert_eq!(queue.expire(now, drop), 1);
    let mut keys = Vec::new();
    for (index, &deadline) in deadlines.iter().enumerate() {
        for number in 0..3 {
            let breaks = index + 1 == deadlines.len() && number == 1;
            keys.push(queue.insert(deadline, Fragile { breaks }));
        }
    }
    assert!(catch_unwind(AssertUnwindSafe(|| queue.clear())).is_err());

    assert!(queue.is_empty());
    queue.check().unwrap();
    assert!(keys.iter().all(|&key| queue.get(key).is_none()));
    assert!(queue.pop(Time::NEVER).is_none());
    queue.insert(at(1), Fragile { breaks: false });
    assert_eq!(queue.expire(Time::NEVER, drop), 1);
    queue.clear();
    queue.check().unwrap();
}

#[test]
fn a_destructor_that_panics_in_clear_leaves_an_empty_queue_in_order() {
    fn in_the_future<Q: TimerQueue<Fragile>>(mut queue: Q) {
        clear_with_a_panic(&mut queue, Time::ZERO, &[Time::NEVER, at(HOUR), at(SECOND)]);
    }
    on_every_queue!(in_the_future);
}

#[test]
fn a_destructor_of_an_overdue_timer_that_panics_in_clear_leaves_an_empty_queue_in_order() {
    fn in_the_past<Q: TimerQueue<Fragile>>(mut queue: Q) {
        clear_with_a_panic(&mut queue, at(MINUTE), &[Time::NEVER, at(HOUR), at(SECOND)]);
    }
    on_every_queue!(in_the_past);
}

#[test]
fn a_destructor_of_a_timer_without_end_that_panics_in_clear_leaves_an_empty_queue_in_order() {
    fn without_end<Q: TimerQueue<Fragile>>(mut queue: Q) {
        clear_with_a_panic(&mut queue, at(MINUTE), &[at(SECOND), at(HOUR), Time::NEVER]);
    }
    on_every_queue!(without_end);
}
