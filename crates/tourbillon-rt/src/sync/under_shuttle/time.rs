//! The time of a schedule.
//!
//! It is a manual clock. A thread of the schedule moves it, only while some thread or engine waits for a time, and no further than the
//! first of those times. So time that passes does not hide a lost wake-up, unless the parked thread waits for that time, too. The same
//! thread is the driver of the engines. Beside that, a busy worker lets a moment pass.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use tourbillon::{Builder, Clock, Driver, Engine, Time};

use super::{Signal, lock};

/// The time at which a schedule begins.
const START: Time = Time::from_nanos(1_000_000_000);

/// The time that passes in an iteration of a busy worker: less than the shortest time for which it parks.
const MOMENT: Duration = Duration::from_micros(10);

std::thread_local! {
    /// The clock of the current schedule, whose threads all run on one thread of the system.
    static CURRENT: RefCell<Option<Arc<Timeline>>> = const { RefCell::new(None) };
}

/// The clock of a schedule, and the threads that wait for it.
pub(crate) struct Timeline {
    clock: Clock,
    state: Mutex<TimelineState>,
    changed: Condvar,
}

#[derive(Default)]
struct TimelineState {
    /// The engines that are driven here.
    engines: Vec<Engine>,
    /// Signals to be raised, by number.
    sleepers: BTreeMap<u64, (Time, Arc<Signal>)>,
    last: u64,
    /// An engine has to be turned before the time that it gave.
    is_called: bool,
    is_over: bool,
}

/// Moves the clock until it is dropped.
pub(crate) struct ClockGuard(Arc<Timeline>);

/// A signal that is raised at its time, unless this is dropped before.
pub(crate) struct PendingSignal<'a> {
    time: &'a Timeline,
    number: u64,
}

/// Begins the time of a schedule, before it builds runtimes.
pub(crate) fn begin() -> ClockGuard {
    let (clock, state, changed) = (Clock::manual(), Mutex::default(), Condvar::new());
    clock.set(START);
    let time = Arc::new(Timeline { clock, state, changed });
    CURRENT.set(Some(Arc::clone(&time)));
    let moves = Arc::clone(&time);
    thread::spawn(move || moves.run());
    ClockGuard(time)
}

/// Returns the time of the schedule.
pub(crate) fn now() -> Time {
    Timeline::current().clock.now()
}

/// Returns a builder of an engine on that clock, which has to be [driven](ClockGuard::drive).
pub(crate) fn engine() -> Builder {
    let time = Timeline::current();
    let clock = time.clock.clone();
    Engine::builder().clock(clock).driver(Driver::external_with(move || time.change(|state| state.is_called = true)))
}

impl ClockGuard {
    /// Fires the timers of the engine that no worker turns.
    pub(crate) fn drive(&self, engine: &Engine) {
        self.0.change(|state| state.engines.push(engine.clone()));
    }
}

impl Drop for ClockGuard {
    fn drop(&mut self) {
        self.0.change(|state| state.is_over = true);
    }
}

impl Timeline {
    pub(crate) fn current() -> Arc<Timeline> {
        CURRENT.with_borrow(|current| current.clone()).expect("a schedule begins its time before it builds a runtime")
    }

    /// Raises the signal at its time, unless the guard is dropped before.
    pub(crate) fn raise_at(&self, at: Time, signal: &Arc<Signal>) -> PendingSignal<'_> {
        let number = self.change(|state| {
            state.last += 1;
            state.sleepers.insert(state.last, (at, Arc::clone(signal)));
            state.last
        });
        PendingSignal { time: self, number }
    }

    /// Lets a moment pass.
    pub(crate) fn pass(&self) {
        self.change(|_| self.clock.advance(MOMENT));
    }

    fn change<R>(&self, change: impl FnOnce(&mut TimelineState) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.changed.notify_one();
        result
    }

    /// The thread that moves time and drives the engines.
    fn run(&self) {
        loop {
            let engines = lock(&self.state).engines.clone();
            let turns = engines.iter().map(Engine::turn);
            let next = turns.filter_map(|turn| if turn.more { Some(turn.now) } else { turn.next }).min();
            drop(engines);
            if !self.moves_on(next) {
                let engines = std::mem::take(&mut lock(&self.state).engines);
                drop(engines);
                return;
            }
        }
    }

    /// Moves time towards the first time that an engine or a thread waits for, as soon as there is one. Returns when the engines have to
    /// be turned, or `false` at the end of the schedule.
    fn moves_on(&self, next: Option<Time>) -> bool {
        let mut state = lock(&self.state);
        loop {
            if state.is_over || std::mem::take(&mut state.is_called) {
                return !state.is_over;
            }
            let sleeper = state.sleepers.values().map(|(at, _)| *at).min();
            if let Some(due) = [sleeper, next].into_iter().flatten().min() {
                self.move_towards(due);
                let now = self.clock.now();
                state.sleepers.retain(|_, (at, signal)| {
                    let is_due = *at <= now;
                    if is_due {
                        signal.set(true);
                    }
                    !is_due
                });
                return true;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn move_towards(&self, due: Time) {
        let now = self.clock.now();
        if due > now {
            let between = |to: Time| Time::from_nanos(thread_rng().gen_range(now.as_nanos()..=to.as_nanos()));
            self.clock.set(if thread_rng().gen_range(0..4) == 0 { between(due) } else { due });
        }
    }
}

impl Drop for PendingSignal<'_> {
    fn drop(&mut self) {
        lock(&self.time.state).sleepers.remove(&self.number);
    }
}
