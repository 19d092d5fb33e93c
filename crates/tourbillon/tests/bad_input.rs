//! What nobody should do and somebody will: typed errors and outcomes, no panic, no hang, and nobody else's timer lost.

mod by_hand;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::Duration;

use by_hand::{Log, Task, eventually, manual, ms, poll_with, waker, years};
use futures_lite::future::block_on;
use tourbillon::time::{self, Instant, Sleep};
use tourbillon::{ArmError, BuildError, Clock, Driver, Engine, Outcome, QueueKind, Slack};
use tourbillon_queue::Time;

const NANO: Duration = Duration::from_nanos(1);

fn now(engine: &Engine) -> Instant {
    engine.sleep(Duration::ZERO).deadline()
}

/// An engine that is turned by hand, with so many shards.
fn with_shards(shards: usize) -> Engine {
    Engine::builder().clock(Clock::manual()).shards(shards).build().unwrap()
}

#[test]
fn b1_without_any_runtime_a_sleep_can_be_waited_for() {
    let start = std::time::Instant::now();
    block_on(time::sleep(ms(5)));
    assert!(start.elapsed() >= ms(5));
    // And without an executor, by nothing but a waker.
    let (told, hears) = mpsc::channel();
    let mut sleep = pin!(time::sleep(ms(5)));
    let tells = waker(move || told.send(()).unwrap());
    if poll_with(sleep.as_mut(), &tells).is_ready() {
        tells.wake();
    }
    hears.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(sleep.is_elapsed());
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use super::*;

    #[test]
    fn d41_timers_of_a_tokio_driver_fire_after_its_runtime_is_gone() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let engine = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() });
        let mut before = Box::pin(engine.sleep(ms(50)));
        let _ = poll_with(before.as_mut(), Waker::noop());
        runtime.block_on(engine.sleep(ms(1)));
        drop(runtime);
        block_on(before.as_mut());
        assert_eq!(before.outcome(), Some(Outcome::Fired));
        let mut after = Box::pin(engine.sleep(ms(5)));
        block_on(after.as_mut());
        assert_eq!(after.outcome(), Some(Outcome::Fired));
        engine.shutdown();
    }

    #[test]
    fn d41_a_current_thread_runtime_that_is_never_run_again_and_dropped_hands_its_timers_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = {
            let _context = runtime.enter();
            Engine::builder().driver(Driver::tokio()).build().unwrap()
        };
        // Its driver has not had a single turn yet.
        let mut sleep = Box::pin(engine.sleep(ms(5)));
        let _ = poll_with(sleep.as_mut(), Waker::noop());
        drop(runtime);
        block_on(sleep.as_mut());
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    }

    #[test]
    fn p6_a_tokio_driver_outside_a_runtime_is_refused_with_a_message() {
        let refused = Engine::builder().driver(Driver::tokio()).build().unwrap_err();
        assert!(matches!(refused, BuildError::NoRuntime), "{refused:?}");
        assert!(refused.to_string().contains("Tokio runtime"), "{refused}");
    }

    #[test]
    fn p6_a_tokio_driver_in_a_runtime_without_input_and_output_is_refused_with_a_message() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _context = runtime.enter();
        let refused = Engine::builder().driver(Driver::tokio()).build().unwrap_err();
        assert!(matches!(refused, BuildError::NoRuntime), "{refused:?}");
    }

    #[test]
    fn p6_a_tokio_driver_with_a_manual_clock_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        let refused = Engine::builder().clock(Clock::manual()).driver(Driver::tokio()).build().unwrap_err();
        assert!(matches!(refused, BuildError::ManualClock), "{refused:?}");
    }
}

#[test]
fn p6_what_cannot_be_built_is_refused_with_a_message_that_says_what_to_do() {
    let refused = Engine::builder().shards(0).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoShards));
    assert_eq!(refused.to_string(), "an engine needs at least one shard");

    let refused = Engine::builder().capacity(0).build().unwrap_err();
    assert!(matches!(refused, BuildError::NoCapacity));
    assert_eq!(refused.to_string(), "an engine needs a capacity of at least one timer");

    let refused = Engine::builder().clock(Clock::manual()).driver(Driver::thread()).build().unwrap_err();
    assert!(matches!(refused, BuildError::ManualClock));
    assert!(refused.to_string().contains("Driver::external()"), "{refused}");

    for (tick, slots, says) in [(Duration::ZERO, 16, "tick"), (ms(1), 0, "slots"), (ms(1), usize::MAX, "slots")] {
        let refused = Engine::builder().queue(QueueKind::Rounds { tick, slots }).build().unwrap_err();
        assert!(matches!(refused, BuildError::Rounds(_)));
        assert!(refused.to_string().contains("QueueKind::Rounds") && refused.to_string().contains(says), "{refused}");
        assert!(std::error::Error::source(&refused).is_some());
    }
}

