//! An engine at its capacity, in virtual time: how sleeps wait for room (D43, D64, D65, P7), and that every surface keeps its
//! meaning on a full engine.
//!
//! - A timer gives its place back when it fires, is cancelled or is stopped, not when it is polled.
//! - A sleep that waits for room ends at its own deadline, like an armed one.
//! - Each free place is reserved for one waiting sleep, which is woken: first come, first served.

mod by_hand;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use by_hand::{Log, Outcomes, Task, Told, is_elapsed, is_stopped, ms, poll_with, waker, years};
use tourbillon::delay_queue::DelayQueue;
use tourbillon::named::NamedTimers;
use tourbillon::scheduler::{Plan, Scheduler};
use tourbillon::time::{Deadline, Instant, MissedTickBehavior, Sleep, interval, timeout, try_sleep, try_timeout};
use tourbillon::{ArmError, Clock, Driver, Engine, Outcome, Slack, Timer};

const HOUR: Duration = Duration::from_secs(3600);

/// RemoteFreeList an engine in virtual time with room for so many timers.
fn with_room(capacity: usize) -> Engine {
    Engine::builder().clock(Clock::manual()).slack(Slack::exact()).capacity(capacity).build().unwrap()
}

/// RemoteFreeList an engine in virtual time whose room is all taken for a year, and the sleeps that take it.
fn full(capacity: usize) -> (Engine, Vec<Sleep>) {
    let engine = with_room(capacity);
    let taken = (0..capacity).map(|_| engine.try_sleep(years(1)).unwrap()).collect();
    (engine, taken)
}

/// A sleep with a task of its own.
struct Sleeper {
    sleep: Pin<Box<Sleep>>,
    task: Task,
}

impl Sleeper {
    /// Makes a sleep that ends after so long, and polls it once.
    fn new(engine: &Engine, after: Duration) -> Sleeper {
        let mut sleeper = Sleeper { sleep: Box::pin(engine.sleep(after)), task: Task::new() };
        assert!(sleeper.poll().is_pending());
        sleeper
    }

    fn poll(&mut self) -> Poll<()> {
        self.task.poll(self.sleep.as_mut())
    }

    /// How often it was woken since this was last asked.
    fn wakes(&self) -> usize {
        self.task.wakes()
    }

    fn reset(&mut self, engine: &Engine, after: Duration) {
        self.sleep.as_mut().reset(now(engine) + after);
    }
}

/// RemoteFreeList how often each of them was woken since this was last asked.
fn wakes<const N: usize>(sleepers: [&Sleeper; N]) -> [usize; N] {
    sleepers.map(Sleeper::wakes)
}

/// Runs this on a thread of its own.
fn elsewhere<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

/// RemoteFreeList what the clock of an engine shows.
fn now(engine: &Engine) -> Instant {
    engine.sleep(Duration::ZERO).deadline()
}

/// RemoteFreeList a waker that writes down what the engine's clock shows when it is woken, in milliseconds since the call.
fn notes_time(engine: &Engine) -> (Waker, Arc<Mutex<Vec<u128>>>) {
    let (clock, start, notes) = (engine.clock().clone(), engine.clock().now(), Arc::new(Mutex::new(Vec::new())));
    let written = Arc::clone(&notes);
    let waker = waker(move || {
        let passed = clock.now().as_nanos() - start.as_nanos();
        written.lock().unwrap().push(u128::from(passed / 1_000_000));
    });
    (waker, notes)
}

// 1: when a place becomes free.

#[test]
fn d64_p7_a_timer_that_has_fired_holds_no_place_before_it_is_polled() {
    let engine = with_room(1);
    let fired = engine.try_sleep(ms(10)).unwrap();
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 });
    engine.advance(ms(10));
    assert!(fired.is_elapsed());
    let again = engine.try_sleep(ms(10)).expect("the first one has fired");
    assert_eq!(engine.stats().pending, 1);
    drop(fired);
    assert_eq!(engine.try_sleep(ms(10)).unwrap_err(), ArmError::Full { capacity: 1 }, "no place is given back twice");
    drop(again);
    assert!(engine.try_sleep(ms(10)).is_ok());
}

#[test]
fn d64_p7_the_turn_that_fires_a_timer_wakes_the_sleep_that_waits_for_its_place() {
    let engine = with_room(1);
    let mut first = Sleeper::new(&engine, ms(10));
    let mut second = Sleeper::new(&engine, HOUR);
    engine.advance(ms(10));
    assert_eq!(wakes([&first, &second]), [1, 1], "nobody has polled the first");
    assert!(second.poll().is_pending());
    assert_eq!((engine.stats().pending, engine.stats().armed), (1, 2));
    assert!(first.poll().is_ready());
    drop(first);
    engine.advance(HOUR);
    assert_eq!(second.wakes(), 1);
    assert!(second.poll().is_ready());
}

#[test]
fn d64_p7_a_timer_that_fires_within_a_reset_gives_its_place_back_in_that_call() {
    let engine = with_room(1);
    let mut armed = Sleeper::new(&engine, HOUR);
    let waits = Sleeper::new(&engine, HOUR);
    armed.reset(&engine, Duration::ZERO);
    assert_eq!(wakes([&armed, &waits]), [1, 1]);
    assert_eq!(armed.sleep.outcome(), Some(Outcome::Fired));
}

