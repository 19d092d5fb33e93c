//! Where callbacks run, and that each does: with a driver, turned from outside, during and after a shutdown.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use support::{Log, eventually, manual, ms};
use tourbillon::{Clock, Driver, Engine, Outcome, Timer};

fn threaded() -> Engine {
    Engine::builder().build().unwrap()
}

fn on(engine: &Engine, after: Duration) -> Timer {
    let timer = Timer::on(engine);
    timer.expires_after(after);
    timer
}

/// The outcome that a callback of this timer is told.
fn outcome_of(timer: &Timer) -> Receiver<Outcome> {
    let (send, receive) = mpsc::channel();
    timer.on_expiry(move |outcome| send.send(outcome).unwrap());
    receive
}

#[test]
fn a11_with_a_driver_callbacks_run_on_a_thread_of_the_engine_which_is_current_there() {
    let engine = threaded();
    let (send, receive) = mpsc::channel();
    let timer = on(&engine, ms(1));
    timer.on_expiry(move |outcome| {
        let name = thread::current().name().map(str::to_owned);
        send.send((outcome, name, Engine::current())).unwrap();
    });
    let (outcome, name, current) = receive.recv().unwrap();
    assert_eq!((outcome, name.as_deref()), (Outcome::Fired, Some("tourbillon-calls")));
    current.shutdown();
    assert!(engine.is_shutdown());
}

#[test]
fn p4_p11_a_callback_that_blocks_delays_no_timer() {
    let engine = threaded();
    let (release, blocked) = mpsc::channel::<()>();
    let (send, begun) = mpsc::channel();
    let timer = Timer::on(&engine);
    timer.on_expiry(move |_| {
        send.send(()).unwrap();
        blocked.recv().unwrap();
    });
    begun.recv().unwrap();
    let late = outcome_of(&timer);
    // Sleeps, waits and blocked threads go on: none of them needs the thread that is blocked.
    for _ in 0..10 {
        futures_lite::future::block_on(engine.sleep(ms(1)));
        assert_eq!(futures_lite::future::block_on(on(&engine, ms(1)).wait()), Outcome::Fired);
        assert_eq!(on(&engine, ms(1)).wait_blocking(), Outcome::Fired);
    }
    assert!(late.try_recv().is_err(), "callbacks wait for their turn");
    release.send(()).unwrap();
    assert_eq!(late.recv(), Ok(Outcome::Fired));
}

#[test]
fn p7_callbacks_are_counted_from_the_end_of_their_timer_until_they_return() {
    let engine = manual();
    let waiting = || engine.stats().callbacks_waiting;
    let timer = on(&engine, ms(1));
    let log = Log::default();
    for panics in [false, true, false] {
        let (log, engine) = (log.clone(), engine.clone());
        timer.on_expiry(move |_| {
            log.write(engine.stats().callbacks_waiting);
            assert!(!panics, "on purpose");
        });
    }
    assert_eq!(waiting(), 0, "the timer has not ended");
    assert_eq!((timer.cancel(), waiting()), (3, 3), "nobody has turned the engine");
    engine.turn();
    assert_eq!((log.take(), waiting()), (vec![3, 2, 1], 0));
}

#[test]
fn p6_a_callback_that_panics_is_counted_and_takes_nobody_with_it() {
    for engine in [threaded(), manual()] {
        let timer = Timer::on(&engine);
        let log = Log::default();
        for name in 0..10 {
            let log = log.clone();
            timer.on_expiry(move |_| {
                log.write(name);
                if name % 2 == 0 {
                    std::panic::panic_any(PanicsWhenDropped);
                }
            });
        }
        engine.advance(ms(1));
        let last = outcome_of(&timer);
        engine.turn();
        assert_eq!(last.recv(), Ok(Outcome::Fired));
        assert_eq!((log.take(), engine.stats().callback_panics), ((0..10).collect(), 5));
    }
}

#[test]
fn p7_what_a_callback_throws_is_freed() {
    let engine = manual();
    let (timer, thrown) = (Timer::on(&engine), Arc::new(()));
    for _ in 0..10 {
        let payload = Arc::clone(&thrown);
        timer.on_expiry(move |_| std::panic::panic_any(payload));
    }
    engine.advance(ms(1));
    assert_eq!((engine.stats().callback_panics, Arc::strong_count(&thrown)), (10, 1));
}

struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a payload that panics");
    }
}