#[test]
fn w7_d32_after_shutdown_nothing_is_armed_and_everything_says_so() {
    let engine = manual();
    let task = Task::new();
    let mut armed = pin!(engine.sleep(ms(10)));
    assert!(task.poll(armed.as_mut()).is_pending());
    assert!(!engine.is_shutdown());
    engine.shutdown();
    engine.shutdown();
    assert!(engine.is_shutdown());
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(armed.as_mut()).is_ready());
    assert_eq!(armed.outcome(), Some(Outcome::Stopped));
    // New ones, of any length; and old ones that are reset.
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Stopped);
    assert_eq!(engine.try_sleep(Duration::MAX).unwrap_err(), ArmError::Stopped);
    assert_eq!(engine.try_sleep(Duration::ZERO).unwrap_err(), ArmError::Stopped);
    assert!(ArmError::Stopped.to_string().starts_with("the engine has been shut down"));
    let later = now(&engine) + ms(10);
    armed.as_mut().reset(later);
    assert!(task.poll(armed.as_mut()).is_ready());
    for duration in [Duration::ZERO, ms(10), Duration::MAX] {
        let mut sleep = pin!(engine.sleep(duration));
        assert!(task.poll(sleep.as_mut()).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    }
    assert_eq!(engine.advance(years(1)), 0);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.stopped, stats.pending), (1, 1, 0));
}

#[test]
fn w7_after_shutdown_no_turn_is_wanted() {
    let engine = with_shards(2);
    let sleeps: Vec<_> = [ms(1), ms(10), years(1)].map(|duration| engine.try_sleep(duration).unwrap()).into();
    engine.clock().advance(ms(5));
    engine.shutdown();
    for _ in 0..2 {
        let turn = engine.turn();
        assert_eq!((turn.fired, turn.more, turn.next), (0, false, None));
        assert_eq!(engine.advance(ms(100)), 0);
    }
    assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Stopped)));
}

#[test]
fn w7_d41_a_shutdown_while_other_threads_arm_leaves_nobody_waiting() {
    for round in 0..20 {
        let engine = Engine::builder().shards(2).build().unwrap();
        let (stopped, fired) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while stopped.load(Ordering::SeqCst) < 100 {
                        // Half of them would not end within the life of this test.
                        for duration in [Duration::from_micros(50), years(1)] {
                            if duration > ms(1) && !engine.is_shutdown() && fired.load(Ordering::SeqCst) % 8 > 0 {
                                continue;
                            }
                            let mut sleep = pin!(engine.sleep(duration));
                            block_on(sleep.as_mut());
                            match sleep.outcome() {
                                Some(Outcome::Fired) => fired.fetch_add(1, Ordering::SeqCst),
                                Some(Outcome::Stopped) => stopped.fetch_add(1, Ordering::SeqCst),
                                other => panic!("ready, and yet {other:?}"),
                            };
                        }
                    }
                });
            }
            thread::sleep(Duration::from_micros(200 * round));
            engine.shutdown();
        });
        let stats = engine.stats();
        assert_eq!(stats.pending, 0);
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped);
    }
}

#[test]
fn p6_an_engine_dropped_while_its_sleeps_are_held_stops_them() {
    let engine = manual();
    let task = Task::new();
    let mut armed = pin!(engine.sleep(ms(10)));
    let mut unpolled = pin!(engine.sleep(ms(10)));
    assert!(task.poll(armed.as_mut()).is_pending());
    let clone = engine.clone();
    drop(engine);
    assert_eq!(armed.outcome(), None, "there is another handle");
    drop(clone);
    assert_eq!(task.wakes(), 1);
    assert_eq!(armed.outcome(), Some(Outcome::Stopped));
    assert!(task.poll(armed.as_mut()).is_ready());
    assert!(task.poll(unpolled.as_mut()).is_ready());
    assert_eq!(unpolled.outcome(), Some(Outcome::Stopped));
    // They can still be asked, and reset, and dropped.
    let deadline = armed.deadline();
    armed.as_mut().reset(deadline);
    unpolled.as_mut().disarm();
}

#[test]
fn p6_the_last_of_an_engine_can_be_a_sleep_on_a_thread_that_never_used_it() {
    for armed in [false, true] {
        let arm = move || {
            let mut sleep = Box::pin(manual().sleep(ms(1)));
            let _ = armed && poll_with(sleep.as_mut(), Waker::noop()).is_ready();
            sleep
        };
        let mut sleep = thread::spawn(arm).join().unwrap();
        assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
        let deadline = sleep.deadline();
        sleep.as_mut().reset(deadline + ms(1));
        thread::spawn(move || drop(sleep)).join().unwrap();
    }
}

#[test]
fn p6_the_last_handle_can_be_dropped_by_a_waker_on_the_driver_thread() {
    let engine = Engine::builder().build().unwrap();
    let mut other = Box::pin(engine.sleep(years(1)));
    assert!(poll_with(other.as_mut(), Waker::noop()).is_pending());
    let mut sleep = Box::pin(engine.sleep(ms(5)));
    let held = Arc::new(Mutex::new(None));
    let dropper = {
        let held = Arc::clone(&held);
        waker(move || drop::<Option<Engine>>(held.lock().unwrap().take()))
    };
    *held.lock().unwrap() = Some(engine);
    if poll_with(sleep.as_mut(), &dropper).is_ready() {
        dropper.wake();
    }
    eventually("the other is stopped", || other.outcome() == Some(Outcome::Stopped));
    assert_eq!(sleep.outcome(), Some(Outcome::Fired));
}

