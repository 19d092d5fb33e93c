//! A million timers on one tick, on a small stack.

use tourbillon_queue::{Key, TimerQueue};

use crate::support::{Random, on_every_queue, seed};
use crate::{MILLION, SECOND, at, shuffle};

/// Runs a test where recursion over a list of timers would overflow the stack.
fn on_a_small_stack(test: fn()) {
    let thread = std::thread::Builder::new().stack_size(64 * 1024).spawn(test).unwrap();
    thread.join().unwrap();
}

fn arm_a_million_on_one_tick<Q: TimerQueue<u64>>(queue: &mut Q) -> Vec<Key> {
    (0..MILLION).map(|number| queue.insert(at(SECOND), number)).collect()
}

#[test]
fn d10_a_million_timers_on_one_tick_are_cancelled_on_a_small_stack() {
    fn cancel_all<Q: TimerQueue<u64>>(mut queue: Q) {
        let mut random = Random::new(seed());
        for in_order in [true, false] {
            let mut keys = arm_a_million_on_one_tick(&mut queue);
            if !in_order {
                shuffle(&mut keys, &mut random);
            }
            for key in keys {
                assert!(queue.remove(key).is_some());
            }
            assert!(queue.is_empty());
            assert_eq!(queue.next_deadline(), None);
        }
    }
    on_a_small_stack(|| {
        on_every_queue!(cancel_all);
    });
}

#[test]
fn d10_a_million_timers_on_one_tick_expire_on_a_small_stack() {
    fn expire_all<Q: TimerQueue<u64>>(mut queue: Q) {
        arm_a_million_on_one_tick(&mut queue);
        assert!(queue.pop(at(SECOND - 1)).is_none());
        let mut next = 0;
        queue.expire(at(SECOND), |timer| {
            assert_eq!(timer.value, next, "equal deadlines fire as they were armed");
            next += 1;
        });
        assert_eq!(next, MILLION);
        assert!(queue.is_empty());
    }
    on_a_small_stack(|| {
        on_every_queue!(expire_all);
    });
}

#[test]
fn d10_a_million_timers_on_one_tick_are_dropped_on_a_small_stack() {
    fn drop_all<Q: TimerQueue<u64>>(mut queue: Q) {
        arm_a_million_on_one_tick(&mut queue);
        queue.clear();
        assert!(queue.is_empty());
        arm_a_million_on_one_tick(&mut queue);
        drop(queue);
    }
    on_a_small_stack(|| {
        on_every_queue!(drop_all);
    });
}
