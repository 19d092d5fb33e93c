//! The promises of the engine, one by one. (P7 and P9 have test programs of their own, `no_allocation` and `idle`, because they measure
//! the whole process.)

mod random;
mod support;

use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::{Duration, Instant as StdInstant, SystemTime};

use futures_lite::future::block_on;
use random::{Random, seed};
use support::{Log, NANO, Task, eventually, manual, ms, now, poll_with, waker, years};
use tourbillon::time::{Instant, Sleep};
use tourbillon::{Clock, Driver, Engine, Outcome, Slack};

fn slacks() -> [Slack; 4] {
    [Slack::adaptive(), Slack::exact(), Slack::up_to(Duration::from_micros(300)), Slack::precise()]
}

/// Fires timers of four threads, and compares them with the standard library's clock.
fn fire_thousands(engine: &Engine, seed: u64) {
    const THREADS: u64 = 4;
    const EACH: usize = 500;
    let (early, fired) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (early, fired) = (&early, &fired);
            scope.spawn(move || {
                let mut random = Random(seed ^ thread << 56);
                let arm = |_| {
                    // Short ones, and ones long enough for a cheaper clock; after a duration, or at an instant.
                    let duration = random.one_of([50, 1000, 30_000].map(Duration::from_micros));
                    let duration = random.duration(duration);
                    let due = StdInstant::now() + duration;
                    let sleep = match random.below(2) {
                        0 => engine.sleep(duration),
                        _ => engine.sleep_until(Instant::from_std(due)),
                    };
                    let mut sleep = Box::pin(sleep);
                    // The waker reads the clock itself when it is woken.
                    let (early, fired) = (Arc::clone(early), Arc::clone(fired));
                    let watch = waker(move || {
                        early.fetch_add(usize::from(StdInstant::now() < due), Ordering::SeqCst);
                        fired.fetch_add(1, Ordering::SeqCst);
                    });
                    if poll_with(sleep.as_mut(), &watch).is_ready() {
                        watch.wake();
                    }
                    sleep
                };
                let sleeps: Vec<_> = (0..EACH).map(arm).collect();
                eventually("all sleeps have fired", || sleeps.iter().all(|sleep| sleep.is_elapsed()));
            });
        }
    });
    eventually("all wakers are woken", || fired.load(Ordering::SeqCst) == THREADS as usize * EACH);
    assert_eq!(early.load(Ordering::SeqCst), 0, "early, with {engine:?}");
}

#[test]
fn p1_d42_never_early_with_any_slack_and_a_driver_thread() {
    let seed = seed();
    for slack in slacks() {
        fire_thousands(&Engine::builder().slack(slack).shards(3).build().unwrap(), seed);
    }
}

#[cfg(tourbillon_driver_task)]
#[test]
fn p1_d42_never_early_with_any_slack_and_a_driver_on_tokio() {
    let seed = seed();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for slack in slacks() {
        let _context = runtime.enter();
        fire_thousands(&Engine::builder().slack(slack).shards(3).driver(Driver::tokio()).build().unwrap(), seed);
    }
}

#[test]
fn p1_d42_never_early_with_any_slack_and_a_driver_of_the_user() {
    let seed = seed();
    for slack in slacks() {
        let engine = Engine::builder().slack(slack).shards(3).driver(Driver::external()).build().unwrap();
        let end = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !end.load(Ordering::SeqCst) {
                    if !engine.turn().more {
                        thread::sleep(Duration::from_micros(50));
                    }
                }
            });
            fire_thousands(&engine, seed);
            end.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn p1_never_early_on_the_boot_time_and_the_wall_clock() {
    for clock in [Clock::boot(), Clock::wall()] {
        let engine = Engine::builder().clock(clock).build().unwrap();
        for micros in [1, 100, 1000, 3000, 5000] {
            let due = engine.clock().now() + Duration::from_micros(micros).into();
            block_on(engine.sleep(Duration::from_micros(micros)));
            assert!(engine.clock().now() >= due, "{micros} us on {:?}", engine.clock());
        }
    }
}

