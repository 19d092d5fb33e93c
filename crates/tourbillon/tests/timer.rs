//! `Timer`: an expiry and its waits, in virtual time.

mod support;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::{Duration, SystemTime};

use support::{Log, Outcomes, Paused, Task, assert_shareable, manual, ms, poll_with, waker, years};
use tourbillon::time::Instant;
use tourbillon::timer::{Wait, WaitHandle};
use tourbillon::{Clock, Driver, Engine, Outcome, Timer};

fn on(engine: &Engine, after: Duration) -> Timer {
    let timer = Timer::on(engine);
    assert_eq!(timer.expires_after(after), 0);
    timer
}

fn poll(task: &Task, wait: &mut Wait) -> Poll<Outcome> {
    task.poll(Pin::new(wait))
}

const FIRED: Poll<Outcome> = Poll::Ready(Outcome::Fired);
const CANCELLED: Poll<Outcome> = Poll::Ready(Outcome::Cancelled);
const STOPPED: Poll<Outcome> = Poll::Ready(Outcome::Stopped);

#[test]
fn a13_a_timer_and_its_waits_can_be_sent_shared_and_moved() {
    assert_shareable::<Timer>();
    assert_shareable::<Wait>();
    assert_shareable::<WaitHandle>();
}

#[test]
fn a3_a4_all_waits_of_a_timer_end_when_it_expires_and_not_before() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timer = on(&engine, ms(10));
    let mut waits = [timer.wait(), timer.wait()];
    timer.on_expiry(outcomes.callback(1));
    assert!(waits.iter_mut().all(|wait| poll(&task, wait).is_pending()));
    engine.advance(ms(10) - Duration::from_nanos(1));
    assert!(waits.iter_mut().all(|wait| poll(&task, wait).is_pending()));
    assert_eq!((outcomes.take(), task.wakes()), (vec![], 0));
    assert_eq!(engine.advance(Duration::from_nanos(1)), 1, "one timer of the engine serves all waits");
    assert_eq!((outcomes.take(), task.wakes()), (vec![(1, Outcome::Fired)], 2));
    assert!(waits.iter_mut().all(|wait| poll(&task, wait) == FIRED));
}

#[test]
fn a4_waits_are_served_first_come_first_served() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = on(&engine, ms(1));
    (0..100).for_each(|name| _ = timer.on_expiry(outcomes.callback(name)));
    engine.advance(ms(1));
    assert_eq!(outcomes.take(), (0..100).map(|name| (name, Outcome::Fired)).collect::<Vec<_>>());
    // Also waits that began after the expiry, and for each way of ending.
    timer.on_expiry(outcomes.callback(1));
    assert_eq!(timer.expires_after(ms(5)), 0, "the first has fired already");
    timer.on_expiry(outcomes.callback(2));
    timer.on_expiry(outcomes.callback(3));
    assert!(timer.cancel_one());
    timer.on_expiry(outcomes.callback(4));
    assert_eq!(timer.cancel(), 2);
    engine.turn();
    let cancelled = |name| (name, Outcome::Cancelled);
    assert_eq!(outcomes.take(), [(1, Outcome::Fired), cancelled(2), cancelled(3), cancelled(4)]);
}

#[test]
fn a4_tasks_are_woken_in_the_order_in_which_they_began_to_wait() {
    let (engine, log) = (manual(), Log::default());
    let timer = on(&engine, ms(1));
    let mut waits = [timer.wait(), timer.wait(), timer.wait()];
    for (name, wait) in waits.iter_mut().enumerate().rev() {
        assert!(poll_with(Pin::new(wait), &log.waker(name as u64)).is_pending());
    }
    engine.advance(ms(1));
    assert_eq!(log.take(), [0, 1, 2]);
}

#[test]
fn a3_a5_setting_the_expiry_cancels_the_waits_and_returns_their_number() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timer = on(&engine, ms(10));
    let mut wait = timer.wait();
    timer.on_expiry(outcomes.callback(1));
    assert!(poll(&task, &mut wait).is_pending());
    assert_eq!(timer.expires_after(ms(20)), 2);
    assert_eq!((poll(&task, &mut wait), task.wakes()), (CANCELLED, 1));
    let start = timer.expiry().unwrap() - ms(20);
    assert_eq!(timer.expires_at(start + ms(30)), 0);
    assert_eq!(timer.expiry(), Some(start + ms(30)));
    let _wait = timer.wait();
    assert_eq!(timer.expires_at_wall(SystemTime::now() + years(1)), 1);
    let left = timer.expiry().unwrap() - start;
    assert!(left <= years(1) && left > years(1) - Duration::from_secs(60), "{left:?}");
    engine.advance(ms(30));
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled)]);
}