#[test]
fn d43_p7_a_timer_that_is_cancelled_in_any_way_gives_its_place_back_at_once() {
    let engine = with_room(1);
    let _entered = engine.enter();
    let task = Task::new();
    drop(engine.try_sleep(HOUR).unwrap());
    let mut disarmed = pin!(timeout(HOUR, Told::<u8>(None)));
    assert!(task.poll(disarmed.as_mut()).is_pending());
    assert!(engine.try_sleep(HOUR).is_err());
    disarmed.as_mut().disarm();
    let armed = engine.try_sleep(HOUR).expect("the timeout has no timer any more");
    // With another slack a sleep is armed anew when it is polled.
    let idle = armed.slack(Slack::precise());
    assert!(engine.try_sleep(HOUR).is_ok());
    drop(idle);
    assert!(engine.try_sleep(HOUR).is_ok());
}

// 2: the own deadline of a sleep that waits for room.

#[test]
fn d64_a_sleep_that_waits_for_room_is_woken_and_ends_at_its_own_deadline() {
    let (engine, _taken) = full(1);
    let mut sleep = Box::pin(engine.sleep(ms(50)));
    let (waker, times) = notes_time(&engine);
    assert!(poll_with(sleep.as_mut(), &waker).is_pending());
    engine.advance(ms(49));
    assert_eq!((sleep.outcome(), times.lock().unwrap().len()), (None, 0));
    engine.advance(HOUR);
    assert_eq!(*times.lock().unwrap(), [50], "once, when virtual time is there");
    assert_eq!((sleep.is_elapsed(), sleep.outcome()), (true, Some(Outcome::Fired)), "without another poll");
    assert!(poll_with(sleep.as_mut(), &waker).is_ready());
}

#[test]
fn d64_many_sleeps_that_wait_for_room_end_each_at_its_own_deadline() {
    let (engine, _taken) = full(2);
    let all: Vec<_> = (1..=300)
        .map(|number| {
            let (waker, times) = notes_time(&engine);
            // Far ones and near ones take turns in the line.
            let after = if number % 2 == 0 { number } else { 1000 - number };
            let mut sleep = Box::pin(engine.sleep(ms(after)));
            assert!(poll_with(sleep.as_mut(), &waker).is_pending());
            (sleep, after, times)
        })
        .collect();
    engine.advance(ms(1000));
    for (sleep, after, times) in &all {
        assert_eq!(*times.lock().unwrap(), [u128::from(*after)]);
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    }
    assert_eq!(engine.stats().pending, 2);
}

#[test]
fn d64_a_turn_ends_what_waits_for_room_and_says_when_the_next_of_those_is_due() {
    let (engine, _taken) = full(1);
    let near = Sleeper::new(&engine, ms(20));
    let far = Sleeper::new(&engine, ms(30));
    let start = engine.clock().now().as_nanos();
    let next = |passed: u64| Some(start + passed * 1_000_000);
    assert_eq!(engine.turn().next.map(|time| time.as_nanos()), next(20));
    engine.clock().advance(ms(20));
    assert_eq!(near.sleep.outcome(), None, "the driver has not passed its deadline");
    assert_eq!(engine.turn().next.map(|time| time.as_nanos()), next(30));
    assert_eq!((near.sleep.outcome(), far.sleep.outcome()), (Some(Outcome::Fired), None));
    assert_eq!(wakes([&near, &far]), [1, 0]);
    drop(far);
    assert_ne!(engine.turn().next.map(|time| time.as_nanos()), next(30), "it waits no longer");
}

#[test]
fn d64_a_driver_is_told_of_a_waiting_sleep_that_is_due_before_all_others() {
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let driver = Driver::external_with(move || _ = count.fetch_add(1, Ordering::SeqCst));
    let build = Engine::builder().clock(Clock::manual()).slack(Slack::exact()).driver(driver).capacity(1);
    let engine = build.build().unwrap();
    let _taken = engine.try_sleep(HOUR).unwrap();
    engine.turn();
    let before = told.load(Ordering::SeqCst);
    let mut waits = Sleeper::new(&engine, ms(20));
    assert!(told.load(Ordering::SeqCst) > before, "a driver that has planned an hour would come too late");
    engine.turn();
    let before = told.load(Ordering::SeqCst);
    waits.reset(&engine, ms(10));
    assert!(told.load(Ordering::SeqCst) > before);
}

#[test]
fn d64_a_sleep_that_was_never_armed_is_in_no_count() {
    let (engine, taken) = full(1);
    let mut waits = Sleeper::new(&engine, ms(50));
    engine.advance(ms(50));
    assert!(waits.poll().is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (1, 0, 1));
    drop(taken);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled, stats.pending), (1, 1, 0));
}

#[test]
fn d64_a_new_sleep_that_is_due_needs_no_room() {
    let (engine, _taken) = full(1);
    let mut sleep = pin!(engine.sleep(Duration::ZERO));
    let task = Task::new();
    assert!(task.poll(sleep.as_mut()).is_ready());
    assert!(engine.try_sleep(Duration::ZERO).unwrap().is_elapsed());
}

// 3: which sleep is served, and when.