#[test]
fn p1_a_deadline_moved_later_at_the_last_moment_is_not_early() {
    let engine = Engine::builder().build().unwrap();
    let mut random = Random(seed());
    for _ in 0..300 {
        let mut sleep = pin!(engine.sleep(Duration::from_micros(200)));
        let _ = poll_with(sleep.as_mut(), Waker::noop());
        let push = StdInstant::now() + random.duration(Duration::from_micros(300));
        while StdInstant::now() < push {}
        let due = StdInstant::now() + Duration::from_micros(300);
        sleep.as_mut().reset(Instant::from_std(due));
        block_on(sleep.as_mut());
        assert!(StdInstant::now() >= due, "early");
    }
}

#[test]
fn p2_a_timer_ends_once_by_its_first_event() {
    let engine = manual();
    let task = Task::new();
    let outcomes = |engine: &Engine| {
        let stats = engine.stats();
        (stats.armed, stats.fired, stats.cancelled, stats.stopped)
    };
    let arm = || {
        let mut sleep = Box::pin(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        sleep
    };
    let cancelled = arm();
    drop(cancelled);
    engine.advance(ms(10));
    assert_eq!((outcomes(&engine), task.wakes()), ((1, 0, 1, 0), 0), "cancelled, then due");
    let fired = arm();
    engine.advance(ms(10));
    drop(fired);
    assert_eq!((outcomes(&engine), task.wakes()), ((2, 1, 1, 0), 1), "fired, then cancelled");
    let (fired, stopped) = (arm(), arm());
    drop(stopped);
    let stopped = arm();
    engine.advance(ms(10) - NANO);
    engine.shutdown();
    engine.advance(ms(10));
    assert_eq!((fired.outcome(), stopped.outcome()), (Some(Outcome::Stopped), Some(Outcome::Stopped)));
    drop((fired, stopped));
    assert_eq!((outcomes(&engine), task.wakes()), ((5, 1, 2, 2), 2), "stopped, then due, then cancelled");
}

#[test]
fn p3_timers_of_one_shard_fire_in_the_order_of_deadlines_and_of_arming() {
    let mut random = Random(seed());
    let engine = manual();
    let log = Log::default();
    let mut armed = Vec::new();
    for name in 0..5000 {
        let nanos = random.one_of([20, 2000, 5_000_000, 1 << 40]);
        let deadline = 1 + random.below(nanos);
        let mut sleep = Box::pin(engine.sleep(Duration::from_nanos(deadline)));
        assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
        armed.push((deadline, name, sleep));
    }
    // In one call, in many batches, so that the order within and between batches is tested.
    engine.clock().advance(Duration::from_nanos(1 << 41));
    while engine.turn().more {}
    armed.sort_by_key(|(deadline, name, _)| (*deadline, *name));
    assert!(log.take().into_iter().eq(armed.iter().map(|(_, name, _)| *name)));
}

#[test]
fn p3_timers_with_different_slack_fire_in_the_order_of_deadlines() {
    let engine = manual();
    let log = Log::default();
    let mut sleeps = Vec::new();
    for name in (1..1000).rev() {
        let slack = [Slack::adaptive(), Slack::exact(), Slack::precise()][name as usize % 3];
        let mut sleep = Box::pin(engine.sleep(Duration::from_micros(name)).slack(slack));
        assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
        sleeps.push(sleep);
    }
    engine.clock().advance(ms(10));
    while engine.turn().more {}
    assert_eq!(log.take(), (1..1000).collect::<Vec<_>>());
}

#[test]
fn p3_equal_deadlines_of_different_slack_fire_the_strict_before_the_relaxed_each_in_the_order_of_arming() {
    let engine = manual();
    let log = Log::default();
    let mut sleeps = Vec::new();
    for (name, slack) in [(1, Slack::adaptive()), (2, Slack::exact()), (3, Slack::adaptive()), (4, Slack::precise())] {
        let mut sleep = Box::pin(engine.sleep(ms(10)).slack(slack));
        assert!(poll_with(sleep.as_mut(), &log.waker(name)).is_pending());
        sleeps.push(sleep);
    }
    engine.advance(ms(10));
    // A shard has a queue for each of the two classes, and the queues do not know which of two equal deadlines was armed first.
    assert_eq!(log.take(), [2, 4, 1, 3]);
}

#[test]
fn p3_t4_on_a_manual_clock_a_timer_moved_later_takes_its_place_among_equals_at_once() {
    let engine = manual();
    let log = Log::default();
    let start = now(&engine);
    let mut pushed = pin!(engine.sleep(ms(10)));
    assert!(poll_with(pushed.as_mut(), &log.waker(1)).is_pending());
    // A turn that fires another timer puts this one into the queue.
    let mut first = pin!(engine.sleep(ms(1)));
    assert!(poll_with(first.as_mut(), Waker::noop()).is_pending());
    assert_eq!(engine.advance(ms(1)), 1);
    pushed.as_mut().reset(start + ms(20));
    let mut after = pin!(engine.sleep_until(start + ms(20)));
    assert!(poll_with(after.as_mut(), &log.waker(2)).is_pending());
    engine.advance(ms(20));
    assert_eq!(log.take(), [1, 2]);
}

#[test]
fn p3_t4_a_timer_moved_later_fires_after_those_before_its_new_time_in_a_late_turn_too() {
    for slack in slacks() {
        let engine = manual();
        let log = Log::default();
        let start = now(&engine);
        let mut pushed = pin!(engine.sleep(ms(10)).slack(slack));
        assert!(poll_with(pushed.as_mut(), &log.waker(1)).is_pending());
        // A turn that fires another timer puts this one into the queue.
        let mut first = pin!(engine.sleep(ms(1)));
        assert!(poll_with(first.as_mut(), Waker::noop()).is_pending());
        assert_eq!(engine.advance(ms(1)), 1);
        pushed.as_mut().reset(start + ms(20));
        let mut between = pin!(engine.sleep_until(start + ms(15)).slack(slack));
        assert!(poll_with(between.as_mut(), &log.waker(2)).is_pending());
        // The engine is not turned before both are due.
        engine.clock().advance(ms(30));
        while engine.turn().more {}
        assert_eq!(log.take(), [2, 1], "{slack:?}");
    }
}

#[test]
fn p4_lateness_is_measured_and_can_be_read() {
    let engine = manual();
    let task = Task::new();
    let lates = [ms(0), ms(1), ms(5), ms(100)];
    for late in lates {
        let mut sleep = pin!(engine.sleep(ms(10)));
        assert!(task.poll(sleep.as_mut()).is_pending());
        engine.clock().advance(ms(10) + late);
        assert_eq!(engine.turn().fired, 1);
        let max = engine.stats().lateness.max();
        // The histogram rounds up, by an eighth at most.
        assert!(max >= late && max <= late + late / 8, "{late:?} late, {max:?} read");
    }
    let lateness = engine.stats().lateness;
    assert_eq!(lateness.count(), 4);
    assert!(lateness.quantile(0.5) >= ms(1) && lateness.quantile(0.5) < ms(2), "{lateness:?}");
    assert_eq!(lateness.quantile(0.0), Duration::ZERO);
    assert_eq!(lateness.quantile(1.0), lateness.max());
}

#[test]
fn p4_a_timer_is_late_by_no_more_than_its_slack_when_the_engine_is_turned_on_time() {
    let mut random = Random(seed());
    for most in [Duration::ZERO, Duration::from_micros(1), ms(1), ms(50)] {
        let engine = Engine::builder().clock(Clock::manual()).slack(Slack::up_to(most)).build().unwrap();
        let arm = |_| {
            let mut sleep = Box::pin(engine.sleep(ms(1) + random.duration(ms(1000))));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            sleep
        };
        let sleeps: Vec<_> = (0..1000).map(arm).collect();
        assert_eq!(engine.advance(ms(2000)), sleeps.len());
        let max = engine.stats().lateness.max();
        assert!(max <= most + most / 8, "{max:?} late, with a slack of {most:?}");
    }
}

#[test]
fn p5_zero_and_max_and_durations_between_them_are_valid_side_by_side() {
    let engine = manual();
    let task = Task::new();
    let mut never = pin!(engine.sleep(Duration::MAX));
    assert!(task.poll(never.as_mut()).is_pending());
    assert!(task.poll(pin!(engine.sleep(Duration::ZERO))).is_ready());
    let mut passed = Duration::ZERO;
    for duration in (0..61).map(|bits| Duration::from_nanos(1 << bits)) {
        let mut sleep = pin!(engine.sleep(duration));
        assert!(task.poll(sleep.as_mut()).is_pending());
        assert_eq!(engine.advance(duration - NANO), 0);
        assert_eq!(engine.advance(NANO), 1, "{duration:?}");
        passed += duration;
    }
    assert!(passed > years(70));
    assert!(task.poll(never.as_mut()).is_pending());
    assert_eq!(engine.turn().next, None, "timers that are never due need no turn");
}

#[test]
fn p5_a_hundred_years_of_uptime_change_nothing() {
    let engine = manual();
    let task = Task::new();
    let mut far = pin!(engine.sleep(years(100) + ms(5)));
    assert!(task.poll(far.as_mut()).is_pending());
    for _year in 0..100 {
        // Each year a busy minute, and then a long idle time.
        let busy = engine.stats().fired;
        for step in 0..60_u64 {
            let mut sleeps: Vec<_> = (1..10).map(|n| Box::pin(engine.sleep(ms(n * 100 + step)))).collect();
            sleeps.iter_mut().for_each(|sleep| assert!(task.poll(sleep.as_mut()).is_pending()));
            assert_eq!(engine.advance(ms(100 + step) - NANO), 0);
            assert_eq!(engine.advance(ms(900 - step) + NANO), 9);
        }
        assert!(engine.stats().fired > busy);
        engine.advance(years(1) - ms(60_000));
    }
    assert!(!far.is_elapsed());
    assert_eq!(engine.advance(ms(5) - NANO), 0);
    assert_eq!(engine.advance(NANO), 1);
    assert!(far.is_elapsed());
}

#[test]
fn p6_nothing_panics_before_during_and_after_the_life_of_an_engine() {
    let engine = manual();
    let use_it = || {
        let mut sleep = Box::pin(engine.sleep(ms(1)));
        let _ = poll_with(sleep.as_mut(), Waker::noop());
        sleep.as_mut().reset(Instant::now());
        sleep.as_mut().reset(Instant::now() + Duration::MAX);
        sleep.as_mut().reset(Instant::now() - Duration::MAX);
        sleep.as_mut().disarm();
        sleep.as_mut().arm();
        let _ = (sleep.outcome(), sleep.deadline(), sleep.is_elapsed(), format!("{sleep:?}"));
        let _ = (engine.try_sleep(ms(1)), engine.turn(), engine.advance(ms(1)), engine.stats(), engine.is_shutdown());
        let _guard = engine.enter();
        let _ = (Engine::current(), format!("{engine:?}"));
        sleep
    };
    let before = use_it();
    engine.shutdown();
    let after = use_it();
    drop(engine.clone());
    drop((before, after));
}

#[test]
fn p8_clocks_have_names_and_show_their_own_time() {
    let since_1970 = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let (before, wall, after) = (since_1970(), Clock::wall().now().as_nanos(), since_1970());
    assert!(before <= wall && wall <= after);
    let (monotonic, boot) = (Clock::monotonic().now(), Clock::boot().now());
    assert!(boot >= monotonic, "the boot-time clock also counts the time that the machine slept");
    let names = [Clock::monotonic(), Clock::wall(), Clock::manual()].map(|clock| format!("{clock:?}"));
    assert_eq!(names, ["Clock::monotonic", "Clock::wall", "Clock::manual"]);
}

#[test]
fn p8_the_boot_time_clock_is_the_monotonic_one_only_where_that_counts_a_suspend_or_no_clock_does() {
    let (monotonic, boot) = (Clock::monotonic(), Clock::boot());
    match format!("{boot:?}").as_str() {
        "Clock::boot" => assert!(boot.counts_suspend() && !monotonic.counts_suspend()),
        "Clock::monotonic" => assert_eq!(boot.counts_suspend(), monotonic.counts_suspend()),
        other => panic!("{other}"),
    }
    assert!(Clock::wall().counts_suspend());
}

#[test]
fn p8_sleeps_follow_the_clock_of_their_engine() {
    for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
        let engine = Engine::builder().clock(clock).build().unwrap();
        let mut sleep = pin!(engine.sleep(ms(3)));
        block_on(sleep.as_mut());
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        let _guard = engine.enter();
        let start = Instant::now();
        block_on(tourbillon::time::sleep_until(start + ms(3)));
        assert!(Instant::now() >= start + ms(3) - Duration::from_micros(1), "{:?}", engine.clock());
    }
}