#[test]
fn a3_a_timer_that_was_never_set_counts_as_expired() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timer = Timer::on(&engine);
    assert_eq!(timer.expiry(), None);
    assert_eq!(poll(&task, &mut timer.wait()), FIRED);
    timer.on_expiry(outcomes.callback(1));
    engine.turn();
    assert_eq!(outcomes.take(), [(1, Outcome::Fired)]);
    assert_eq!(timer.expiry(), None);
}

#[test]
fn a5_cancel_counts_the_waits_that_it_ended_and_zero_means_too_late() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = on(&engine, ms(10));
    assert_eq!((timer.cancel(), timer.cancel_one()), (0, false));
    (0..5).for_each(|name| _ = timer.on_expiry(outcomes.callback(name)));
    assert!(timer.cancel_one());
    engine.turn();
    assert_eq!(outcomes.take(), [(0, Outcome::Cancelled)], "the oldest wait");
    assert_eq!(timer.cancel(), 4);
    assert_eq!((timer.cancel(), timer.cancel_one()), (0, false));
    engine.turn();
    assert_eq!(outcomes.take().len(), 4);
    assert!(timer.expiry().is_some(), "the timer keeps its expiry");
    timer.on_expiry(outcomes.callback(9));
    engine.advance(ms(10));
    assert_eq!((outcomes.take(), timer.cancel()), (vec![(9, Outcome::Fired)], 0));
}

#[test]
fn d27_a_cancel_after_the_expiry_and_before_the_turn_still_wins_and_no_wait_fires() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = on(&engine, ms(10));
    timer.on_expiry(outcomes.callback(1));
    engine.clock().advance(ms(11));
    assert_eq!(timer.cancel(), 1);
    engine.turn();
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled)]);
    // After the timer has fired, a cancel that comes before the callback runs does not count it.
    timer.on_expiry(outcomes.callback(2));
    assert_eq!(timer.cancel(), 0);
    engine.turn();
    assert_eq!(outcomes.take(), [(2, Outcome::Fired)]);
}

#[test]
fn a6_a_single_wait_is_cancelled_by_its_handle_or_by_dropping_it() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timer = on(&engine, ms(10));
    timer.on_expiry(outcomes.callback(1));
    let two = timer.on_expiry(outcomes.callback(2));
    let mut kept = timer.wait();
    let mut dropped = timer.wait();
    assert!(poll(&task, &mut kept).is_pending() && poll(&task, &mut dropped).is_pending());
    assert!(two.is_pending() && two.cancel());
    assert!(!two.is_pending() && !two.cancel());
    drop(dropped);
    engine.advance(ms(10));
    assert_eq!(outcomes.take(), [(2, Outcome::Cancelled), (1, Outcome::Fired)]);
    assert_eq!((poll(&task, &mut kept), task.wakes()), (FIRED, 1));
}

#[test]
fn a6_a_dropped_wait_counts_for_no_cancel_and_keeps_no_timer_armed() {
    let engine = manual();
    let timer = on(&engine, ms(10));
    let wait = timer.wait();
    assert_eq!(engine.stats().pending, 1);
    drop(wait);
    assert_eq!((timer.cancel(), engine.stats().pending), (0, 0));
}

#[test]
fn d25_a_single_wait_of_a_moved_timer_can_be_cancelled() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timer = on(&engine, ms(10));
    let (one, mut wait) = (timer.on_expiry(outcomes.callback(1)), timer.wait());
    timer.on_expiry(outcomes.callback(2));
    assert!(poll(&task, &mut wait).is_pending());
    let moved = thread::spawn(move || Box::new(timer)).join().unwrap();
    let mut storage = vec![*moved];
    storage.reserve(100);
    assert!(one.cancel());
    let wait = thread::spawn(move || wait).join().unwrap();
    engine.advance(ms(10));
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled), (2, Outcome::Fired)]);
    assert_eq!(task.poll(pin!(wait)), FIRED);
}

