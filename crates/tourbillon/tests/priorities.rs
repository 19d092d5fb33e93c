//! Engines whose driver and users have different priorities and share one core.
//!
//! Where the system refuses real-time priorities (they need a privilege), the tests say so and run without them.
#![cfg(target_os = "linux")]

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

/// The kernel's number of the driver's thread.
fn driver() -> Pid {
    let start = Instant::now();
    loop {
        for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if name.trim() == "tourbillon" {
                return Pid::from_raw(task.file_name().to_str().unwrap().parse().unwrap()).unwrap();
            }
        }
        assert!(start.elapsed() < Duration::from_secs(30), "there is no driver");
        std::thread::sleep(ms(1));
    }
}

/// Waits until no driver is left.
fn until_driver_has_ended(driver: Pid) {
    while fs::metadata(format!("/proc/self/task/{}", driver.as_raw_nonzero())).is_ok() {
        std::thread::sleep(ms(1));
    }
}

/// Puts threads on one core.
fn share_a_core(threads: [Pid; 2]) {
    let mut all = sched_getaffinity(None).unwrap();
    let core = (0..CpuSet::MAX_CPU).find(|core| all.is_set(*core)).unwrap();
    all.clear();
    all.set(core);
    threads.into_iter().for_each(|thread| sched_setaffinity(Some(thread), &all).unwrap());
}

/// Gives a thread a real-time priority, if the system lets it.
fn make_real_time(thread: Pid) {
    // SAFETY: a structure of integers.
    let mut priority: libc::sched_param = unsafe { std::mem::zeroed() };
    priority.sched_priority = 1;
    let thread = thread.as_raw_nonzero().get();
    // SAFETY: it reads the structure, which is there.
    if unsafe { libc::sched_setscheduler(thread, libc::SCHED_FIFO, &raw const priority) } != 0 {
        println!("NOT TESTED with real-time priorities, which are refused; tested without");
    }
}

/// How long a thread has had a core.
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

/// On a thread of its own, which ends with its priority and its place.
fn aside<R: Send>(part: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(part).join().unwrap())
}

#[test]
fn d71_a_driver_of_a_real_time_priority_does_not_wait_for_long_for_a_user_of_none() {
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
            // The user is inside of the lock much of the time, and is so when the driver takes the core from it.
            while !flag.0.load(Ordering::SeqCst) {
                let mut far = pin!(engine.sleep(Duration::from_secs(3600)).slack(Slack::adaptive()));
                assert!(far.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
        }
        // Three hundred fires take some ten milliseconds. Each time that the driver spins it is most of a second.
        let spent = time_on_core(driver) - before;
        assert!(spent < ms(600), "the driver has spun for {spent:?}");
        drop(engine);
        until_driver_has_ended(driver);
    });
}

#[test]
fn d71_users_of_a_real_time_priority_and_a_driver_of_none_go_on() {
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