#[test]
fn p10_a_waker_may_do_anything() {
    // Arms, cancels, resets, disarms, queries, turns, shuts down; on the owner's shard and on others; once for each action.
    type Act = fn(&Engine, &mut Vec<Pin<Box<Sleep>>>);
    let acts: [Act; 8] = [
        |engine, sleeps| {
            let mut sleep = Box::pin(engine.sleep(ms(1)));
            assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
            sleeps.push(sleep);
        },
        |_, sleeps| sleeps.truncate(sleeps.len() / 2),
        |engine, sleeps| sleeps.iter_mut().for_each(|sleep| sleep.as_mut().reset(now(engine) + ms(1))),
        |engine, sleeps| sleeps.iter_mut().for_each(|sleep| sleep.as_mut().reset(now(engine) - ms(1))),
        |_, sleeps| {
            for sleep in sleeps {
                sleep.as_mut().disarm();
                sleep.as_mut().arm();
                let _ = poll_with(sleep.as_mut(), &waker(|| {}));
            }
        },
        |engine, _| drop(engine.stats()),
        |engine, _| _ = engine.turn(),
        |engine, sleeps| {
            engine.shutdown();
            assert!(sleeps.iter().all(|sleep| sleep.is_elapsed()));
        },
    ];
    for (number, act) in acts.into_iter().enumerate() {
        for shards in [1, 4] {
            let engine = Engine::builder().clock(Clock::manual()).shards(shards).build().unwrap();
            let sleeps: Arc<Mutex<Vec<Pin<Box<Sleep>>>>> = Arc::default();
            for millis in [5, 10, 10, 15, 20] {
                let mut sleep = Box::pin(engine.sleep(ms(millis)));
                assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
                sleeps.lock().unwrap().push(sleep);
            }
            let acted = Arc::new(AtomicUsize::new(0));
            let actor = {
                let (engine, sleeps, acted) = (engine.clone(), Arc::clone(&sleeps), Arc::clone(&acted));
                waker(move || {
                    act(&engine, &mut sleeps.lock().unwrap());
                    acted.fetch_add(1, Ordering::SeqCst);
                })
            };
            let mut sleep = pin!(engine.sleep(ms(10)));
            assert!(poll_with(sleep.as_mut(), &actor).is_pending());
            drop(actor);
            // Another thread turns the engine, so that the waker would wait for a lock that is held, and not find it its own.
            let turned = Arc::new(AtomicBool::new(false));
            let turner = {
                let (engine, turned) = (engine.clone(), Arc::clone(&turned));
                thread::spawn(move || {
                    engine.advance(ms(100));
                    turned.store(true, Ordering::SeqCst);
                })
            };
            eventually("the waker returns", || turned.load(Ordering::SeqCst));
            turner.join().unwrap();
            assert_eq!(acted.load(Ordering::SeqCst), 1, "act {number}");
            assert_eq!(engine.stats().waker_panics, 0, "act {number}");
            sleeps.lock().unwrap().clear();
        }
    }
}