#[test]
fn p3_callbacks_are_called_in_order_however_many_there_are() {
    let engine = threaded();
    let timer = Timer::on(&engine);
    let log = Log::default();
    for name in 0..10_000 {
        let log = log.clone();
        timer.on_expiry(move |_| log.write(name));
    }
    assert_eq!(outcome_of(&timer).recv(), Ok(Outcome::Fired));
    assert_eq!(log.take(), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn w7_d28_a_callback_may_shut_its_engine_down_and_the_others_are_told() {
    for engine in [threaded(), manual()] {
        let (now, later) = (Timer::on(&engine), on(&engine, ms(1000)));
        let stopped = outcome_of(&later);
        let (send, receive) = mpsc::channel();
        let handle = engine.clone();
        now.on_expiry(move |_| {
            handle.shutdown();
            handle.shutdown();
            send.send(()).unwrap();
        });
        let after = outcome_of(&now);
        engine.turn();
        receive.recv().unwrap();
        assert_eq!(stopped.recv(), Ok(Outcome::Stopped));
        // On the engine's own thread the callback may have come before the second wait was begun.
        let (after, is_turned) = (after.recv(), engine.clock().is_manual());
        assert!(after == Ok(Outcome::Fired) || (after == Ok(Outcome::Stopped) && !is_turned), "{after:?}");
    }
}

#[test]
fn d28_what_waits_at_shutdown_is_called_before_that_returns_if_the_engine_is_turned_from_outside() {
    let (engine, called) = (manual(), Arc::new(AtomicUsize::new(0)));
    let timers: Vec<_> = (0..100).map(|after| on(&engine, ms(after))).collect();
    for timer in &timers {
        let (called, next) = (called.clone(), Timer::on(&engine));
        timer.on_expiry(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            // One that comes of another is called, too.
            let called = called.clone();
            next.on_expiry(move |outcome| {
                assert_ne!(outcome, Outcome::Fired);
                called.fetch_add(1, Ordering::SeqCst);
            });
        });
    }
    engine.shutdown();
    assert_eq!(called.load(Ordering::SeqCst), 200);
    assert!(!engine.turn().more);
}

#[test]
fn d28_d32_what_is_begun_after_a_shutdown_is_told_so_by_a_thread() {
    for engine in [threaded(), manual()] {
        let timer = on(&engine, ms(1000));
        let before = outcome_of(&timer);
        engine.shutdown();
        assert_eq!(before.recv(), Ok(Outcome::Stopped));
        for _ in 0..3 {
            let (send, receive) = mpsc::channel();
            let here = thread::current().id();
            timer.on_expiry(move |outcome| send.send((outcome, thread::current().id() != here)).unwrap());
            assert_eq!(receive.recv(), Ok((Outcome::Stopped, true)));
        }
    }
}

#[test]
fn d28_the_thread_of_callbacks_does_not_keep_an_engine_that_nobody_has() {
    let engine = threaded();
    let (first, pending) = (Timer::on(&engine), on(&engine, ms(1_000_000)));
    assert_eq!(outcome_of(&first).recv(), Ok(Outcome::Fired), "so there is a thread");
    let stopped = outcome_of(&pending);
    drop(engine);
    assert_eq!(stopped.recv(), Ok(Outcome::Stopped));
}

#[test]
#[cfg(target_os = "linux")]
fn p7_the_thread_of_callbacks_ends_with_its_engine() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("own-calls")).count()
    };
    let engine = threaded();
    let timer = Timer::on(&engine);
    let (send, receive) = mpsc::channel();
    timer.on_expiry(move |_| {
        // So that it can be told from those of other tests.
        rename_thread();
        send.send(()).unwrap();
    });
    receive.recv().unwrap();
    assert_eq!(threads(), 1);
    drop(engine);
    eventually("the thread ends", || threads() == 0);
}

#[cfg(target_os = "linux")]
fn rename_thread() {
    std::fs::write("/proc/thread-self/comm", "own-calls").unwrap();
}

#[test]
fn w8_a_turn_calls_what_waited_when_it_began() {
    let engine = manual();
    let timer = Arc::new(Timer::on(&engine));
    let log = Log::default();
    for name in 0..3 {
        let (log, again, timer) = (log.clone(), timer.clone(), timer.clone());
        timer.on_expiry(move |_| {
            log.write(name);
            again.on_expiry(move |_| log.write(name + 10));
        });
    }
    assert!(engine.turn().more);
    assert_eq!(log.take(), [0, 1, 2]);
    assert!(!engine.turn().more);
    assert_eq!(log.take(), [10, 11, 12]);
}

