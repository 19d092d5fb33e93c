//! The driver thread stalls while all others run: a debugger, a page fault on a slow disk, a waker that blocks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tourbillon::{Engine, Slack};

use crate::audit::TimerAudit;
use crate::child::{Child, child_part, report};
use crate::support::{eventually, ms, poll_with, waker, years};

/// How long a signal holds the thread that it hits.
const STALL: Duration = Duration::from_millis(100);
const STALLS: u64 = 8;

/// How often a thread was held, and whether one is held now.
static HELD: AtomicU64 = AtomicU64::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);

#[test]
fn p1_p2_p4_a_driver_that_stalls_for_a_while_loses_no_timer_and_other_threads_arm_meanwhile() {
    let test = "stalled::p1_p2_p4_a_driver_that_stalls_for_a_while_loses_no_timer_and_other_threads_arm_meanwhile";
    match child_part(test) {
        None => Child::spawn(test, "is held").succeeds(),
        Some(_) => is_held(),
    }
}

fn is_held() {
    hold_on_signal();
    let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
    let mut audit = TimerAudit::new(&engine);
    eventually("the driver has started", || driver().is_some());
    let (mut meanwhile, mut free) = (0, 0);
    for stall in 1..=STALLS {
        // Sometimes the signal comes while the driver sleeps, sometimes while it works.
        (0..200 * (stall % 2)).for_each(|number| _ = audit.arm(Duration::from_micros(50 * number)));
        (1..=60).for_each(|millis| _ = audit.arm(ms(millis)));
        signal(driver().unwrap());
        eventually("the driver is held", || HELD.load(Ordering::SeqCst) == stall);
        let before = meanwhile;
        while IS_HELD.load(Ordering::SeqCst) {
            audit.arm(years(1));
            audit.cancel_last();
            meanwhile += u64::from(IS_HELD.load(Ordering::SeqCst));
        }
        free += u64::from(meanwhile > before);
        audit.cancel_some();
        audit.all_fire();
    }
    // If the signal comes while the driver has the shard locked, a thread that arms there waits for the driver.
    assert!(free > 0, "no thread could arm during any stall of the driver");
    let late_batches = audit.recovers();
    report(&format!("{meanwhile} timers armed and cancelled while the driver was held, in {free} of {STALLS} stalls"));
    let result = audit.check(&format!("driver held {STALLS} times for {STALL:?}, {late_batches} late batches"));
    assert!(result.latest >= STALL / 4, "the driver was not held: {result:?}");
}

#[test]
fn p2_p10_a_waker_that_blocks_the_driver_delays_its_engine_and_locks_no_thread_out() {
    let (blocked, other) = (Engine::builder().build().unwrap(), Engine::builder().build().unwrap());
    let (mut audit, mut others) = (TimerAudit::new(&blocked), TimerAudit::new(&other));
    let (release, released) = channel::<()>();
    let (released, is_blocking) = (Mutex::new(released), std::sync::Arc::new(AtomicBool::new(false)));
    let blocks = waker({
        let is_blocking = is_blocking.clone();
        move || {
            is_blocking.store(true, Ordering::SeqCst);
            released.lock().unwrap().recv().unwrap();
        }
    });
    let mut sleep = Box::pin(blocked.sleep(ms(1)));
    assert!(poll_with(sleep.as_mut(), &blocks).is_pending());
    eventually("the waker blocks", || is_blocking.load(Ordering::SeqCst));

    // In its own engine timers wait, and all threads can arm and cancel.
    (1..=20).for_each(|millis| _ = audit.arm(ms(millis)));
    for _ in 0..10_000 {
        audit.arm(years(1));
        audit.cancel_last();
    }
    std::thread::scope(|scope| {
        let far = || drop((0..1000).map(|_| blocked.try_sleep(years(1)).unwrap()).collect::<Vec<_>>());
        scope.spawn(far);
    });
    // Another engine is not affected.
    (1..=100).for_each(|number| _ = others.arm(Duration::from_micros(200 * number)));
    others.all_fire();
    assert_eq!(audit.woken(), 0, "the blocked driver has fired a timer");

    release.send(()).unwrap();
    eventually("the timers of the blocked engine fire", || blocked.stats().pending == 0);
    eventually("each of its wakers is woken", || audit.woken() == 20);
    let stats = blocked.stats();
    assert_eq!((stats.armed, stats.fired, stats.cancelled), (1 + 20 + 11_000, 1 + 20, 11_000), "{stats:?}");
    others.check("an engine beside one whose driver is blocked");
    report("a waker that blocks: 11000 timers armed and cancelled meanwhile, 21 fired afterwards, 0 early, 0 lost");
}

/// Installs a handler of SIGUSR1 that holds the thread that the signal hits.
fn hold_on_signal() {
    extern "C" fn hold(_: libc::c_int) {
        IS_HELD.store(true, Ordering::SeqCst);
        HELD.fetch_add(1, Ordering::SeqCst);
        let time = libc::timespec { tv_sec: 0, tv_nsec: STALL.as_nanos() as i64 };
        // SAFETY: `nanosleep` is async-signal-safe, and the time is on the handler's stack.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        IS_HELD.store(false, Ordering::SeqCst);
    }
    let handler: extern "C" fn(libc::c_int) = hold;
    // SAFETY: a zeroed `sigaction` is valid; the handler uses only atomics and `nanosleep`, which a handler may.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Returns the thread of the only driver in the process. (A thread sets its own name, so a new one may not have it yet.)
fn driver() -> Option<i32> {
    crate::driver_threads().first().copied()
}

fn signal(thread: i32) {
    // SAFETY: the call takes only numbers, and the signal has a handler.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
