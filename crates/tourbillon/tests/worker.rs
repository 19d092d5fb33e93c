//! `Engine::worker`: a runtime's thread that turns its own shard.

mod support;

use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::Waker;
use std::thread;
use std::time::Duration;

use futures_lite::future::block_on;
use support::{Task, eventually, ms, poll_with, waker, with_shards, years};
use tourbillon::time::{self, Sleep};
use tourbillon::{Clock, Engine, Outcome, Slack, Worker};

/// Returns an engine on the real clock, with a driver thread.
fn with_driver(shards: usize) -> Engine {
    Engine::builder().shards(shards).build().unwrap()
}

/// Returns an armed sleep on the engine that this thread has entered.
fn armed(duration: Duration, task: &Task) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(time::sleep(duration));
    // On a machine so loaded that the sleep is due already, try again.
    while task.poll(sleep.as_mut()).is_ready() {
        sleep = Box::pin(time::sleep(duration));
    }
    sleep
}

#[test]
fn a_worker_turns_its_own_shard_and_a_turn_of_the_engine_leaves_it_alone() {
    let engine = with_shards(2);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let sleep = armed(ms(10), &task);
    engine.clock().advance(ms(10));
    let turn = engine.turn();
    assert_eq!((turn.fired, turn.more, turn.next), (0, false, None), "a turn of the engine ignores the worker's shard");
    assert!(!sleep.is_elapsed());
    let turn = worker.turn();
    assert_eq!((turn.fired, turn.more, turn.next, turn.now), (1, false, None, engine.clock().now()));
    assert_eq!((sleep.outcome(), task.wakes()), (Some(Outcome::Fired), 1));
}

#[test]
fn a_driver_thread_leaves_the_shard_of_a_worker_alone() {
    let engine = with_driver(2);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let sleep = armed(ms(2), &task);
    // The driver turns meanwhile: it has another timer, later than the worker's.
    thread::scope(|scope| scope.spawn(|| block_on(engine.sleep(ms(10)))).join().unwrap());
    assert!(!sleep.is_elapsed());
    assert_eq!(worker.time_left(), Some(Duration::ZERO));
    assert_eq!(worker.turn().fired, 1);
    assert_eq!(task.wakes(), 1);
}

#[test]
fn time_left_is_the_time_until_the_earliest_timer_of_the_worker() {
    let engine = with_shards(2);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    assert_eq!(worker.time_left(), None);
    let _late = armed(ms(10), &task);
    assert_eq!(worker.time_left(), Some(ms(10)));
    let _soon = armed(ms(4), &task);
    assert_eq!(worker.time_left(), Some(ms(4)), "a timer that the worker arms counts at once");
    engine.clock().advance(ms(1));
    assert_eq!(worker.time_left(), Some(ms(3)));
    engine.clock().advance(ms(4));
    assert_eq!(worker.time_left(), Some(Duration::ZERO), "the timer is overdue");
    let turn = worker.turn();
    assert_eq!(turn.next.map(|next| Duration::from(next - turn.now)), Some(ms(5)));
    assert_eq!((turn.fired, worker.time_left()), (1, Some(ms(5))));
    // The worker does not wait for timers of other threads.
    thread::scope(|scope| {
        let arm = || {
            let sleep = engine.try_sleep(ms(1)).unwrap();
            assert_eq!(time_of_the_driver(&engine), Some(ms(1)));
            drop(sleep);
        };
        scope.spawn(arm).join().unwrap();
    });
    assert_eq!(worker.time_left(), Some(ms(5)));
}

/// Returns the time until the driver has to turn the engine next.
fn time_of_the_driver(engine: &Engine) -> Option<Duration> {
    let turn = engine.turn();
    turn.next.map(|next| Duration::from(next - turn.now))
}

#[test]
fn a_worker_fires_each_timer_of_many_in_bounded_turns() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let sleeps: Vec<_> = (0..2000).map(|_| armed(ms(3), &task)).collect();
    engine.clock().advance(ms(3));
    let (mut fired, mut turns) = (0, 0);
    loop {
        let turn = worker.turn();
        fired += turn.fired;
        turns += 1;
        if !turn.more {
            break;
        }
    }
    assert_eq!((fired, task.wakes()), (2000, 2000));
    assert!(turns > 1, "a turn is bounded");
    assert!(sleeps.iter().all(|sleep| sleep.is_elapsed()));
}