#[test]
fn d65_p7_each_free_place_wakes_one_waiter_in_the_order_in_which_they_came() {
    let (engine, mut taken) = full(3);
    let mut waits: Vec<_> = (0..5).map(|_| Sleeper::new(&engine, HOUR)).collect();
    for served in 0..3 {
        taken.pop();
        let woken: Vec<usize> = waits.iter().map(Sleeper::wakes).collect();
        let expected: Vec<usize> = (0..5).map(|index| usize::from(index == served)).collect();
        assert_eq!(woken, expected);
    }
    assert_eq!(engine.stats().pending, 0, "all three places are reserved");
    for sleeper in waits.iter_mut().rev() {
        assert!(sleeper.poll().is_pending());
    }
    assert_eq!(engine.stats().pending, 3);
    assert!(waits.iter().all(|sleeper| sleeper.wakes() == 0));
    waits.remove(1);
    assert_eq!(waits.iter().map(Sleeper::wakes).collect::<Vec<_>>(), [0, 0, 1, 0]);
}

#[test]
fn d65_p7_timers_that_fire_in_one_turn_serve_the_line_in_its_order() {
    let engine = with_room(3);
    let _fired: Vec<_> = (0..3).map(|_| engine.try_sleep(ms(10)).unwrap()).collect();
    let log = Log::default();
    let mut waits: Vec<_> = (0..5).map(|_| Box::pin(engine.sleep(HOUR))).collect();
    for (number, sleep) in (0..).zip(&mut waits) {
        assert!(poll_with(sleep.as_mut(), &log.waker(number)).is_pending());
    }
    engine.advance(ms(10));
    assert_eq!(log.take(), [0, 1, 2]);
}

#[test]
fn d65_p7_a_waiter_that_is_polled_again_keeps_its_place_in_line_and_is_woken_by_its_last_waker() {
    let (engine, taken) = full(1);
    let mut first = Sleeper::new(&engine, HOUR);
    let second = Sleeper::new(&engine, HOUR);
    let last = Task::new();
    assert!(first.poll().is_pending());
    assert!(last.poll(first.sleep.as_mut()).is_pending());
    assert_eq!(first.task.wakers_held(), 0);
    drop(taken);
    assert_eq!((wakes([&first, &second]), last.wakes()), ([0, 0], 1));
}

#[test]
fn d65_p7_a_waiter_that_is_reset_keeps_its_place_in_line() {
    let (engine, taken) = full(1);
    let mut first = Sleeper::new(&engine, HOUR);
    let second = Sleeper::new(&engine, HOUR);
    first.reset(&engine, 2 * HOUR);
    first.reset(&engine, HOUR / 2);
    drop(taken);
    assert_eq!(wakes([&first, &second]), [1, 0]);
    // And with it the place that it was given.
    first.reset(&engine, HOUR);
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Full { capacity: 1 });
    assert!(first.poll().is_pending());
    assert_eq!((engine.stats().pending, second.wakes()), (1, 0));
}

#[test]
fn d65_p7_a_place_is_reserved_for_the_waiter_that_was_woken() {
    let (engine, taken) = full(1);
    let mut waits = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!(waits.wakes(), 1);
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Full { capacity: 1 }, "the place is reserved");
    let newcomer = Sleeper::new(&engine, HOUR);
    assert_eq!(engine.stats().pending, 0);
    assert!(waits.poll().is_pending());
    assert_eq!((engine.stats().pending, newcomer.wakes()), (1, 0));
    drop(waits);
    assert_eq!(newcomer.wakes(), 1);
}

#[test]
fn d65_p7_try_sleep_does_not_overtake_those_that_wait() {
    let (engine, mut taken) = full(2);
    let mut first = Sleeper::new(&engine, HOUR);
    let mut second = Sleeper::new(&engine, HOUR);
    let refused = || engine.try_sleep(HOUR).err() == Some(ArmError::Full { capacity: 2 });
    assert!(refused());
    taken.pop();
    assert!(refused(), "one place is reserved, one is taken");
    taken.pop();
    assert!(refused(), "both places are reserved");
    assert!(first.poll().is_pending());
    assert!(refused());
    assert!(second.poll().is_pending());
    assert!(refused(), "both places are taken");
    assert_eq!((engine.stats().pending, wakes([&first, &second])), (2, [1, 1]));
    drop(first);
    assert!(engine.try_sleep(HOUR).is_ok(), "no sleep waits");
}

#[test]
fn d65_p7_a_woken_waiter_that_is_dropped_passes_its_place_on() {
    let (engine, taken) = full(1);
    let [first, second, mut third] = [(); 3].map(|()| Sleeper::new(&engine, HOUR));
    drop(taken);
    assert_eq!(wakes([&first, &second, &third]), [1, 0, 0]);
    drop(first);
    assert_eq!(wakes([&second, &third]), [1, 0]);
    drop(second);
    assert_eq!(third.wakes(), 1);
    assert!(third.poll().is_pending());
    assert_eq!((engine.stats().armed, engine.stats().pending), (2, 1));
    drop(third);
    assert!(engine.try_sleep(HOUR).is_ok(), "nobody is left to pass it on to");
}

