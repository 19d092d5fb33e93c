//! Where callbacks run, and that each of them runs: with a driver, turned from outside, during and after a shutdown.

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

/// Returns a channel for the outcome that a callback of this timer receives.
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
    assert_eq!((outcome, name.as_deref()), (Outcome::Fired, Some("tourbillon-cb")));
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
    // Sleeps, waits and blocked threads continue: none of them needs the thread that is blocked.
    for _ in 0..10 {
        futures_lite::future::block_on(engine.sleep(ms(1)));
        assert_eq!(futures_lite::future::block_on(on(&engine, ms(1)).wait()), Outcome::Fired);
        assert_eq!(on(&engine, ms(1)).wait_blocking(), Outcome::Fired);
    }
    assert!(late.try_recv().is_err(), "the second callback waits for the first");
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
    assert_eq!((timer.cancel(), waiting()), (3, 3), "the engine has not been turned");
    engine.turn();
    assert_eq!((log.take(), waiting()), (vec![3, 2, 1], 0));
}

#[test]
fn p6_a_callback_that_panics_is_counted_and_harms_no_other() {
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
fn p7_the_panic_payload_of_a_callback_is_freed() {
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
fn w7_d28_a_callback_may_shut_its_engine_down_and_the_others_are_notified() {
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
        // On the engine's own thread the callback may have run before the second wait began.
        let (after, is_turned) = (after.recv(), engine.clock().is_manual());
        assert!(after == Ok(Outcome::Fired) || (after == Ok(Outcome::Stopped) && !is_turned), "{after:?}");
    }
}

#[test]
fn d28_callbacks_that_wait_at_shutdown_run_before_it_returns_if_the_engine_is_turned_from_outside() {
    let (engine, called) = (manual(), Arc::new(AtomicUsize::new(0)));
    let timers: Vec<_> = (0..100).map(|after| on(&engine, ms(after))).collect();
    for timer in &timers {
        let (called, next) = (called.clone(), Timer::on(&engine));
        timer.on_expiry(move |_| {
            called.fetch_add(1, Ordering::SeqCst);
            // A callback that another callback adds runs, too.
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
fn d28_d32_a_wait_that_begins_after_a_shutdown_gets_its_outcome_from_a_thread() {
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
fn d28_the_callback_thread_does_not_keep_an_engine_without_handles_alive() {
    let engine = threaded();
    let (first, pending) = (Timer::on(&engine), on(&engine, ms(1_000_000)));
    assert_eq!(outcome_of(&first).recv(), Ok(Outcome::Fired), "the callback thread exists");
    let stopped = outcome_of(&pending);
    drop(engine);
    assert_eq!(stopped.recv(), Ok(Outcome::Stopped));
}

#[test]
#[cfg(tourbillon_proc)]
fn p7_the_callback_thread_ends_with_its_engine() {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("own-calls")).count()
    };
    let engine = threaded();
    let timer = Timer::on(&engine);
    let (send, receive) = mpsc::channel();
    timer.on_expiry(move |_| {
        // A name that the callback threads of other tests do not have.
        rename_thread();
        send.send(()).unwrap();
    });
    receive.recv().unwrap();
    assert_eq!(threads(), 1);
    drop(engine);
    eventually("the thread ends", || threads() == 0);
}

#[cfg(tourbillon_proc)]
fn rename_thread() {
    std::fs::write("/proc/thread-self/comm", "own-calls").unwrap();
}

#[test]
fn w8_a_turn_runs_the_callbacks_that_waited_when_it_began() {
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
fn b6_time_is_not_advanced_before_all_due_callbacks_have_run() {
    let engine = manual();
    let start = engine.clock().now();
    let timers: Vec<_> = [30, 10, 20, 10].map(|after| Arc::new(on(&engine, ms(after)))).into();
    let log = Arc::new(Mutex::new(Vec::new()));
    for timer in &timers {
        let (log, again, clock) = (log.clone(), timer.clone(), engine.clock().clone());
        timer.on_expiry(move |_| {
            log.lock().unwrap().push((1, Duration::from(clock.now() - start)));
            // The callbacks that these add run too: at once, since the timer has expired, and five milliseconds later.
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
fn w8_a_callback_that_adds_itself_again_and_again_does_not_keep_time_from_moving() {
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
fn a11_a_driver_outside_is_notified_that_a_callback_is_waiting() {
    let notified = Arc::new(AtomicUsize::new(0));
    let notify = {
        let notified = notified.clone();
        move || _ = notified.fetch_add(1, Ordering::SeqCst)
    };
    let driver = Driver::external_with(notify);
    let engine = Engine::builder().clock(Clock::manual()).driver(driver).build().unwrap();
    let timer = Timer::on(&engine);
    assert!(!engine.turn().more);
    assert_eq!(notified.swap(0, Ordering::SeqCst), 0);
    let fired = outcome_of(&timer);
    assert_eq!(notified.swap(0, Ordering::SeqCst), 1);
    let second = outcome_of(&timer);
    assert_eq!(notified.swap(0, Ordering::SeqCst), 0, "one notification is enough");
    assert!(!engine.turn().more);
    assert_eq!((fired.try_recv(), second.try_recv()), (Ok(Outcome::Fired), Ok(Outcome::Fired)));
    let third = outcome_of(&timer);
    assert_eq!(notified.swap(0, Ordering::SeqCst), 1, "after a turn the driver is notified again");
    engine.turn();
    assert_eq!(third.try_recv(), Ok(Outcome::Fired));
}

#[test]
fn w8_a_callback_that_turns_or_advances_its_engine_runs_no_other_callback() {
    let (engine, log) = (manual(), Log::default());
    let depth = Arc::new(AtomicUsize::new(0));
    let timer = Timer::on(&engine);
    for name in 0..5 {
        let (engine, log, depth) = (engine.clone(), log.clone(), depth.clone());
        timer.on_expiry(move |_| {
            assert_eq!(depth.fetch_add(1, Ordering::SeqCst), 0, "callbacks are nested");
            log.write(name);
            assert!(!engine.turn().more, "a nested turn has nothing to do");
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
fn p4_a_million_callbacks_each_run_once() {
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
fn p10_a_callback_may_lock_a_mutex_that_its_caller_holds() {
    // A mutex of the user, locked by the cancelling thread and by the callback: the cancel runs no callback.
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
        eventually("the callback has run", || done.load(Ordering::SeqCst));
        assert_eq!(*mutex.lock().unwrap(), 2);
    }
}
