//! Models of `Timer`, over a simulated engine: loom's threads are one thread of the system, and would share a shard of a real engine.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use loom::thread;
use tourbillon_queue::Time;

use super::callbacks::core;
use super::{DUE, LATER, WakerTally, explore_up_to};
use crate::clock::Clock;
use crate::core::CoreRef;
use crate::driver::Driver;
use crate::outcome::Outcome;
use crate::slack::SlackBits;
use crate::sync::{Mutex, lock};
use crate::timer::Timer;

/// Replaces the engine's entry, with the same contract: it ends once, and then its waker is woken outside the lock.
pub(crate) struct Entry {
    engine: Arc<Mutex<SimulatedEngine>>,
    index: usize,
}

/// An engine that does nothing but end entries.
struct SimulatedEngine {
    now: Time,
    is_stopped: bool,
    entries: Vec<SimulatedEntry>,
}

struct SimulatedEntry {
    due: Time,
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

thread_local! {
    /// The engine of the model that runs on this thread of the system. No loom operation happens while it is borrowed.
    static ENGINE: RefCell<Option<Arc<Mutex<SimulatedEngine>>>> = const { RefCell::new(None) };
}

impl Entry {
    pub(crate) fn on(_: &CoreRef, due: Time) -> Entry {
        let engine = ENGINE.with_borrow(|engine| engine.clone().expect("the model has begun"));
        let index = {
            let mut engine = lock(&engine);
            engine.entries.push(SimulatedEntry { due, outcome: None, waker: None });
            engine.entries.len() - 1
        };
        Entry { engine, index }
    }

    /// The simulated engine is never late.
    pub(crate) fn set_slack(&mut self, _: SlackBits) {}

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let mut engine = lock(&self.engine);
        let (now, is_stopped) = (engine.now, engine.is_stopped);
        let entry = &mut engine.entries[self.index];
        if entry.outcome.is_none() {
            entry.outcome = match is_stopped {
                true => Some(Outcome::Stopped),
                false => (entry.due <= now).then_some(Outcome::Fired),
            };
        }
        match entry.outcome {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                entry.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    pub(crate) fn set_due(&mut self, due: Time) {
        let mut engine = lock(&self.engine);
        let before =
            std::mem::replace(&mut engine.entries[self.index], SimulatedEntry { due, outcome: None, waker: None });
        drop(engine);
        drop(before);
    }

    pub(crate) fn is_pending(&self) -> bool {
        let entry = &lock(&self.engine).entries[self.index];
        entry.waker.is_some() && entry.outcome.is_none()
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        lock(&self.engine).entries[self.index].outcome
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let waker = lock(&self.engine).entries[self.index].waker.take();
        drop(waker);
    }
}

/// The simulated engine of one run of a model, and the core whose callback queue it uses.
#[derive(Clone)]
pub(crate) struct ModelEngine {
    pub(crate) core: CoreRef,
    engine: Arc<Mutex<SimulatedEngine>>,
    outcomes: Arc<std::sync::Mutex<Vec<(u32, Outcome)>>>,
}

impl ModelEngine {
    pub(crate) fn new() -> ModelEngine {
        let engine = Arc::new(Mutex::new(SimulatedEngine { now: Time::ZERO, is_stopped: false, entries: Vec::new() }));
        ENGINE.set(Some(engine.clone()));
        let clock = Clock::manual();
        clock.set(Time::ZERO);
        ModelEngine { core: core(Driver::external(), clock), engine, outcomes: Arc::default() }
    }

    fn timer(&self, expiry: Time) -> Timer {
        let timer = Timer::on_core(self.core.clone());
        timer.set(expiry);
        timer
    }

    pub(super) fn callback(&self, name: u32) -> impl FnOnce(Outcome) + Send + 'static {
        let outcomes = self.outcomes.clone();
        move |outcome| outcomes.lock().unwrap().push((name, outcome))
    }