#[test]
fn p5_durations_from_zero_to_max_are_all_valid() {
    let engine = manual();
    let task = Task::new();
    let start = now(&engine);
    for duration in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX), years(600)] {
        for slack in [Slack::adaptive(), Slack::exact(), Slack::upto(Duration::MAX), Slack::precise()] {
            let mut sleep = pin!(engine.sleep(duration).slack(slack));
            assert!(sleep.deadline() > start + years(100));
            assert!(task.poll(sleep.as_mut()).is_pending());
            assert!(engine.try_sleep(duration).is_ok());
            // They can be moved like any other.
            sleep.as_mut().reset(start + Duration::MAX);
            sleep.as_mut().disarm();
            sleep.as_mut().arm();
            assert_eq!(engine.advance(ms(1)), 0);
            assert!(task.poll(sleep.as_mut()).is_pending());
            let soon = now(&engine) + ms(1);
            sleep.as_mut().reset(soon);
            let most = if slack == Slack::upto(Duration::MAX) { None } else { Some(1) };
            assert!(most.is_none_or(|fired| engine.advance(ms(1)) == fired), "{duration:?} with {slack:?}");
        }
    }
    assert!(task.poll(pin!(engine.sleep(Duration::ZERO))).is_ready());
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
    // It goes on as if nothing had been.
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
fn p6_a_waker_that_panics_when_a_sleep_is_reset_into_the_past_does_not_harm_who_resets() {
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
fn p6_a_waker_that_panics_when_there_is_room_again_does_not_harm_who_made_room() {
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
    // The place is reserved for the first all the same, until it is polled, dropped or due.
    assert_eq!(log.take(), []);
    drop(first);
    assert_eq!(log.take(), [2]);
}

/// Panics when it is dropped, unless that would end the process.
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
fn p6_p7_a_waker_that_panics_when_it_is_dropped_takes_no_room_with_it() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    let waker = Waker::from(Arc::new(Fragile));
    assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    // From now on the engine has the last one.
    drop(waker);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(sleep))).is_err());
    assert_eq!(engine.stats().pending, 0);
    assert!(engine.try_sleep(ms(10)).is_ok(), "the room was given back");
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
    // Not by the macro: the hook would print it.
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
        // Does nothing where the clock takes no orders.
        engine.clock().advance(ms(5));
        if engine.clock().is_manual() {
            engine.turn();
        }
        eventually("the panic is counted", || engine.stats().waker_panics == 1);
        eventually("the one beside is woken", || !waits || task.wakes() == 1);
        // And at a shutdown.
        let mut stopped = Box::pin(engine.sleep(years(1)));
        assert!(poll_with(stopped.as_mut(), &bomb()).is_pending());
        engine.shutdown();
        assert_eq!(engine.stats().waker_panics, 2);
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 4, "each is dropped once, and what that throws goes no further");
}

#[test]
fn p6_a_notify_of_an_external_driver_that_panics_harms_neither_who_arms_nor_the_timer() {
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    let driver = Driver::external_with(move || {
        count.fetch_add(1, Ordering::SeqCst);
        // Not by the macro: the hook would print it.
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
    // One that is cancelled gives its place back, and so does one that a shutdown ends.
    drop(engine.try_sleep(ms(5)).unwrap());
    let _held = engine.try_sleep(ms(5)).unwrap();
    engine.shutdown();
    assert_eq!(engine.stats().pending, 0);
}

/// Without what the standard hook prints about panics that are part of the test.
fn quietly(f: impl FnOnce()) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
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
fn d43_p7_at_capacity_try_sleep_gives_an_error_that_says_the_limit() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(3).build().unwrap();
    let mut held: Vec<_> = (0..3).map(|_| engine.try_sleep(ms(10)).unwrap()).collect();
    let full = engine.try_sleep(ms(10)).unwrap_err();
    assert_eq!(full, ArmError::Full { capacity: 3 });
    assert!(full.to_string().contains('3'), "{full}");
    assert!(engine.try_sleep(Duration::ZERO).is_ok(), "what is due already takes no place");
    held.pop();
    let again = engine.try_sleep(ms(10)).unwrap();
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 3 });
    drop((held, again));
    let all: Vec<_> = (0..3).map(|_| engine.try_sleep(ms(10))).collect();
    assert!(all.iter().all(Result::is_ok), "every place has come back");
}

#[test]
fn d43_p1_at_capacity_a_plain_sleep_waits_for_room_and_is_never_early() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let (first_task, task) = (Task::new(), Task::new());
    let mut first = Box::pin(engine.sleep(ms(10)));
    assert!(first_task.poll(first.as_mut()).is_pending());
    let mut soon = pin!(engine.sleep(ms(5)));
    let mut late = pin!(engine.sleep(ms(50)));
    assert!(task.poll(soon.as_mut()).is_pending());
    assert!(task.poll(late.as_mut()).is_pending());
    assert_eq!(engine.stats().armed, 1);
    engine.advance(ms(10));
    assert!(first_task.poll(first.as_mut()).is_ready());
    assert!(task.wakes() >= 1, "there is room");
    assert!(task.poll(soon.as_mut()).is_ready(), "its time has passed meanwhile");
    assert!(task.poll(late.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(40) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert!(task.poll(late.as_mut()).is_ready());
}

#[test]
fn d43_a_sleep_that_waits_for_room_is_stopped_by_a_shutdown() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _held = engine.try_sleep(ms(5)).unwrap();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(5)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.shutdown();
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
}

