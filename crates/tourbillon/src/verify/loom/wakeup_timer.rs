//! Models of the wake-up timer: it wakes at the time that it was set for, whichever threads set it and look at it meanwhile.

use std::sync::Arc;

use loom::thread;

use super::timer::{ModelEngine, spawn};
use super::{DUE, LATER, WakerTally, explore};
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;
use crate::sync::{Mutex, lock};

#[test]
fn d39_of_two_threads_that_set_it_at_once_the_earlier_is_woken() {
    explore(|| {
        let (model, tally) = (ModelEngine::new(), WakerTally::new());
        let timer = Arc::new(WakeupTimer::on(&model.core, tally.waker()));
        let other = {
            let timer = timer.clone();
            thread::spawn(move || timer.set(LATER))
        };
        timer.set(DUE);
        other.join().unwrap();
        assert_eq!(tally.woken(), 0);
        model.fire(DUE);
        assert!(tally.woken() > 0, "it did not wake");
        assert_eq!(timer.take_outcome(), Some(Outcome::Fired));
        timer.set(LATER);
        let before = tally.woken();
        model.fire(LATER);
        assert!(tally.woken() > before, "it did not wake again");
        drop(timer);
        model.assert_idle();
        tally.assert_none_lost_or_doubled();
    });
}

#[test]
fn d39_a_thread_that_sets_it_while_time_comes_is_woken() {
    explore(|| {
        let (model, tally) = (ModelEngine::new(), WakerTally::new());
        let timer = WakeupTimer::on(&model.core, tally.waker());
        let fires = spawn(&model, |model| model.fire(DUE));
        timer.set(DUE);
        fires.join().unwrap();
        assert!(tally.woken() > 0, "it did not wake");
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn d39_a_thread_that_looks_while_it_wakes_and_sets_it_again_is_woken_again() {
    explore(|| {
        let (model, tally) = (ModelEngine::new(), WakerTally::new());
        let timer = WakeupTimer::on(&model.core, tally.waker());
        timer.set(DUE);
        let fires = spawn(&model, |model| model.fire(DUE));
        // A thread looks for another reason, and sets the timer for later.
        let first = timer.take_outcome();
        timer.set(LATER);
        fires.join().unwrap();
        assert!(first.is_some() || tally.woken() > 0, "a wake-up that was lost");
        // A thread that is woken looks, as the rules say.
        if tally.woken() > 0 {
            let _outcome = timer.take_outcome();
            timer.set(LATER);
        }
        let before = tally.woken();
        model.fire(LATER);
        assert!(tally.woken() > before, "it did not wake again");
        drop(timer);
        model.assert_idle();
    });
}

/// With a surface: a deadline that was added is taken by the thread that looks, or the surface is woken again.
#[test]
fn d39_a_deadline_that_is_added_during_a_wakeup_is_taken_or_woken_for() {
    explore(|| {
        let (model, tally) = (ModelEngine::new(), WakerTally::new());
        let timer = Arc::new(WakeupTimer::on(&model.core, tally.waker()));
        let surface = Arc::new(Mutex::new(false));
        timer.set(DUE);
        model.fire(DUE);
        assert_eq!(tally.woken(), 1);
        let looks = {
            let (timer, surface) = (timer.clone(), surface.clone());
            thread::spawn(move || look(&timer, &surface))
        };
        // This is due already.
        *lock(&surface) = true;
        timer.set(DUE);
        looks.join().unwrap();
        let is_left = *lock(&surface);
        assert!(!is_left || tally.woken() > 1, "the added deadline is due, and no thread was woken");
        look(&timer, &surface);
        assert!(!*lock(&surface));
        let before = tally.woken();
        model.fire(LATER);
        assert!(tally.woken() > before, "it did not wake again");
        drop(timer);
        model.assert_idle();
    });
}

#[test]
fn d28_a_thread_that_sets_it_during_a_shutdown_is_woken_for_that() {
    explore(|| {
        let (model, tally) = (ModelEngine::new(), WakerTally::new());
        let timer = WakeupTimer::on(&model.core, tally.waker());
        let stops = spawn(&model, ModelEngine::stop);
        timer.set(DUE);
        stops.join().unwrap();
        assert!(tally.woken() > 0, "no thread was woken for the shutdown");
        assert_eq!(timer.take_outcome(), Some(Outcome::Stopped));
        drop(timer);
        model.assert_idle();
    });
}

/// Looks for due deadlines as the rules of the timer say; a later deadline is left.
fn look(timer: &WakeupTimer, surface: &Mutex<bool>) {
    let _outcome = timer.take_outcome();
    *lock(surface) = false;
    timer.set(LATER);
}