#[test]
fn a4_dropping_the_timer_cancels_its_waits() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timer = on(&engine, ms(10));
    let mut wait = timer.wait();
    let handle = timer.on_expiry(outcomes.callback(1));
    assert!(poll(&task, &mut wait).is_pending());
    drop(timer);
    assert_eq!((poll(&task, &mut wait), task.wakes(), handle.cancel()), (CANCELLED, 1, false));
    engine.turn();
    assert_eq!((outcomes.take(), engine.stats().pending), (vec![(1, Outcome::Cancelled)], 0));
}

#[test]
fn d28_shutdown_ends_every_wait_as_stopped() {
    let (engine, task, outcomes) = (manual(), Task::new(), Outcomes::default());
    let timers: Vec<_> = (0..10).map(|_| on(&engine, ms(10))).collect();
    let mut waits: Vec<_> = timers.iter().map(Timer::wait).collect();
    timers.iter().zip(0..).for_each(|(timer, name)| _ = timer.on_expiry(outcomes.callback(name)));
    assert!(waits.iter_mut().all(|wait| poll(&task, wait).is_pending()));
    engine.shutdown();
    let mut stopped = outcomes.take();
    stopped.sort_by_key(|(name, _)| *name);
    assert_eq!(stopped, (0..10).map(|name| (name, Outcome::Stopped)).collect::<Vec<_>>());
    assert_eq!(task.wakes(), 10);
    assert!(waits.iter_mut().all(|wait| poll(&task, wait) == STOPPED));
    assert!(timers.iter().all(|timer| timer.cancel() == 0));
    assert_eq!(poll(&task, &mut timers[0].wait()), STOPPED, "a wait that begins later is stopped, too");
    assert_eq!(timers[0].wait_blocking(), Outcome::Stopped);
}

#[test]
fn d28_dropping_the_last_handle_is_a_shutdown_that_timers_do_not_prevent() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = on(&engine, ms(10));
    timer.on_expiry(outcomes.callback(1));
    drop(engine);
    assert_eq!(outcomes.take(), [(1, Outcome::Stopped)]);
    drop(timer);
}

#[test]
fn a7_a_blocked_thread_gets_the_outcome_of_its_wait() {
    let engine = manual();
    let timer = Arc::new(on(&engine, ms(10)));
    for outcome in [Outcome::Cancelled, Outcome::Fired, Outcome::Stopped] {
        let waits = {
            let timer = timer.clone();
            thread::spawn(move || timer.wait_blocking())
        };
        support::eventually("the thread waits", || engine.stats().pending == 1);
        match outcome {
            Outcome::Cancelled => assert_eq!(timer.cancel(), 1),
            Outcome::Fired => assert_eq!(engine.advance(ms(10)), 1),
            Outcome::Stopped => engine.shutdown(),
        }
        assert_eq!(waits.join().unwrap(), outcome);
        timer.expires_after(ms(10));
    }
}

#[test]
fn a7_with_a_driver_a_thread_can_wait_in_one_line_of_code() {
    let engine = Engine::builder().build().unwrap();
    let start = Instant::now();
    let timer = on(&engine, ms(2));
    assert_eq!(timer.wait_blocking(), Outcome::Fired);
    assert!(start.elapsed() >= ms(2));
}

#[test]
fn d35_a11_callbacks_never_run_inside_the_call_that_begins_or_ends_the_wait() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = Timer::on(&engine);
    timer.on_expiry(outcomes.callback(0));
    timer.expires_after(Duration::ZERO);
    timer.on_expiry(outcomes.callback(1));
    timer.expires_at(timer.expiry().unwrap() - ms(10));
    timer.on_expiry(outcomes.callback(2));
    timer.expires_after(ms(10));
    let handle = timer.on_expiry(outcomes.callback(3));
    handle.cancel();
    timer.on_expiry(outcomes.callback(4));
    timer.cancel();
    timer.on_expiry(outcomes.callback(5));
    drop(timer);
    assert_eq!(outcomes.take(), []);
    engine.turn();
    let (fired, cancelled) = (Outcome::Fired, Outcome::Cancelled);
    let all = [(0, fired), (1, fired), (2, fired), (3, cancelled), (4, cancelled), (5, cancelled)];
    assert_eq!(outcomes.take(), all);
}