#[test]
fn d43_d32_an_engine_that_was_full_when_it_was_shut_down_says_that_it_is_stopped() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let held = engine.try_sleep(ms(5)).unwrap();
    engine.shutdown();
    assert_eq!(engine.try_sleep(ms(5)).unwrap_err(), ArmError::Stopped);
    drop(held);
    assert_eq!(engine.try_sleep(ms(5)).unwrap_err(), ArmError::Stopped);
}

#[test]
fn d43_a_sleep_that_is_dropped_while_it_waits_for_room_lets_its_waker_go_and_harms_no_other() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let held = engine.try_sleep(ms(100)).unwrap();
    let (waits, goes) = (Task::new(), Task::new());
    let mut waiting = pin!(engine.sleep(ms(10)));
    assert!(waits.poll(waiting.as_mut()).is_pending());
    for _ in 0..100 {
        let mut sleep = Box::pin(engine.sleep(ms(1)));
        assert!(goes.poll(sleep.as_mut()).is_pending());
        drop(sleep);
        assert_eq!(goes.wakers_held(), 0);
        // The other may be asked to look again, and has to wait on.
        if waits.wakes() > 0 {
            assert!(waits.poll(waiting.as_mut()).is_pending());
        }
    }
    drop(held);
    assert!(waits.wakes() > 0, "there is room");
    assert!(waits.poll(waiting.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    assert!(waits.poll(waiting.as_mut()).is_ready());
    assert_eq!(waits.wakers_held(), 0);
}

#[test]
fn d43_many_threads_share_a_small_capacity_and_all_get_through() {
    let engine = Engine::builder().capacity(2).shards(2).build().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let start = std::time::Instant::now();
                    block_on(engine.sleep(Duration::from_micros(100)));
                    assert!(start.elapsed() >= Duration::from_micros(100));
                }
            });
        }
    });
    let stats = engine.stats();
    assert_eq!((stats.pending, stats.armed), (0, stats.fired));
}

#[test]
fn p8_a_manual_clock_stepped_back_postpones_and_stepped_forward_fires_at_once() {
    for queue in [QueueKind::Wheel, QueueKind::Heap, QueueKind::ListTree, QueueKind::Rounds { tick: ms(1), slots: 64 }]
    {
        let engine = Engine::builder().clock(Clock::manual()).queue(queue).build().unwrap();
        let clock = engine.clock().clone();
        let log = Log::default();
        let start = clock.now();
        let mut sleeps: Vec<_> = [10, 20, 4000].map(|millis| (millis, Box::pin(engine.sleep(ms(millis))))).into();
        for (name, sleep) in &mut sleeps {
            assert!(poll_with(sleep.as_mut(), &log.waker(*name)).is_pending());
        }
        clock.advance(ms(5));
        engine.turn();
        // An hour back: what is pending is due at the same times as before, which are an hour further away.
        clock.set(Time::from_nanos(start.as_nanos() - 3_600_000_000_000));
        engine.turn();
        assert_eq!(log.take(), [], "{queue:?}");
        let mut early = Box::pin(engine.sleep(ms(1)));
        assert!(poll_with(early.as_mut(), &log.waker(1)).is_pending());
        clock.advance(ms(1));
        let mut turn = engine.turn();
        while turn.more {
            turn = engine.turn();
        }
        assert_eq!(log.take(), [1], "{queue:?}: a timer armed after the step");
        // And forward past all of them.
        clock.set(start + ms(5000).into());
        while engine.turn().more {}
        assert_eq!(log.take(), [10, 20, 4000], "{queue:?}");
    }
}

#[test]
fn p6_guards_nest_and_the_innermost_engine_is_used() {
    let (outer, inner) = (manual(), manual());
    let armed = || {
        let mut sleep = Box::pin(time::sleep(years(1)));
        assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
        sleep
    };
    let guard = outer.enter();
    let one = armed();
    let guard_again = outer.enter();
    let two = armed();
    let inner_guard = inner.enter();
    let three = armed();
    assert_eq!((outer.stats().pending, inner.stats().pending), (2, 1));
    drop(inner_guard);
    let four = armed();
    drop(guard_again);
    let five = armed();
    assert_eq!((outer.stats().pending, inner.stats().pending), (4, 1));
    drop(guard);
    let global = armed();
    assert_eq!((outer.stats().pending, inner.stats().pending), (4, 1));
    drop((one, two, three, four, five, global));
    assert_eq!((outer.stats().pending, inner.stats().pending), (0, 0));
}

#[test]
fn p6_guards_dropped_in_the_wrong_order_do_no_harm() {
    let (one, two) = (manual(), manual());
    let (guard_one, guard_two) = (one.enter(), two.enter());
    drop(guard_one);
    // What was entered before is gone by the time the second guard would return to it.
    drop(one);
    let others: Vec<_> = (0..4).map(|_| manual()).collect();
    for other in &others {
        let _ = poll_with(pin!(other.sleep(ms(1))), Waker::noop());
    }
    drop(guard_two);
    block_on(time::sleep(ms(1)));
    let _ = Instant::now();
}

