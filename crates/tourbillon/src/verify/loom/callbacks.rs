//! The callback queue: no callback is lost or runs twice, whichever thread runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use tourbillon_queue::Time;

use super::explore_up_to;
use crate::clock::Clock;
use crate::core::callbacks::PostedCallback;
use crate::core::{CoreConfig, CoreRef};
use crate::driver::Driver;
use crate::outcome::Outcome;
use crate::shard::queue::QueueKind;
use crate::slack::SlackBits;
use crate::sync::AtomicBool;

/// How many callbacks have run. (The counter is one that loom does not check.)
#[derive(Clone, Default)]
struct RunCount(Arc<AtomicUsize>);

impl RunCount {
    fn post(&self, core: &CoreRef) {
        let runs = self.clone();
        let callback = Box::new(move |_| _ = runs.0.fetch_add(1, Ordering::Relaxed));
        core.post([PostedCallback { callback, outcome: Outcome::Fired }].into_iter());
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until at least `count` callbacks have run. If one is lost, this never ends, which loom reports.
    fn wait_for(&self, count: usize) {
        while self.count() < count {
            thread::yield_now();
        }
    }
}

pub(super) fn core(driver: Driver, clock: Clock) -> CoreRef {
    let (driver, _) = driver.prepare(&clock).expect("any clock will do");
    let plan = CoreConfig {
        clock,
        slack: SlackBits::ADAPTIVE,
        capacity: None,
        kind: QueueKind::Wheel,
        shards: 1,
        driver,
        is_virtual: false,
    };
    CoreRef::new(plan)
}

#[test]
fn d28_no_callback_is_lost_by_a_thread_that_goes_to_sleep() {
    explore_up_to(3, || {
        let (core, runs) = (core(Driver::thread(), Clock::monotonic()), RunCount::default());
        runs.post(&core);
        let other = {
            let (core, runs) = (core.clone(), runs.clone());
            thread::spawn(move || runs.post(&core))
        };
        runs.wait_for(1);
        other.join().unwrap();
        runs.wait_for(2);
        core.shut_down();
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn d28_no_callback_is_lost_by_a_thread_that_ends() {
    explore_up_to(3, || {
        let (core, runs) = (core(Driver::thread(), Clock::monotonic()), RunCount::default());
        runs.post(&core);
        let other = {
            let (core, runs) = (core.clone(), runs.clone());
            thread::spawn(move || runs.post(&core))
        };
        core.shut_down();
        other.join().unwrap();
        runs.wait_for(2);
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn d28_no_callback_is_lost_between_a_driver_that_runs_callbacks_and_a_thread_that_starts_again() {
    explore_up_to(3, || {
        let (core, runs) = (core(Driver::thread(), Clock::monotonic()), RunCount::default());
        core.refuse_thread_for_callbacks();
        runs.post(&core);
        let other = {
            let (core, runs) = (core.clone(), runs.clone());
            thread::spawn(move || {
                runs.post(&core);
                core.shut_down();
            })
        };
        // The driver, which checks for callbacks before it sleeps and before it ends.
        if core.has_callbacks() {
            core.run_callbacks_or_start_thread();
        }
        other.join().unwrap();
        runs.wait_for(2);
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn d28_no_callback_is_lost_by_a_shutdown_from_outside() {
    explore_up_to(3, || {
        let (core, runs) = (core(Driver::external(), Clock::manual()), RunCount::default());
        let other = {
            let (core, runs) = (core.clone(), runs.clone());
            thread::spawn(move || {
                runs.post(&core);
                runs.post(&core);
            })
        };
        core.shut_down();
        other.join().unwrap();
        runs.wait_for(2);
        assert_eq!(runs.count(), 2);
    });
}

#[test]
fn d28_no_callback_is_lost_between_a_turn_and_a_shutdown() {
    explore_up_to(3, || {
        let (core, runs) = (core(Driver::external(), Clock::manual()), RunCount::default());
        runs.post(&core);
        let other = {
            let core = core.clone();
            thread::spawn(move || core.shut_down())
        };
        core.turn(Time::ZERO);
        other.join().unwrap();
        assert_eq!(runs.count(), 1);
    });
}

#[test]
fn d28_an_external_driver_is_notified_of_every_callback() {
    explore_up_to(3, || {
        let notified = Arc::new(AtomicBool::new(false));
        let notify = {
            let notified = notified.clone();
            move || _ = notified.swap(true, Ordering::AcqRel)
        };
        let (core, runs) = (core(Driver::external_with(notify), Clock::manual()), RunCount::default());
        core.turn(Time::ZERO);
        // The driver has been notified of one callback, and is not notified again before it turns.
        runs.post(&core);
        assert!(notified.swap(false, Ordering::AcqRel));
        let other = {
            let (core, runs) = (core.clone(), runs.clone());
            thread::spawn(move || runs.post(&core))
        };
        let turn = core.turn(Time::ZERO);
        other.join().unwrap();
        let is_known = turn.more || notified.load(Ordering::Acquire);
        assert!(runs.count() == 2 || is_known, "a callback of which no thread was notified");
        core.turn(Time::ZERO);
        assert_eq!(runs.count(), 2);
    });
}
