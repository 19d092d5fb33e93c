//! Clocks of the user's own making.

mod support;

use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant as RealInstant};

use futures_lite::future::block_on;
use support::{Task, eventually, ms};
use tourbillon::time::{Instant, interval, sleep, sleep_until};
use tourbillon::{Clock, ClockSource, DelayQueue, Driver, Engine, Outcome, Slack, Timer};

/// A clock that a test sets, and that runs with real time at a pace of its own.
#[derive(Clone)]
struct Scripted(Arc<State>);

struct State {
    /// Nanoseconds that it shows apart from the real time since `made`.
    offset: AtomicU64,
    made: RealInstant,
    /// Hundredths of the real pace.
    pace: AtomicU32,
    readings: AtomicUsize,
    /// Every so many readings one panics; never if zero.
    panics_every: usize,
}

impl Scripted {
    fn new(pace: u32, panics_every: usize) -> Scripted {
        let offset = AtomicU64::new(Duration::from_secs(1000).as_nanos() as u64);
        let state = State {
            offset,
            made: RealInstant::now(),
            pace: AtomicU32::new(pace),
            readings: AtomicUsize::new(0),
            panics_every,
        };
        Scripted(Arc::new(state))
    }

    /// Returns a clock that stands still.
    fn still() -> Scripted {
        Scripted::new(0, 0)
    }

    fn set_forward(&self, by: Duration) {
        self.0.offset.fetch_add(by.as_nanos() as u64, Ordering::SeqCst);
    }

    fn set_back(&self, by: Duration) {
        self.0.offset.fetch_sub(by.as_nanos() as u64, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        Clock::custom(self.clone())
    }
}

impl ClockSource for Scripted {
    fn now(&self) -> Duration {
        let State { offset, made, pace, readings, panics_every } = &*self.0;
        let reading = readings.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(*panics_every == 0 || !reading.is_multiple_of(*panics_every), "contained");
        Duration::from_nanos(offset.load(Ordering::SeqCst)) + made.elapsed() * pace.load(Ordering::SeqCst) / 100
    }