#[test]
fn p6_a_guard_outlives_a_shutdown() {
    let engine = manual();
    let guard = engine.enter();
    engine.shutdown();
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    // Others come and go on this thread meanwhile.
    for _ in 0..4 {
        let _ = poll_with(pin!(manual().sleep(ms(1))), Waker::noop());
    }
    assert!(Engine::current().is_shutdown());
    drop(guard);
    block_on(time::sleep(ms(1)));
}

#[test]
fn p6_guards_dropped_in_any_order_after_a_shutdown_return_to_homes_that_are_there() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        // Each step of the story with a shutdown of each engine, before the first guard goes or after it.
        for (shut_down, after) in [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (0, 2), (1, 2)] {
            let engines = [manual(), manual(), manual()];
            let mut guards: Vec<_> = engines.iter().map(|engine| Some(engine.enter())).collect();
            for (step, which) in order.into_iter().enumerate() {
                if step == after {
                    engines[shut_down].shutdown();
                }
                // A new home, so that those go that can.
                drop(manual().sleep(ms(1)));
                guards[which] = None;
                drop(manual().sleep(ms(1)));
                // Whichever engine this is.
                let _ = poll_with(pin!(time::sleep(ms(1))), Waker::noop());
                let _ = Engine::current().stats();
            }
            if order == [2, 1, 0] {
                assert!(engines.iter().all(|engine| engine.stats().pending == 0));
            }
        }
    }
    // Whatever was entered last by now, one that is entered anew is the one that is used.
    let engine = manual();
    let _guard = engine.enter();
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
}

#[test]
fn p6_a_guard_that_is_dropped_after_a_shutdown_returns_to_the_engine_before_it() {
    let (outer, inner) = (manual(), manual());
    let outer_guard = outer.enter();
    let inner_guard = inner.enter();
    outer.shutdown();
    (0..4).for_each(|_| drop(manual().sleep(ms(1))));
    drop(inner_guard);
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped), "it is the one that was shut down");
    (0..4).for_each(|_| drop(manual().sleep(ms(1))));
    drop(outer_guard);
    assert!(!Engine::current().is_shutdown());
}

#[test]
fn p6_destructors_of_the_users_may_use_timers_while_the_last_of_an_engine_goes() {
    struct Uses(Option<Pin<Box<Sleep>>>, Arc<AtomicBool>);

    impl Drop for Uses {
        fn drop(&mut self) {
            // Makes a home, in the midst of one's going; drops a timer of yet another engine.
            let engine = manual();
            assert!(poll_with(pin!(engine.sleep(ms(1))), Waker::noop()).is_pending());
            self.0 = None;
            let _guard = engine.enter();
            drop(time::sleep(ms(1)));
            self.1.store(true, Ordering::SeqCst);
        }
    }

    let (other, went) = (manual(), Arc::new(AtomicBool::new(false)));
    let mut sleep = Box::pin(other.sleep(ms(1)));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
    let uses = Mutex::new(Uses(Some(sleep), Arc::clone(&went)));
    let notify = move || drop(uses.lock().unwrap());
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external_with(notify)).build().unwrap();
    drop(engine.sleep(ms(1)));
    drop(engine);
    assert!(!went.load(Ordering::SeqCst), "this thread is at home in it still");
    // The home goes when another is made, and what was the user's with it.
    drop(manual().sleep(ms(1)));
    assert!(went.load(Ordering::SeqCst));
    assert_eq!(other.stats().pending, 0);
}

#[test]
fn p6_two_engines_on_one_thread_keep_apart() {
    let engines = [manual(), manual()];
    let log = Log::default();
    let mut sleeps = Vec::new();
    for name in 0..100_u64 {
        let mut sleep = Box::pin(engines[name as usize % 2].sleep(ms(10)));
        assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
        sleeps.push(sleep);
    }
    assert_eq!(engines[0].advance(ms(10)), 50);
    assert!(log.take().iter().all(|name| name % 2 == 0));
    // Dropped in an order of their own, and in no engine's context.
    sleeps.truncate(50);
    assert_eq!(engines[1].stats().pending, 25);
    assert_eq!(engines[1].advance(ms(10)), 25);
}

#[test]
fn p6_more_threads_than_shards_share_them() {
    let engine = with_shards(2);
    let log = Log::default();
    let sleeps: Mutex<Vec<Pin<Box<Sleep>>>> = Mutex::default();
    let all_here = std::sync::Barrier::new(8);
    thread::scope(|scope| {
        for name in 0..8 {
            let (engine, log, sleeps, all_here) = (&engine, &log, &sleeps, &all_here);
            scope.spawn(move || {
                let mut sleep = Box::pin(engine.sleep(ms(10 + name)));
                assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
                // All of them are alive at once, so that six have no shard of their own.
                all_here.wait();
                // Half are cancelled where they are.
                if name % 2 == 0 {
                    sleeps.lock().unwrap().push(sleep);
                }
            });
        }
    });
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled, stats.pending, stats.shards), (8, 4, 4, 2));
    assert_eq!(engine.advance(ms(100)), 4);
    assert_eq!(log.take(), [0, 2, 4, 6]);
}