#[test]
fn p1_a_timer_that_is_set_again_does_not_fire_at_its_old_expiry() {
    let (engine, task) = (manual(), Task::new());
    let timer = on(&engine, ms(10));
    let old = timer.wait();
    timer.expires_after(ms(30));
    let mut new = timer.wait();
    assert!(poll(&task, &mut new).is_pending());
    engine.advance(ms(29));
    assert!(poll(&task, &mut new).is_pending());
    engine.advance(ms(1));
    assert_eq!((poll(&task, &mut new), task.wakes()), (FIRED, 1));
    drop(old);
}

#[test]
fn p1_an_expiry_that_is_moved_while_the_old_waits_are_being_notified_applies_to_the_new_waits() {
    // The waker that is woken at the old expiry sets the new one, and waits for it, while the timer ends its old waits.
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = Arc::new(on(&engine, ms(10)));
    let mut wait = timer.wait();
    let again = {
        let (timer, outcomes) = (timer.clone(), outcomes.clone());
        waker(move || {
            assert_eq!(timer.expires_after(ms(5)), 0);
            timer.on_expiry(outcomes.callback(7));
        })
    };
    assert!(poll_with(Pin::new(&mut wait), &again).is_pending());
    engine.advance(ms(14));
    assert_eq!(outcomes.take(), []);
    engine.advance(ms(1));
    assert_eq!(outcomes.take(), [(7, Outcome::Fired)]);
}

#[test]
fn p2_a_wait_that_has_ended_returns_its_outcome_at_every_poll() {
    let (engine, task) = (manual(), Task::new());
    let timer = on(&engine, ms(1));
    let mut wait = timer.wait();
    engine.advance(ms(1));
    assert!((0..3).all(|_| poll(&task, &mut wait) == FIRED));
    timer.expires_after(ms(1));
    timer.cancel();
    assert_eq!(poll(&task, &mut wait), FIRED);
}

#[test]
fn t6_the_task_that_polled_last_is_woken() {
    let (engine, first, last) = (manual(), Task::new(), Task::new());
    let timer = on(&engine, ms(1));
    let mut wait = timer.wait();
    assert!(poll(&first, &mut wait).is_pending());
    assert!((0..3).all(|_| poll(&last, &mut wait).is_pending()));
    assert_eq!((first.wakers_held(), last.wakers_held()), (0, 1));
    engine.advance(ms(1));
    assert_eq!((first.wakes(), last.wakes()), (0, 1));
}

#[test]
fn w9_p5_an_infinite_timer_never_fires_and_can_be_cancelled() {
    let (engine, outcomes) = (manual(), Outcomes::default());
    let timer = on(&engine, Duration::MAX);
    timer.on_expiry(outcomes.callback(1));
    let near = on(&engine, ms(10));
    near.on_expiry(outcomes.callback(2));
    engine.advance(years(100));
    assert_eq!(outcomes.take(), [(2, Outcome::Fired)], "D31: the far timer hides no other");
    assert_eq!(timer.cancel(), 1);
    engine.turn();
    assert_eq!(outcomes.take(), [(1, Outcome::Cancelled)]);
}

#[test]
fn p6_any_representable_time_is_accepted() {
    let (engine, task) = (manual(), Task::new());
    let timer = Timer::on(&engine);
    let now = on(&engine, Duration::ZERO).expiry().unwrap();
    let at = [now - years(1000), now - ms(1), now];
    for past in at {
        timer.expires_at(past);
        assert_eq!(poll(&task, &mut timer.wait()), FIRED);
    }
    for past in [SystemTime::UNIX_EPOCH, SystemTime::UNIX_EPOCH - years(100), SystemTime::now()] {
        timer.expires_at_wall(past);
        assert_eq!(poll(&task, &mut timer.wait()), FIRED);
    }
    for far in [now + Duration::MAX, now + years(400)] {
        timer.expires_at(far);
        assert!(poll(&task, &mut timer.wait()).is_pending());
        assert!(timer.expiry().unwrap() > now + years(300));
    }
    timer.expires_at_wall(SystemTime::now() + years(20_000));
    assert!(poll(&task, &mut timer.wait()).is_pending());
}

