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
    timer.start_due(due, callback(model, number)).map(drop)
}

fn callback(model: &ModelEngine, number: u32) -> TimerWaiter {
    TimerWaiter::Callback(Box::new(model.callback(number)))
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
            thread::spawn(move || timers.shutdown())
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

#[test]
fn e6_of_two_restarts_at_once_one_cancels_the_timer_of_the_other() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        let other = {
            let timers = timers.clone();
            spawn_with(&model, move |model| timers.restart_due("a", LATER, callback(model, 1)).unwrap())
        };
        let cancelled = timers.restart_due("a", LATER, callback(&model, 2)).unwrap();
        assert_eq!(timers.count("a"), 1);
        let by_other = other.join().unwrap();
        assert_eq!((cancelled + by_other, timers.len()), (1, 1));
        let loser = if cancelled == 1 { 1 } else { 2 };
        assert_eq!(model.outcomes(), [(loser, Outcome::Cancelled)]);
        drop(timers);
        assert_eq!(model.outcomes(), [(3 - loser, Outcome::Cancelled)]);
        model.assert_idle();
    });
}

#[test]
fn e6_p2_a_timer_that_fires_during_a_restart_has_one_outcome_and_the_count_is_true() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), DUE, 1).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        let cancelled = timers.restart_due("a", LATER, callback(&model, 2)).unwrap();
        fires.join().unwrap();
        let expected = if cancelled == 1 { Outcome::Cancelled } else { Outcome::Fired };
        assert_eq!(model.outcomes(), [(1, expected)]);
        drop(timers);
        assert_eq!(model.outcomes(), [(2, Outcome::Cancelled)]);
        model.assert_idle();
    });
}

#[test]
fn e6_w5_a_timer_that_is_started_during_a_restart_is_cancelled_once() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        let timer = timers.create("a");
        let starts = spawn(&model, move |model| start(model, timer, DUE, 1).unwrap());
        assert_eq!(timers.restart_due("a", LATER, callback(&model, 2)), Ok(1), "before or after it was started");
        starts.join().unwrap();
        assert_eq!(model.outcomes(), [(1, Outcome::Cancelled)]);
        assert_eq!(timers.len(), 1);
        drop(timers);
        assert_eq!(model.outcomes(), [(2, Outcome::Cancelled)]);
        model.assert_idle();
    });
}

#[test]
fn e6_of_two_threads_that_start_if_there_is_none_one_does() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        let other = {
            let timers = timers.clone();
            spawn_with(&model, move |model| timers.start_if_fewer_due("a", 1, LATER, callback(model, 1)).unwrap())
        };
        let is_started = timers.start_if_fewer_due("a", 1, LATER, callback(&model, 2)).unwrap();
        assert_ne!(is_started, other.join().unwrap());
        assert_eq!(timers.count("a"), 1);
        drop(timers);
        assert_eq!(model.outcomes(), [(if is_started { 2 } else { 1 }, Outcome::Cancelled)]);
        model.assert_idle();
    });
}

#[test]
fn e6_p2_a_timer_that_fires_during_a_renewal_has_fired_or_waits_and_the_count_is_true() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), DUE, 1).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        let renewed = timers.renew_due("a", LATER);
        fires.join().unwrap();
        assert_eq!(model.outcomes(), if renewed == 1 { vec![] } else { vec![(1, Outcome::Fired)] });
        model.fire(LATER);
        assert_eq!(model.outcomes(), if renewed == 1 { vec![(1, Outcome::Fired)] } else { vec![] });
        drop(timers);
        model.assert_idle();
    });
}

#[test]
fn e6_d39_a_renewal_to_an_earlier_deadline_while_time_comes_is_not_forgotten() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), LATER, 1).unwrap();
        start(&model, timers.create("b"), DUE, 2).unwrap();
        let fires = spawn(&model, |model| model.fire(DUE));
        assert_eq!(timers.renew_due("a", DUE), 1);
        fires.join().unwrap();
        let mut fired = model.outcomes();
        fired.sort_by_key(|(number, _)| *number);
        assert_eq!(fired, [(1, Outcome::Fired), (2, Outcome::Fired)]);
        drop(timers);
        model.assert_idle();
    });
}

#[test]
fn e6_w5_a_timer_that_is_started_or_cancelled_during_a_renewal_keeps_its_own_outcome() {
    explore_up_to(3, || {
        let model = ModelEngine::new();
        let timers = NamedTimers::on_core(model.core.clone());
        start(&model, timers.create("a"), DUE, 1).unwrap();
        let created = timers.create("a");
        let starts = spawn(&model, move |model| start(model, created, LATER, 2).unwrap());
        let renews = {
            let timers = timers.clone();
            thread::spawn(move || timers.renew_due("a", LATER))
        };
        let cancelled = timers.cancel_up_to("a", 1);
        starts.join().unwrap();
        assert!(cancelled == 1 && renews.join().unwrap() <= 2);
        assert_eq!(model.outcomes(), [(1, Outcome::Cancelled)]);
        model.fire(LATER);
        assert_eq!(model.outcomes(), [(2, Outcome::Fired)]);
        drop(timers);
        model.assert_idle();
    });
}

fn spawn_with<R: 'static>(model: &ModelEngine, act: impl FnOnce(&ModelEngine) -> R + 'static) -> thread::JoinHandle<R> {
    let model = model.clone();
    thread::spawn(move || act(&model))
}