#[test]
fn d65_p7_a_waiter_that_is_dropped_before_it_is_woken_leaves_the_line() {
    let (engine, taken) = full(1);
    let [first, second, third] = [(); 3].map(|()| Sleeper::new(&engine, HOUR));
    drop(second);
    drop(taken);
    assert_eq!(wakes([&first, &third]), [1, 0]);
    drop(third);
    drop(first);
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d65_p7_a_woken_waiter_that_is_disarmed_passes_its_place_on() {
    let (engine, taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut first = pin!(timeout(HOUR, Told::<u8>(None)));
    assert!(task.poll(first.as_mut()).is_pending());
    let second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!((task.wakes(), second.wakes()), (1, 0));
    first.as_mut().disarm();
    assert_eq!(second.wakes(), 1);
    engine.advance(HOUR / 2);
    assert!(task.poll(first.as_mut()).is_pending(), "it has no deadline");
    assert_eq!(engine.stats().pending, 0, "and takes no place");
}

#[test]
fn d64_d65_p7_a_woken_waiter_whose_deadline_passes_before_it_is_polled_passes_its_place_on() {
    let (engine, taken) = full(1);
    let mut first = Sleeper::new(&engine, ms(20));
    let mut second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!(wakes([&first, &second]), [1, 0]);
    engine.advance(ms(19));
    assert_eq!((first.sleep.outcome(), second.wakes()), (None, 0));
    engine.advance(ms(1));
    assert_eq!((first.sleep.outcome(), second.wakes()), (Some(Outcome::Fired), 1));
    assert!(second.poll().is_pending());
    assert!(first.poll().is_ready());
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.fired, stats.pending), (2, 0, 1), "the first was never armed");
    drop(first);
    assert!(engine.try_sleep(HOUR).is_err(), "its place is not given back a second time");
}

#[test]
fn d65_p7_a_woken_waiter_that_is_reset_to_the_past_ends_and_passes_its_place_on() {
    let (engine, taken) = full(1);
    engine.advance(ms(100));
    let mut first = Sleeper::new(&engine, HOUR);
    let second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!(wakes([&first, &second]), [1, 0]);
    first.sleep.as_mut().reset(now(&engine) - ms(1));
    assert_eq!((first.sleep.outcome(), second.wakes()), (Some(Outcome::Fired), 1));
    assert!(first.poll().is_ready());
}

#[test]
fn d65_p6_a_waker_that_panics_when_its_place_is_given_leaves_the_place_reserved() {
    let (engine, taken) = full(1);
    // Not by the macro: the hook would print it.
    let panics = waker(|| std::panic::resume_unwind(Box::new("a waker panics, on purpose")));
    let mut first = Box::pin(engine.sleep(HOUR));
    assert!(poll_with(first.as_mut(), &panics).is_pending());
    let second = Sleeper::new(&engine, HOUR);
    drop(taken);
    assert_eq!((engine.stats().waker_panics, second.wakes()), (1, 0));
    drop(first);
    assert_eq!(second.wakes(), 1);
}

#[test]
fn d65_p10_a_waker_that_arms_and_drops_timers_of_the_same_engine_does_not_deadlock() {
    let (engine, taken) = full(1);
    let (its, tries) = (engine.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&tries);
    let nosy = waker(move || {
        let mut sleep = pin!(its.sleep(HOUR));
        let refused = its.try_sleep(HOUR).is_err();
        let waits = poll_with(sleep.as_mut(), Waker::noop()).is_pending();
        count.fetch_add(usize::from(refused && waits), Ordering::SeqCst);
    });
    let mut waits = Box::pin(engine.sleep(HOUR));
    assert!(poll_with(waits.as_mut(), &nosy).is_pending());
    drop(taken);
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    assert!(poll_with(waits.as_mut(), &nosy).is_pending());
    assert_eq!(engine.stats().pending, 1);
}

// 4: how many wake-ups that takes.

/// Counts all wake-ups, and notes which sleeps are to be polled.
#[derive(Default)]
struct Executor {
    wakes: AtomicUsize,
    ready: Mutex<Vec<usize>>,
}

struct Numbered(Arc<Executor>, usize);

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.0.wakes.fetch_add(1, Ordering::SeqCst);
        self.0.ready.lock().unwrap().push(self.1);
    }
}

/// A crowd of sleeps, each in a task of its own.
struct Crowd {
    executor: Arc<Executor>,
    sleeps: Vec<Option<(Pin<Box<Sleep>>, Waker)>>,
    ended: usize,
}

impl Crowd {
    /// Makes `count` sleeps and polls each once.
    fn new(engine: &Engine, count: usize, after: impl Fn(usize) -> Duration) -> Crowd {
        let executor = Arc::new(Executor::default());
        let task = |index| Waker::from(Arc::new(Numbered(Arc::clone(&executor), index)));
        let sleeps = (0..count).map(|index| Some((Box::pin(engine.sleep(after(index))), task(index)))).collect();
        let mut crowd = Crowd { executor, sleeps, ended: 0 };
        (0..count).for_each(|index| crowd.poll(index));
        crowd
    }

    fn poll(&mut self, index: usize) {
        let Some((sleep, waker)) = &mut self.sleeps[index] else { return };
        if sleep.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.sleeps[index] = None;
            self.ended += 1;
        }
    }

    /// Polls all that were woken, in the order of their wake-ups, until none is left; `at_most` wake-ups may have been made.
    fn run(&mut self, at_most: usize) {
        loop {
            let ready = std::mem::take(&mut *self.executor.ready.lock().unwrap());
            if ready.is_empty() {
                return;
            }
            for index in ready {
                self.poll(index);
                let wakes = self.wakes();
                assert!(wakes <= at_most, "{wakes} wake-ups, and {} of {} have ended", self.ended, self.sleeps.len());
            }
        }
    }

    fn wakes(&self) -> usize {
        self.executor.wakes.load(Ordering::SeqCst)
    }
}

