//! An engine in a schedule, the threads that use it, and time.

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

/// The time at which a schedule begins.
const START: Time = Time::from_nanos(1_000_000_000);

/// The longest slack of a timer here, in microseconds.
pub(super) const SLACK: u64 = 500;

/// No thread waits longer than this after its deadline: the slack and the spacing of wake-ups, both for a timer and for another that is
/// armed when the first fires. Timers here lie several times as far apart, so that a lost wake-up is not made up for by the next one.
const MAX_LATENESS: Duration = Duration::from_micros(2 * (WAKEUP_SPACING.as_micros() as u64 + SLACK));

/// An engine, the counts of its users, and the mover of time. Clones share them.
#[derive(Clone)]
pub(super) struct CheckedEngine {
    pub(super) engine: Engine,
    pub(super) counts: Arc<UserCounts>,
    mover: Arc<TimeMover>,
}

/// The counts of the threads that use sleeps. (The counters are ones that shuttle does not check.)
#[derive(Default)]
pub(super) struct UserCounts {
    pub(super) armed: AtomicU64,
    /// Sleeps that were polled and had fired.
    pub(super) fired: AtomicU64,
    /// Sleeps that were polled and had been stopped.
    pub(super) stopped: AtomicU64,
    /// Wakers that were woken.
    pub(super) woken: AtomicU64,
    /// Wakers and callbacks that have panicked on purpose.
    panicked: AtomicU64,
}

/// Moves time: only as far as a thread waits for it, and not at all while a thread waits that should have been woken.
struct TimeMover {
    state: Mutex<MoverState>,
    changed: Condvar,
    /// Called after time has moved.
    moved: Box<dyn Fn(&Engine) + Send + Sync>,
}

#[derive(Default)]
struct MoverState {
    /// The times until which threads wait, by the number of the wait.
    waits: BTreeMap<u64, Time>,
    next: u64,
    /// How many threads of the schedule have not ended.
    threads: usize,
}

/// A guard for a thread that waits.
pub(super) struct WaitGuard {
    mover: Arc<TimeMover>,
    number: u64,
}

/// Notifies the threads that turn an engine, or the worker that turns its shard.
#[derive(Default)]
pub(super) struct TurnSignal {
    /// How often it was notified.
    count: Mutex<u64>,
    changed: Condvar,
}

impl CheckedEngine {
    /// Returns an engine that has a driver thread.
    pub(super) fn driven(build: Builder) -> CheckedEngine {
        CheckedEngine::driven_beside(build, Arc::default())
    }

    /// Returns an engine that has a driver thread, and `signal` for a thread that has to notice when time moves.
    pub(super) fn driven_beside(build: Builder, signal: Arc<TurnSignal>) -> CheckedEngine {
        set_time(START);
        let engine = build.build().expect("there are enough threads");
        CheckedEngine::new(engine, move |engine| {
            engine.core().driver.time_has_moved(engine.clock());
            signal.time_has_moved();
        })
    }

    /// Returns an engine that is turned by `turners` threads until it is shut down.
    pub(super) fn turned(build: Builder, turners: usize) -> CheckedEngine {
        set_time(START);
        let signal = Arc::new(TurnSignal::default());
        let driver = {
            let signal = Arc::clone(&signal);
            Driver::external_with(move || signal.notify())
        };
        let engine = build.driver(driver).build().expect("an external driver needs no threads");
        for _ in 0..turners {
            let (engine, signal) = (engine.clone(), Arc::clone(&signal));
            thread::spawn(move || {
                signal.turn_while(|| {
                    let turn = engine.turn();
                    // Shutdown does not notify the threads that turn.
                    (!engine.is_shutdown()).then_some(turn)
                })
            });
        }
        CheckedEngine::new(engine, move |_| signal.time_has_moved())
    }

    fn new(engine: Engine, moved: impl Fn(&Engine) + Send + Sync + 'static) -> CheckedEngine {
        let (state, changed) = (Mutex::default(), Condvar::new());
        let mover = Arc::new(TimeMover { state, changed, moved: Box::new(moved) });
        CheckedEngine { engine, counts: Arc::default(), mover }
    }

    /// Starts a thread that uses the engine.
    pub(super) fn spawn(&self, run: impl FnOnce(&CheckedEngine) + Send + 'static) {
        self.mover.change(|state| state.threads += 1);
        let checked = self.clone();
        thread::spawn(move || {
            run(&checked);
            checked.mover.change(|state| state.threads -= 1);
        });
    }

    /// Moves time while a thread waits for it, until all threads have ended.
    pub(super) fn run(&self) {
        while let Some(due) = self.mover.next_due() {
            let (now, last) = (time(), due + Span::from(MAX_LATENESS));
            let to = match one_of(4) {
                0 => Time::from_nanos(thread_rng().gen_range(now.as_nanos()..=last.as_nanos())),
                1 => last,
                _ => due.max(now),
            };
            set_time(to);
            (self.mover.moved)(&self.engine);
        }
    }

    /// Registers that the calling thread waits until `due`, when it has to be woken. `NEVER` if it waits for something other than time.
    pub(super) fn waits_until(&self, due: Time) -> WaitGuard {
        let number = self.mover.change(|state| {
            state.next += 1;
            state.waits.insert(state.next, due);
            state.next
        });
        WaitGuard { mover: Arc::clone(&self.mover), number }
    }

