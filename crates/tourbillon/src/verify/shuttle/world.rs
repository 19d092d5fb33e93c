//! An engine in a schedule, those who use it, and time.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use tourbillon_queue::{Span, Time};

use crate::driver::WAKEUP_SPACING;
use crate::sync::under_shuttle::{set_time, time};
use crate::{Builder, Driver, Engine, Stats};

/// When a schedule begins.
const START: Time = Time::from_nanos(1_000_000_000);

/// In microseconds, the most that a timer may be late here by its own slack.
pub(super) const SLACK: u64 = 500;

/// Nobody waits for longer than this beyond what they wait for: that slack, and the space between two wake-ups when they come thick,
/// for a timer and for another that is armed when that fires. Timers here are several times that apart, so that a wake-up for an earlier one is
/// missed if it does not come.
const PATIENCE: Duration = Duration::from_micros(2 * (WAKEUP_SPACING.as_micros() as u64 + SLACK));

/// Handles to one engine, its users' books, and what moves time.
#[derive(Clone)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) books: Arc<Books>,
    clockwork: Arc<Clockwork>,
}

/// What those who use sleeps have counted. (By what shuttle does not see.)
#[derive(Default)]
pub(super) struct Books {
    pub(super) armed: AtomicU64,
    /// Seen to have fired, and to have been stopped.
    pub(super) fired: AtomicU64,
    pub(super) stopped: AtomicU64,
    /// Tasks that were woken.
    pub(super) woken: AtomicU64,
    /// Wakers and callbacks that have thrown something.
    thrown: AtomicU64,
}

/// What moves time: only as far as somebody waits for it, and not at all while somebody waits who should have been woken.
struct Clockwork {
    hands: Mutex<Hands>,
    changed: Condvar,
    /// Told after time has moved.
    moved: Box<dyn Fn(&Engine) + Send + Sync>,
}

#[derive(Default)]
struct Hands {
    /// Until when somebody waits, by number.
    waits: BTreeMap<u64, Time>,
    next: u64,
    /// How many threads of the world have not ended.
    threads: usize,
}

/// Somebody who waits, as long as this is there.
pub(super) struct Waits {
    clockwork: Arc<Clockwork>,
    number: u64,
}

/// How those who turn an engine from outside, or a shard of it, are called.
#[derive(Default)]
pub(super) struct Turning {
    /// How often.
    calls: Mutex<u64>,
    changed: Condvar,
}

impl World {
    /// One whose engine has its driver on a thread of its own.
    pub(super) fn driven(build: Builder) -> World {
        World::driven_beside(build, Arc::default())
    }

    /// The same, with somebody else who has to hear of time.
    pub(super) fn driven_beside(build: Builder, turning: Arc<Turning>) -> World {
        set_time(START);
        let engine = build.build().expect("there are threads enough");
        World::new(engine, move |engine| {
            engine.core().driver.time_has_moved(engine.clock());
            turning.time_has_moved();
        })
    }

    /// One whose engine is turned by so many threads, until it is shut down.
    pub(super) fn turned(build: Builder, turners: usize) -> World {
        set_time(START);
        let turning = Arc::new(Turning::default());
        let driver = {
            let turning = Arc::clone(&turning);
            Driver::external_with(move || turning.call())
        };
        let engine = build.driver(driver).build().expect("it needs no threads");
        for _ in 0..turners {
            let (engine, turning) = (engine.clone(), Arc::clone(&turning));
            thread::spawn(move || {
                turning.turn_while(|| {
                    let turn = engine.turn();
                    // Nobody is called for that.
                    (!engine.is_shutdown()).then_some(turn)
                })
            });
        }
        World::new(engine, move |_| turning.time_has_moved())
    }

    fn new(engine: Engine, moved: impl Fn(&Engine) + Send + Sync + 'static) -> World {
        let (hands, changed) = (Mutex::default(), Condvar::new());
        let clockwork = Arc::new(Clockwork { hands, changed, moved: Box::new(moved) });
        World { engine, books: Arc::default(), clockwork }
    }

    /// A thread of this world.
    pub(super) fn spawn(&self, run: impl FnOnce(&World) + Send + 'static) {
        self.clockwork.change(|hands| hands.threads += 1);
        let world = self.clone();
        thread::spawn(move || {
            run(&world);
            world.clockwork.change(|hands| hands.threads -= 1);
        });
    }

    /// Moves time while anybody waits for it, until all threads have ended.
    pub(super) fn run(&self) {
        while let Some(due) = self.clockwork.next_due() {
            let (now, last) = (time(), due + Span::from(PATIENCE));
            let to = match one_of(4) {
                0 => Time::from_nanos(thread_rng().gen_range(now.as_nanos()..=last.as_nanos())),
                1 => last,
                _ => due.max(now),
            };
            set_time(to);
            (self.clockwork.moved)(&self.engine);
        }
    }

    /// Somebody waits until that time, and has to be woken then. `NEVER`: for something other than time.
    pub(super) fn waits_until(&self, due: Time) -> Waits {
        let number = self.clockwork.change(|hands| {
            hands.next += 1;
            hands.waits.insert(hands.next, due);
            hands.next
        });
        Waits { clockwork: Arc::clone(&self.clockwork), number }
    }

