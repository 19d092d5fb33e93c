//! Stale and foreign keys.

use tourbillon_queue::{Time, TimerQueue};

use crate::support::on_every_queue;
use crate::{assert_refused, at, fired};

#[test]
fn d38_a_new_key_of_a_queue_is_refused_by_an_earlier_clone() {
    fn clone_and_diverge<Q: TimerQueue<u64> + Clone>(mut queue: Q) {
        let key = queue.insert(at(1), 1);
        queue.remove(key);
        let mut clone = queue.clone();
        let foreign = queue.insert(at(2), 2);
        assert_eq!((clone.remove(foreign), clone.deadline(foreign), clone.len()), (None, None, 0));
        clone.check().unwrap();
    }
    on_every_queue!(clone_and_diverge);
}

#[test]
fn d38_a_stale_key_is_always_refused() {
    fn use_up_and_reuse<Q: TimerQueue<u64>>(mut queue: Q) {
        let expired = queue.insert(at(1), 0);
        let never_cleared = queue.insert(Time::NEVER, 0);
        let cleared = queue.insert(at(5), 0);
        let removed = queue.insert(at(5), 0);
        assert!(queue.pop(at(1)).is_some());
        assert!(queue.remove(removed).is_some());
        queue.clear();
        let stale = [expired, removed, cleared, never_cleared];
        stale.iter().for_each(|&key| assert_refused(&mut queue, key));

        // Their slots are used again, over and over.
        for round in 0..100_000 {
            let keys = [0, 1, 2, 3].map(|number| queue.insert(at(round + number), number));
            stale.iter().for_each(|&key| assert_refused(&mut queue, key));
            assert!(keys.iter().all(|key| !stale.contains(key)), "a key was returned twice");
            assert_eq!(queue.remove(keys[3]), Some(3));
            assert_eq!(fired(&mut queue, round + 2), [0, 1, 2]);
            keys.iter().for_each(|&key| assert_refused(&mut queue, key));
        }
        queue.check().unwrap();
    }
    on_every_queue!(use_up_and_reuse);
}