    fn real_time(&self, left: Duration) -> Duration {
        (left * 100).checked_div(self.0.pace.load(Ordering::SeqCst)).unwrap_or(Duration::MAX)
    }
}

/// Returns an engine for each driver that waits by itself.
fn engines(clock: &Clock) -> Vec<Engine> {
    let builder = || Engine::builder().clock(clock.clone()).slack(Slack::exact());
    vec![builder().build().unwrap(), builder().driver(Driver::thread()).build().unwrap()]
}

#[test]
fn a8_p1_on_a_clock_at_double_speed_no_timer_is_early_on_it_and_each_takes_half_of_the_real_time() {
    let clock = Scripted::new(200, 0).clock();
    for engine in engines(&clock) {
        for millis in [0, 1, 3, 10, 40] {
            let (begun, real) = (clock.elapsed(), RealInstant::now());
            block_on(engine.sleep(ms(millis)));
            assert!(clock.elapsed() >= begun + ms(millis), "{millis} ms: early on its own clock");
            assert!(
                real.elapsed() < ms(millis / 2) + Duration::from_millis(900),
                "{millis} ms took {:?}",
                real.elapsed()
            );
        }
    }
}

#[test]
fn a8_p1_p3_timers_fire_in_order_and_never_early_at_any_pace() {
    for pace in [50, 100, 750] {
        let source = Scripted::still();
        let clock = source.clock();
        let engine = Engine::builder().clock(clock.clone()).slack(Slack::exact()).build().unwrap();
        let (send, receive) = mpsc::channel();
        let begun = clock.elapsed();
        // All are armed at one moment of the clock.
        let timers = [50, 10, 40, 20, 30].map(|millis| (millis, Timer::on(&engine)));
        for (millis, timer) in &timers {
            let (millis, send, clock) = (*millis, send.clone(), clock.clone());
            timer.expires_after(ms(millis));
            timer.on_expiry(move |outcome| send.send((outcome, millis, clock.elapsed())).unwrap());
        }
        source.0.pace.store(pace, Ordering::SeqCst);
        clock.notify_set();
        for expected in [10, 20, 30, 40, 50] {
            let (outcome, millis, at) = receive.recv().unwrap();
            assert_eq!((outcome, millis), (Outcome::Fired, expected), "pace {pace}");
            assert!(at >= begun + ms(millis), "pace {pace}: {millis} ms fired at {:?}", at - begun);
        }
    }
}

/// Arms a timer and returns where its outcome comes.
fn armed(engine: &Engine, duration: Duration) -> (Timer, mpsc::Receiver<Outcome>) {
    let (timer, (send, receive)) = (Timer::on(engine), mpsc::channel());
    timer.expires_after(duration);
    timer.on_expiry(move |outcome| _ = send.send(outcome));
    (timer, receive)
}

const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a8_no_timer_fires_while_the_clock_stands_still_and_a_jump_fires_it() {
    let source = Scripted::still();
    let clock = source.clock();
    for engine in engines(&clock) {
        let (_timer, outcome) = armed(&engine, HOUR);
        source.set_forward(HOUR - SECOND);
        clock.notify_set();
        assert!(outcome.recv_timeout(ms(50)).is_err(), "fired a second early");
        source.set_forward(SECOND);
        clock.notify_set();
        assert_eq!(outcome.recv_timeout(SOON), Ok(Outcome::Fired));
    }
}

#[test]
fn a8_a_jump_that_nobody_reports_is_found_within_seconds() {
    let source = Scripted::still();
    let engine = Engine::builder().clock(source.clock()).build().unwrap();
    let (_timer, outcome) = armed(&engine, HOUR);
    source.set_forward(HOUR);
    assert_eq!(outcome.recv_timeout(SOON), Ok(Outcome::Fired));
}

#[test]
fn a8_p1_after_the_clock_was_set_back_a_timer_waits_for_its_time() {
    let source = Scripted::still();
    let clock = source.clock();
    let engine = Engine::builder().clock(clock.clone()).build().unwrap();
    let (_timer, outcome) = armed(&engine, 10 * SECOND);
    source.set_back(100 * SECOND);
    clock.notify_set();
    for left in [109, 1] {
        assert!(outcome.recv_timeout(ms(30)).is_err(), "fired early");
        source.set_forward(left * SECOND);
        clock.notify_set();
    }
    assert_eq!(outcome.recv_timeout(SOON), Ok(Outcome::Fired));
}

#[test]
fn p6_a_source_that_panics_now_and_then_harms_no_timer() {
    for panics_every in [2, 3] {
        let clock = Scripted::new(100, panics_every).clock();
        let engine = Engine::builder().clock(clock.clone()).build().unwrap();
        for millis in [1, 5] {
            let begun = clock.elapsed();
            block_on(engine.sleep(ms(millis)));
            // A reading that panics shows an earlier time, so two of them tell the time.
            assert!(clock.elapsed().max(clock.elapsed()) >= begun + ms(millis));
        }
        assert!(!engine.is_shutdown());
    }
}

#[test]
fn p6_a_source_that_always_panics_stands_still_at_zero_and_the_engine_can_be_shut_down() {
    let clock = Scripted::new(100, 1).clock();
    assert_eq!(clock.elapsed(), Duration::ZERO);
    let engine = Engine::builder().clock(clock).build().unwrap();
    let mut sleep = pin!(engine.sleep(ms(1)));
    assert!(Task::new().poll(sleep.as_mut()).is_pending());
    engine.shutdown();
    assert_eq!(sleep.outcome(), Some(Outcome::Stopped));
}

#[test]
fn p9_a_driver_that_waits_for_a_clock_that_stands_still_right_before_a_deadline_does_not_spin() {
    let source = Scripted::still();
    let engine = Engine::builder().clock(source.clock()).slack(Slack::exact()).build().unwrap();
    let mut sleep = pin!(engine.sleep(Duration::from_nanos(5)));
    assert!(Task::new().poll(sleep.as_mut()).is_pending());
    thread::sleep(ms(20));
    let before = source.0.readings.load(Ordering::SeqCst);
    thread::sleep(ms(200));
    let readings = source.0.readings.load(Ordering::SeqCst) - before;
    // A wait lasts a millisecond, or here the rest until the next look, and reads the clock some times.
    assert!(readings < 10_000, "{readings} readings in 200 ms");
}

#[test]
fn a8_instants_of_such_an_engine_move_with_its_clock() {
    let source = Scripted::still();
    let engine = Engine::builder().clock(source.clock()).driver(Driver::external()).build().unwrap();
    let _entered = engine.enter();
    let (start, now) = (Instant::now(), engine.now());
    assert_eq!(start, now);
    source.set_forward(Duration::from_secs(3600));
    assert_eq!(start.elapsed(), Duration::from_secs(3600));
    let mut until = pin!(sleep_until(start + Duration::from_secs(3601)));
    let task = Task::new();
    assert!(task.poll(until.as_mut()).is_pending());
    assert_eq!(until.deadline(), start + Duration::from_secs(3601));
    source.set_forward(Duration::from_secs(1));
    assert_eq!(engine.turn().fired, 1);
    assert!(task.poll(until.as_mut()).is_ready());
}

#[test]
fn a8_d14_the_ticks_of_an_interval_keep_their_distance_on_a_fast_clock() {
    let clock = Scripted::new(1000, 0).clock();
    let engine = Engine::builder().clock(clock).build().unwrap();
    let _entered = engine.enter();
    block_on(async {
        let mut ticks = interval(ms(20));
        let first = ticks.tick().await;
        for number in 1..20 {
            assert_eq!(ticks.tick().await, first + number * ms(20));
            assert!(Instant::now() >= first + number * ms(20), "early");
        }
    });
}

#[test]
fn a8_p1_the_items_of_a_delay_queue_are_not_early_on_such_a_clock() {
    let source = Scripted::still();
    // As far from its origin as a clock that counts from 1970, and set back later.
    source.set_forward(Duration::from_secs(1_800_000_000));
    let engine = Engine::builder().clock(source.clock()).driver(Driver::external()).build().unwrap();
    let mut queue = DelayQueue::on(&engine);
    queue.insert("hour", HOUR);
    let task = Task::new();
    let mut is_ready = || queue.poll_expired(&mut task.cx()).is_ready();
    assert!(!is_ready());
    source.set_back(10 * SECOND);
    assert!(!is_ready());
    source.set_forward(HOUR + 9 * SECOND);
    assert!(!is_ready(), "a second is left");
    source.set_forward(SECOND);
    assert!(is_ready());
}

#[test]
fn a8_an_engine_that_its_user_turns_is_told_that_the_clock_was_set() {
    let (send, receive) = mpsc::channel();
    let source = Scripted::still();
    let clock = source.clock();
    let driver = Driver::external_with(move || _ = send.send(()));
    let engine = Engine::builder().clock(clock.clone()).driver(driver).build().unwrap();
    let mut sleep = pin!(engine.sleep(Duration::from_secs(60)));
    assert!(Task::new().poll(sleep.as_mut()).is_pending());
    while engine.turn().more {}
    while receive.try_recv().is_ok() {}
    source.set_forward(Duration::from_secs(60));
    clock.notify_set();
    assert_eq!(receive.try_recv(), Ok(()), "the loop was not told");
    assert_eq!(engine.turn().fired, 1);
}

#[test]
fn a8_a_worker_is_told_and_waits_in_real_time() {
    let told = Arc::new(AtomicUsize::new(0));
    let source = Scripted::new(10_000, 0);
    let clock = source.clock();
    let engine = Engine::builder().clock(clock.clone()).build().unwrap();
    let count = Arc::clone(&told);
    let mut worker = engine.worker(move || _ = count.fetch_add(1, Ordering::SeqCst)).unwrap();
    let mut asleep = pin!(sleep(Duration::from_secs(60)));
    assert!(Task::new().poll(asleep.as_mut()).is_pending());
    // A hundred times as fast: 60 seconds take 0.6.
    let left = worker.time_left().unwrap();
    assert!(left <= ms(600) && left > Duration::ZERO, "{left:?}");
    assert_eq!(worker.too_short_to_sleep(), Duration::ZERO);
    source.set_forward(Duration::from_secs(60));
    clock.notify_set();
    assert_eq!(told.load(Ordering::SeqCst), 1);
    assert_eq!(worker.turn().fired, 1);
}

#[cfg(tourbillon_driver_task)]
#[test]
fn a8_a_driver_on_a_tokio_runtime_follows_such_a_clock() {
    if !support::has_timerfd() {
        return;
    }
    let source = Scripted::new(200, 0);
    let clock = source.clock();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let builder = Engine::builder().clock(clock.clone()).slack(Slack::exact());
        let engine = builder.driver(Driver::tokio()).build().unwrap();
        for millis in [1, 20] {
            let begun = clock.elapsed();
            engine.sleep(ms(millis)).await;
            assert!(clock.elapsed() >= begun + ms(millis), "{millis} ms: early");
        }
        let hour = engine.sleep(Duration::from_secs(3600));
        source.set_forward(Duration::from_secs(3600));
        clock.notify_set();
        hour.await;
    });
}

