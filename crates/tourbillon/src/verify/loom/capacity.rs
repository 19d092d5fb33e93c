//! The capacity: no slot is lost, none is given twice, and each slot wakes one sleep.

use std::sync::Arc;
use std::task::Waker;

use loom::thread;

use super::{DUE, WakerTally, explore, explore_up_to};
use crate::core::capacity::{Capacity, Claim, WaitEnd, WaitProgress, WaitTicket};
use crate::slack::SlackBits;

const END: WaitEnd = WaitEnd { deadline: DUE, due: DUE, slack: SlackBits::ADAPTIVE };

/// Returns a capacity with one slot, which is taken.
fn full() -> Arc<Capacity> {
    let capacity = Arc::new(Capacity::new(1));
    assert!(capacity.take());
    capacity
}

/// Starts a thread that gives the slot back.
fn giver(capacity: &Arc<Capacity>) -> thread::JoinHandle<()> {
    let capacity = capacity.clone();
    thread::spawn(move || give_back(&capacity))
}

fn give_back(capacity: &Capacity) {
    let mut granted = Vec::new();
    capacity.give_back(1, &mut granted);
    wake(granted);
}

/// Ends the waits that are due, as the driver does at the deadline.
fn end_due(capacity: &Capacity) {
    let mut batch = Vec::new();
    capacity.end_due(DUE, 2, &mut batch);
    wake(batch);
}

fn leave(capacity: &Capacity, ticket: WaitTicket) {
    let left = capacity.leave(ticket);
    wake(left.next);
}

/// Begins to wait, where no slot can be free.
fn wait(capacity: &Capacity, tally: &'static WakerTally) -> WaitTicket {
    match capacity.take_or_wait(END, tally.waker()) {
        Claim::Slot => panic!("there was no slot"),
        Claim::Wait(ticket) => ticket,
    }
}

/// Asserts at the end of a model that the only slot is free, and that no sleep waits.
fn assert_all_given_back(capacity: &Capacity) {
    assert!(capacity.is_unawaited(), "a wait that is left");
    assert!(capacity.take(), "a slot that was lost");
    assert!(!capacity.take(), "a slot that was given twice");
}

#[test]
fn d39_p7_a_slot_that_is_given_back_is_taken_or_wakes_the_sleep_that_waits() {
    explore(|| {
        let (capacity, tally) = (full(), WakerTally::new());
        let holder = giver(&capacity);
        let claim = capacity.take_or_wait(END, tally.waker());
        holder.join().unwrap();
        if let Claim::Wait(ticket) = claim {
            assert_eq!(tally.woken(), 1, "a lost wake-up");
            assert!(matches!(capacity.poll(ticket, tally.waker()), WaitProgress::Granted(DUE)));
        }
        assert!(!capacity.take(), "a slot that was given twice");
        give_back(&capacity);
        assert_all_given_back(&capacity);
        tally.assert_none_lost_or_doubled();
    });
}

#[test]
fn d65_p7_of_two_sleeps_that_wait_one_is_woken_for_one_slot_and_the_other_by_its_end() {
    explore_up_to(3, || {
        let (capacity, tallies) = (full(), [WakerTally::new(), WakerTally::new()]);
        let holder = giver(&capacity);
        let other = {
            let capacity = capacity.clone();
            thread::spawn(move || capacity.take_or_wait(END, tallies[0].waker()))
        };
        let mine = capacity.take_or_wait(END, tallies[1].waker());
        let claims = [other.join().unwrap(), mine];
        holder.join().unwrap();
        let woken: usize = tallies.iter().map(|tally| tally.woken()).sum();
        let taken = claims.iter().filter(|claim| matches!(claim, Claim::Slot)).count();
        assert_eq!(woken + taken, 1, "one slot for one sleep");
        // The sleep that has the slot ends, and then the other.
        give_back_of(&capacity, &claims, tallies);
        give_back_of(&capacity, &claims, tallies);
        assert_all_given_back(&capacity);
        tallies.into_iter().for_each(WakerTally::assert_none_lost_or_doubled);
    });
}

