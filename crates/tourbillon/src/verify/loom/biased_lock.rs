//! The biased lock alone. Loom reports an owner and a remote thread that have the data at the same time.

use std::sync::Arc;

use loom::thread;

use super::explore;
use crate::shard::biased_lock::{BiasedLock, Busy};

/// How often the lock was taken, by the owner and by remote threads.
#[derive(Default)]
struct LockCounts {
    owner: u64,
    remote: u64,
}

impl Busy for LockCounts {
    fn owner_locks(&self) -> u64 {
        self.owner
    }
}

/// Returns a lock that its owner has taken `times` times.
fn lock_after(times: usize) -> Arc<BiasedLock<LockCounts>> {
    let lock = Arc::new(BiasedLock::new(LockCounts::default()));
    for _ in 0..times {
        enter_as_owner(&lock);
    }
    lock
}

/// Takes the lock as the owner. Returns whether that was by the fast path.
fn enter_as_owner(lock: &BiasedLock<LockCounts>) -> bool {
    // SAFETY: in each model one thread at a time is the owner, and it does not have the lock.
    if let Some(mut inside) = unsafe { lock.lock_owner() } {
        inside.with(|counts| counts.owner += 1);
        return true;
    }
    // SAFETY: as above.
    unsafe { lock.lock_owner_slow(|counts| counts.owner += 1) };
    false
}

fn enter_as_remote(lock: &BiasedLock<LockCounts>) {
    lock.lock_remote(|counts| counts.remote += 1);
}

fn spawn_remote(lock: &Arc<BiasedLock<LockCounts>>) -> thread::JoinHandle<()> {
    let lock = lock.clone();
    thread::spawn(move || enter_as_remote(&lock))
}

#[track_caller]
fn assert_counts(lock: &BiasedLock<LockCounts>, owner: u64, remote: u64) {
    assert_eq!(lock.lock_remote(|counts| (counts.owner, counts.remote)), (owner, remote));
}

#[test]
fn d39_the_owner_on_the_fast_path_excludes_a_remote_thread() {
    explore(|| {
        let lock = lock_after(2);
        let remote = spawn_remote(&lock);
        enter_as_owner(&lock);
        enter_as_owner(&lock);
        remote.join().unwrap();
        assert_counts(&lock, 4, 1);
    });
}

#[test]
fn d39_a_lock_that_a_remote_thread_revoked_is_biased_again_and_stays_sound() {
    explore(|| {
        let lock = lock_after(2);
        let remote = {
            let lock = lock.clone();
            // The second one finds that the bias did not pay, unless the owner has taken the lock often between the two.
            thread::spawn(move || [(); 2].map(|()| enter_as_remote(&lock)))
        };
        for _ in 0..3 {
            enter_as_owner(&lock);
        }
        remote.join().unwrap();
        assert_counts(&lock, 5, 2);
        for _ in 0..2 {
            enter_as_owner(&lock);
        }
        assert!(enter_as_owner(&lock), "the owner has taken it often enough alone");
    });
}

#[test]
fn d39_the_owner_makes_the_lock_biased_while_a_remote_thread_locks() {
    explore(|| {
        // The next time that the owner takes it, it has taken it often enough.
        let lock = lock_after(1);
        let remote = spawn_remote(&lock);
        enter_as_owner(&lock);
        enter_as_owner(&lock);
        remote.join().unwrap();
        assert_counts(&lock, 3, 1);
    });
}

#[test]
fn d39_two_remote_threads_and_the_owner_exclude_each_other() {
    explore(|| {
        let lock = lock_after(2);
        let remotes = [(); 2].map(|()| spawn_remote(&lock));
        enter_as_owner(&lock);
        enter_as_owner(&lock);
        remotes.into_iter().for_each(|remote| remote.join().unwrap());
        assert_counts(&lock, 4, 2);
    });
}

#[test]
fn d39_a_new_owner_sees_the_writes_of_the_owner_before_it() {
    explore(|| {
        let lock = lock_after(2);
        let remote = spawn_remote(&lock);
        let first = {
            let lock = lock.clone();
            thread::spawn(move || enter_as_owner(&lock))
        };
        first.join().unwrap();
        enter_as_owner(&lock);
        remote.join().unwrap();
        assert_counts(&lock, 4, 1);
    });
}