    pub(crate) fn fire(&self, now: Time) {
        self.core.clock.set(now);
        self.end(|engine| engine.now = now, |entry| (entry.due <= now).then_some(Outcome::Fired));
    }

    pub(crate) fn stop(&self) {
        self.end(|engine| engine.is_stopped = true, |_| Some(Outcome::Stopped));
    }

    fn end(&self, change: impl Fn(&mut SimulatedEngine), outcome: impl Fn(&SimulatedEntry) -> Option<Outcome>) {
        let wakers: Vec<_> = {
            let mut engine = lock(&self.engine);
            change(&mut engine);
            let pending = engine.entries.iter_mut().filter(|entry| entry.waker.is_some());
            let end = |entry: &mut SimulatedEntry| {
                entry.outcome = outcome(entry);
                entry.outcome.is_some().then(|| entry.waker.take()).flatten()
            };
            pending.filter_map(end).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Runs all callbacks, and returns the outcomes that they received.
    pub(super) fn outcomes(&self) -> Vec<(u32, Outcome)> {
        self.core.run_callbacks();
        std::mem::take(&mut self.outcomes.lock().unwrap())
    }

    /// Checks that no entry is left, after the timer was dropped.
    pub(crate) fn assert_idle(&self) {
        assert!(lock(&self.engine).entries.iter().all(|entry| entry.waker.is_none()), "an entry that was not dropped");
        ENGINE.set(None);
    }
}

pub(crate) fn spawn(model: &ModelEngine, act: impl FnOnce(&ModelEngine) + 'static) -> thread::JoinHandle<()> {
    let model = model.clone();
    thread::spawn(move || act(&model))
}

#[test]
fn d27_w3_a_wait_that_is_fired_cancelled_and_stopped_at_once_ends_once_and_the_count_is_true() {
    explore_up_to(2, || {
        let model = ModelEngine::new();
        let timer = model.timer(DUE);
        timer.on_expiry(model.callback(1));
        let fires = spawn(&model, |model| model.fire(DUE));
        let stops = spawn(&model, ModelEngine::stop);
        let cancelled = timer.cancel();
        fires.join().unwrap();
        stops.join().unwrap();
        let outcomes = model.outcomes();
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        assert_eq!(usize::from(outcomes[0].1 == Outcome::Cancelled), cancelled);
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn d27_two_threads_that_cancel_while_it_fires_count_each_wait_once() {
    explore_up_to(2, || {
        let model = ModelEngine::new();
        let timer = Arc::new(model.timer(DUE));
        timer.on_expiry(model.callback(1));
        let handle = timer.on_expiry(model.callback(2));
        let fires = spawn(&model, |model| model.fire(DUE));
        let one = thread::spawn(move || usize::from(handle.cancel()));
        let cancelled = timer.cancel() + one.join().unwrap();
        fires.join().unwrap();
        let mut outcomes = model.outcomes();
        assert_eq!(outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Cancelled).count(), cancelled);
        outcomes.sort_by_key(|(name, _)| *name);
        assert_eq!(outcomes.iter().map(|(name, _)| *name).collect::<Vec<_>>(), [1, 2]);
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn d39_a_wait_that_begins_while_the_timer_fires_is_not_forgotten() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timer = model.timer(DUE);
        timer.on_expiry(model.callback(1));
        let fires = spawn(&model, |model| model.fire(DUE));
        timer.on_expiry(model.callback(2));
        fires.join().unwrap();
        // Also in order, whichever thread notified them.
        assert_eq!(model.outcomes(), [(1, Outcome::Fired), (2, Outcome::Fired)]);
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn p1_a_timer_that_is_set_again_while_it_fires_does_not_end_the_new_waits() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timer = model.timer(DUE);
        timer.on_expiry(model.callback(1));
        let fires = spawn(&model, |model| model.fire(DUE));
        let cancelled = timer.set(LATER);
        timer.on_expiry(model.callback(2));
        fires.join().unwrap();
        let first = if cancelled == 1 { Outcome::Cancelled } else { Outcome::Fired };
        assert_eq!(model.outcomes(), [(1, first)]);
        model.fire(LATER);
        assert_eq!(model.outcomes(), [(2, Outcome::Fired)]);
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn p1_a_timer_that_is_set_again_while_it_is_being_armed_does_not_end_the_new_waits() {
    explore_up_to(4, || {
        let model = ModelEngine::new();
        let timer = Arc::new(model.timer(DUE));
        model.fire(DUE);
        let waits = {
            let timer = timer.clone();
            spawn(&model, move |model| _ = timer.on_expiry(model.callback(1)))
        };
        timer.set(LATER);
        timer.on_expiry(model.callback(2));
        waits.join().unwrap();
        let outcomes = model.outcomes();
        assert!(outcomes.iter().all(|(name, outcome)| *name == 1 && *outcome != Outcome::Stopped), "{outcomes:?}");
        model.fire(LATER);
        let outcomes = [outcomes, model.outcomes()].concat();
        assert!(outcomes.contains(&(2, Outcome::Fired)) && outcomes.len() == 2, "{outcomes:?}");
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn d39_a_wait_that_is_dropped_while_it_fires_leaves_nothing_behind() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timer = model.timer(DUE);
        let tally = WakerTally::new();
        let mut wait = timer.wait();
        assert!(poll(&mut wait, &tally.waker()).is_pending());
        let fires = spawn(&model, |model| model.fire(DUE));
        drop(wait);
        fires.join().unwrap();
        assert!(tally.woken() <= 1);
        tally.assert_none_lost_or_doubled();
        assert_eq!(timer.cancel(), 0);
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn d39_a_wait_that_is_polled_while_it_fires_is_ready_or_woken() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timer = model.timer(DUE);
        let mut wait = timer.wait();
        let (first, second) = (WakerTally::new(), WakerTally::new());
        assert!(poll(&mut wait, &first.waker()).is_pending());
        let fires = spawn(&model, |model| model.fire(DUE));
        let is_ready = poll(&mut wait, &second.waker()).is_ready();
        fires.join().unwrap();
        assert!(is_ready || second.woken() == 1, "a lost wake-up");
        assert_eq!(poll(&mut wait, &second.waker()), Poll::Ready(Outcome::Fired));
        [first, second].into_iter().for_each(WakerTally::assert_none_lost_or_doubled);
        drop((timer, wait));
        model.assert_idle();
    });
}

#[test]
fn e7_a_timer_that_is_disarmed_and_armed_while_it_fires_ends_its_wait_once() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timer = Arc::new(model.timer(DUE));
        timer.on_expiry(model.callback(1));
        let fires = spawn(&model, |model| model.fire(DUE));
        let arms = {
            let timer = timer.clone();
            spawn(&model, move |_| timer.arm())
        };
        timer.disarm();
        fires.join().unwrap();
        arms.join().unwrap();
        // Either the wait has fired, or the timer is disarmed and keeps it.
        let before = model.outcomes();
        timer.arm();
        let outcomes = [before, model.outcomes()].concat();
        assert_eq!(outcomes, [(1, Outcome::Fired)]);
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn e7_a_wait_of_a_timer_that_was_disarmed_before_it_fires_stays_pending() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timer = model.timer(DUE);
        timer.disarm();
        let fires = spawn(&model, |model| model.fire(DUE));
        timer.on_expiry(model.callback(1));
        fires.join().unwrap();
        assert_eq!(model.outcomes(), []);
        timer.arm();
        assert_eq!(model.outcomes(), [(1, Outcome::Fired)]);
        drop(timer);
        model.assert_idle();
    });
}

pub(super) fn poll<F: Future + Unpin>(wait: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(wait).poll(&mut Context::from_waker(waker))
}