#[test]
fn p7_d64_at_the_engines_capacity_a_wait_ends_at_its_time() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    let (task, outcomes) = (Task::new(), Outcomes::default());
    let held = engine.try_sleep(years(1)).unwrap();
    let (timer, other) = (on(&engine, ms(10)), on(&engine, ms(30)));
    let mut wait = timer.wait();
    other.on_expiry(outcomes.callback(1));
    assert!(poll(&task, &mut wait).is_pending());
    engine.advance(ms(9));
    assert!(poll(&task, &mut wait).is_pending(), "never early");
    engine.advance(ms(1));
    assert_eq!((task.wakes(), poll(&task, &mut wait)), (1, FIRED));
    drop(held);
    engine.advance(ms(20));
    assert_eq!(outcomes.take(), [(1, Outcome::Fired)]);
    // A timer that waits for a slot can be cancelled, set again and dropped.
    let _held = engine.try_sleep(ms(20)).unwrap();
    timer.expires_after(ms(1));
    timer.on_expiry(outcomes.callback(2));
    assert_eq!((timer.expires_after(ms(2)), timer.cancel()), (1, 0));
    timer.on_expiry(outcomes.callback(3));
    drop(timer);
    engine.turn();
    assert_eq!(outcomes.take(), [(2, Outcome::Cancelled), (3, Outcome::Cancelled)]);
}

