//! Engines whose driver and users have different priorities and share one core.
//!
//! Where the system refuses real-time priorities (they need a privilege), the tests print that and run without them.
#![cfg(tourbillon_proc)]

mod support;

use std::fs;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use support::{ms, one_at_a_time};
use tourbillon::{Engine, Slack};

/// Returns the kernel id of the driver thread.
fn driver() -> Pid {
    let start = Instant::now();
    loop {
        for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.trim() == "tourbillon" {
                return Pid::from_raw(task.file_name().to_str().unwrap().parse().unwrap()).unwrap();
            }
        }
        assert!(start.elapsed() < Duration::from_secs(30), "the driver has not started");
        std::thread::sleep(ms(1));
    }
}

/// Waits until the driver thread has ended.
fn until_driver_has_ended(driver: Pid) {
    while fs::metadata(format!("/proc/self/task/{}", driver.as_raw_nonzero())).is_ok() {
        std::thread::sleep(ms(1));
    }
}

/// Pins both threads to one core.
fn share_a_core(threads: [Pid; 2]) {
    let mut all = sched_getaffinity(None).unwrap();
    let core = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
    all.clear();
    all.set(core);
    threads.into_iter().for_each(|thread| sched_setaffinity(Some(thread), &all).unwrap());
}

/// Gives a thread a real-time priority, if the system allows it.
fn make_real_time(thread: Pid) {
    // SAFETY: `sched_param` is a structure of integers, so all zeros are valid.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: the call reads the structure, which lives until it returns.
    if unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const priority) } != 0 {
        println!("NOT TESTED with real-time priorities, which are refused; tested without");
    }
}

/// Returns how long a thread has run on a core.
fn time_on_core(thread: Pid) -> Duration {
    let stat = fs::read_to_string(format!("/proc/self/task/{}/schedstat", thread.as_raw_nonzero())).unwrap();
    Duration::from_nanos(stat.split_whitespace().next().unwrap().parse().unwrap())
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs the part on a thread of its own, so that the changed priority and core end with it.
fn aside<R: Send>(part: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(part).join().unwrap())
}

#[test]
fn d71_a_real_time_driver_does_not_wait_long_for_a_user_without_priority() {
    let _alone = one_at_a_time();
    aside(|| {
        let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
        let driver = driver();
        share_a_core([driver, gettid()]);
        make_real_time(driver);
        let before = time_on_core(driver);
        for after in 0..300 {
            let flag = Arc::new(Flag(AtomicBool::new(false)));
            let waker = Waker::from(Arc::clone(&flag));
            let mut sleep = pin!(engine.sleep(Duration::from_micros(500 + after)));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            // The user holds the lock much of the time, also when the driver preempts it.
            while !flag.0.load(Ordering::SeqCst) {
                let mut far = pin!(engine.sleep(Duration::from_secs(3600)).slack(Slack::adaptive()));
                assert!(far.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
        }
        // Three hundred fires take some ten milliseconds. A driver that spins takes most of a second each time.
        let spent = time_on_core(driver) - before;
        assert!(spent < ms(600), "the driver has spun for {spent:?}");
        drop(engine);
        until_driver_has_ended(driver);
    });
}

#[test]
fn d71_real_time_users_and_a_driver_without_priority_make_progress() {
    let _alone = one_at_a_time();
    aside(|| {
        let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
        let driver = driver();
        share_a_core([driver, gettid()]);
        make_real_time(gettid());
        for after in 0..200 {
            for _ in 0..20 {
                let mut far = pin!(engine.sleep(Duration::from_secs(3600)));
                assert!(far.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            block_on(engine.sleep(Duration::from_micros(5 * after)));
        }
        drop(engine);
        until_driver_has_ended(driver);
    });
}