#[test]
fn p10_wakers_are_cloned_and_dropped_outside_every_lock() {
    // Its clone and its drop use the engine, as much as a waker can: under a lock of its shard both would deadlock.
    static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, use_engine, use_engine);

    fn use_engine(_: *const ()) {
        let engine = ENGINE.lock().unwrap().clone();
        if let Some(engine) = engine {
            let mut sleep = Box::pin(engine.sleep(years(1)));
            let _ = poll_with(sleep.as_mut(), Waker::noop());
            sleep.as_mut().reset(now(&engine) + ms(500));
            drop(sleep);
            let _ = (engine.stats(), engine.try_sleep(years(1)));
        }
    }

    fn clone(data: *const ()) -> RawWaker {
        use_engine(data);
        RawWaker::new(data, &VTABLE)
    }

    fn wake(data: *const ()) {
        use_engine(data);
    }

    // Each value is a different waker, and needs no memory.
    // SAFETY: the functions do not use the data at all.
    let waker_number = |number: usize| unsafe { Waker::new(std::ptr::without_provenance(number), &VTABLE) };
    let story = move || {
        for capacity in [None, Some(3)] {
            let builder = Engine::builder().clock(Clock::manual());
            let engine = match capacity {
                None => builder.build().unwrap(),
                Some(capacity) => builder.capacity(capacity).build().unwrap(),
            };
            *ENGINE.lock().unwrap() = Some(engine.clone());
            let mut sleeps: Vec<_> = (1..=6).map(|millis| Box::pin(engine.sleep(ms(millis)))).collect();
            for number in 1..=3 {
                for sleep in &mut sleeps {
                    let waker = waker_number(number);
                    let _ = sleep.as_mut().poll(&mut Context::from_waker(&waker));
                }
            }
            sleeps[1].as_mut().reset(now(&engine) + ms(100));
            sleeps[2].as_mut().reset(now(&engine) - ms(100));
            engine.advance(ms(4));
            drop(sleeps.remove(4));
            engine.shutdown();
            let waker = waker_number(4);
            for sleep in &mut sleeps {
                assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
            }
            *ENGINE.lock().unwrap() = None;
        }
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        story();
        sender.send(()).unwrap();
    });
    receiver.recv_timeout(Duration::from_secs(60)).expect("a lock is held while a waker is cloned or dropped");
}

