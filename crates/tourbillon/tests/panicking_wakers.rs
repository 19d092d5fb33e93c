//! Wakers that panic when they are woken, cloned or dropped, and a driver's notification that panics: the engine catches the panic, and
//! no other timer is lost.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;

use futures_lite::future::block_on;
use support::{Log, Task, eventually, manual, ms, now, poll_with, waker, years};
use tourbillon::{Clock, Driver, Engine, Outcome};

/// Runs the closure without the standard hook's output about panics that are part of the test.
fn quietly(f: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let hook = Arc::new(std::panic::take_hook());
    let again = Arc::clone(&hook);
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref() != Some(&"a waker panics, on purpose") {
            again(info);
        }
    }));
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    drop(std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| hook(info)));
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn p6_a_waker_that_panics_is_counted_and_the_others_are_woken() {
    let engine = manual();
    let log = Log::default();
    let mut sleeps: Vec<_> = (0..10).map(|_| Box::pin(engine.sleep(ms(10)))).collect();
    for (name, sleep) in sleeps.iter_mut().enumerate() {
        let panics = waker(|| std::panic::panic_any("a waker panics, on purpose"));
        let waker = if name % 2 == 0 { panics } else { log.waker(name as u64) };
        assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    }
    quietly(|| assert_eq!(engine.advance(ms(10)), 10));
    assert_eq!(log.take(), [1, 3, 5, 7, 9]);
    assert_eq!(engine.stats().waker_panics, 5);
    assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Fired)));
    // The engine continues as before.
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), &log.waker(99)).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    assert_eq!(log.take(), [99]);
}

#[test]
fn p6_a_waker_that_panics_at_shutdown_is_counted_and_the_others_are_woken() {
    let engine = manual();
    let log = Log::default();
    let mut sleeps: Vec<_> = (0..10).map(|_| Box::pin(engine.sleep(ms(10)))).collect();
    for (name, sleep) in sleeps.iter_mut().enumerate() {
        let panics = waker(|| std::panic::panic_any("a waker panics, on purpose"));
        let waker = if name % 2 == 0 { panics } else { log.waker(name as u64) };
        assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    }
    quietly(|| engine.shutdown());
    assert_eq!(log.take().len(), 5);
    assert_eq!(engine.stats().waker_panics, 5);
}

#[test]
fn p6_the_driver_thread_survives_a_waker_that_panics() {
    let engine = Engine::builder().build().unwrap();
    quietly(|| {
        let panics = waker(|| std::panic::panic_any("a waker panics, on purpose"));
        let mut sleep = Box::pin(engine.sleep(ms(1)));
        while poll_with(sleep.as_mut(), &panics).is_ready() {
            sleep = Box::pin(engine.sleep(ms(1)));
        }
        eventually("the panic is counted", || engine.stats().waker_panics == 1);
    });
    block_on(engine.sleep(ms(1)));
}

#[test]
fn p6_a_waker_that_panics_when_a_sleep_is_reset_into_the_past_does_not_harm_the_caller() {
    let engine = manual();
    engine.advance(ms(100));
    let mut sleep = pin!(engine.sleep(ms(10)));
    let panics = waker(|| std::panic::panic_any("a waker panics, on purpose"));
    assert!(poll_with(sleep.as_mut(), &panics).is_pending());
    quietly(|| {
        sleep.as_mut().reset(now(&engine) - ms(50));
        engine.turn();
    });
    assert_eq!((sleep.outcome(), engine.stats().waker_panics), (Some(Outcome::Fired), 1));
}

#[test]
fn p6_a_waker_that_panics_when_its_slot_is_granted_does_not_harm_the_thread_that_freed_the_slot() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let held = engine.try_sleep(ms(10)).unwrap();
    let mut first = Box::pin(engine.sleep(ms(10)));
    let mut second = pin!(engine.sleep(ms(10)));
    let panics = waker(|| std::panic::panic_any("a waker panics, on purpose"));
    let log = Log::default();
    assert!(poll_with(first.as_mut(), &panics).is_pending());
    assert!(poll_with(second.as_mut(), &log.waker(2)).is_pending());
    quietly(|| drop(held));
    assert_eq!(engine.stats().waker_panics, 1);
    // The slot is reserved for the first sleep all the same, until it is polled, dropped or due.
    assert_eq!(log.take(), []);
    drop(first);
    assert_eq!(log.take(), [2]);
}

#[test]
fn p6_a_panic_whose_payload_panics_when_it_is_dropped_does_not_end_the_driver() {
    struct Bomb(Arc<AtomicUsize>);

    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::panic::resume_unwind(Box::new("a payload panics, on purpose"));
        }
    }

    let dropped = Arc::new(AtomicUsize::new(0));
    // `panic!` would run the hook, which prints.
    let bomb = || {
        let dropped = Arc::clone(&dropped);
        waker(move || std::panic::resume_unwind(Box::new(Bomb(Arc::clone(&dropped)))))
    };
    for engine in [manual(), Engine::builder().build().unwrap()] {
        let task = Task::new();
        let mut sleep = Box::pin(engine.sleep(ms(5)));
        while poll_with(sleep.as_mut(), &bomb()).is_ready() {
            sleep = Box::pin(engine.sleep(ms(5)));
        }
        let mut beside = Box::pin(engine.sleep(ms(5)));
        let waits = task.poll(beside.as_mut()).is_pending();
        // Has no effect where the clock cannot be set.
        engine.clock().advance(ms(5));
        if engine.clock().is_manual() {
            engine.turn();
        }
        eventually("the panic is counted", || engine.stats().waker_panics == 1);
        eventually("the other waker is woken", || !waits || task.wakes() == 1);
        // The same at a shutdown.
        let mut stopped = Box::pin(engine.sleep(years(1)));
        assert!(poll_with(stopped.as_mut(), &bomb()).is_pending());
        engine.shutdown();
        assert_eq!(engine.stats().waker_panics, 2);
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 4, "each payload is dropped once, and its panic is caught");
}

