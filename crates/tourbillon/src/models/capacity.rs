//! The capacity: nobody waits for room that is there.

use std::sync::Arc;
use std::task::Waker;

use loom::thread;

use super::{Tally, explore, explore_up_to};
use crate::capacity::Capacity;

#[test]
fn d39_p7_room_given_back_is_taken_or_wakes_who_waits() {
    explore(|| {
        let capacity = Arc::new(Capacity::new(1));
        assert!(capacity.take());
        let holder = {
            let capacity = capacity.clone();
            thread::spawn(move || wake(capacity.give_back()))
        };
        let tally = Tally::new();
        let waker = tally.waker();
        let has_room = capacity.take_or_wait(&waker);
        holder.join().unwrap();
        assert!(has_room || tally.woken() > 0, "a lost wake-up");
        assert!(has_room || capacity.take());
        assert!(!capacity.take(), "more than there is room for");
    });
}

#[test]
fn d39_p7_of_two_who_wait_for_one_place_each_gets_it_in_the_end() {
    explore_up_to(3, || {
        let capacity = Arc::new(Capacity::new(1));
        assert!(capacity.take());
        let holder = {
            let capacity = capacity.clone();
            thread::spawn(move || wake(capacity.give_back()))
        };
        let tallies = [Tally::new(), Tally::new()];
        let other = {
            let capacity = capacity.clone();
            thread::spawn(move || capacity.take_or_wait(&tallies[0].waker()))
        };
        let mine = capacity.take_or_wait(&tallies[1].waker());
        let has_room = [other.join().unwrap(), mine];
        holder.join().unwrap();
        assert_ne!(has_room, [true; 2], "two in one place");
        if has_room != [false; 2] {
            wake(capacity.give_back());
        }
        for (has_room, tally) in has_room.into_iter().zip(tallies) {
            assert!(has_room || tally.woken() > 0, "a lost wake-up");
        }
        wake(capacity.take_waiting());
        tallies.into_iter().for_each(Tally::assert_none_lost_or_doubled);
    });
}

#[test]
fn d39_p7_two_who_take_at_once_do_not_share_a_place() {
    explore(|| {
        let capacity = Arc::new(Capacity::new(1));
        let other = {
            let capacity = capacity.clone();
            thread::spawn(move || capacity.take())
        };
        let mine = capacity.take();
        assert_eq!(usize::from(mine) + usize::from(other.join().unwrap()), 1);
    });
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