#[test]
fn b6_time_is_not_advanced_before_all_that_is_due_was_called() {
    let engine = manual();
    let start = engine.clock().now();
    let timers: Vec<_> = [30, 10, 20, 10].map(|after| Arc::new(on(&engine, ms(after)))).into();
    let log = Arc::new(Mutex::new(Vec::new()));
    for timer in &timers {
        let (log, again, clock) = (log.clone(), timer.clone(), engine.clock().clone());
        timer.on_expiry(move |_| {
            log.lock().unwrap().push((1, Duration::from(clock.now() - start)));
            // And what comes of it: at once, since it has expired, and five milliseconds later.
            let more = log.clone();
            let at = clock.clone();
            again.on_expiry(move |_| more.lock().unwrap().push((2, Duration::from(at.now() - start))));
        });
    }
    engine.advance(ms(30));
    let expected =
        [(1, ms(10)), (1, ms(10)), (2, ms(10)), (2, ms(10)), (1, ms(20)), (2, ms(20)), (1, ms(30)), (2, ms(30))];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[test]
fn w8_a_callback_that_never_stops_coming_back_does_not_keep_time_from_moving() {
    fn again(timer: &Arc<Timer>, calls: &Arc<AtomicUsize>) {
        let (timer, calls) = (timer.clone(), calls.clone());
        timer.clone().on_expiry(move |outcome| {
            calls.fetch_add(1, Ordering::Relaxed);
            if outcome == Outcome::Fired {
                again(&timer, &calls);
            }
        });
    }
    let engine = manual();
    let (timer, calls) = (Arc::new(Timer::on(&engine)), Arc::new(AtomicUsize::new(0)));
    let other = on(&engine, ms(5));
    let fired = outcome_of(&other);
    again(&timer, &calls);
    engine.advance(ms(10));
    assert!(calls.load(Ordering::Relaxed) > 10_000);
    assert_eq!(fired.try_recv(), Ok(Outcome::Fired));
    engine.shutdown();
}

#[test]
fn a11_who_turns_an_engine_from_outside_is_told_that_there_is_something_to_call() {
    let told = Arc::new(AtomicUsize::new(0));
    let notify = {
        let told = told.clone();
        move || _ = told.fetch_add(1, Ordering::SeqCst)
    };
    let driver = Driver::external_with(notify);
    let engine = Engine::builder().clock(Clock::manual()).driver(driver).build().unwrap();
    let timer = Timer::on(&engine);
    assert!(!engine.turn().more);
    assert_eq!(told.swap(0, Ordering::SeqCst), 0);
    let fired = outcome_of(&timer);
    assert_eq!(told.swap(0, Ordering::SeqCst), 1);
    let second = outcome_of(&timer);
    assert_eq!(told.swap(0, Ordering::SeqCst), 0, "once is enough");
    assert!(!engine.turn().more);
    assert_eq!((fired.try_recv(), second.try_recv()), (Ok(Outcome::Fired), Ok(Outcome::Fired)));
    let third = outcome_of(&timer);
    assert_eq!(told.swap(0, Ordering::SeqCst), 1, "after a turn, again");
    engine.turn();
    assert_eq!(third.try_recv(), Ok(Outcome::Fired));
}

#[test]
fn w8_a_callback_that_turns_or_advances_its_engine_calls_nobody_from_within() {
    let (engine, log) = (manual(), Log::default());
    let depth = Arc::new(AtomicUsize::new(0));
    let timer = Timer::on(&engine);
    for name in 0..5 {
        let (engine, log, depth) = (engine.clone(), log.clone(), depth.clone());
        timer.on_expiry(move |_| {
            assert_eq!(depth.fetch_add(1, Ordering::SeqCst), 0, "one at a time");
            log.write(name);
            assert!(!engine.turn().more, "not for this one to do");
            engine.advance(ms(10));
            depth.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let due = on(&engine, ms(25));
    let fired = outcome_of(&due);
    engine.turn();
    assert_eq!(log.take(), [0, 1, 2, 3, 4]);
    engine.turn();
    assert_eq!(fired.try_recv(), Ok(Outcome::Fired));
}

#[test]
fn p4_a_million_callbacks_are_called_each_once() {
    let engine = threaded();
    let timer = on(&engine, ms(1_000_000));
    let (count, all) = (Arc::new(AtomicUsize::new(0)), 1_000_000);
    for _ in 0..all {
        let count = count.clone();
        timer.on_expiry(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    }
    let start = StdInstant::now();
    assert_eq!(timer.cancel(), all);
    let last = outcome_of(&Timer::on(&engine));
    assert_eq!(last.recv(), Ok(Outcome::Fired));
    println!("{all} callbacks in {:?}", start.elapsed());
    assert_eq!(count.load(Ordering::Relaxed), all);
}

#[test]
fn p10_a_callback_may_hold_what_the_poster_holds() {
    // A mutex of the user's, locked by who cancels and by the callback: nothing is called inside the cancel.
    for engine in [threaded(), manual()] {
        let timer = Arc::new(on(&engine, ms(1000)));
        let mutex = Arc::new(Mutex::new(0));
        let done = Arc::new(AtomicBool::new(false));
        {
            let mut held = mutex.lock().unwrap();
            let (mutex, done) = (mutex.clone(), done.clone());
            timer.on_expiry(move |_| {
                *mutex.lock().unwrap() += 1;
                done.store(true, Ordering::SeqCst);
            });
            *held += timer.cancel();
        }
        engine.turn();
        eventually("the callback is called", || done.load(Ordering::SeqCst));
        assert_eq!(*mutex.lock().unwrap(), 2);
    }
}