#[test]
fn p6_timers_of_threads_that_have_ended_fire_and_their_shards_are_used_again() {
    let engine = with_shards(4);
    let log = Log::default();
    let mut sleeps = Vec::new();
    for name in 0..100 {
        let armed = thread::scope(|scope| {
            let arm = || {
                let mut sleep = Box::pin(engine.sleep(ms(10)));
                assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
                sleep
            };
            scope.spawn(arm).join().unwrap()
        });
        sleeps.push(armed);
    }
    assert_eq!(engine.stats().shards, 1, "each thread took over from the one before");
    assert_eq!(engine.advance(ms(10)), 100);
    assert_eq!(log.take(), (0..100).collect::<Vec<_>>());
}

#[test]
fn p6_timers_can_be_used_and_dropped_in_the_destructors_of_thread_locals() {
    struct Late {
        engine: Engine,
        sleep: Option<Pin<Box<Sleep>>>,
        went_well: Arc<AtomicBool>,
    }

    impl Drop for Late {
        fn drop(&mut self) {
            let mut own = Box::pin(self.engine.sleep(ms(10)));
            assert!(poll_with(own.as_mut(), Waker::noop()).is_pending());
            let mut global = Box::pin(time::sleep(ms(1)));
            block_on(global.as_mut());
            assert_eq!(global.outcome(), Some(Outcome::Fired));
            if let Some(mut sleep) = self.sleep.take() {
                assert_eq!(poll_with(sleep.as_mut(), &waker(|| {})), Poll::Pending);
                sleep.as_mut().reset(Instant::now() + ms(1));
            }
            let _guard = self.engine.enter();
            drop(time::sleep(ms(1)));
            drop(Engine::current());
            self.went_well.store(true, Ordering::SeqCst);
        }
    }

    thread_local! {
        // The first to be made is the last to be destroyed, on most systems: both orders are tried below.
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }

    for before in [false, true] {
        let went_well = Arc::new(AtomicBool::new(false));
        let (engine, went_well_there) = (with_shards(4), Arc::clone(&went_well));
        let its_engine = engine.clone();
        thread::spawn(move || {
            let engine = its_engine;
            if before {
                LATE.with(|_| {});
            }
            let mut sleep = Box::pin(engine.sleep(ms(10)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            let late = Late { engine, sleep: Some(sleep), went_well: went_well_there };
            LATE.set(Some(late));
        })
        .join()
        .unwrap();
        assert!(went_well.load(Ordering::SeqCst), "with the thread local made before: {before}");
        let stats = engine.stats();
        assert_eq!((stats.pending, stats.armed), (0, stats.cancelled + stats.fired));
    }
}

#[test]
fn p6_advancing_an_engine_whose_clock_takes_no_orders_only_fires_what_is_due() {
    let engine = Engine::builder().driver(Driver::external()).build().unwrap();
    let task = Task::new();
    let mut due = Box::pin(engine.sleep(ms(1)));
    while task.poll(due.as_mut()).is_ready() {
        due = Box::pin(engine.sleep(ms(1)));
    }
    let mut far = pin!(engine.sleep(years(1)));
    assert!(task.poll(far.as_mut()).is_pending());
    thread::sleep(ms(2));
    assert_eq!(engine.advance(years(2)), 1);
    assert!(due.is_elapsed() && !far.is_elapsed());
}

#[test]
fn b5_stats_of_timers_that_have_moved_to_another_shard_add_up() {
    let engine = with_shards(2);
    // This thread has the first shard, and arms nothing in it.
    drop(engine.sleep(ms(1)));
    let task = Task::new();
    let mut sleep = thread::scope(|scope| {
        let arm = || {
            let mut sleep = Box::pin(engine.sleep(ms(10)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            sleep
        };
        scope.spawn(arm).join().unwrap()
    });
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(ms(10)), 1);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (1, 1, 0));
}

#[test]
fn p5_a_manual_clock_can_be_advanced_to_the_end_of_time() {
    let engine = manual();
    let task = Task::new();
    let mut far = pin!(engine.sleep(years(100)));
    let mut never = pin!(engine.sleep(Duration::MAX));
    assert!(task.poll(far.as_mut()).is_pending());
    assert!(task.poll(never.as_mut()).is_pending());
    assert_eq!(engine.advance(Duration::MAX), 1);
    assert!(far.is_elapsed() && !never.is_elapsed());
}

#[test]
fn b7_the_try_forms_say_at_once_that_an_engine_is_full_or_stopped() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _entered = engine.enter();
    let first = tourbillon::time::try_sleep(ms(10)).expect("there is room for one");
    assert_eq!(tourbillon::time::try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 });
    let (error, future) = tourbillon::time::try_timeout(ms(10), std::future::ready(7)).expect_err("it is full");
    assert_eq!((error, future.into_inner()), (ArmError::Full { capacity: 1 }, 7));
    drop(first);
    assert!(tourbillon::time::try_timeout(ms(10), std::future::ready(7)).is_ok());
    engine.shutdown();
    assert_eq!(tourbillon::time::try_sleep(ms(10)).unwrap_err(), ArmError::Stopped);
}