const SLEEPS: usize = 8000;
const ROOM: usize = 100;

#[test]
fn d65_eight_thousand_sleeps_through_room_for_a_hundred_are_woken_twice_each_at_most() {
    let engine = with_room(ROOM);
    let mut crowd = Crowd::new(&engine, SLEEPS, |index| ms(10 + index as u64 / 2));
    // An armed sleep is woken when it ends, one that waits also when a place is given to it.
    let at_most = ROOM + 2 * (SLEEPS - ROOM);
    while crowd.ended < SLEEPS {
        engine.advance(ms(1));
        crowd.run(at_most);
        assert!(engine.stats().pending <= ROOM as u64);
        assert!(crowd.wakes() >= crowd.ended);
    }
    assert!((SLEEPS..=at_most).contains(&crowd.wakes()), "{} wake-ups", crowd.wakes());
    assert_eq!(engine.stats().pending, 0);
}

#[test]
fn d65_eight_thousand_sleeps_that_take_turns_by_being_dropped_are_woken_once_each() {
    let engine = with_room(ROOM);
    let mut crowd = Crowd::new(&engine, SLEEPS, |_| HOUR);
    for index in 0..SLEEPS {
        crowd.sleeps[index] = None;
        crowd.run(SLEEPS - ROOM);
        assert_eq!(engine.stats().pending as usize, ROOM.min(SLEEPS - 1 - index));
    }
    assert_eq!(crowd.wakes(), SLEEPS - ROOM, "one wake-up for each place that was given");
}

#[test]
fn d65_a_thousand_sleeps_that_wait_for_one_place_and_are_due_together_are_woken_once_each() {
    let (engine, _taken) = full(1);
    let mut crowd = Crowd::new(&engine, 1000, |_| ms(10));
    engine.advance(ms(10));
    crowd.run(1000);
    assert_eq!((crowd.ended, crowd.wakes()), (1000, 1000));
}

// Changes while a sleep waits for room.

#[test]
fn d64_a_waiting_sleep_that_is_reset_ends_at_the_new_deadline() {
    let (engine, _taken) = full(1);
    for (first, second) in [(ms(100), ms(40)), (ms(40), ms(100))] {
        let mut sleeper = Sleeper::new(&engine, first);
        sleeper.reset(&engine, second);
        engine.advance(second - ms(1));
        assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (0, None), "from {first:?} to {second:?}");
        engine.advance(ms(1));
        assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (1, Some(Outcome::Fired)));
        assert!(sleeper.poll().is_ready());
        // After its end it begins anew.
        sleeper.reset(&engine, ms(10));
        assert_eq!(sleeper.sleep.outcome(), None);
        assert!(sleeper.poll().is_pending());
        engine.advance(ms(10));
        assert_eq!(sleeper.wakes(), 1);
        assert!(sleeper.poll().is_ready());
    }
}

#[test]
fn d64_a_waiting_sleep_that_is_reset_to_the_past_ends_at_once() {
    let (engine, _taken) = full(1);
    engine.advance(ms(100));
    for back in [Duration::ZERO, ms(1), ms(100)] {
        let mut sleeper = Sleeper::new(&engine, HOUR);
        sleeper.sleep.as_mut().reset(now(&engine) - back);
        assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (1, Some(Outcome::Fired)));
        assert!(sleeper.poll().is_ready());
        engine.advance(2 * HOUR);
        assert_eq!(sleeper.wakes(), 0);
    }
}

