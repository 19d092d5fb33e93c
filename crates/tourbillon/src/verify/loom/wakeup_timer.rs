//! The bell: it rings when it was set to, whoever set it and whatever happened meanwhile.

use std::sync::Arc;

use loom::thread;

use super::timer::{World, spawn};
use super::{DUE, LATER, Tally, explore};
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;
use crate::sync::{Mutex, lock};

#[test]
fn d39_of_two_who_set_it_at_once_the_earlier_is_rung_for() {
    explore(|| {
        let (world, tally) = (World::new(), Tally::new());
        let bell = Arc::new(WakeupTimer::on(&world.core, tally.waker()));
        let other = {
            let bell = bell.clone();
            thread::spawn(move || bell.set(LATER))
        };
        bell.set(DUE);
        other.join().unwrap();
        assert_eq!(tally.woken(), 0);
        world.fire(DUE);
        assert!(tally.woken() > 0, "it did not ring");
        assert_eq!(bell.rang(), Some(Outcome::Fired));
        bell.set(LATER);
        let before = tally.woken();
        world.fire(LATER);
        assert!(tally.woken() > before, "it did not ring again");
        drop(bell);
        world.assert_idle();
        tally.assert_none_lost_or_doubled();
    });
}

#[test]
fn d39_who_sets_it_while_time_comes_is_rung_for() {
    explore(|| {
        let (world, tally) = (World::new(), Tally::new());
        let bell = WakeupTimer::on(&world.core, tally.waker());
        let fires = spawn(&world, |world| world.fire(DUE));
        bell.set(DUE);
        fires.join().unwrap();
        assert!(tally.woken() > 0, "it did not ring");
        drop(bell);
        world.assert_idle();
    });
}

#[test]
fn d39_who_looks_while_it_rings_and_sets_it_again_is_rung_for_again() {
    explore(|| {
        let (world, tally) = (World::new(), Tally::new());
        let bell = WakeupTimer::on(&world.core, tally.waker());
        bell.set(DUE);
        let fires = spawn(&world, |world| world.fire(DUE));
        // Somebody looks for another reason, sees whatever it sees, and wants to be rung for later.
        let first = bell.rang();
        bell.set(LATER);
        fires.join().unwrap();
        assert!(first.is_some() || tally.woken() > 0, "a ring that nobody heard");
        // Whoever was rung for looks, as the rules say.
        if tally.woken() > 0 {
            let _why = bell.rang();
            bell.set(LATER);
        }
        let before = tally.woken();
        world.fire(LATER);
        assert!(tally.woken() > before, "it did not ring again");
        drop(bell);
        world.assert_idle();
    });
}

/// With a surface: something that has been added is taken by whoever looks, or somebody is rung for.
#[test]
fn d39_what_is_added_while_somebody_has_heard_the_bell_is_taken_or_rung_for() {
    explore(|| {
        let (world, tally) = (World::new(), Tally::new());
        let bell = Arc::new(WakeupTimer::on(&world.core, tally.waker()));
        let surface = Arc::new(Mutex::new(false));
        bell.set(DUE);
        world.fire(DUE);
        assert_eq!(tally.woken(), 1);
        let looks = {
            let (bell, surface) = (bell.clone(), surface.clone());
            thread::spawn(move || look(&bell, &surface))
        };
        // It is time for this already.
        *lock(&surface) = true;
        bell.set(DUE);
        looks.join().unwrap();
        let is_left = *lock(&surface);
        assert!(!is_left || tally.woken() > 1, "what was added is due, and nobody was told");
        look(&bell, &surface);
        assert!(!*lock(&surface));
        let before = tally.woken();
        world.fire(LATER);
        assert!(tally.woken() > before, "it did not ring again");
        drop(bell);
        world.assert_idle();
    });
}

#[test]
fn d28_who_sets_it_during_a_shutdown_hears_of_that() {
    explore(|| {
        let (world, tally) = (World::new(), Tally::new());
        let bell = WakeupTimer::on(&world.core, tally.waker());
        let stops = spawn(&world, World::stop);
        bell.set(DUE);
        stops.join().unwrap();
        assert!(tally.woken() > 0, "nobody heard of the shutdown");
        assert_eq!(bell.rang(), Some(Outcome::Stopped));
        drop(bell);
        world.assert_idle();
    });
}

/// As the rules of the bell say; and there is something for later.
fn look(bell: &WakeupTimer, surface: &Mutex<bool>) {
    let _why = bell.rang();
    *lock(surface) = false;
    bell.set(LATER);
}
