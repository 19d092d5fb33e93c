//! A remote thread that has to wait for the owner for a long time.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::*;

struct OwnerLocks(u64);

impl Busy for OwnerLocks {
    fn owner_locks(&self) -> u64 {
        self.0
    }
}

/// Starts an owner thread that locks by the fast path, sends whether it could, and keeps the lock until `stay` returns.
fn owner_inside(
    lock: &Arc<BiasedLock<OwnerLocks>>,
    stay: impl FnOnce() + Send + 'static,
) -> (JoinHandle<()>, Receiver<bool>) {
    let (lock, (say, said)) = (Arc::clone(lock), mpsc::channel());
    let owner = thread::spawn(move || {
        asymmetric_fence::find_out();
        for _ in 0..bias_pays_at() {
            // SAFETY: this thread is the only owner, and it does not have the lock.
            unsafe { lock.lock_owner_slow(|locks| locks.0 += 1) };
        }
        // SAFETY: this thread is the only owner, and it does not have the lock.
        let inside = unsafe { lock.lock_owner() };
        say.send(inside.is_some()).unwrap();
        stay();
    });
    (owner, said)
}

fn new_lock() -> Arc<BiasedLock<OwnerLocks>> {
    Arc::new(BiasedLock::new(OwnerLocks(0)))
}

/// Returns how often a thread of this process has gone to sleep by itself. (A yield does not count.)
fn sleeps_of(thread: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn d71_a_remote_thread_sleeps_while_the_owner_keeps_the_lock() {
    let lock = new_lock();
    let (leave, left): (Sender<()>, _) = mpsc::channel();
    let (owner, inside) = owner_inside(&lock, move || _ = left.recv());
    if !inside.recv().unwrap() {
        println!("NOT TESTED: the kernel has no membarrier, and the lock is an ordinary one");
        return;
    }
    let (say, said) = mpsc::channel();
    let remote = thread::spawn(move || {
        say.send(gettid().as_raw_nonzero().get()).unwrap();
        lock.lock_remote(|locks| locks.0)
    });
    let thread = said.recv().unwrap();
    let (before, start) = (sleeps_of(thread), Instant::now());
    let has_slept = loop {
        if sleeps_of(thread) >= before + 20 {
            break true;
        }
        if start.elapsed() > Duration::from_secs(20) {
            break false;
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(!remote.is_finished(), "the remote thread has the lock beside the owner");
    drop(leave);
    owner.join().unwrap();
    assert_eq!(remote.join().unwrap(), bias_pays_at());
    assert!(has_slept, "the remote thread has not slept");
}

/// A remote thread with a real-time priority takes the core from an owner without one, which needs the core to unlock.
#[test]
fn d71_a_remote_thread_of_a_real_time_priority_lets_the_owner_on_the_same_core_unlock() {
    let mut all = sched_getaffinity(None).unwrap();
    let core = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
    all.clear();
    all.set(core);
    let lock = new_lock();
    let remote_lock = Arc::clone(&lock);
    let (call, called) = mpsc::channel();
    let remote = thread::spawn(move || {
        sched_setaffinity(None, &all).unwrap();
        let is_real_time = become_real_time();
        if called.recv().is_err() {
            return (is_real_time, Duration::ZERO);
        }
        let before = time_on_core();
        remote_lock.lock_remote(|locks| locks.0);
        (is_real_time, time_on_core() - before)
    });
    let (owner, inside) = owner_inside(&lock, move || {
        sched_setaffinity(None, &all).unwrap();
        call.send(()).unwrap();
        let start = time_on_core();
        while time_on_core() - start < Duration::from_millis(5) {}
    });
    let is_biased = inside.recv().unwrap();
    owner.join().unwrap();
    let (is_real_time, spent) = remote.join().unwrap();
    if !is_biased {
        println!("NOT TESTED: the kernel has no membarrier, and the lock is an ordinary one");
    }
    if !is_real_time {
        println!("NOT TESTED with real-time priorities, which are refused; tested without");
    }
    // With yields alone it would be most of a second: then the kernel throttles real-time threads.
    assert!(spent < Duration::from_millis(300), "the remote thread has spun for {spent:?}");
}

fn time_on_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Gives the calling thread a real-time priority, if the system lets it.
fn become_real_time() -> bool {
    // SAFETY: `sched_param` is a structure of integers, for which zero is valid.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    // SAFETY: the call reads `priority`, which lives until it returns.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0 }
}

#[test]
fn d71_sleeps_grow_from_fifty_microseconds_to_a_millisecond() {
    let slept = |waits| Backoff { waits }.sleep();
    let first = Backoff::SPINS + Backoff::YIELDS + 1;
    assert_eq!([0, 1, 2].map(|more| slept(first + more).as_micros()), [50, 100, 200]);
    assert_eq!([6, 100, u32::MAX - first].map(|more| slept(first + more).as_micros()), [1000; 3]);
}