    /// Waits for something that comes within `at_most`, and of which whoever does it [tells](World::changed).
    pub(super) fn wait_for(&self, at_most: Duration, condition: impl Fn() -> bool) {
        let _waits = self.waits_until(time() + Span::from(at_most));
        self.clockwork.wait_for(condition);
    }

    /// The same for what needs no time.
    pub(super) fn wait_now(&self, condition: impl Fn() -> bool) {
        self.clockwork.wait_for(condition);
    }

    /// What somebody may [wait for](World::wait_for) has changed.
    pub(super) fn changed(&self) {
        self.clockwork.change(|_| ());
    }

    /// By a waker or a callback, as the last thing that it does: throws something now and then.
    pub(super) fn throw_at_times(self) {
        if one_of(8) > 0 {
            return;
        }
        self.books.thrown.fetch_add(1, Ordering::Relaxed);
        // Before, because what is dropped on the way up must not let others run: shuttle would take them for those that throw.
        drop(self);
        // Not by `panic!`, which would be reported.
        resume_unwind(Box::new("on purpose"));
    }

    /// After all who used it have gone: whatever was armed has ended, once.
    #[track_caller]
    pub(super) fn check_outcomes(&self) -> Stats {
        let stats = self.stats_at_last();
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped, "outcomes: {stats:?}");
        stats
    }

    /// The same if all of its timers were sleeps on which books were [kept](super::kept::Kept): by those as well.
    #[track_caller]
    pub(super) fn check_sleeps(&self) -> Stats {
        let stats = self.check_outcomes();
        let Books { armed, fired, stopped, .. } = &*self.books;
        let [armed, fired, stopped] = [armed, fired, stopped].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(stats.armed, armed, "timers that were armed: {stats:?}");
        assert!(stats.fired >= fired && stats.stopped >= stopped, "{fired} fired, {stopped} stopped: {stats:?}");
        stats
    }

    /// The same if there was room for all of them: each that was not cancelled has woken its task, once.
    #[track_caller]
    pub(super) fn check_wakes(&self) {
        let stats = self.check_sleeps();
        let woken = || self.books.woken.load(Ordering::Relaxed);
        // One that was dropped may have fired just before, and tasks are woken when the shard has been left.
        self.clockwork.wait_for(|| woken() >= stats.fired + stats.stopped);
        assert_eq!(woken(), stats.fired + stats.stopped, "tasks that were woken: {stats:?}");
    }

    /// What the engine has counted, as soon as that is all. Who throws tells of it before it is counted; and threads of the engine may be
    /// in the middle of moving a timer, which has not ended as long as they have it. (Nobody waits for ever here: steps are limited.)
    fn stats_at_last(&self) -> Stats {
        loop {
            let stats = self.engine.stats();
            let (counted, thrown) =
                (stats.waker_panics + stats.callback_panics, self.books.thrown.load(Ordering::Relaxed));
            assert!(counted <= thrown, "something in a waker or a callback has failed");
            if counted == thrown && stats.pending == 0 {
                return stats;
            }
            thread::yield_now();
        }
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.clockwork.change(|hands| hands.waits.remove(&self.number));
    }
}

impl Clockwork {
    fn change<R>(&self, change: impl FnOnce(&mut Hands) -> R) -> R {
        let result = change(&mut self.hands.lock().unwrap());
        self.changed.notify_all();
        result
    }

    fn wait_for(&self, condition: impl Fn() -> bool) {
        let mut hands = self.hands.lock().unwrap();
        while !condition() {
            hands = self.changed.wait(hands).unwrap();
        }
    }

    /// What is waited for first, as soon as time may move. `None`: all threads have ended.
    fn next_due(&self) -> Option<Time> {
        let mut hands = self.hands.lock().unwrap();
        while hands.threads > 0 {
            let first = hands.waits.values().min().copied().unwrap_or(Time::NEVER);
            if !first.is_never() && first + Span::from(PATIENCE) > time() {
                return Some(first);
            }
            hands = self.changed.wait(hands).unwrap();
        }
        None
    }
}

impl Turning {
    pub(super) fn call(&self) {
        *self.calls.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn time_has_moved(&self) {
        drop(self.calls.lock().unwrap());
        self.changed.notify_all();
    }

    /// The loop of whoever turns: again when the last turn said so, or when called; until there is no turn.
    pub(super) fn turn_while(&self, mut turn: impl FnMut() -> Option<crate::Turn>) {
        loop {
            let seen = *self.calls.lock().unwrap();
            let Some(turn) = turn() else { return };
            let next = if turn.more { Time::ZERO } else { turn.next.unwrap_or(Time::NEVER) };
            let mut calls = self.calls.lock().unwrap();
            while *calls == seen && next > time() {
                calls = self.changed.wait(calls).unwrap();
            }
        }
    }
}

/// A random time between these, in microseconds.
pub(super) fn micros(least: u64, most: u64) -> Duration {
    Duration::from_micros(thread_rng().gen_range(least..=most))
}

/// One of so many things, at random.
pub(super) fn one_of(many: usize) -> usize {
    thread_rng().gen_range(0..many)
}