#[test]
fn d64_a_waiting_sleep_that_is_held_does_not_end_until_it_is_armed_again() {
    let (engine, taken) = full(1);
    let mut sleeper = Sleeper::new(&engine, ms(50));
    sleeper.sleep.as_mut().disarm();
    engine.advance(ms(20));
    sleeper.sleep.as_mut().arm();
    engine.advance(ms(29));
    assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (0, None));
    sleeper.sleep.as_mut().disarm();
    engine.advance(ms(100));
    assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (0, None), "it waits for ever");
    sleeper.sleep.as_mut().arm();
    assert_eq!((sleeper.wakes(), sleeper.sleep.outcome()), (1, Some(Outcome::Fired)), "its deadline is past");
    assert!(sleeper.poll().is_ready());
    drop(taken);
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d64_a_waiting_sleep_can_be_moved_to_another_thread() {
    let engine = Engine::builder().clock(Clock::manual()).slack(Slack::exact()).capacity(1).shards(2).build().unwrap();
    let taken = engine.try_sleep(years(1)).unwrap();
    let mut moved = Sleeper::new(&engine, ms(50));
    let mut armed = Sleeper::new(&engine, HOUR);
    let mut armed = elsewhere(|| {
        assert!(moved.poll().is_pending());
        assert!(armed.poll().is_pending());
        engine.advance(ms(50));
        assert_eq!(wakes([&moved, &armed]), [1, 0]);
        assert!(moved.poll().is_ready());
        armed
    });
    drop(taken);
    assert_eq!(armed.wakes(), 1);
    elsewhere(|| {
        assert!(armed.poll().is_pending());
        assert_eq!(engine.stats().pending, 1);
        drop(armed);
    });
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d64_d65_with_room_for_one_sleeps_take_turns_and_end_each_in_its_time() {
    let engine = with_room(1);
    let mut all: Vec<_> = (1..=20).map(|number| Sleeper::new(&engine, ms(10 * number))).collect();
    for index in 0..20 {
        engine.advance(ms(9));
        assert!(all[index..].iter().all(|sleeper| sleeper.sleep.outcome().is_none()), "early");
        engine.advance(ms(1));
        assert_eq!(all[index].sleep.outcome(), Some(Outcome::Fired));
        assert!(all[index].poll().is_ready());
        // The place that it had, or was given, is the next one's.
        if let Some(next) = all.get_mut(index + 1) {
            assert_eq!(next.wakes(), 1);
            assert!(next.poll().is_pending());
            assert_eq!(engine.stats().pending, 1);
        }
    }
    assert_eq!((engine.stats().armed, engine.stats().fired), (20, 20), "each was armed before its deadline");
}

// 5: shutdown.

#[test]
fn d28_p7_a_shutdown_wakes_every_waiter_and_each_ends_as_stopped() {
    let (engine, mut taken) = full(2);
    let mut waits: Vec<_> = (0..5).map(|_| Sleeper::new(&engine, HOUR)).collect();
    // One of them has been given a place.
    taken.pop();
    assert_eq!(waits[0].wakes(), 1);
    engine.shutdown();
    for (index, sleeper) in waits.iter_mut().enumerate() {
        assert!(sleeper.wakes() == 1 || index == 0, "{index} was not woken");
        assert!(sleeper.poll().is_ready());
        assert_eq!(sleeper.sleep.outcome(), Some(Outcome::Stopped));
    }
    assert_eq!(engine.try_sleep(HOUR).unwrap_err(), ArmError::Stopped);
    assert_eq!((engine.stats().stopped, engine.stats().cancelled, engine.stats().pending), (1, 1, 0));
}

#[test]
fn d64_a_waiting_sleep_whose_deadline_the_driver_has_passed_stays_fired_after_a_shutdown() {
    let (engine, _taken) = full(1);
    let mut past = Sleeper::new(&engine, ms(10));
    let mut later = Sleeper::new(&engine, ms(20));
    engine.advance(ms(10));
    engine.shutdown();
    assert_eq!(wakes([&past, &later]), [1, 1]);
    assert!(past.poll().is_ready() && later.poll().is_ready());
    assert_eq!((past.sleep.outcome(), later.sleep.outcome()), (Some(Outcome::Fired), Some(Outcome::Stopped)));
}

// 7: every surface on a full engine.

#[test]
fn d64_a_timeout_on_a_full_engine_elapses_in_time_and_lets_its_value_through() {
    let (engine, taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut late = pin!(timeout(ms(50), Told::<u8>(None)));
    let mut ready = Box::pin(timeout(ms(50), Told(None)));
    let mut held = pin!(timeout(HOUR, Told::<u8>(None)));
    assert!(task.poll(late.as_mut()).is_pending() && task.poll(ready.as_mut()).is_pending());
    assert!(task.poll(held.as_mut()).is_pending());
    engine.advance(ms(49));
    assert_eq!(task.wakes(), 0);
    ready.as_mut().get_mut().get_mut().0 = Some(7);
    assert_eq!(task.poll(ready.as_mut()), Poll::Ready(Ok(7)));
    drop(ready);
    engine.advance(ms(1));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(late.as_mut())));
    held.as_mut().reset(now(&engine) + ms(10));
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(is_elapsed(task.poll(held.as_mut())));
    assert_eq!(engine.stats().armed, 1);
    drop(taken);
    assert!(engine.try_sleep(HOUR).is_ok());
}

#[test]
fn d43_the_forms_that_try_say_that_the_engine_is_full() {
    let (engine, taken) = full(2);
    let _entered = engine.enter();
    let full = ArmError::Full { capacity: 2 };
    assert_eq!(try_sleep(HOUR).unwrap_err(), full);
    let Err((error, value)) = try_timeout(HOUR, Told(Some(7))) else { panic!("there is no room") };
    assert_eq!((error, value.0), (full, Some(7)));
    drop(taken);
    assert!(try_sleep(HOUR).is_ok() && try_timeout(HOUR, Told(Some(7))).is_ok());
}

#[test]
fn d64_an_interval_on_a_full_engine_ticks_in_time() {
    for missed in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        let (engine, _taken) = full(1);
        let _entered = engine.enter();
        let task = Task::new();
        let mut interval = interval(ms(10));
        interval.set_missed_tick_behavior(missed);
        let start = now(&engine);
        assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start));
        for number in 1..=10 {
            assert!(interval.poll_tick(&mut task.cx()).is_pending());
            engine.advance(ms(9));
            assert_eq!(task.wakes(), 0);
            engine.advance(ms(1));
            assert_eq!(task.wakes(), 1);
            assert_eq!(interval.poll_tick(&mut task.cx()), Poll::Ready(start + ms(10 * number)));
        }
        interval.reset_after(ms(5));
        assert!(interval.poll_tick(&mut task.cx()).is_pending());
        engine.advance(ms(5));
        assert_eq!(task.wakes(), 1);
        assert!(interval.poll_tick(&mut task.cx()).is_ready());
    }
}