#[cfg(feature = "cron")]
#[test]
fn a8_b8_cron_plans_follow_a_clock_that_counts_from_1970_and_hear_that_it_was_set() {
    use tourbillon::scheduler::Scheduler;

    // Half past midnight on the first day.
    let source = Scripted::still();
    source.set_forward(Duration::from_secs(30 * 60 - 1000));
    let clock = source.clock();
    let wall = Engine::builder().clock(clock.clone()).build().unwrap();
    let scheduler = Scheduler::builder().wall_engine(&wall).threads(1).build().unwrap();
    let (send, receive) = mpsc::channel();
    let hourly = tourbillon::Cron::utc("0 * * * *").unwrap();
    scheduler.schedule("hourly", hourly, move |_: &_| _ = send.send(())).unwrap();
    assert!(receive.recv_timeout(ms(50)).is_err(), "it is not one o'clock yet");
    source.set_forward(Duration::from_secs(30 * 60));
    clock.notify_set();
    assert_eq!(receive.recv_timeout(SOON), Ok(()));
    // Set back by a day and more: the times that the clock shows now count.
    source.set_forward(Duration::from_secs(48 * 3600));
    clock.notify_set();
    assert_eq!(receive.recv_timeout(SOON), Ok(()));
    source.set_back(Duration::from_secs(24 * 3600));
    clock.notify_set();
    eventually("the next time is computed again", || {
        let next = scheduler.next_run_wall("hourly").unwrap();
        next.duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap() <= clock.elapsed() + Duration::from_secs(3600)
    });
}