#[test]
fn the_timers_of_other_threads_are_fired_by_the_driver_while_a_worker_does_not_turn() {
    let engine = with_driver(4);
    let _worker = engine.worker(|| ()).unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..20).for_each(|_| block_on(engine.sleep(Duration::from_micros(100)))));
        }
    });
    assert_eq!(engine.stats().pending, 0);
}

#[test]
fn without_a_shard_of_its_own_a_thread_gets_no_worker() {
    let engine = with_shards(1);
    let (owns, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            drop(engine.sleep(ms(1)));
            owns.wait();
            over.wait();
        });
        owns.wait();
        assert!(engine.worker(|| ()).is_none());
        // The thread has not entered the engine.
        let other = with_shards(1);
        let _guard = other.enter();
        assert!(engine.worker(|| ()).is_none());
        let _sleep = armed(ms(1), &Task::new());
        assert_eq!((engine.stats().pending, other.stats().pending), (0, 1));
        over.wait();
        // Joined here: a scope does not wait until the thread-locals of its threads are destroyed.
        owner.join().unwrap();
    });
    // The shard is free again, for a thread that has no shard in another engine.
    thread::scope(|scope| assert!(scope.spawn(|| engine.worker(|| ()).is_some()).join().unwrap()));
}

#[test]
fn a_worker_that_is_dropped_hands_its_timers_to_the_driver_outside() {
    let engine = with_shards(2);
    let worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let (early, late) = (armed(ms(10), &task), armed(ms(20), &task));
    engine.clock().advance(ms(10));
    assert_eq!(engine.turn().fired, 0);
    drop(worker);
    assert_eq!(engine.turn().fired, 1);
    assert!(early.is_elapsed() && !late.is_elapsed());
    assert_eq!(engine.advance(ms(10)), 1);
    assert_eq!(task.wakes(), 2);
    // The thread can become a worker again.
    let mut worker = engine.worker(|| ()).unwrap();
    let _again = armed(ms(1), &task);
    engine.clock().advance(ms(1));
    assert_eq!((engine.turn().fired, worker.turn().fired), (0, 1));
}

#[test]
fn d39_a_worker_that_is_dropped_hands_its_timers_to_a_driver_that_sleeps() {
    let engine = with_driver(2);
    for _ in 0..20 {
        let worker = engine.worker(|| ()).unwrap();
        let task = Task::new();
        let sleep = armed(ms(1), &task);
        drop(worker);
        eventually("the driver has fired the timer", || task.wakes() == 1);
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    }
}

#[test]
fn a_worker_keeps_its_engine_alive_and_stops_it_when_it_was_the_last() {
    let engine = with_shards(1);
    let clock = engine.clone();
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let (sleep, held) = (armed(ms(1), &task), armed(years(1), &task));
    clock.clock().advance(ms(1));
    drop((engine, clock));
    assert_eq!(worker.turn().fired, 1);
    assert_eq!((sleep.outcome(), held.outcome()), (Some(Outcome::Fired), None));
    drop(worker);
    assert_eq!((held.outcome(), task.wakes()), (Some(Outcome::Stopped), 2));
}

#[test]
fn f9_a_timer_of_a_worker_is_cancelled_from_another_thread() {
    let engine = with_shards(2);
    let mut worker = engine.worker(|| panic!("no other thread arms a timer here")).unwrap();
    let task = Task::new();
    let (cancelled, kept) = (armed(ms(10), &task), armed(ms(10), &task));
    thread::spawn(move || drop(cancelled)).join().unwrap();
    let stats = engine.stats();
    assert_eq!((stats.cancelled, stats.pending), (1, 1));
    engine.clock().advance(ms(10));
    assert_eq!((engine.turn().fired, worker.turn().fired), (0, 1));
    assert_eq!((task.wakes(), task.wakers_held()), (1, 0));
    assert!(kept.is_elapsed());
}

#[test]
fn a_timer_of_a_worker_that_is_polled_on_another_thread_follows_its_task() {
    let engine = with_shards(2);
    let mut worker = engine.worker(|| ()).unwrap();
    let (task, there) = (Task::new(), Task::new());
    let mut sleep = armed(ms(10), &task);
    // The other thread keeps its shard, so that it cannot get the worker's.
    let (moved, over) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(there.poll(sleep.as_mut()).is_pending());
            moved.wait();
            over.wait();
        });
        moved.wait();
        engine.clock().advance(ms(10));
        let fired = (worker.turn().fired, engine.turn().fired);
        over.wait();
        assert_eq!(fired, (0, 1));
    });
    assert_eq!((task.wakes(), there.wakes()), (0, 1));
}

