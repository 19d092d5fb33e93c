//! A guest that has to wait for an owner for a long time.

use std::fs;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::*;

struct Visits(u64);

impl Busy for Visits {
    fn visits(&self) -> u64 {
        self.0
    }
}

/// An owner on a thread of its own that goes inside, says whether it is, and stays until `leaves` returns.
fn owner_inside(
    lock: &Arc<BiasedLock<Visits>>,
    leaves: impl FnOnce() + Send + 'static,
) -> (JoinHandle<()>, Receiver<bool>) {
    let (lock, (say, said)) = (Arc::clone(lock), mpsc::channel());
    let owner = thread::spawn(move || {
        asymmetric_fence::find_out();
        for _ in 0..PAYS {
            // SAFETY: this thread is the only owner, and it is not inside.
            unsafe { lock.lock_owner_slow(|visits| visits.0 += 1) };
        }
        // SAFETY: likewise.
        let inside = unsafe { lock.lock_owner() };
        say.send(inside.is_some()).unwrap();
        leaves();
    });
    (owner, said)
}

fn new_lock() -> Arc<BiasedLock<Visits>> {
    Arc::new(BiasedLock::new(Visits(0)))
}

/// How often a thread of this process has gone to sleep by itself. (To yield is not that.)
fn sleeps_of(thread: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[test]
fn d71_a_guest_sleeps_while_an_owner_is_held_up_inside() {
    let lock = new_lock();
    let (leave, left): (Sender<()>, _) = mpsc::channel();
    let (owner, inside) = owner_inside(&lock, move || _ = left.recv());
    if !inside.recv().unwrap() {
        println!("NOT TESTED: the kernel has no membarrier, and the lock is an ordinary one");
        return;
    }
    let (say, said) = mpsc::channel();
    let guest = thread::spawn(move || {
        say.send(gettid().as_raw_nonzero().get()).unwrap();
        lock.lock_remote(|visits| visits.0)
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
    assert!(!guest.is_finished(), "a guest beside an owner");
    drop(leave);
    owner.join().unwrap();
    assert_eq!(guest.join().unwrap(), PAYS);
    assert!(has_slept, "the guest has not slept");
}

/// A guest of a real-time priority takes the core from an owner of none, which needs it to leave.
#[test]
fn d71_a_guest_of_a_real_time_priority_lets_an_owner_on_the_same_core_leave() {
    let mut all = sched_getaffinity(None).unwrap();
    let core = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
    all.clear();
    all.set(core);
    let lock = new_lock();
    let guests = Arc::clone(&lock);
    let (call, called) = mpsc::channel();
    let guest = thread::spawn(move || {
        sched_setaffinity(None, &all).unwrap();
        let is_real_time = become_real_time();
        if called.recv().is_err() {
            return (is_real_time, Duration::ZERO);
        }
        let before = time_on_core();
        guests.lock_remote(|visits| visits.0);
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
    let (is_real_time, spent) = guest.join().unwrap();
    if !is_biased {
        println!("NOT TESTED: the kernel has no membarrier, and the lock is an ordinary one");
    }
    if !is_real_time {
        println!("NOT TESTED with real-time priorities, which are refused; tested without");
    }
    // With nothing but yields it is most of a second, the time after which the kernel takes the core away.
    assert!(spent < Duration::from_millis(300), "the guest has spun for {spent:?}");
}

fn time_on_core() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Gives the calling thread a real-time priority, if the system lets it.
fn become_real_time() -> bool {
    // SAFETY: a structure of integers.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    // SAFETY: it reads the structure, which is there.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const priority) == 0 }
}

#[test]
fn d71_sleeps_grow_from_fifty_microseconds_to_a_millisecond() {
    let slept = |waits| Patience { waits }.sleep();
    let first = Patience::SPINS + Patience::YIELDS + 1;
    assert_eq!([0, 1, 2].map(|more| slept(first + more).as_micros()), [50, 100, 200]);
    assert_eq!([6, 100, u32::MAX - first].map(|more| slept(first + more).as_micros()), [1000; 3]);
}
