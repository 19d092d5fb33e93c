//! The capacity: nobody waits for room that is there.

use std::sync::Arc;
use std::task::Waker;

use loom::thread;

use super::{DUE, Tally, explore, explore_up_to};
use crate::capacity::{Capacity, Standing};

/// A capacity of one, which is taken, and the thread that gives it back.
fn full_until_given_back() -> (Arc<Capacity>, thread::JoinHandle<()>) {
    let capacity = Arc::new(Capacity::new(1));
    assert!(capacity.take());
    let holder = {
        let capacity = capacity.clone();
        thread::spawn(move || wake(capacity.give_back()))
    };
    (capacity, holder)
}

#[test]
fn d39_p7_room_given_back_is_taken_or_wakes_who_waits() {
    explore(|| {
        let (capacity, holder) = full_until_given_back();
        let tally = Tally::new();
        let waker = tally.waker();
        let has_room = capacity.take_or_wait(&mut Standing::Outside(DUE), &waker);
        holder.join().unwrap();
        assert!(has_room || tally.woken() > 0, "a lost wake-up");
        assert!(has_room || capacity.take());
        assert!(!capacity.take(), "more than there is room for");
    });
}

#[test]
fn d39_p7_of_two_who_wait_for_one_place_each_gets_it_in_the_end() {
    explore_up_to(3, || {
        let (capacity, holder) = full_until_given_back();
        let tallies = [Tally::new(), Tally::new()];
        let other = {
            let capacity = capacity.clone();
            thread::spawn(move || capacity.take_or_wait(&mut Standing::Outside(DUE), &tallies[0].waker()))
        };
        let mine = capacity.take_or_wait(&mut Standing::Outside(DUE), &tallies[1].waker());
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

#[test]
fn d39_p7_who_asks_again_with_another_waker_is_woken_by_that_one() {
    explore(|| {
        let (capacity, holder) = full_until_given_back();
        let (old, new) = (Tally::new(), Tally::new());
        let mut standing = Standing::Outside(DUE);
        let has_room =
            capacity.take_or_wait(&mut standing, &old.waker()) || capacity.take_or_wait(&mut standing, &new.waker());
        holder.join().unwrap();
        assert!(has_room || new.woken() > 0, "a lost wake-up");
        if let Standing::InLine(ticket) = standing {
            let (deadline, waker) = capacity.leave(ticket);
            assert_eq!((deadline, waker.is_some() && !has_room), (DUE, false));
        }
        [old, new].into_iter().for_each(|tally| tally.assert_none_lost_or_doubled());
    });
}

#[test]
fn d39_p7_who_leaves_the_line_takes_nobodys_news_of_room_along() {
    explore_up_to(3, || {
        let capacity = Arc::new(Capacity::new(1));
        assert!(capacity.take());
        let tallies = [Tally::new(), Tally::new()];
        let mut impatient = Standing::Outside(DUE);
        assert!(!capacity.take_or_wait(&mut impatient, &tallies[0].waker()));
        let leaver = {
            let capacity = capacity.clone();
            thread::spawn(move || {
                let Standing::InLine(ticket) = impatient else { panic!("there was no room") };
                capacity.leave(ticket).1
            })
        };
        let holder = {
            let capacity = capacity.clone();
            thread::spawn(move || wake(capacity.give_back()))
        };
        let has_room = capacity.take_or_wait(&mut Standing::Outside(DUE), &tallies[1].waker());
        holder.join().unwrap();
        let left = leaver.join().unwrap();
        assert_ne!(left.is_some(), tallies[0].woken() > 0, "its waker came back, or was woken");
        assert!(has_room || tallies[1].woken() > 0, "a lost wake-up");
    });
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