#[test]
fn p8_b8_a_sleep_until_a_time_of_day_is_counted_from_what_is_left_or_by_the_wall_clock_itself() {
    let manual = Engine::builder().clock(Clock::manual()).build().unwrap();
    let wall = Engine::builder().clock(Clock::wall()).driver(Driver::external()).build().unwrap();
    let soon = std::time::SystemTime::now() + Duration::from_secs(3600);
    for engine in [&manual, &wall] {
        let mut sleep = std::pin::pin!(engine.sleep_until_wall(soon));
        assert!(poll_with(sleep.as_mut(), std::task::Waker::noop()).is_pending());
        let mut past = std::pin::pin!(engine.sleep_until_wall(std::time::SystemTime::UNIX_EPOCH));
        assert!(poll_with(past.as_mut(), std::task::Waker::noop()).is_ready());
    }
    let left = manual.turn().next.expect("one is pending") - manual.clock().now();
    assert!(left <= Duration::from_secs(3600).into() && left > Duration::from_secs(3000).into());
    let due = wall.turn().next.expect("one is pending").as_nanos();
    assert_eq!(u128::from(due), soon.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap().as_nanos());
}

#[test]
fn p7_a_sleep_that_finds_neither_room_nor_an_engine_leaves_no_waker_behind() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let _takes_all_room = engine.try_sleep(ms(10)).unwrap();
    engine.shutdown();
    let (task, mut late) = (Task::new(), Box::pin(engine.sleep(ms(10))));
    assert!(task.poll(late.as_mut()).is_ready());
    drop(late);
    assert_eq!(task.wakers_held(), 0);
}

#[test]
fn b6_d65_sleeps_that_wait_for_room_are_woken_one_for_each_place_in_the_order_in_which_they_came() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let takes_all_room = engine.try_sleep(ms(10)).unwrap();
    let log = Log::default();
    let wakers: Vec<_> = (0..20).map(|name| log.waker(name)).collect();
    let mut sleeps: Vec<_> = wakers.iter().map(|_| Box::pin(engine.sleep(ms(10)))).collect();
    for _ in 0..2 {
        // Who asks twice keeps its place.
        for (sleep, waker) in sleeps.iter_mut().zip(&wakers) {
            assert!(poll_with(sleep.as_mut(), waker).is_pending());
        }
    }
    drop(takes_all_room);
    for name in 0..20 {
        assert_eq!(log.take(), [name], "one place, one wake-up");
        drop(sleeps.remove(0));
    }
}

/// An engine that is full, and what takes its room.
fn full() -> (Engine, Sleep) {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let takes_all_room = engine.try_sleep(years(1)).unwrap();
    (engine, takes_all_room)
}

#[test]
fn p7_a_sleep_that_waits_for_room_keeps_the_newest_of_its_wakers_and_no_other() {
    let (engine, takes_all_room) = full();
    let mut sleep = pin!(engine.sleep(ms(10)));
    let tasks: Vec<_> = (0..1000).map(|_| Task::new()).collect();
    for task in &tasks {
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(tasks.iter().map(Task::wakers_held).sum::<usize>(), 1);
        assert_eq!(task.wakers_held(), 1);
    }
    drop(takes_all_room);
    let woken: Vec<_> = tasks.iter().map(Task::wakes).collect();
    assert_eq!((woken[999], woken.iter().sum()), (1, 1));
    assert!(tasks[0].poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.stats().pending, 1, "it has the room");
    assert_eq!((engine.advance(ms(10)), tasks[0].wakes()), (1, 1));
}

#[test]
fn b6_d65_a_sleep_that_waits_for_room_keeps_its_place_with_another_waker_and_nobody_overtakes_it() {
    let (engine, takes_all_room) = full();
    let log = Log::default();
    let mut sleeps: Vec<_> = (0..20).map(|_| Box::pin(engine.sleep(ms(10)))).collect();
    for (name, sleep) in sleeps.iter_mut().enumerate() {
        assert!(poll_with(sleep.as_mut(), &log.waker(name as u64)).is_pending());
    }
    for (name, sleep) in sleeps.iter_mut().enumerate().rev() {
        assert!(poll_with(sleep.as_mut(), &log.waker(100 + name as u64)).is_pending());
    }
    drop(takes_all_room);
    for name in 0..20 {
        assert_eq!(log.take(), [100 + name]);
        assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 }, "the place is reserved");
        let mut first = sleeps.remove(0);
        // Armed or not, it gives the place on when it goes.
        let _armed = name % 2 == 0 && poll_with(first.as_mut(), &log.waker(0)).is_ready();
    }
    assert!(engine.try_sleep(ms(10)).is_ok());
}

#[test]
fn p7_who_gives_up_waiting_for_room_disturbs_nobody_else_in_the_line() {
    let (engine, takes_all_room) = full();
    let (patient, impatient) = (Task::new(), Task::new());
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(patient.poll(sleep.as_mut()).is_pending());
    for _ in 0..100 {
        let mut gives_up = Box::pin(engine.sleep(ms(10)));
        assert!(impatient.poll(gives_up.as_mut()).is_pending());
        assert_eq!(impatient.wakers_held(), 1);
        drop(gives_up);
        assert_eq!((impatient.wakers_held(), patient.wakers_held()), (0, 1));
    }
    assert_eq!((impatient.wakes(), patient.wakes()), (0, 0));
    drop(takes_all_room);
    assert_eq!((impatient.wakes(), patient.wakes()), (0, 1));
}

