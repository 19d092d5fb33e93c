//! What goes wrong once in thousands of tries on several threads, if it does. Each test tries for a second at most, on the
//! real clock.

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

/// How long each goes on trying.
const TRIES: Duration = Duration::from_millis(1000);

/// Tries again and again, with random numbers to vary the moments by.
fn again_and_again(mut attempt: impl FnMut(&mut Random)) {
    let mut random = Random(seed());
    let start = StdInstant::now();
    while start.elapsed() < TRIES {
        attempt(&mut random);
    }
}

/// Passes some time, too little for a timer.
fn dawdle(steps: u64) {
    (0..steps).for_each(|_| std::hint::spin_loop());
}

#[test]
fn d39_no_wake_up_is_lost_when_somebody_turns_an_engine_beside_its_driver() {
    // A turn by somebody else must not make the driver's plan, nor those who arm believe in one that nobody keeps.
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
                // Not only spinning: it may be that there is one core.
                thread::yield_now();
            }
        });
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            again_and_again(|random| {
                let task = Task::new();
                let mut sleep = pin!(engine.sleep(Duration::from_micros(300)));
                round.fetch_add(1, Ordering::SeqCst);
                dawdle(random.below(400));
                if task.poll(sleep.as_mut()).is_pending() {
                    // Nothing else will make the driver look, so a wake-up that is lost stays lost.
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
fn p2_p1_a_poll_on_another_thread_during_a_shutdown_says_stopped_and_never_fired() {
    again_and_again(|random| {
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
                    // Another waker on another thread: the timer moves here, if it is not stopped before or meanwhile.
                    let is_ready = polls.poll(sleep.as_mut()).is_ready();
                    fired += usize::from(is_ready && sleep.outcome() != Some(Outcome::Stopped));
                }
                fired
            });
            start.wait();
            dawdle(random.below(3000));
            engine.shutdown();
            assert_eq!(poller.join().unwrap(), 0, "a year early");
        });
        assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Stopped)), "nobody is left waiting");
        let stats = engine.stats();
        assert_eq!((stats.pending, stats.fired), (0, 0), "{stats:?}");
    });
}

#[test]
fn d39_d43_no_wake_up_is_lost_by_who_waits_for_room_while_others_give_up_waiting() {
    // Of three that want the one place, one has it and gives it back, one gives up, one waits to the end.
    again_and_again(|random| {
        let engine = Engine::builder().capacity(1).shards(4).build().unwrap();
        let held = engine.try_sleep(years(1)).unwrap();
        let (patient, impatient) = (Task::new(), Task::new());
        let (one, other) = (random.below(500), random.below(500));
        let start = Barrier::new(3);
        thread::scope(|scope| {
            let (engine, start) = (&engine, &start);
            scope.spawn(move || {
                start.wait();
                dawdle(one);
                drop(held);
            });
            scope.spawn(|| {
                start.wait();
                dawdle(other);
                let mut sleep = pin!(engine.sleep(years(1)));
                let _ = impatient.poll(sleep.as_mut());
            });
            start.wait();
            let mut sleep = pin!(engine.sleep(Duration::from_micros(50)));
            // As an executor would: polled again when woken, and not before.
            while patient.poll(sleep.as_mut()).is_pending() {
                eventually("there is room, or the timer fires", || patient.wakes() > 0);
            }
            assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        });
    });
}

#[test]
fn d39_a_timer_that_is_handed_to_the_driver_by_a_worker_that_goes_is_not_lost() {
    // The driver plans its sleep in the very moment, because of a timer of another thread.
    let engine = Engine::builder().slack(Slack::exact()).shards(3).build().unwrap();
    again_and_again(|random| {
        let (task, busy) = (Task::new(), Task::new());
        let mut other = Box::pin(engine.sleep(random.duration(Duration::from_micros(100))));
        let wakes_driver = busy.poll(other.as_mut()).is_pending();
        let mut sleep = thread::scope(|scope| {
            let leave = || {
                let _worker = engine.worker(|| ()).unwrap();
                let mut sleep = Box::pin(engine.sleep(Duration::from_micros(150)));
                dawdle(random.below(2000));
                let _ = task.poll(sleep.as_mut());
                sleep
            };
            scope.spawn(leave).join().unwrap()
        });
        eventually("the timer fires", || sleep.is_elapsed());
        assert!(task.poll(sleep.as_mut()).is_ready());
        if wakes_driver {
            eventually("the other does, too", || other.is_elapsed());
        }
    });
}
