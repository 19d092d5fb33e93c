//! Faults that were found in other timer systems, each with its id. Those of delay queues, intervals and timeouts are in the programs of
//! those names; those of the queues themselves in `tourbillon-queue`.

mod random;
mod support;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use futures_lite::future::block_on;
use random::{Random, seed};
use support::{Log, NANO, Task, eventually, manual, ms, now, poll_with, waker, years};
use tourbillon::time::{self, MissedTickBehavior, Sleep, timeout, try_interval};
use tourbillon::{ArmError, Clock, Engine, Outcome, QueueKind, Slack};
use tourbillon_queue::Time;

const HOUR: Duration = Duration::from_secs(3600);

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn armed(engine: &Engine, duration: Duration, waker: &Waker) -> Pin<Box<Sleep>> {
    let mut sleep = Box::pin(engine.sleep(duration));
    assert!(poll_with(sleep.as_mut(), waker).is_pending());
    sleep
}

#[test]
fn d1_a_sleep_after_an_idle_time_counts_from_now() {
    let engine = manual();
    let task = Task::new();
    engine.advance(secs(10));
    let mut sleep = pin!(engine.sleep(secs(5)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.advance(secs(5) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    // The same when the clock has advanced without a turn.
    engine.clock().advance(secs(10));
    let mut sleep = pin!(engine.sleep(secs(5)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    assert_eq!(engine.turn().fired, 0);
    assert_eq!(engine.advance(secs(5) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
}

#[test]
fn d2_the_lateness_of_slightly_late_turns_does_not_accumulate() {
    let mut random = Random(seed());
    let engine = manual();
    let clock = engine.clock().clone();
    let start = clock.now();
    let fired_at: Arc<Mutex<Vec<(Duration, Time)>>> = Arc::default();
    let mut sleeps = Vec::new();
    for duration in [ms(10), ms(100), secs(5), secs(300), HOUR] {
        let (fired_at, clock) = (Arc::clone(&fired_at), clock.clone());
        sleeps.push(armed(&engine, duration, &waker(move || fired_at.lock().unwrap().push((duration, clock.now())))));
    }
    // The driver follows the `next` of each turn, but always comes a little late.
    let tick = ms(1);
    while let Some(next) = engine.turn().next {
        clock.set(next.max(clock.now()) + random.duration(tick).into());
    }
    let fired_at = fired_at.lock().unwrap();
    assert_eq!(fired_at.len(), sleeps.len());
    for (duration, at) in fired_at.iter() {
        let due = start + (*duration).into();
        assert!(*at >= due && *at <= due + tick.into(), "{duration:?} fired {:?} late", Duration::from(*at - due));
    }
}

#[test]
fn d3_a_far_timer_and_a_fast_ticker_do_not_starve_the_others() {
    let engine = manual();
    let log = Log::default();
    let _far = armed(&engine, HOUR, &log.waker(0));
    let (mut ticks, mut tens, mut hundreds) = (0_u64, 0_u64, 0_u64);
    let mut ticker = armed(&engine, ms(1), &log.waker(1));
    let mut ten = armed(&engine, ms(10), &log.waker(10));
    let mut hundred = armed(&engine, ms(100), &log.waker(100));
    for _ in 0..60_000 {
        engine.clock().advance(ms(1));
        engine.turn();
        for name in log.take() {
            let (sleep, period, count) = match name {
                1 => (&mut ticker, ms(1), &mut ticks),
                10 => (&mut ten, ms(10), &mut tens),
                100 => (&mut hundred, ms(100), &mut hundreds),
                other => panic!("{other} fired, an hour early"),
            };
            *count += 1;
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
            let next = sleep.deadline() + period;
            sleep.as_mut().reset(next);
            assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
        }
    }
    assert_eq!((ticks, tens, hundreds), (60_000, 6_000, 600));
}

#[test]
fn d4_a_cancel_after_any_wait_finds_its_timer_and_no_other() {
    // The wait moves the timer through the levels; at each point a cancel must find it.
    let levels = [ms(1), ms(60), ms(70), secs(4), secs(5), secs(300), HOUR, years(1)];
    for duration in levels {
        for eighth in 0..8 {
            let engine = manual();
            let log = Log::default();
            let _before = armed(&engine, duration - NANO, &log.waker(1));
            let cancelled = armed(&engine, duration, &log.waker(2));
            let _beside = armed(&engine, duration, &log.waker(3));
            let _after = armed(&engine, duration + NANO, &log.waker(4));
            engine.advance(duration * eighth / 8);
            drop(cancelled);
            let stats = engine.stats();
            assert_eq!((stats.cancelled, stats.pending), (1, 3), "{duration:?} after {eighth} eighths");
            assert_eq!(engine.advance(duration + NANO), 3);
            assert_eq!(log.take(), [1, 3, 4]);
        }
    }
}

#[test]
fn d5_if_a_value_and_its_deadline_come_in_one_turn_the_value_wins() {
    let engine = manual();
    let _guard = engine.enter();
    let task = Task::new();
    let mut both = pin!(timeout(ms(10), time::sleep(ms(10))));
    assert!(task.poll(both.as_mut()).is_pending());
    engine.advance(ms(10));
    assert_eq!(task.poll(both.as_mut()), Poll::Ready(Ok(())));
}

#[test]
fn d6_a_timeout_returns_an_error_that_says_that_time_is_over() {
    let engine = manual();
    let _guard = engine.enter();
    let mut waits = pin!(timeout(ms(10), std::future::pending::<()>()));
    let task = Task::new();
    assert!(task.poll(waits.as_mut()).is_pending());
    engine.advance(ms(10));
    let Poll::Ready(Err(elapsed)) = task.poll(waits.as_mut()) else { panic!("the timeout has not elapsed") };
    assert!(!elapsed.is_stopped());
    assert_eq!(std::io::Error::from(elapsed).kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn d7_timers_that_do_not_fit_into_one_turn_are_fired_in_the_next() {
    // The peer drops the timers that do not fit its submission queue. Here a turn is bounded.
    let engine = manual();
    let log = Log::default();
    let sleeps: Vec<_> = (0..10_000).map(|name| armed(&engine, ms(10), &log.waker(name))).collect();
    engine.clock().advance(ms(10));
    let (mut turns, mut fired) = (0, 0);
    loop {
        let turn = engine.turn();
        turns += 1;
        fired += turn.fired;
        if !turn.more {
            break;
        }
        assert!(
            turn.next.is_some_and(|next| next <= turn.now),
            "a driver that only follows `next` comes back at once, too"
        );
    }
    assert!(turns > 10, "a turn is bounded");
    assert_eq!(fired, sleeps.len());
    assert_eq!(log.take(), (0..10_000).collect::<Vec<_>>());
}

#[test]
fn d8_delay_gives_one_tick_per_period_and_a_zero_period_is_refused() {
    let engine = manual();
    let _guard = engine.enter();
    let task = Task::new();
    assert!(try_interval(Duration::ZERO).is_err());
    let mut interval = try_interval(ms(10)).unwrap();
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    assert!(interval.poll_tick(&mut task.cx()).is_ready(), "the first is at once");
    let mut ticks = 0;
    for _ in 0..1000 {
        ticks += usize::from(interval.poll_tick(&mut task.cx()).is_ready());
        engine.advance(ms(1));
    }
    assert_eq!(ticks, 99);
}

#[test]
fn d9_an_engine_with_nothing_due_needs_no_turn() {
    let engine = manual();
    assert_eq!(engine.turn().next, None, "empty");
    let _never = armed(&engine, Duration::MAX, Waker::noop());
    assert_eq!(engine.turn().next, None, "never");
    let sleep = armed(&engine, secs(100), Waker::noop());
    let turn = engine.turn();
    assert!(turn.next.is_some_and(|next| next > turn.now), "{turn:?}");
    assert!(!turn.more);
    // The number of turns until then: some move the timer nearer, but there is no periodic scan.
    let mut turns = 0;
    while let Some(next) = engine.turn().next {
        engine.clock().set(next);
        turns += 1;
    }
    assert!(sleep.is_elapsed());
    assert!(turns < 20, "{turns} turns for one timer");
}

#[test]
fn d10_a_million_timers_on_one_tick_are_cancelled_and_dropped_on_a_small_stack() {
    let story = || {
        let engine = manual();
        let task = Task::new();
        for cancel_all in [true, false] {
            let mut sleeps = Vec::with_capacity(1_000_000);
            for _ in 0..1_000_000 {
                let mut sleep = Box::pin(engine.sleep(ms(10)));
                assert!(task.poll(sleep.as_mut()).is_pending());
                sleeps.push(sleep);
            }
            if cancel_all {
                drop(sleeps);
                assert_eq!((engine.stats().cancelled, engine.stats().pending), (1_000_000, 0));
                assert_eq!(engine.advance(ms(10)), 0);
            } else {
                // Dropped after the engine.
                let engine = engine.clone();
                engine.shutdown();
                drop(sleeps);
                assert_eq!((engine.stats().stopped, engine.stats().pending), (1_000_000, 0));
            }
        }
    };
    thread::Builder::new().stack_size(64 * 1024).spawn(story).unwrap().join().unwrap();
}

#[test]
fn d11_a_dropped_sleep_is_cancelled_and_a_sleep_outside_a_runtime_works() {
    let engine = manual();
    let task = Task::new();
    drop(armed(&engine, ms(10), &waker(|| panic!("a dropped sleep was woken"))));
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    assert!(task.poll(sleep.as_mut()).is_pending());
    drop(sleep);
    assert_eq!(task.wakers_held(), 0);
    assert_eq!(engine.advance(ms(20)), 0);
    assert!(tokio::runtime::Handle::try_current().is_err(), "this thread must be outside a runtime");
    block_on(time::sleep(ms(1)));
}

#[test]
fn d26_a_million_timers_due_at_once_are_fired_in_bounded_turns_between_which_others_can_arm() {
    let engine = Engine::builder().clock(Clock::manual()).shards(2).build().unwrap();
    let mut sleeps = Vec::with_capacity(1_000_000);
    sleeps.extend((0..1_000_000).map(|_| armed(&engine, ms(10), Waker::noop())));
    engine.clock().advance(ms(10));
    let arms = AtomicUsize::new(0);
    let fired = thread::scope(|scope| {
        let turner = scope.spawn(|| {
            let mut fired = 0;
            loop {
                let turn = engine.turn();
                assert!(turn.fired <= 1000, "{} in one turn", turn.fired);
                fired += turn.fired;
                // However long the burst is, another thread can arm during it: the test waits for that.
                if fired == turn.fired {
                    eventually("another thread has armed", || arms.load(Ordering::SeqCst) > 10);
                }
                if !turn.more {
                    return fired;
                }
            }
        });
        // From a shard of its own, and in the shard of the burst.
        while !turner.is_finished() {
            let mut sleep = Box::pin(engine.sleep(secs(60)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            arms.fetch_add(1, Ordering::SeqCst);
        }
        turner.join().unwrap()
    });
    assert_eq!(fired, 1_000_000);
}

#[test]
fn d26_a_turn_fires_no_more_than_a_batch_also_if_it_begins_with_an_exact_timer() {
    let engine = manual();
    let mut exact = Box::pin(engine.sleep(ms(1)).slack(Slack::exact()));
    assert!(poll_with(exact.as_mut(), Waker::noop()).is_pending());
    let _crowd: Vec<_> = (0..1000).map(|_| armed(&engine, ms(10), Waker::noop())).collect();
    engine.clock().advance(ms(10));
    let turns: Vec<usize> = std::iter::repeat_with(|| engine.turn()).map(|turn| turn.fired).take(4).collect();
    assert_eq!(turns, [256, 256, 256, 233]);
}

#[test]
fn d27_a_cancel_that_races_a_fire_is_counted_as_the_event_that_won() {
    // Only a fire wakes the waker, so every race is recorded twice, and the records are compared.
    let seed = seed();
    let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
    let wakes = Arc::new(AtomicUsize::new(0));
    let counter = {
        let wakes = Arc::clone(&wakes);
        waker(move || _ = wakes.fetch_add(1, Ordering::SeqCst))
    };
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (engine, counter) = (&engine, &counter);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread);
                let start = StdInstant::now();
                let mut before = Vec::new();
                while start.elapsed() < ms(700) {
                    // Due just when they are dropped, or a little before or after.
                    let batch = 1 + random.below(64);
                    for _ in 0..batch {
                        let mut sleep = Box::pin(engine.sleep(random.duration(Duration::from_micros(60))));
                        let _ = poll_with(sleep.as_mut(), counter);
                        before.push(sleep);
                    }
                    let until = StdInstant::now() + random.duration(Duration::from_micros(60));
                    while StdInstant::now() < until {
                        std::hint::spin_loop();
                    }
                    // Some are dropped on this thread, some on another.
                    if random.below(50) == 0 {
                        let sleeps = std::mem::take(&mut before);
                        scope.spawn(move || drop(sleeps));
                    }
                    before.clear();
                }
            });
        }
    });
    drop(counter);
    let stats = engine.stats();
    eventually("each fire has woken its waker", || wakes.load(Ordering::SeqCst) as u64 == stats.fired);
    assert_eq!((stats.pending, stats.armed), (0, stats.fired + stats.cancelled), "{stats:?}");
    assert!(stats.fired > 0 && stats.cancelled > 0, "no races: {stats:?}");
}

#[test]
fn d28_at_shutdown_every_waiter_completes_with_an_outcome() {
    let engine = Engine::builder().clock(Clock::manual()).shards(3).build().unwrap();
    let stopped = AtomicUsize::new(0);
    let waiting = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..6_u64 {
            let (engine, stopped, waiting) = (&engine, &stopped, &waiting);
            scope.spawn(move || {
                // Near, far, never; disarmed; moved; and one that a task waits for.
                let durations = [ms(1 + thread), HOUR, years(100), Duration::MAX];
                let mut sleeps = durations.map(|duration| armed(engine, duration, Waker::noop()));
                sleeps[0].as_mut().disarm();
                let later = sleeps[1].deadline() + HOUR;
                sleeps[1].as_mut().reset(later);
                waiting.fetch_add(1, Ordering::SeqCst);
                for sleep in &mut sleeps {
                    block_on(sleep.as_mut());
                    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
                    stopped.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        eventually("all threads wait", || waiting.load(Ordering::SeqCst) == 6);
        engine.shutdown();
    });
    assert_eq!(stopped.load(Ordering::SeqCst), 24);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.stopped, stats.pending), (24, 24, 0));
}

#[test]
fn d31_p5_the_longest_duration_beside_ten_milliseconds_hides_no_timer() {
    for queue in [QueueKind::Wheel, QueueKind::Heap, QueueKind::ListTree, QueueKind::Rounds { tick: ms(1), slots: 64 }]
    {
        for slack in [Slack::adaptive(), Slack::exact(), Slack::up_to(ms(1)), Slack::precise()] {
            let engine = Engine::builder().clock(Clock::manual()).queue(queue).slack(slack).build().unwrap();
            let log = Log::default();
            let _never = armed(&engine, Duration::MAX, &log.waker(1));
            let _near = armed(&engine, ms(10), &log.waker(2));
            let _never = armed(&engine, Duration::from_secs(u64::MAX), &log.waker(3));
            assert_eq!(engine.advance(ms(12)), 1);
            assert_eq!(log.take(), [2], "{queue:?}, {slack:?}");
        }
    }
}

#[test]
fn d36_d37_no_uptime_hides_a_timer() {
    // Uptimes in milliseconds at which other systems freeze or panic, up to a hundred years.
    let uptimes = [30, 31, 32, 36, 41].map(|bits| 1_u64 << bits);
    let later = [ms(1 << 30), ms(1 << 32), years(100)];
    for uptime in uptimes.into_iter().chain([100 * 365 * 24 * 3_600_000]) {
        for before in [NANO, ms(1), ms(5), ms(1000)] {
            let clock = Clock::manual();
            clock.set(Time::ZERO + (ms(uptime) - before).into());
            let engine = Engine::builder().clock(clock).build().unwrap();
            let log = Log::default();
            let _far = later.map(|far| armed(&engine, far, &log.waker(0)));
            let _near = [ms(1), ms(10), ms(900), ms(2000)].map(|near| {
                let name = near.as_millis() as u64;
                armed(&engine, near, &log.waker(name))
            });
            let mut fired = Vec::new();
            for _ in 0..3000 {
                engine.advance(ms(1));
                fired.extend(log.take());
            }
            assert_eq!(fired, [1, 10, 900, 2000], "{before:?} before {uptime} ms");
        }
    }
}

#[test]
fn d36_past_the_last_representable_moment_nothing_panics() {
    // 2^53 ms do not fit a `u64` of nanoseconds: the clock stops at its end.
    let clock = Clock::manual();
    clock.set(Time::from_nanos(u64::MAX - 1_000_000_000));
    let engine = Engine::builder().clock(clock).build().unwrap();
    let task = Task::new();
    let mut sleep = pin!(engine.sleep(ms(10)));
    let _ = task.poll(sleep.as_mut());
    engine.advance(ms(500));
    engine.advance(ms(1 << 53));
    engine.turn();
    engine.shutdown();
    assert!(task.poll(sleep.as_mut()).is_ready());
}

#[test]
fn d38_reused_memory_is_not_mistaken_for_its_earlier_timer() {
    let engine = manual();
    let (old, new) = (Task::new(), Task::new());
    for millis in 1..100 {
        let mut first = Box::pin(engine.sleep(ms(millis)));
        assert!(old.poll(first.as_mut()).is_pending());
        if millis % 3 == 0 {
            engine.advance(ms(millis));
            assert!(first.is_elapsed());
            old.wakes();
        }
        drop(first);
        // The new timer has the memory of the old one, and a later deadline.
        let mut second = Box::pin(engine.sleep(ms(2 * millis)));
        assert!(new.poll(second.as_mut()).is_pending());
        assert_eq!(engine.advance(ms(2 * millis) - NANO), 0);
        assert_eq!(engine.advance(NANO), 1);
        assert_eq!((old.wakes(), new.wakes()), (0, 1));
    }
}

#[test]
fn d39_no_wake_up_is_lost_when_a_timer_is_armed_while_the_driver_goes_to_sleep() {
    // Each timer is armed when the driver has just fired the one before and is about to sleep.
    let engine = Engine::builder().slack(Slack::exact()).build().unwrap();
    thread::scope(|scope| {
        for thread in 0..2 {
            let engine = &engine;
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..2000 {
                    block_on(engine.sleep(random.duration(Duration::from_micros(30))));
                }
            });
        }
    });
}

#[test]
fn d39_no_wake_up_is_lost_when_the_waker_changes_while_the_timer_fires() {
    let engine = Engine::builder().build().unwrap();
    let mut random = Random(seed());
    for round in 0..500 {
        let mut sleep = pin!(engine.sleep(random.duration(Duration::from_micros(100))));
        let tasks: Vec<_> = (0..8).map(|_| Task::new()).collect();
        let mut last = None;
        for task in &tasks {
            if task.poll(sleep.as_mut()).is_ready() {
                last = None;
                break;
            }
            last = Some(task);
        }
        // The task whose poll was the last to return `Pending` is woken.
        if let Some(task) = last {
            eventually("the last waker is woken", || task.wakes() == 1);
        }
        assert!(tasks.iter().all(|task| task.wakes() <= 1), "round {round}");
    }
}

#[test]
fn d41_no_panic_outside_a_runtime_nor_at_its_end() {
    let _ = poll_with(pin!(time::sleep(ms(1))), Waker::noop());
    let _ = poll_with(pin!(time::timeout(ms(1), time::sleep(HOUR))), Waker::noop());
    let _ = time::interval(ms(1));
    let engine = Engine::builder().build().unwrap();
    let panicked = Arc::new(AtomicBool::new(false));
    for _ in 0..20 {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        for n in 0..50 {
            let (engine, panicked) = (engine.clone(), Arc::clone(&panicked));
            runtime.spawn(async move {
                let body = async {
                    loop {
                        engine.sleep(Duration::from_micros(n * 10)).await;
                        // A sleep of zero ends at once, and a task that never waits outlives its runtime.
                        tokio::task::yield_now().await;
                    }
                };
                let caught = futures_lite::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(body)).await;
                panicked.fetch_or(caught.is_err(), Ordering::SeqCst);
            });
        }
        thread::sleep(ms(1));
        // During fires, with tasks that hold sleeps.
        runtime.shutdown_background();
    }
    assert!(!panicked.load(Ordering::SeqCst));
    assert_eq!(engine.stats().waker_panics, 0);
}

#[test]
fn d42_never_early_by_less_than_a_millisecond_either() {
    // A system that rounds to milliseconds is early by parts of one. Many starts at odd moments, all on the real clock.
    let engine = Engine::builder().build().unwrap();
    let mut random = Random(seed());
    for _ in 0..200 {
        let duration = random.duration(ms(2));
        let start = StdInstant::now();
        block_on(engine.sleep(duration));
        assert!(start.elapsed() >= duration);
    }
}

#[test]
fn d43_p7_an_engine_has_a_capacity_if_one_was_given() {
    let engine = Engine::builder().clock(Clock::manual()).capacity(1000).build().unwrap();
    let mut held: Vec<_> = (0..1000).map(|_| engine.try_sleep(HOUR).unwrap()).collect();
    for _ in 0..100_000 {
        assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Full { capacity: 1000 });
    }
    assert_eq!(engine.stats().armed, 1000);
    held.clear();
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d44_p11_a_blocked_worker_delays_no_timer_of_other_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let released = Arc::new(AtomicBool::new(false));
    let blocked = Arc::new(AtomicBool::new(false));
    let task = {
        let (released, blocked) = (Arc::clone(&released), Arc::clone(&blocked));
        runtime.spawn(async move {
            // The only worker has armed a timer before: a driver inside the runtime would run on that worker.
            let mut own = pin!(time::sleep(ms(1)));
            let _ = poll_with(own.as_mut(), Waker::noop());
            blocked.store(true, Ordering::SeqCst);
            eventually("a timer of another thread fires", || released.load(Ordering::SeqCst));
            own.is_elapsed()
        })
    };
    eventually("the worker is blocked", || blocked.load(Ordering::SeqCst));
    block_on(time::sleep(ms(5)));
    released.store(true, Ordering::SeqCst);
    assert!(block_on(task).unwrap(), "the worker's own timer has fired as well, while it was blocked");
}

#[test]
fn d40_d32_arming_and_being_refused_are_distinguished() {
    // After a stop, the engine accepts no timer that would never complete.
    let engine = manual();
    engine.shutdown();
    assert_eq!(engine.try_sleep(ms(1)).unwrap_err(), ArmError::Stopped);
    let deadline = now(&engine) + ms(1);
    let mut sleep = pin!(engine.sleep_until(deadline));
    assert!(poll_with(sleep.as_mut(), Waker::noop()).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
}