#[test]
fn p7_a_sleep_that_waits_for_room_has_a_deadline_as_any_other() {
    let (engine, takes_all_room) = full();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)).slack(Slack::exact()));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(sleep.deadline(), start + ms(10));
    sleep.as_mut().reset(start + ms(30));
    assert_eq!((sleep.deadline(), sleep.outcome()), (start + ms(30), None));
    assert!(task.poll(sleep.as_mut()).is_pending());
    // Held, it waits on, and is for ever where it gets room; let go, it is due as before.
    sleep.as_mut().disarm();
    assert_eq!((sleep.deadline(), task.wakers_held()), (start + ms(30), 1));
    assert_eq!(engine.advance(ms(20)), 0);
    drop(takes_all_room);
    assert_eq!(task.wakes(), 1);
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!((engine.stats().pending, sleep.deadline()), (1, start + ms(30)));
    sleep.as_mut().arm();
    assert_eq!((engine.advance(ms(10) - NANO), engine.advance(NANO)), (0, 1));
    assert_eq!(task.wakes(), 1);
}

#[test]
fn p4_d64_a_sleep_that_comes_due_while_it_waits_for_room_ends_at_its_deadline() {
    let (engine, _takes_all_room) = full();
    let start = now(&engine);
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(9));
    assert!(task.poll(sleep.as_mut()).is_pending());
    engine.advance(ms(1));
    assert!(sleep.is_elapsed(), "before it is polled");
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!((sleep.outcome(), sleep.deadline()), (Some(Outcome::Fired), start + ms(10)));
    assert_eq!((task.wakers_held(), task.wakes()), (0, 1));
    // Reset, it waits again; and the task is woken if that is in the past.
    sleep.as_mut().reset(start + ms(20));
    assert!(task.poll(sleep.as_mut()).is_pending());
    sleep.as_mut().reset(start);
    assert_eq!((task.wakes(), task.wakers_held(), sleep.outcome()), (1, 0, Some(Outcome::Fired)));
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn p6_p7_a_waker_that_panics_when_it_is_cloned_takes_no_room_with_it() {
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
    let takes_all_room = engine.try_sleep(ms(10)).expect("nobody has taken the room");
    quietly(|| assert!(poll().is_err()));
    drop(takes_all_room);
    assert!(engine.try_sleep(ms(10)).is_ok());
}

#[test]
fn p6_p7_a_waker_that_panics_when_it_is_dropped_while_its_timer_moves_house_takes_neither_room_nor_timer_with_it() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).shards(2).build().unwrap();
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    let fragile = Waker::from(Arc::new(Fragile));
    assert!(poll_with(sleep.as_mut(), &fragile).is_pending());
    // From now on the engine has the last one.
    drop(fragile);
    let task = Task::new();
    thread::scope(|scope| {
        let poll = || catch_unwind(AssertUnwindSafe(|| task.poll(sleep.as_mut())));
        assert!(scope.spawn(poll).join().unwrap().is_err(), "the waker's own affair");
    });
    assert_eq!((engine.stats().armed, engine.stats().pending), (1, 1));
    assert_eq!((engine.advance(ms(10)), task.wakes()), (1, 1));
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert_eq!(engine.stats().pending, 0);
    assert!(engine.try_sleep(ms(10)).is_ok(), "the room was given back");
}

#[test]
fn p6_p7_a_waker_that_cannot_be_cloned_twice_moves_house_with_its_timer() {
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
    assert!(engine.try_sleep(ms(10)).is_ok(), "the room was given back");
}

#[test]
fn p5_at_the_end_of_time_what_never_ends_does_not_end() {
    let set: [fn(&Engine); 3] = [
        |engine| engine.clock().set(Time::NEVER),
        |engine| engine.clock().advance(Duration::MAX),
        |engine| _ = engine.advance(Duration::MAX),
    ];
    for set in set {
        let engine = manual();
        let task = Task::new();
        let mut armed = pin!(engine.sleep(Duration::MAX));
        assert!(task.poll(armed.as_mut()).is_pending());
        set(&engine);
        let mut held = pin!(engine.sleep(Duration::ZERO));
        held.as_mut().disarm();
        for never in [armed.as_mut(), held.as_mut(), pin!(engine.sleep(Duration::MAX)), pin!(engine.sleep(years(1)))] {
            assert_eq!((task.poll(never), engine.turn().fired), (Poll::Pending, 0));
        }
        assert_eq!(task.poll(pin!(engine.sleep(Duration::ZERO))), Poll::Ready(()), "now is now");
    }
}

#[test]
fn p1_p5_the_last_timers_fire_before_the_end_of_time_whatever_their_slack() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let upto = [ms(1), minutes(3), Duration::MAX].map(Slack::upto);
    for slack in [Slack::adaptive(), Slack::exact(), Slack::precise()].into_iter().chain(upto) {
        let engine = manual();
        engine.clock().set(Time::NEVER);
        let end = engine.clock().now().as_nanos();
        engine.clock().set(Time::from_nanos(end - minutes(2).as_nanos() as u64));
        let task = Task::new();
        let mut sleep = pin!(engine.sleep(minutes(1)).slack(slack));
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(engine.advance(minutes(1) - NANO), 0);
        assert_eq!((engine.advance(Duration::MAX), task.wakes()), (1, 1), "{slack:?}");
    }
}
