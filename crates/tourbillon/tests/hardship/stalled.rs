//! The driver's thread stands still while all others run: a debugger, a page that comes from a slow disk, a waker that blocks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tourbillon::{Engine, Slack};

use crate::apart::{Child, part_of, report};
use crate::ledger::Ledger;
use crate::support::{eventually, ms, poll_with, waker, years};

/// How long a signal holds the thread that it hits.
const STALL: Duration = Duration::from_millis(100);
const STALLS: u64 = 8;

/// How often a thread was held, and whether one is held now.
static HELD: AtomicU64 = AtomicU64::new(0);
static IS_HELD: AtomicBool = AtomicBool::new(false);

#[test]
fn p1_p2_p4_a_driver_that_stands_still_for_a_while_loses_no_timer_and_others_arm_meanwhile() {
    let test = "stalled::p1_p2_p4_a_driver_that_stands_still_for_a_while_loses_no_timer_and_others_arm_meanwhile";
    match part_of(test) {
        None => Child::play(test, "is held").succeeds(),
        Some(_) => is_held(),
    }
}

fn is_held() {
    hold_on_signal();
    let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
    let mut ledger = Ledger::new(&engine);
    eventually("there is a driver", || driver().is_some());
    let (mut meanwhile, mut free) = (0, 0);
    for stall in 1..=STALLS {
        // Now it is hit when it sleeps, and now when it has something to do.
        (0..200 * (stall % 2)).for_each(|number| _ = ledger.arm(Duration::from_micros(50 * number)));
        (1..=60).for_each(|millis| _ = ledger.arm(ms(millis)));
        signal(driver().unwrap());
        eventually("it is held", || HELD.load(Ordering::SeqCst) == stall);
        let before = meanwhile;
        while IS_HELD.load(Ordering::SeqCst) {
            ledger.arm(years(1));
            ledger.cancel_last();
            meanwhile += u64::from(IS_HELD.load(Ordering::SeqCst));
        }
        free += u64::from(meanwhile > before);
        ledger.cancel_some();
        ledger.all_fire();
    }
    // It may be hit while it is in the shard, and then who arms there waits for it.
    assert!(free > 0, "nobody could ever arm while the driver stood still");
    let late_batches = ledger.recovers();
    report(&format!("{meanwhile} timers armed and cancelled while the driver was held, in {free} of {STALLS} stalls"));
    let account = ledger.balance(&format!("driver held {STALLS} times for {STALL:?}, {late_batches} late batches"));
    assert!(account.latest >= STALL / 4, "it was not held: {account:?}");
}

#[test]
fn p2_p10_a_waker_that_blocks_the_driver_delays_its_engine_and_nobody_is_locked_out() {
    let (blocked, other) = (Engine::builder().build().unwrap(), Engine::builder().build().unwrap());
    let (mut ledger, mut others) = (Ledger::new(&blocked), Ledger::new(&other));
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

    // Its own engine: timers wait, and everybody can arm and cancel, on this thread and on others.
    (1..=20).for_each(|millis| _ = ledger.arm(ms(millis)));
    for _ in 0..10_000 {
        ledger.arm(years(1));
        ledger.cancel_last();
    }
    std::thread::scope(|scope| {
        let far = || drop((0..1000).map(|_| blocked.try_sleep(years(1)).unwrap()).collect::<Vec<_>>());
        scope.spawn(far);
    });
    // Another engine goes on.
    (1..=100).for_each(|number| _ = others.arm(Duration::from_micros(200 * number)));
    others.all_fire();
    assert_eq!(ledger.woken(), 0, "its driver cannot have gone on");

    release.send(()).unwrap();
    eventually("its timers fire", || blocked.stats().pending == 0);
    eventually("each of them is woken", || ledger.woken() == 20);
    let stats = blocked.stats();
    assert_eq!((stats.armed, stats.fired, stats.cancelled), (1 + 20 + 11_000, 1 + 20, 11_000), "{stats:?}");
    others.balance("an engine beside one whose driver is blocked");
    report("a waker that blocks: 11000 timers armed and cancelled meanwhile, 21 fired afterwards, 0 early, 0 lost");
}

/// From now on SIGUSR1 holds the thread that it hits.
fn hold_on_signal() {
    extern "C" fn hold(_: libc::c_int) {
        IS_HELD.store(true, Ordering::SeqCst);
        HELD.fetch_add(1, Ordering::SeqCst);
        let time = libc::timespec { tv_sec: 0, tv_nsec: STALL.as_nanos() as i64 };
        // SAFETY: both are allowed to a signal handler, and the time is on its stack.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        IS_HELD.store(false, Ordering::SeqCst);
    }
    let handler: extern "C" fn(libc::c_int) = hold;
    // SAFETY: all of it is valid when zero; the handler does only what handlers may: atomics and `nanosleep`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// The thread of the only driver in the process. (A thread gives itself its name, so a new one may not have it yet.)
fn driver() -> Option<i32> {
    crate::driver_threads().first().copied()
}

fn signal(thread: i32) {
    // SAFETY: it takes numbers alone, and the signal has a handler.
    let result = unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
