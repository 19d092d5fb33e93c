//! The biased lock alone. Loom reports an owner and a guest who are inside together.

use std::sync::Arc;

use loom::thread;

use super::explore;
use crate::shard::biased_lock::{BiasedLock, Busy};

/// Counts who has come.
#[derive(Default)]
struct LockCounts {
    owner: u64,
    guests: u64,
}

impl Busy for LockCounts {
    fn visits(&self) -> u64 {
        self.owner
    }
}

/// A lock whose owner has come so often.
fn lock_after(counts: usize) -> Arc<BiasedLock<LockCounts>> {
    let lock = Arc::new(BiasedLock::new(LockCounts::default()));
    for _ in 0..counts {
        enter_as_owner(&lock);
    }
    lock
}

/// Whether the quick way was open.
fn enter_as_owner(lock: &BiasedLock<LockCounts>) -> bool {
    // SAFETY: in each model one thread at a time is the owner, and it is not inside.
    if let Some(mut inside) = unsafe { lock.lock_owner() } {
        inside.with(|counts| counts.owner += 1);
        return true;
    }
    // SAFETY: likewise.
    unsafe { lock.lock_owner_slow(|counts| counts.owner += 1) };
    false
}

fn enter_as_remote(lock: &BiasedLock<LockCounts>) {
    lock.lock_remote(|counts| counts.guests += 1);
}

fn spawn_remote(lock: &Arc<BiasedLock<LockCounts>>) -> thread::JoinHandle<()> {
    let lock = lock.clone();
    thread::spawn(move || enter_as_remote(&lock))
}

#[track_caller]
fn assert_none_is_lost(lock: &BiasedLock<LockCounts>, owner: u64, guests: u64) {
    assert_eq!(lock.lock_remote(|counts| (counts.owner, counts.guests)), (owner, guests));
}

#[test]
fn d39_an_owner_on_the_quick_way_and_a_guest_are_not_inside_together() {
    explore(|| {
        let lock = lock_after(2);
        let guest = spawn_remote(&lock);
        enter_as_owner(&lock);
        enter_as_owner(&lock);
        guest.join().unwrap();
        assert_none_is_lost(&lock, 4, 1);
    });
}

#[test]
fn d39_a_lock_that_is_revoked_by_a_guest_is_biased_again_and_stays_sound() {
    explore(|| {
        let lock = lock_after(2);
        let guest = {
            let lock = lock.clone();
            // The second finds that the bias did not pay, unless the owner has come often between the two.
            thread::spawn(move || [(); 2].map(|()| enter_as_remote(&lock)))
        };
        for _ in 0..3 {
            enter_as_owner(&lock);
        }
        guest.join().unwrap();
        assert_none_is_lost(&lock, 5, 2);
        for _ in 0..2 {
            enter_as_owner(&lock);
        }
        assert!(enter_as_owner(&lock), "it has come often enough alone");
    });
}

#[test]
fn d39_an_owner_makes_the_lock_its_own_while_a_guest_comes() {
    explore(|| {
        // With its next coming it has come often enough.
        let lock = lock_after(1);
        let guest = spawn_remote(&lock);
        enter_as_owner(&lock);
        enter_as_owner(&lock);
        guest.join().unwrap();
        assert_none_is_lost(&lock, 3, 1);
    });
}

#[test]
fn d39_two_guests_and_an_owner_are_inside_one_at_a_time() {
    explore(|| {
        let lock = lock_after(2);
        let guests = [(); 2].map(|()| spawn_remote(&lock));
        enter_as_owner(&lock);
        enter_as_owner(&lock);
        guests.into_iter().for_each(|guest| guest.join().unwrap());
        assert_none_is_lost(&lock, 4, 2);
    });
}

#[test]
fn d39_a_thread_that_becomes_the_owner_after_another_finds_what_that_one_left() {
    explore(|| {
        let lock = lock_after(2);
        let guest = spawn_remote(&lock);
        let first = {
            let lock = lock.clone();
            thread::spawn(move || enter_as_owner(&lock))
        };
        first.join().unwrap();
        enter_as_owner(&lock);
        guest.join().unwrap();
        assert_none_is_lost(&lock, 4, 1);
    });
}