/// Returns a waker that calls one function when it is cloned and one when it is dropped; waking it does nothing.
fn waker_that_calls(cloned: fn(), dropped: fn()) -> Waker {
    type WakerHooks = (fn(), fn());
    static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, drop, |_| (), drop);

    fn calls(data: *const ()) -> WakerHooks {
        // SAFETY: the only wakers with this vtable are made below, and their data is a leaked `WakerHooks`.
        unsafe { *data.cast::<WakerHooks>() }
    }

    fn clone(data: *const ()) -> RawWaker {
        calls(data).0();
        RawWaker::new(data, &VTABLE)
    }

    fn drop(data: *const ()) {
        calls(data).1();
    }

    let data: &'static WakerHooks = Box::leak(Box::new((cloned, dropped)));
    // SAFETY: the data is leaked, so it lives for ever, and it is never written to.
    unsafe { Waker::new(std::ptr::from_ref(data).cast(), &VTABLE) }
}

/// Fails instead of waiting for ever if the test waits for a lock that it holds itself.
fn without_deadlock(story: fn()) {
    let (sender, receiver) = mpsc::channel();
    let teller = thread::spawn(move || {
        story();
        sender.send(()).unwrap();
    });
    if receiver.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
        panic!("a lock is held while code of the user is called");
    }
    teller.join().unwrap();
}