    /// Waits for a condition that becomes true within `at_most`. The thread that makes it true calls [`changed`](CheckedEngine::changed).
    pub(super) fn wait_for(&self, at_most: Duration, condition: impl Fn() -> bool) {
        let _wait = self.waits_until(time() + Span::from(at_most));
        self.mover.wait_for(condition);
    }

    /// Waits for a condition that becomes true without time moving.
    pub(super) fn wait_now(&self, condition: impl Fn() -> bool) {
        self.mover.wait_for(condition);
    }

    /// Makes threads check the condition that they [wait for](CheckedEngine::wait_for).
    pub(super) fn changed(&self) {
        self.mover.change(|_| ());
    }

    /// Panics now and then. A waker or a callback calls this as its last step.
    pub(super) fn panic_sometimes(self) {
        if one_of(8) > 0 {
            return;
        }
        self.counts.panicked.fetch_add(1, Ordering::Relaxed);
        // Dropped before the panic: a drop during unwinding must not let other threads run, because shuttle would take them for the one
        // that panics.
        drop(self);
        // Not by `panic!`, which would be printed.
        resume_unwind(Box::new("on purpose"));
    }

    /// Asserts, after all threads that used the engine have ended, that each armed timer has ended once.
    #[track_caller]
    pub(super) fn check_outcomes(&self) -> Stats {
        let stats = self.final_stats();
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped, "outcomes: {stats:?}");
        stats
    }

    /// As [`check_outcomes`](CheckedEngine::check_outcomes), for an engine in which all timers were
    /// [`CountedSleep`](super::counted_sleep::CountedSleep)s: compares with their counts as well.
    #[track_caller]
    pub(super) fn check_sleeps(&self) -> Stats {
        let stats = self.check_outcomes();
        let UserCounts { armed, fired, stopped, .. } = &*self.counts;
        let [armed, fired, stopped] = [armed, fired, stopped].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(stats.armed, armed, "timers that were armed: {stats:?}");
        assert!(stats.fired >= fired && stats.stopped >= stopped, "{fired} fired, {stopped} stopped: {stats:?}");
        stats
    }

    /// As [`check_sleeps`](CheckedEngine::check_sleeps), for an engine without a limit: each sleep that was not cancelled has woken its waker once.
    #[track_caller]
    pub(super) fn check_wakes(&self) {
        let stats = self.check_sleeps();
        let woken = || self.counts.woken.load(Ordering::Relaxed);
        // A sleep may have fired just before it was dropped, and its waker is woken after the shard has been unlocked.
        self.mover.wait_for(|| woken() >= stats.fired + stats.stopped);
        assert_eq!(woken(), stats.fired + stats.stopped, "wakers that were woken: {stats:?}");
    }

    /// Returns the engine's counts as soon as they are complete. A panic is counted here before the engine counts it; and threads of the
    /// engine may be migrating a timer, which has not ended meanwhile. (This ends: the steps of a schedule are limited.)
    fn final_stats(&self) -> Stats {
        loop {
            let stats = self.engine.stats();
            let (counted, panicked) =
                (stats.waker_panics + stats.callback_panics, self.counts.panicked.load(Ordering::Relaxed));
            assert!(counted <= panicked, "an assertion in a waker or a callback has failed");
            if counted == panicked && stats.pending == 0 {
                return stats;
            }
            thread::yield_now();
        }
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.mover.change(|state| state.waits.remove(&self.number));
    }
}

impl TimeMover {
    fn change<R>(&self, change: impl FnOnce(&mut MoverState) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
        result
    }

    fn wait_for(&self, condition: impl Fn() -> bool) {
        let mut state = self.state.lock().unwrap();
        while !condition() {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Waits until time may move, and returns the earliest time that a thread waits for. `None` if all threads have ended.
    fn next_due(&self) -> Option<Time> {
        let mut state = self.state.lock().unwrap();
        while state.threads > 0 {
            let first = state.waits.values().min().copied().unwrap_or(Time::NEVER);
            if !first.is_never() && first + Span::from(MAX_LATENESS) > time() {
                return Some(first);
            }
            state = self.changed.wait(state).unwrap();
        }
        None
    }
}

impl TurnSignal {
    pub(super) fn notify(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn time_has_moved(&self) {
        drop(self.count.lock().unwrap());
        self.changed.notify_all();
    }

    /// Calls `turn` whenever the last turn said so or this was notified, until it returns `None`.
    pub(super) fn turn_while(&self, mut turn: impl FnMut() -> Option<crate::Turn>) {
        loop {
            let seen = *self.count.lock().unwrap();
            let Some(turn) = turn() else { return };
            let next = if turn.more { Time::ZERO } else { turn.next.unwrap_or(Time::NEVER) };
            let mut count = self.count.lock().unwrap();
            while *count == seen && next > time() {
                count = self.changed.wait(count).unwrap();
            }
        }
    }
}

/// Returns a random duration between these, in microseconds.
pub(super) fn micros(least: u64, most: u64) -> Duration {
    Duration::from_micros(thread_rng().gen_range(least..=most))
}

/// Returns a random number below `many`.
pub(super) fn one_of(many: usize) -> usize {
    thread_rng().gen_range(0..many)
}
