//! Faults that other timer systems have or had, each with a test that it would fail; and unreasonable input. The number in
//! a test's name is that of the fault.

mod crowds;
mod keys;
mod on_time;
mod one_tick;
mod order;
mod panics;
mod range;
mod round_wheel;
#[path = "../support/mod.rs"]
mod support;

use support::Random;
use tourbillon_queue::{Key, Time, TimerQueue};

pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MILLI;
pub(crate) const MINUTE: u64 = 60 * SECOND;
pub(crate) const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;
pub(crate) const YEAR: u64 = 365 * DAY;

pub(crate) const MILLION: u64 = 1_000_000;

/// The number of levels of the wheel; a slot of level `l` is `64^l` nanoseconds wide.
pub(crate) const LEVELS: u32 = 11;

pub(crate) fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}

/// Expires all timers that are due and returns their values.
pub(crate) fn fired<Q: TimerQueue<u64>>(queue: &mut Q, nanos: u64) -> Vec<u64> {
    let mut values = Vec::new();
    let count = queue.expire(at(nanos), |timer| values.push(timer.value));
    assert_eq!(count, values.len());
    values
}

/// Asserts that nothing fires a nanosecond before `deadline`, and that exactly `values` fire at it.
pub(crate) fn assert_fires_exactly_at<Q: TimerQueue<u64>>(queue: &mut Q, deadline: u64, values: &[u64]) {
    assert_eq!(queue.next_deadline(), Some(at(deadline)));
    if let Some(before) = deadline.checked_sub(1) {
        assert!(queue.pop(at(before)).is_none(), "early, before {deadline}");
    }
    assert_eq!(fired(queue, deadline), values, "at {deadline}");
}

pub(crate) fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for last in (1..items.len()).rev() {
        items.swap(last, random.below(last as u64 + 1) as usize);
    }
}

pub(crate) fn assert_refused<Q: TimerQueue<u64>>(queue: &mut Q, key: Key) {
    let len = queue.len();
    assert_eq!(queue.get(key), None);
    assert_eq!(queue.get_mut(key), None);
    assert_eq!(queue.deadline(key), None);
    assert_eq!(queue.reschedule(key, at(1)), None);
    assert_eq!(queue.remove(key), None);
    assert_eq!(queue.len(), len);
}
