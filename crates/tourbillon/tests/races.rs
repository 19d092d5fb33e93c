//! Races that would fail once in thousands of tries on several threads. Each test tries for a second at most, on the real clock.

mod random;
mod support;

use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use random::{Random, seed};
use support::{Task, eventually, years};
use tourbillon::time::Sleep;
use tourbillon::{Engine, Outcome, Slack};

/// How long each test keeps trying.
const TRIES: Duration = Duration::from_millis(1000);

/// Repeats the attempt, with random numbers to vary its timing.
fn repeat(mut attempt: impl FnMut(&mut Random)) {
    let mut random = Random(seed());
    let start = StdInstant::now();
    while start.elapsed() < TRIES {
        attempt(&mut random);
    }
}

/// Busy-waits for a random number of steps, too short for a timer.
fn busy_wait(steps: u64) {
    (0..steps).for_each(|_| std::hint::spin_loop());
}

#[test]
fn d39_no_wake_up_is_lost_when_another_thread_turns_an_engine_beside_its_driver() {
    // A turn by another thread must neither change the driver's plan nor make arming threads rely on a plan that no thread follows.
    let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
    let (round, over) = (AtomicUsize::new(0), usize::MAX);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seen = 0;
            while seen != over {
                let now = round.load(Ordering::SeqCst);
                if now != seen {
                    seen = now;
                    engine.turn();
                }
                // Yields as well as spins, for there may be only one core.
                thread::yield_now();
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            repeat(|random| {
                let task = Task::new();
                let mut sleep = pin!(engine.sleep(Duration::from_micros(300)));
                round.fetch_add(1, Ordering::SeqCst);
                busy_wait(random.below(400));
                if task.poll(sleep.as_mut()).is_pending() {
                    // No other event will wake the driver, so a lost wake-up stays lost.
                    eventually("the timer fires", || task.wakes() == 1);
                    assert_eq!(sleep.outcome(), Some(Outcome::Fired));
                }
            });
        }));
        round.store(over, Ordering::SeqCst);
        outcome.unwrap();
    });
}

#[test]
fn p2_p1_a_poll_on_another_thread_during_a_shutdown_returns_stopped_and_never_fired() {
    repeat(|random| {
        let engine = Engine::builder().shards(4).build().unwrap();
        let (armed_by, polls) = (Task::new(), Task::new());
        let arm = |_| {
            let mut sleep = Box::pin(engine.sleep(years(1)));
            assert!(armed_by.poll(sleep.as_mut()).is_pending());
            sleep
        };
        let mut sleeps: Vec<Pin<Box<Sleep>>> = (0..1000).map(arm).collect();
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let poller = scope.spawn(|| {
                start.wait();
                let mut fired = 0;
                for sleep in &mut sleeps {
                    // Another waker on another thread: the timer migrates here, unless it is stopped before or meanwhile.
                    let is_ready = polls.poll(sleep.as_mut()).is_ready();
                    fired += usize::from(is_ready && sleep.outcome() != Some(Outcome::Stopped));
                }
                fired
            });
            start.wait();
            busy_wait(random.below(3000));
            engine.shutdown();
            assert_eq!(poller.join().unwrap(), 0, "a sleep of a year has fired");
        });
        assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Stopped)), "a sleep is left waiting");
        let stats = engine.stats();
        assert_eq!((stats.pending, stats.fired), (0, 0), "{stats:?}");
    });
}

#[test]
fn d39_d43_a_sleep_that_waits_for_a_slot_loses_no_wake_up_while_others_give_up_waiting() {
    // Of three sleeps that need the one slot, one has it and frees it, one gives up, one waits to the end.
    repeat(|random| {
        let engine = Engine::builder().capacity(1).shards(4).build().unwrap();
        let held = engine.try_sleep(years(1)).unwrap();
        let (patient, impatient) = (Task::new(), Task::new());
        let (one, other) = (random.below(500), random.below(500));
        let start = Barrier::new(3);
        thread::scope(|scope| {
            let (engine, start) = (&engine, &start);
            scope.spawn(move || {
                start.wait();
                busy_wait(one);
                drop(held);
            });
            scope.spawn(|| {
                start.wait();
                busy_wait(other);
                let mut sleep = pin!(engine.sleep(years(1)));
                let _ = impatient.poll(sleep.as_mut());
            });
            start.wait();
            let mut sleep = pin!(engine.sleep(Duration::from_micros(50)));
            // As in an executor: the sleep is polled again when it was woken, and not before.
            while patient.poll(sleep.as_mut()).is_pending() {
                eventually("a slot is granted, or the timer fires", || patient.wakes() > 0);
            }
            assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        });
    });
}

#[test]
fn d39_a_timer_that_a_dropped_worker_hands_to_the_driver_is_not_lost() {
    // The driver goes to sleep at the same time, because of a timer of another thread.
    let engine = Engine::builder().slack(Slack::exact()).shards(3).build().unwrap();
    repeat(|random| {
        let (task, busy) = (Task::new(), Task::new());
        let mut other = Box::pin(engine.sleep(random.duration(Duration::from_micros(100))));
        let wakes_driver = busy.poll(other.as_mut()).is_pending();
        let mut sleep = thread::scope(|scope| {
            let leave = || {
                let _worker = engine.worker(|| ()).unwrap();
                let mut sleep = Box::pin(engine.sleep(Duration::from_micros(150)));
                busy_wait(random.below(2000));
                let _ = task.poll(sleep.as_mut());
                sleep
            };
            scope.spawn(leave).join().unwrap()
        });
        eventually("the timer fires", || sleep.is_elapsed());
        assert!(task.poll(sleep.as_mut()).is_ready());
        if wakes_driver {
            eventually("the other timer fires, too", || other.is_elapsed());
        }
    });
}
