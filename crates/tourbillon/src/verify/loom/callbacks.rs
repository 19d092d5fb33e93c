//! The line of calls: none is lost or made twice, whoever makes them.

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

/// How many calls were made. (Counted by what loom does not see.)
#[derive(Clone, Default)]
struct Made(Arc<AtomicUsize>);

impl Made {
    fn post(&self, core: &CoreRef) {
        let made = self.clone();
        let callback = Box::new(move |_| _ = made.0.fetch_add(1, Ordering::Relaxed));
        core.post([PostedCallback { callback, outcome: Outcome::Fired }].into_iter());
    }

    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Until so many are made, or more. One that is lost is waited for without end, which loom reports.
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
fn d28_no_call_is_lost_by_a_thread_that_goes_to_sleep() {
    explore_up_to(3, || {
        let (core, made) = (core(Driver::thread(), Clock::monotonic()), Made::default());
        made.post(&core);
        let other = {
            let (core, made) = (core.clone(), made.clone());
            thread::spawn(move || made.post(&core))
        };
        made.wait_for(1);
        other.join().unwrap();
        made.wait_for(2);
        core.shut_down();
        assert_eq!(made.count(), 2);
    });
}

#[test]
fn d28_no_call_is_lost_by_a_thread_that_ends() {
    explore_up_to(3, || {
        let (core, made) = (core(Driver::thread(), Clock::monotonic()), Made::default());
        made.post(&core);
        let other = {
            let (core, made) = (core.clone(), made.clone());
            thread::spawn(move || made.post(&core))
        };
        core.shut_down();
        other.join().unwrap();
        made.wait_for(2);
        assert_eq!(made.count(), 2);
    });
}

#[test]
fn d28_no_call_is_lost_between_a_driver_that_had_to_call_and_a_thread_that_is_to_be_had_again() {
    explore_up_to(3, || {
        let (core, made) = (core(Driver::thread(), Clock::monotonic()), Made::default());
        core.refuse_thread_for_callbacks();
        made.post(&core);
        let other = {
            let (core, made) = (core.clone(), made.clone());
            thread::spawn(move || {
                made.post(&core);
                core.shut_down();
            })
        };
        // The driver, which looks for calls before it sleeps and before it ends.
        if core.has_callbacks() {
            core.run_callbacks_or_start_thread();
        }
        other.join().unwrap();
        made.wait_for(2);
        assert_eq!(made.count(), 2);
    });
}

#[test]
fn d28_no_call_is_lost_by_a_shutdown_from_outside() {
    explore_up_to(3, || {
        let (core, made) = (core(Driver::external(), Clock::manual()), Made::default());
        let other = {
            let (core, made) = (core.clone(), made.clone());
            thread::spawn(move || {
                made.post(&core);
                made.post(&core);
            })
        };
        core.shut_down();
        other.join().unwrap();
        made.wait_for(2);
        assert_eq!(made.count(), 2);
    });
}

#[test]
fn d28_no_call_is_lost_between_a_turn_and_a_shutdown() {
    explore_up_to(3, || {
        let (core, made) = (core(Driver::external(), Clock::manual()), Made::default());
        made.post(&core);
        let other = {
            let core = core.clone();
            thread::spawn(move || core.shut_down())
        };
        core.turn(Time::ZERO);
        other.join().unwrap();
        assert_eq!(made.count(), 1);
    });
}

#[test]
fn d28_whoever_turns_from_outside_hears_of_every_call() {
    explore_up_to(3, || {
        let rung = Arc::new(AtomicBool::new(false));
        let notify = {
            let rung = rung.clone();
            move || _ = rung.swap(true, Ordering::AcqRel)
        };
        let (core, made) = (core(Driver::external_with(notify), Clock::manual()), Made::default());
        core.turn(Time::ZERO);
        // It has been told of one, and will not be told again before it turns.
        made.post(&core);
        assert!(rung.swap(false, Ordering::AcqRel));
        let other = {
            let (core, made) = (core.clone(), made.clone());
            thread::spawn(move || made.post(&core))
        };
        let turn = core.turn(Time::ZERO);
        other.join().unwrap();
        let is_told = turn.more || rung.load(Ordering::Acquire);
        assert!(made.count() == 2 || is_told, "a call that nobody knows of");
        core.turn(Time::ZERO);
        assert_eq!(made.count(), 2);
    });
}