#[test]
fn p10_a_waker_may_use_timers_when_it_is_dropped_because_its_sleep_has_just_ended() {
    // The sleep ends after the new waker was cloned and before it replaces the old one: the clone is not needed and dropped.
    static ENGINE: Mutex<Option<Engine>> = Mutex::new(None);

    fn engine() -> Option<Engine> {
        ENGINE.lock().unwrap().clone()
    }

    fn turn() {
        let engine = engine().unwrap();
        engine.clock().advance(ms(1000));
        engine.turn();
    }

    fn use_it() {
        if let Some(engine) = engine() {
            let _ = engine.stats();
            drop(engine.try_sleep(ms(1)));
        }
    }

    without_deadlock(|| {
        let engine = manual();
        *ENGINE.lock().unwrap() = Some(engine.clone());
        let mut sleep = pin!(engine.sleep(ms(1000)));
        assert!(poll_with(sleep.as_mut(), Waker::noop()).is_pending());
        assert!(poll_with(sleep.as_mut(), &waker_that_calls(turn, use_it)).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        *ENGINE.lock().unwrap() = None;
    });
}

#[test]
fn p10_a_waker_may_use_other_engines_when_it_is_dropped_because_its_engine_is_shut_down() {
    // A new shard of this thread replaces the one in the engine that was shut down, which the poll is using.
    fn use_other_engines() {
        (0..4).for_each(|_| drop(manual().sleep(ms(1))));
    }

    without_deadlock(|| {
        let engine = manual();
        let mut sleep = Box::pin(engine.sleep(ms(1)));
        engine.shutdown();
        assert!(poll_with(sleep.as_mut(), &waker_that_calls(use_other_engines, use_other_engines)).is_ready());
        assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    });
}

#[test]
fn p10_d43_a_waker_may_free_a_slot_when_it_is_cloned_to_wait_for_a_slot() {
    static HELD: Mutex<Option<Sleep>> = Mutex::new(None);

    fn free_the_slot() {
        let held = HELD.lock().unwrap().take();
        drop(held);
    }

    without_deadlock(|| {
        let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
        *HELD.lock().unwrap() = Some(engine.try_sleep(years(1)).unwrap());
        // Another sleep waits already, so that freeing the slot wakes it.
        let task = Task::new();
        let mut first = pin!(engine.sleep(ms(10)));
        assert!(task.poll(first.as_mut()).is_pending());
        let mut second = pin!(engine.sleep(ms(10)));
        assert!(poll_with(second.as_mut(), &waker_that_calls(free_the_slot, || ())).is_pending());
        assert_eq!((engine.stats().pending, task.wakes()), (0, 1), "the slot is reserved for the first");
        assert!(task.poll(first.as_mut()).is_pending());
        assert_eq!((engine.stats().pending, engine.advance(ms(10))), (1, 1));
        assert!(first.is_elapsed() && second.is_elapsed());
    });
}

#[test]
fn p7_d32_a_sleep_that_gets_a_slot_in_an_engine_that_is_shut_down_meanwhile_leaves_no_waker_behind() {
    static HELD: Mutex<Option<(Sleep, Engine)>> = Mutex::new(None);
    static CLONES: AtomicUsize = AtomicUsize::new(0);

    fn end() {
        CLONES.fetch_add(1, Ordering::SeqCst);
        let held = HELD.lock().unwrap().take();
        if let Some((sleep, engine)) = held {
            engine.shutdown();
            drop(sleep);
        }
    }

    fn count() {
        CLONES.fetch_sub(1, Ordering::SeqCst);
    }

    let engine = Engine::builder().clock(Clock::manual()).capacity(1).build().unwrap();
    *HELD.lock().unwrap() = Some((engine.try_sleep(ms(10)).unwrap(), engine.clone()));
    let mut sleep = Box::pin(engine.sleep(ms(10)));
    let waker = ManuallyDrop::new(waker_that_calls(end, count));
    assert!(poll_with(sleep.as_mut(), &waker).is_ready());
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
    drop(sleep);
    assert_eq!(CLONES.load(Ordering::SeqCst), 0, "a waker that will never be woken is kept");
}

#[test]
fn p10_a_callback_is_never_called_inside_the_call_that_arms() {
    let engine = manual();
    let log = Log::default();
    let mut sleeps = Vec::new();
    for nanos in 0..1000 {
        let mut sleep = Box::pin(engine.sleep(Duration::from_nanos(nanos)));
        let _ = poll_with(sleep.as_mut(), &log.waker(nanos));
        assert_eq!(log.take(), []);
        sleeps.push(sleep);
    }
}

#[test]
fn p11_d44_timers_fire_while_every_thread_of_the_executor_is_blocked() {
    let engine = Engine::builder().build().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (release, blocked): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
    let reached = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = blocked
        .into_iter()
        .enumerate()
        .map(|(index, blocked)| {
            let begun = Arc::clone(&reached);
            let task = runtime.spawn(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                // Blocks the worker until a timer releases it.
                blocked.recv_timeout(Duration::from_secs(60)).is_ok()
            });
            // One after the other: a worker that had taken both tasks would keep the second until the first has ended.
            eventually("the worker is blocked", || reached.load(Ordering::SeqCst) == index + 1);
            task
        })
        .collect();
    let release = Mutex::new(release);
    let fires = waker(move || {
        for release in release.lock().unwrap().drain(..) {
            release.send(()).unwrap();
        }
    });
    // On a machine so loaded that the timer is due already, try again.
    let mut sleep = Box::pin(engine.sleep(ms(5)));
    while poll_with(sleep.as_mut(), &fires).is_ready() {
        sleep = Box::pin(engine.sleep(ms(5)));
    }
    for worker in workers {
        assert!(block_on(worker).unwrap(), "the timer did not fire while the workers were blocked");
    }
}