#[test]
fn t7_a_worker_is_notified_only_of_timers_that_other_threads_arm_in_its_shard() {
    let notified = Arc::new(AtomicUsize::new(0));
    let engine = with_shards(1);
    let count = Arc::clone(&notified);
    let notify = move || _ = count.fetch_add(1, Ordering::SeqCst);
    let mut worker = engine.worker(notify).unwrap();
    let task = Task::new();
    let own = armed(ms(10), &task);
    assert_eq!(notified.load(Ordering::SeqCst), 0, "a busy worker needs no notification");
    // There is one shard, so other threads have to share it.
    let arm = |millis| thread::scope(|scope| scope.spawn(|| engine.try_sleep(ms(millis)).unwrap()).join().unwrap());
    let late = arm(20);
    assert_eq!(notified.load(Ordering::SeqCst), 0, "the worker wakes up before that anyway");
    let early = arm(5);
    assert_eq!(notified.load(Ordering::SeqCst), 1);
    assert_eq!(worker.time_left(), Some(ms(5)));
    engine.clock().advance(ms(20));
    assert_eq!((engine.turn().fired, worker.turn().fired), (0, 3));
    assert!([&own, &Box::pin(late), &Box::pin(early)].iter().all(|sleep| sleep.is_elapsed()));
    drop(worker);
    let _last = arm(1);
    assert_eq!(notified.load(Ordering::SeqCst), 1, "the worker was dropped");
}

#[test]
fn p6_a_notify_that_panics_harms_neither_the_arming_thread_nor_the_timer() {
    let engine = Engine::builder().clock(Clock::manual()).shards(1).capacity(1).build().unwrap();
    // `panic!` would run the hook, which prints.
    let mut worker = engine.worker(|| std::panic::resume_unwind(Box::new("notify panics, on purpose"))).unwrap();
    let task = Task::new();
    for _ in 0..3 {
        let arm = || {
            let mut sleep = Box::pin(engine.sleep(ms(5)));
            assert!(task.poll(sleep.as_mut()).is_pending());
            sleep
        };
        let mut sleep = thread::scope(|scope| scope.spawn(arm).join().unwrap());
        engine.clock().advance(ms(5));
        assert_eq!((worker.turn().fired, task.wakes()), (1, 1));
        assert!(task.poll(sleep.as_mut()).is_ready());
    }
    assert!(engine.try_sleep(ms(1)).is_ok(), "its slot is free again");
}

#[test]
fn d28_a_shutdown_stops_the_timers_of_a_worker() {
    let engine = with_shards(2);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let sleeps = [armed(ms(10), &task), armed(years(1), &task)];
    thread::scope(|scope| scope.spawn(|| engine.shutdown()).join().unwrap());
    assert_eq!(task.wakes(), 2);
    assert!(sleeps.iter().all(|sleep| sleep.outcome() == Some(Outcome::Stopped)));
    engine.clock().advance(ms(10));
    let turn = worker.turn();
    assert_eq!((turn.fired, turn.more, turn.next), (0, false, None));
    assert_eq!(worker.time_left(), None);
    let mut after = pin!(time::sleep(ms(1)));
    assert!(task.poll(after.as_mut()).is_ready());
    assert_eq!(after.outcome(), Some(Outcome::Stopped));
    drop(worker);
    assert!(engine.worker(|| ()).is_none_or(|mut worker| worker.turn().next.is_none()));
}

/// Checks that a timer fires on another thread without a worker: the driver turns that thread's shard.
fn fires_on_another_thread(engine: &Engine) {
    let wait = || {
        let task = Task::new();
        let _guard = engine.enter();
        let _sleep = armed(ms(2), &task);
        eventually("the driver has fired the timer", || task.wakes() == 1);
    };
    thread::scope(|scope| scope.spawn(wait).join().unwrap());
}