#[test]
fn d64_a_delay_queue_on_a_full_engine_gives_each_item_in_its_time() {
    let (engine, _taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut queue = DelayQueue::new();
    for number in [3, 1, 2] {
        queue.insert(number, ms(10 * number));
    }
    for number in 1..=3 {
        assert!(queue.poll_expired(&mut task.cx()).is_pending());
        engine.advance(ms(9));
        assert_eq!(task.wakes(), 0);
        engine.advance(ms(1));
        assert_eq!(task.wakes(), 1);
        let Poll::Ready(Some(expired)) = queue.poll_expired(&mut task.cx()) else { panic!("{number} is late") };
        assert_eq!(expired.into_inner(), number);
    }
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    // An item that is earlier than what the queue waits for.
    queue.insert(5, HOUR);
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    let key = queue.insert(4, ms(20));
    let _woken_to_look = task.wakes();
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    queue.reset(&key, ms(10));
    assert!(queue.poll_expired(&mut task.cx()).is_pending());
    let _woken_to_look = task.wakes();
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(Some(expired)) if expired.get_ref() == &4));
}

#[test]
fn d64_a_timer_on_a_full_engine_ends_its_waits_in_time() {
    let (engine, _taken) = full(1);
    let (task, told) = (Task::new(), Outcomes::default());
    let [first, second] = [(); 2].map(|()| Timer::on(&engine));
    first.expires_after(ms(20));
    second.expires_after(ms(10));
    let mut wait = pin!(first.wait());
    assert!(task.poll(wait.as_mut()).is_pending());
    second.on_expiry(told.callback(1));
    engine.advance(ms(10));
    assert_eq!((told.take(), task.wakes()), (vec![(1, Outcome::Fired)], 0));
    engine.advance(ms(10));
    assert_eq!(task.wakes(), 1);
    assert_eq!(task.poll(wait.as_mut()), Poll::Ready(Outcome::Fired));
    // Set anew while it waits for room, which cancels, and earlier.
    first.expires_after(HOUR);
    first.on_expiry(told.callback(2));
    assert_eq!(first.expires_after(ms(5)), 1);
    first.on_expiry(told.callback(3));
    engine.advance(ms(5));
    assert_eq!(told.take(), [(2, Outcome::Cancelled), (3, Outcome::Fired)]);
}

#[test]
fn d64_named_timers_on_a_full_engine_fire_in_time() {
    let (engine, taken) = full(1);
    let told = Outcomes::default();
    let timers = NamedTimers::on(&engine);
    for number in [30, 10, 20] {
        timers.start("alike", ms(number), told.callback(number)).unwrap();
    }
    for number in [10, 20, 30] {
        engine.advance(ms(9));
        assert_eq!(told.take(), []);
        engine.advance(ms(1));
        assert_eq!(told.take(), [(number, Outcome::Fired)]);
    }
    timers.start("late", HOUR, told.callback(1)).unwrap();
    timers.start("early", ms(10), told.callback(2)).unwrap();
    assert_eq!(timers.cancel("late"), 1);
    engine.advance(ms(10));
    assert_eq!(told.take(), [(1, Outcome::Cancelled), (2, Outcome::Fired)]);
    drop((timers, taken));
    assert!(engine.try_sleep(HOUR).is_ok(), "they hold no place");
}

#[test]
fn d64_a_scheduler_on_a_full_engine_makes_each_run_in_its_time() {
    let (engine, _taken) = full(1);
    let log = Log::default();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    for key in [3_u64, 5] {
        let log = log.clone();
        scheduler.schedule(key, Plan::every(ms(10 * key)), move |run| log.write(10 * key + run.number())).unwrap();
    }
    engine.advance(ms(29));
    assert_eq!(log.take(), []);
    engine.advance(ms(1));
    assert_eq!(log.take(), [31]);
    engine.advance(ms(20));
    assert_eq!(log.take(), [51]);
    engine.advance(ms(50));
    assert_eq!(log.take(), [32, 33, 52]);
    assert!(scheduler.remove(&3));
    engine.advance(ms(100));
    assert_eq!(log.take(), [53, 54]);
}

#[test]
fn d64_a_deadline_scope_on_a_full_engine_ends_in_time() {
    let (engine, _taken) = full(1);
    let _entered = engine.enter();
    let task = Task::new();
    let mut inner = pin!(Deadline::after(HOUR).scope(Deadline::after(ms(20)).scope(Told::<u8>(None))));
    let mut outer = pin!(Deadline::after(ms(30)).scope(Deadline::after(HOUR).scope(Told::<u8>(None))));
    assert!(task.poll(inner.as_mut()).is_pending() && task.poll(outer.as_mut()).is_pending());
    engine.advance(ms(19));
    assert_eq!(task.wakes(), 0);
    engine.advance(ms(1));
    assert!(task.wakes() > 0);
    assert!(matches!(task.poll(inner.as_mut()), Poll::Ready(Ok(Err(elapsed))) if !elapsed.is_stopped()));
    engine.advance(ms(10));
    assert!(task.wakes() > 0);
    assert!(task.poll(outer.as_mut()).is_ready());
    assert_eq!(engine.stats().armed, 1);
}

