//! Models of `NamedTimers`, over a simulated engine: see [`timer`](super::timer).

use loom::thread;
use tourbillon_queue::Time;

use super::timer::{ModelEngine, spawn};
use super::{DUE, LATER, WakerTally, explore_up_to};
use crate::core::error::ArmError;
use crate::multi::waiter::TimerWaiter;
use crate::named::{NamedTimer, NamedTimers};
use crate::outcome::Outcome;

fn start(model: &ModelEngine, timer: NamedTimer, due: Time, number: u32) -> Result<(), ArmError> {
    timer.start_due(due, TimerWaiter::Callback(Box::new(model.callback(number)))).map(drop)
}

#[test]
fn w3_d27_timeout_cancel_and_stop_at_once_are_one_outcome_and_the_counts_are_true() {
    explore_up_to(2, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), DUE, 1).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        let stops = {
            let timers = timers.clone();
            thread::spawn(move || timers.stop())
        };
        let cancelled = timers.cancel("a");
        fires.join().unwrap();
        let stopped = stops.join().unwrap();
        let outcomes = model.outcomes();
        assert_eq!(outcomes.len(), 1, "{outcomes:?}");
        let expected = match outcomes[0].1 {
            Outcome::Fired => (0, 0),
            Outcome::Cancelled => (1, 0),
            _ => (0, 1),
        };
        assert_eq!((cancelled, stopped), expected);
        drop(timers);
        model.assert_idle();
    });
}

#[test]
fn w5_a_timer_that_is_started_while_it_is_cancelled_is_told_and_counted() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        let timer = timers.create("a");
        let starts = spawn(&model, move |model| start(model, timer, DUE, 1).unwrap());
        assert_eq!(timers.cancel("a"), 1, "before or after it was started");
        starts.join().unwrap();
        assert_eq!(model.outcomes(), [(1, Outcome::Cancelled)]);
        drop(timers);
        model.assert_idle();
    });
}

#[test]
fn d39_a_timer_that_is_started_while_others_fire_is_not_forgotten() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), DUE, 1).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        start(&model, timers.create("b"), LATER, 2).unwrap();
        fires.join().unwrap();
        assert_eq!(model.outcomes(), [(1, Outcome::Fired)]);
        model.fire(LATER);
        assert_eq!(model.outcomes(), [(2, Outcome::Fired)]);
        drop(timers);
        model.assert_idle();
    });
}

#[test]
fn d39_an_earlier_timer_that_is_started_while_the_time_comes_is_not_forgotten() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), LATER, 1).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        start(&model, timers.create("b"), DUE, 2).unwrap();
        fires.join().unwrap();
        assert_eq!(model.outcomes(), [(2, Outcome::Fired)]);
        drop(timers);
        assert_eq!(model.outcomes(), [(1, Outcome::Cancelled)]);
        model.assert_idle();
    });
}

#[test]
fn d28_d32_a_timer_that_is_started_during_a_shutdown_is_refused_or_stopped() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        let stops = spawn(&model, ModelEngine::stop);
        let started = start(&model, timers.create("a"), DUE, 1);
        stops.join().unwrap();
        let outcomes = model.outcomes();
        assert_eq!(outcomes, if started.is_ok() { vec![(1, Outcome::Stopped)] } else { vec![] });
        drop(timers);
        model.assert_idle();
    });
}

#[test]
fn d39_a_future_that_is_dropped_while_it_fires_leaves_nothing_behind() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        let tally = WakerTally::new();
        let mut wait = timers.create("a").wait_due(DUE).unwrap();
        assert!(super::timer::poll(&mut wait, &tally.waker()).is_pending());
        let fires = spawn(&model, |model| model.fire(DUE));
        drop(wait);
        fires.join().unwrap();
        assert!(tally.woken() <= 1 && timers.is_empty());
        tally.assert_none_lost_or_doubled();
        drop(timers);
        model.assert_idle();
    });
}