#[test]
fn the_shard_of_a_forgotten_worker_goes_to_the_driver_when_its_thread_ends() {
    let engine = with_driver(1);
    let task = Task::new();
    let left_behind = thread::scope(|scope| {
        let forget = || {
            std::mem::forget(engine.worker(|| ()).unwrap());
            armed(ms(2), &task)
        };
        scope.spawn(forget).join().unwrap()
    });
    eventually("the timer that the worker left behind fires", || task.wakes() == 1);
    assert_eq!(left_behind.outcome(), Some(Outcome::Fired));
    fires_on_another_thread(&engine);
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

#[test]
fn the_shard_of_a_worker_in_a_thread_local_goes_to_the_driver_when_its_thread_ends() {
    // On most systems the first thread-local to be made is the last to be destroyed: the worker before the thread's shard, or after it.
    for before in [false, true] {
        let engine = with_driver(1);
        let task = Task::new();
        let left_behind = thread::scope(|scope| {
            let keep = || {
                if before {
                    WORKER.with(|_| ());
                }
                let worker = engine.worker(|| ()).unwrap();
                WORKER.set(Some(worker));
                armed(ms(2), &task)
            };
            scope.spawn(keep).join().unwrap()
        });
        eventually("the timer that the worker left behind fires", || task.wakes() == 1);
        assert_eq!(left_behind.outcome(), Some(Outcome::Fired));
        fires_on_another_thread(&engine);
    }
}

#[test]
fn a_worker_dropped_after_its_threads_shard_takes_nothing_from_the_next_worker() {
    /// Runs at the end of its thread, after the thread's shard is released and before earlier thread-locals are destroyed.
    struct Between(mpsc::Sender<()>, mpsc::Receiver<()>);

    impl Drop for Between {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
            self.1.recv().unwrap();
        }
    }

    thread_local! {
        static BETWEEN: RefCell<Option<Between>> = const { RefCell::new(None) };
    }

    let engine = with_shards(1);
    let ((says, hears), (lets_go, waits)) = (mpsc::channel(), mpsc::channel());
    let its_engine = engine.clone();
    let first = thread::spawn(move || {
        WORKER.with(|_| ());
        BETWEEN.set(Some(Between(says, waits)));
        WORKER.set(its_engine.worker(|| ()));
        assert!(WORKER.with_borrow(Option::is_some));
    });
    hears.recv().unwrap();
    // Where thread-locals are destroyed in another order, the shard is not free yet, and there is nothing to test.
    let second = engine.worker(|| ());
    lets_go.send(()).unwrap();
    first.join().unwrap();
    if let Some(mut worker) = second {
        let task = Task::new();
        let _sleep = armed(ms(1), &task);
        engine.clock().advance(ms(1));
        assert_eq!((engine.turn().fired, worker.turn().fired), (0, 1));
    }
}

#[test]
fn a_runtime_loop_of_tasks_turns_and_waits_ends_each_of_its_sleeps_on_time() {
    let engine = with_driver(2);
    let mut worker = engine.worker(|| ()).unwrap();
    for micros in [50, 300, 1000, 3000] {
        let start = std::time::Instant::now();
        let mut sleep = pin!(time::sleep(Duration::from_micros(micros)));
        while poll_with(sleep.as_mut(), Waker::noop()).is_pending() {
            let turn = worker.turn();
            if turn.fired == 0 && !turn.more {
                thread::sleep(worker.time_left().expect("a timer is pending"));
            }
        }
        assert!(start.elapsed() >= Duration::from_micros(micros));
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    }
}

#[test]
fn d44_p11_the_timers_of_a_blocked_worker_are_fired_by_the_takeover_until_the_worker_turns_again() {
    let engine = with_shards(2);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let (_early, _late) = (armed(ms(10), &task), armed(ms(20), &task));
    let stand_in = worker.takeover();
    engine.clock().advance(ms(10));
    assert_eq!(engine.turn().fired, 0, "no thread has taken over yet");
    thread::scope(|scope| scope.spawn(|| stand_in.take_over()).join().unwrap());
    assert_eq!((engine.turn().fired, task.wakes()), (1, 1));
    assert_eq!(worker.turn().fired, 0, "the timer has fired, and the shard is the worker's again");
    engine.clock().advance(ms(10));
    assert_eq!((engine.turn().fired, worker.turn().fired), (0, 1));
    drop(worker);
    stand_in.take_over();
    assert_eq!(task.wakes(), 1);
}