#[test]
fn p6_a_notify_of_an_external_driver_that_panics_harms_neither_the_arming_thread_nor_the_timer() {
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    let driver = Driver::external_with(move || {
        count.fetch_add(1, Ordering::SeqCst);
        // `panic!` would run the hook, which prints.
        std::panic::resume_unwind(Box::new("notify panics, on purpose"));
    });
    let engine = Engine::builder().clock(Clock::manual()).driver(driver).capacity(1).build().unwrap();
    let task = Task::new();
    for round in 1..=3 {
        let mut sleep = Box::pin(engine.sleep(ms(5)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(notified.load(Ordering::SeqCst), round);
        assert_eq!((engine.advance(ms(5)), task.wakes()), (1, 1));
        assert!(task.poll(sleep.as_mut()).is_ready());
    }
    // A cancelled timer frees its slot, and so does one that a shutdown ends.
    drop(engine.try_sleep(ms(5)).unwrap());
    let _held = engine.try_sleep(ms(5)).unwrap();
    engine.shutdown();
    assert_eq!(engine.stats().pending, 0);
}

#[test]
fn p6_p7_a_waker_that_panics_when_it_is_cloned_loses_no_slot() {
    fn panics(_: *const ()) -> RawWaker {
        panic!("a waker that cannot be cloned")
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(panics, |_| (), |_| (), |_| ());
    // SAFETY: there is no data, and the functions of the table use none.
    let waker = unsafe { Waker::new(std::ptr::null(), &TABLE) };
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let mut sleep = pin!(engine.sleep(ms(10)));
    let mut poll = || catch_unwind(AssertUnwindSafe(|| poll_with(sleep.as_mut(), &waker)));
    quietly(|| assert!(poll().is_err()));
    let takes_all_slots = engine.try_sleep(ms(10)).expect("the slot is free");
    quietly(|| assert!(poll().is_err()));
    drop(takes_all_slots);
    assert!(engine.try_sleep(ms(10)).is_ok());
}

#[test]
fn p6_p7_a_waker_that_cannot_be_cloned_twice_migrates_with_its_timer() {
    static CLONES: AtomicUsize = AtomicUsize::new(0);
    fn once(_: *const ()) -> RawWaker {
        assert_eq!(CLONES.fetch_add(1, Ordering::SeqCst), 0, "a waker that cannot be cloned twice");
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    static TABLE: RawWakerVTable = RawWakerVTable::new(once, |_| (), |_| (), |_| ());
    // SAFETY: there is no data, and the functions of the table use none.
    let waker = unsafe { Waker::new(std::ptr::null(), &TABLE) };
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).shards(2).build().unwrap();
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    let earlier = sleep.deadline() - ms(5);
    thread::scope(|scope| scope.spawn(|| sleep.as_mut().reset(earlier)).join().unwrap());
    assert_eq!((engine.stats().pending, engine.advance(ms(5))), (1, 1));
    drop(sleep);
    assert!(engine.try_sleep(ms(10)).is_ok(), "the slot is free again");
}

/// Panics when it is dropped, unless that would abort the process.
struct Fragile;

impl Wake for Fragile {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Fragile {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a waker's destructor");
        }
    }
}

#[test]
fn p6_p7_a_waker_that_panics_when_it_is_dropped_loses_no_slot() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    let waker = Waker::from(Arc::new(Fragile));
    assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    // From now on the engine has the last reference.
    drop(waker);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(sleep))).is_err());
    assert_eq!(engine.stats().pending, 0);
    assert!(engine.try_sleep(ms(10)).is_ok(), "the slot is free again");
}

#[test]
fn p6_p7_a_waker_that_panics_when_it_is_dropped_while_its_timer_migrates_loses_neither_slot_nor_timer() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).shards(2).build().unwrap();
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    let fragile = Waker::from(Arc::new(Fragile));
    assert!(poll_with(sleep.as_mut(), &fragile).is_pending());
    // From now on the engine has the last reference.
    drop(fragile);
    let task = Task::new();
    thread::scope(|scope| {
        let poll = || catch_unwind(AssertUnwindSafe(|| task.poll(sleep.as_mut())));
        assert!(scope.spawn(poll).join().unwrap().is_err(), "the panic of the waker is passed on");
    });
    assert_eq!((engine.stats().armed, engine.stats().pending), (1, 1));
    assert_eq!((engine.advance(ms(10)), task.wakes()), (1, 1));
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!(engine.stats().pending, 0);
    assert!(engine.try_sleep(ms(10)).is_ok(), "the slot is free again");
}