/// Gives back the slot of the sleep that has it, taken at once or granted later.
fn give_back_of(capacity: &Capacity, claims: &[Claim; 2], tallies: [&'static WakerTally; 2]) {
    for (claim, tally) in claims.iter().zip(tallies) {
        if let Claim::Wait(ticket) = claim
            && tally.woken() == 1
            && matches!(capacity.poll(*ticket, tally.waker()), WaitProgress::Granted(_))
        {
            return give_back(capacity);
        }
    }
    if claims.iter().any(|claim| matches!(claim, Claim::Slot)) {
        give_back(capacity);
    }
}

#[test]
fn d39_p7_two_threads_that_take_at_once_do_not_share_a_slot() {
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
fn d39_p7_a_sleep_that_is_polled_with_another_waker_is_woken_by_that_one() {
    explore(|| {
        let (capacity, old, new) = (full(), WakerTally::new(), WakerTally::new());
        let ticket = wait(&capacity, old);
        let holder = giver(&capacity);
        let progress = capacity.poll(ticket, new.waker());
        holder.join().unwrap();
        match progress {
            WaitProgress::Granted(_) => assert_eq!((old.woken(), new.woken()), (1, 0)),
            WaitProgress::Waiting(before) => {
                drop(before);
                assert_eq!((old.woken(), new.woken()), (0, 1), "a lost wake-up");
                assert!(matches!(capacity.poll(ticket, new.waker()), WaitProgress::Granted(_)));
            }
            WaitProgress::Ended(_) => panic!("its time has not come"),
        }
        give_back(&capacity);
        assert_all_given_back(&capacity);
        [old, new].into_iter().for_each(WakerTally::assert_none_lost_or_doubled);
    });
}

#[test]
fn d65_p7_a_sleep_that_leaves_passes_its_slot_on() {
    explore_up_to(3, || {
        let (capacity, tallies) = (full(), [WakerTally::new(), WakerTally::new()]);
        let [first, second] = tallies.map(|tally| wait(&capacity, tally));
        let holder = giver(&capacity);
        let leaver = {
            let capacity = capacity.clone();
            thread::spawn(move || leave(&capacity, first))
        };
        holder.join().unwrap();
        leaver.join().unwrap();
        assert_eq!(tallies[1].woken(), 1, "a lost wake-up");
        assert!(matches!(capacity.poll(second, tallies[1].waker()), WaitProgress::Granted(_)));
        give_back(&capacity);
        assert_all_given_back(&capacity);
        tallies.into_iter().for_each(WakerTally::assert_none_lost_or_doubled);
    });
}

#[test]
fn d64_p7_a_sleep_that_gets_its_slot_at_its_deadline_ends_and_the_slot_passes_on() {
    explore_up_to(3, || {
        let (capacity, tallies) = (full(), [WakerTally::new(), WakerTally::new()]);
        let first = wait(&capacity, tallies[0]);
        let holder = giver(&capacity);
        let driver = {
            let capacity = capacity.clone();
            thread::spawn(move || end_due(&capacity))
        };
        let never = WaitEnd { due: super::Time::NEVER, ..END };
        let claim = capacity.take_or_wait(never, tallies[1].waker());
        holder.join().unwrap();
        driver.join().unwrap();
        assert!(matches!(capacity.poll(first, tallies[0].waker()), WaitProgress::Ended(DUE)), "it has not ended");
        assert_eq!(tallies[0].woken(), 1, "woken for a slot or for its end");
        if let Claim::Wait(ticket) = claim {
            assert_eq!(tallies[1].woken(), 1, "a lost wake-up");
            assert!(matches!(capacity.poll(ticket, tallies[1].waker()), WaitProgress::Granted(_)));
        }
        give_back(&capacity);
        assert_all_given_back(&capacity);
        tallies.into_iter().for_each(WakerTally::assert_none_lost_or_doubled);
    });
}

#[test]
fn d64_p2_a_sleep_that_is_polled_while_the_driver_ends_it_ends_once() {
    explore(|| {
        let (capacity, tally) = (full(), WakerTally::new());
        let ticket = wait(&capacity, tally);
        let driver = {
            let capacity = capacity.clone();
            thread::spawn(move || end_due(&capacity))
        };
        let progress = capacity.poll(ticket, tally.waker());
        driver.join().unwrap();
        if let WaitProgress::Waiting(before) = progress {
            drop(before);
            assert_eq!(tally.woken(), 1, "a lost wake-up");
            assert!(matches!(capacity.poll(ticket, tally.waker()), WaitProgress::Ended(DUE)));
        }
        give_back(&capacity);
        assert_all_given_back(&capacity);
        tally.assert_none_lost_or_doubled();
    });
}

fn wake(wakers: Vec<Waker>) {
    wakers.into_iter().for_each(Waker::wake);
}