#[test]
fn d44_p11_a_driver_that_sleeps_fires_the_timers_of_a_blocked_worker() {
    let engine = with_driver(2);
    let worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let sleep = armed(ms(2), &task);
    let stand_in = worker.takeover();
    thread::scope(|scope| scope.spawn(|| stand_in.take_over()).join().unwrap());
    eventually("the driver has fired the timer", || task.wakes() == 1);
    assert_eq!(sleep.outcome(), Some(Outcome::Fired));
}

#[test]
fn p9_after_a_near_timer_was_cancelled_a_workers_turn_requests_no_wake_up() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let far = armed(ms(60_000), &Task::new());
    drop(armed(ms(900), &Task::new()));
    assert_eq!(worker.turn().next, Some(engine.clock().now() + ms(60_000).into()));
    drop(far);
}

#[test]
fn p9_a_far_timer_that_was_cancelled_costs_a_worker_one_turn_at_most() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let (task, last) = (Task::new(), engine.clock().now() + ms(60_000).into());
    let sleep = armed(ms(60_000), &task);
    // Each timer is cancelled before the next turn, as in a server that gets its answers.
    for _ in 0..1000 {
        drop(armed(ms(30_000), &Task::new()));
        engine.clock().advance(ms(1));
        assert_eq!(worker.turn().fired, 0);
    }
    let mut looks = 0;
    while let Some(left) = worker.time_left() {
        engine.clock().advance(left);
        looks += 1;
        if worker.turn().fired == 1 {
            break;
        }
    }
    assert_eq!((engine.clock().now(), task.wakes(), looks), (last, 1, 2));
    drop(sleep);
}

#[test]
fn p2_timers_cancelled_on_other_threads_are_free_after_a_workers_turn_however_far_the_others_are() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let sleeps: Vec<_> = (0..100).map(|_| armed(years(1), &Task::new())).collect();
    thread::scope(|scope| scope.spawn(|| drop(sleeps)).join().unwrap());
    assert_eq!(worker.turn().next, None);
    assert_eq!(engine.stats().cancelled, 100);
}

#[test]
fn b2_a_worker_spaces_the_wake_ups_of_relaxed_timers_when_they_are_frequent() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let task = Task::new();
    let _sleeps: Vec<_> = (1..=1000).map(|n| armed(Duration::from_micros(100 * n), &task)).collect();
    let mut turns = 0;
    while let Some(left) = worker.time_left() {
        assert!(left <= ms(2), "no later than one spacing");
        engine.clock().advance(left);
        worker.turn();
        turns += 1;
    }
    assert_eq!(task.wakes(), 1000);
    assert!((50..150).contains(&turns), "{turns} wake-ups: the initial allowance, and one every 1.5 ms");
}

#[test]
fn p4_a_worker_has_to_stay_awake_when_a_precise_timer_is_near() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let usual = worker.too_short_to_sleep();
    let mut precise = Box::pin(time::sleep(ms(10)).slack(Slack::precise()));
    assert!(Task::new().poll(precise.as_mut()).is_pending());
    let early = worker.turn().next.unwrap();
    assert_eq!(worker.too_short_to_sleep(), usual, "the timer is not near");
    // After an early wake-up, this is the most that is left until the timer is due.
    engine.clock().advance(Duration::from(early - engine.clock().now()));
    assert_eq!(worker.turn().fired, 0);
    let longer = worker.too_short_to_sleep();
    assert!(usual < longer, "{usual:?}, {longer:?}");
    assert!(worker.time_left().unwrap() <= longer);
    engine.clock().advance(longer);
    assert_eq!(worker.turn().fired, 1);
    drop(precise);
    worker.turn();
    assert_eq!(worker.too_short_to_sleep(), usual);
}

/// An executor may poll its task inside `wake`.
#[test]
fn d39_a_turn_reports_a_timer_that_a_waker_armed_during_it() {
    let engine = with_shards(1);
    let mut worker = engine.worker(|| ()).unwrap();
    let next = Arc::new(Mutex::new(None));
    let polls = Arc::clone(&next);
    let polls = waker(move || *polls.lock().unwrap() = Some(armed(ms(5), &Task::new())));
    let mut sleep = pin!(time::sleep(ms(10)));
    assert!(poll_with(sleep.as_mut(), &polls).is_pending());
    engine.clock().advance(ms(10));
    let turn = worker.turn();
    assert_eq!((turn.fired, turn.more, turn.next), (1, false, Some(turn.now + ms(5).into())));
    engine.clock().advance(ms(5));
    assert_eq!(worker.turn().fired, 1);
}