#[test]
fn d43_d64_surfaces_that_share_one_place_take_turns_and_lose_nothing() {
    let engine = with_room(1);
    let _entered = engine.enter();
    let (task, told) = (Task::new(), Outcomes::default());
    let mut sleeper = Sleeper::new(&engine, ms(50));
    let mut limited = pin!(timeout(ms(40), Told::<u8>(None)));
    assert!(task.poll(limited.as_mut()).is_pending());
    let timer = Timer::on(&engine);
    timer.expires_after(ms(30));
    timer.on_expiry(told.callback(30));
    let timers = NamedTimers::on(&engine);
    timers.start("named", ms(20), told.callback(20)).unwrap();
    let log = Log::default();
    let scheduler = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let runs = log.clone();
    scheduler.schedule(0, Plan::every(ms(10)).times(6), move |run| runs.write(run.number())).unwrap();
    for passed in 1..=6 {
        engine.advance(ms(10));
        assert!(engine.stats().pending <= 1);
        assert_eq!(log.take(), [passed], "a run a step");
        let expected = if matches!(passed, 2 | 3) { vec![(10 * passed, Outcome::Fired)] } else { Vec::new() };
        assert_eq!(told.take(), expected);
        match passed {
            4 => assert!(is_elapsed(task.poll(limited.as_mut()))),
            ..5 => assert!(task.poll(limited.as_mut()).is_pending()),
            _ => {}
        }
        assert_eq!(sleeper.poll().is_ready(), passed >= 5);
    }
    drop((timer, timers, scheduler));
    engine.turn();
    assert_eq!(engine.stats().pending, 0);
    assert!(engine.try_sleep(HOUR).is_ok());
}

/// Checks that a sleep gets the place for which a surface waited before it, after `makes_idle` has taken the last deadline from
/// that surface.
fn passes_on<S>(surface: impl FnOnce(&Engine) -> S, makes_idle: impl FnOnce(&mut S)) {
    let (engine, taken) = full(1);
    let _entered = engine.enter();
    let mut surface = surface(&engine);
    let mut waits = Sleeper::new(&engine, HOUR);
    makes_idle(&mut surface);
    drop(taken);
    engine.turn();
    assert_eq!(waits.wakes(), 1, "the surface has no use for the place");
    assert!(waits.poll().is_pending());
    assert_eq!(engine.stats().pending, 1);
    drop(surface);
    engine.turn();
    assert_eq!((waits.wakes(), waits.sleep.outcome()), (0, None));
}

#[test]
fn d65_p7_a_timer_without_waits_passes_its_place_on() {
    let timer = |engine: &Engine| {
        let timer = Timer::on(engine);
        timer.expires_after(ms(10));
        timer.on_expiry(|_| ());
        timer
    };
    passes_on(timer, |timer| assert_eq!(timer.cancel(), 1));
}

#[test]
fn d65_p7_named_timers_of_which_none_is_left_pass_their_place_on() {
    let timers = |engine: &Engine| {
        let timers = NamedTimers::on(engine);
        timers.start("named", ms(10), |_| ()).unwrap();
        timers
    };
    passes_on(timers, |timers| assert_eq!(timers.cancel("named"), 1));
}

#[test]
fn d65_p7_an_empty_delay_queue_passes_its_place_on() {
    let task = Task::new();
    let queue = |_: &Engine| {
        let mut queue = DelayQueue::new();
        queue.insert((), ms(10));
        assert!(queue.poll_expired(&mut task.cx()).is_pending());
        queue
    };
    passes_on(queue, |queue| {
        queue.clear();
        assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)));
    });
}

#[test]
fn d28_p7_a_shutdown_ends_every_surface_that_waits_for_room() {
    let (engine, _taken) = full(1);
    let _entered = engine.enter();
    let (task, told) = (Task::new(), Outcomes::default());
    let mut limited = pin!(timeout(HOUR, Told::<u8>(None)));
    let mut ticks = interval(HOUR);
    let mut queue = DelayQueue::new();
    let (timer, timers) = (Timer::on(&engine), NamedTimers::on(&engine));
    queue.insert((), HOUR);
    assert!(task.poll(limited.as_mut()).is_pending() && queue.poll_expired(&mut task.cx()).is_pending());
    assert!(ticks.poll_tick(&mut task.cx()).is_ready() && ticks.poll_tick(&mut task.cx()).is_pending());
    timer.expires_after(HOUR);
    timer.on_expiry(told.callback(1));
    timers.start("named", HOUR, told.callback(2)).unwrap();
    engine.shutdown();
    assert_eq!(task.wakes(), 3);
    assert!(is_stopped(task.poll(limited.as_mut())));
    assert!(matches!(queue.poll_expired(&mut task.cx()), Poll::Ready(None)) && queue.is_stopped());
    assert!(ticks.poll_tick(&mut task.cx()).is_ready());
    engine.turn();
    let mut all = told.take();
    all.sort_unstable_by_key(|(number, _)| *number);
    assert_eq!(all, [(1, Outcome::Stopped), (2, Outcome::Stopped)]);
}

// With a driver on a thread of its own, in real time.

#[test]
fn d64_on_the_real_clock_a_sleep_ends_while_another_takes_the_only_place_for_an_hour() {
    let engine = Engine::builder().clock(Clock::monotonic()).capacity(1).build().unwrap();
    let _taken = engine.try_sleep(HOUR).unwrap();
    let (send, receive) = mpsc::channel();
    let its = engine.clone();
    let _detached = thread::spawn(move || {
        let mut sleep = Box::pin(its.sleep(ms(20)));
        let deadline = sleep.deadline();
        futures_lite::future::block_on(sleep.as_mut());
        let is_early = now(&its) < deadline;
        send.send((sleep.outcome(), is_early)).unwrap();
    });
    let ended = receive.recv_timeout(Duration::from_secs(30)).expect("the sleep never ended");
    assert_eq!(ended, (Some(Outcome::Fired), false));
}