#[test]
fn p10_a_waker_or_a_destructor_that_calls_the_timer_does_not_deadlock() {
    struct Cancels(Arc<Timer>, Arc<AtomicUsize>);

    impl Drop for Cancels {
        fn drop(&mut self) {
            self.0.cancel();
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    let (engine, dropped) = (manual(), Arc::new(AtomicUsize::new(0)));
    let timer = Arc::new(on(&engine, ms(10)));
    let guard = || Cancels(timer.clone(), dropped.clone());
    let with = |cancels: Cancels| waker(move || _ = cancels.0.expires_after(ms(1)));
    let mut wait = timer.wait();
    // A new waker drops the one before; dropping the wait drops it; waking drops it too.
    assert!(poll_with(Pin::new(&mut wait), &with(guard())).is_pending());
    assert!(poll_with(Pin::new(&mut wait), &with(guard())) == CANCELLED || wait_is_over(&mut wait));
    drop(wait);
    let mut wait = timer.wait();
    assert!(poll_with(Pin::new(&mut wait), &with(guard())).is_pending());
    drop(wait);
    let mut wait = timer.wait();
    assert!(poll_with(Pin::new(&mut wait), &with(guard())).is_pending());
    engine.advance(ms(20));
    assert!(wait_is_over(&mut wait));
    let callback = guard();
    timer.on_expiry(move |_| drop(callback));
    timer.cancel();
    engine.turn();
    assert_eq!(dropped.load(Ordering::SeqCst), 5);
}

fn wait_is_over(wait: &mut Wait) -> bool {
    poll_with(Pin::new(wait), std::task::Waker::noop()).is_ready()
}

#[test]
fn p10_a_notification_that_turns_the_engine_at_once_does_not_deadlock() {
    // The engine calls the user's notification when a timer is armed: that too must not be under a lock of the timer.
    let engine: Arc<Mutex<Option<Engine>>> = Arc::default();
    let notify = {
        let engine = engine.clone();
        move || {
            let engine = engine.lock().unwrap().clone();
            engine.inspect(|engine| _ = engine.turn());
        }
    };
    let driver = Driver::external_with(notify);
    let turned = Engine::builder().clock(Clock::manual()).driver(driver).build().unwrap();
    *engine.lock().unwrap() = Some(turned.clone());
    let outcomes = Outcomes::default();
    let timer = on(&turned, ms(10));
    turned.turn();
    timer.on_expiry(outcomes.callback(1));
    turned.clock().advance(ms(10));
    timer.on_expiry(outcomes.callback(2));
    turned.turn();
    assert_eq!(outcomes.take(), [(1, Outcome::Fired), (2, Outcome::Fired)]);
    turned.shutdown();
    *engine.lock().unwrap() = None;
}

#[test]
fn w8_a_callback_that_waits_again_neither_recurses_nor_prolongs_the_turn() {
    struct Again {
        timer: Arc<Timer>,
        left: usize,
        done: mpsc::Sender<()>,
    }

    fn go(again: Again) {
        let timer = again.timer.clone();
        timer.on_expiry(move |outcome| {
            assert_eq!(outcome, Outcome::Fired);
            match again.left {
                0 => again.done.send(()).unwrap(),
                left => go(Again { left: left - 1, ..again }),
            }
        });
    }

    // A hundred thousand times, on a stack that would not suffice for a thousandth of them.
    let run = || {
        let engine = manual();
        let (done, is_done) = mpsc::channel();
        go(Again { timer: Arc::new(Timer::on(&engine)), left: if cfg!(miri) { 1000 } else { 100_000 }, done });
        let turn = engine.turn();
        assert!(turn.more && is_done.try_recv().is_err());
        while engine.turn().more {}
        is_done.recv().unwrap();
    };
    thread::Builder::new().stack_size(128 * 1024).spawn(run).unwrap().join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "a million waits take hours")]
fn a4_a_million_waits_of_one_timer_end_one_by_one() {
    let run = || {
        let engine = manual();
        let (count, sum) = (Arc::new(AtomicUsize::new(0)), 1_000_000);
        let wait_all = |timer: &Timer, expected: Outcome| {
            for _ in 0..sum {
                let count = count.clone();
                timer.on_expiry(move |outcome| {
                    assert_eq!(outcome, expected);
                    count.fetch_add(1, Ordering::Relaxed);
                });
            }
        };
        let timer = on(&engine, ms(1));
        wait_all(&timer, Outcome::Fired);
        engine.advance(ms(1));
        assert_eq!(count.swap(0, Ordering::Relaxed), sum);
        timer.expires_after(ms(1));
        wait_all(&timer, Outcome::Cancelled);
        assert_eq!(timer.cancel(), sum);
        engine.turn();
        assert_eq!(count.swap(0, Ordering::Relaxed), sum);
        assert_eq!(engine.stats().callback_panics, 0);
    };
    thread::Builder::new().stack_size(128 * 1024).spawn(run).unwrap().join().unwrap();
}

#[test]
fn t9_a_timer_follows_virtual_time_which_moves_by_itself() {
    let paused = Paused::new();
    if !crate::support::auto_advances() {
        return;
    }
    let (timer, start) = (Timer::after(years(1)), Instant::now());
    assert_eq!(timer.wait_blocking(), Outcome::Fired);
    assert_eq!(start.elapsed(), years(1));
    // The thread that moves time runs the callback, which uses the same time.
    let (send, receive) = mpsc::channel();
    timer.expires_after(years(1));
    timer.on_expiry(move |_| {
        let (then, timer) = (Instant::now(), Timer::after(years(1)));
        let send = send.clone();
        // The timer lives as long as its callback.
        let kept = Arc::new(timer);
        let timer = kept.clone();
        timer.on_expiry(move |outcome| {
            drop(kept);
            send.send((outcome, then, Instant::now())).unwrap();
        });
    });
    assert_eq!(receive.recv().unwrap(), (Outcome::Fired, start + years(2), start + years(3)));
    // The callback of an expired timer runs when all threads wait; no time passes.
    let (send, receive) = mpsc::channel();
    timer.on_expiry(move |outcome| send.send(outcome).unwrap());
    assert_eq!(receive.recv().unwrap(), Outcome::Fired);
    assert_eq!(start.elapsed(), years(3));
    let (outcomes, infinite) = (Outcomes::default(), Timer::after(Duration::MAX));
    infinite.on_expiry(outcomes.callback(1));
    paused.advance(years(100));
    assert_eq!((outcomes.take(), infinite.cancel()), (vec![], 1));
}

#[test]
fn b5_debug_shows_the_state_of_a_timer() {
    let engine = manual();
    let timer = Timer::on(&engine);
    let _waits = (timer.wait(), timer.on_expiry(|_| ()));
    let _pending = {
        timer.expires_after(ms(1));
        timer.wait()
    };
    let text = format!("{timer:?}");
    assert!(text.starts_with("Timer { expiry: Some(") && text.ends_with("waits: 1 }"), "{text}");
}

/// A wait is `Unpin` and owns its state, so it can be part of any other future.
#[test]
fn a12_a_wait_is_a_deadline_for_any_other_future() {
    let (engine, task) = (manual(), Task::new());
    let timer = on(&engine, ms(10));
    let mut race = pin!(futures_lite::future::or(
        async {
            std::future::pending::<()>().await;
            None
        },
        {
            let wait = timer.wait();
            async { Some(wait.await) }
        }
    ));
    assert!(task.poll(race.as_mut()).is_pending());
    engine.advance(ms(10));
    assert_eq!(race.as_mut().poll(&mut task.cx()), Poll::Ready(Some(Outcome::Fired)));
}
