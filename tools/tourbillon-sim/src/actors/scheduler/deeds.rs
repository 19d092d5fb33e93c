//! What jobs do to their scheduler from within a run: as they do it, and as the ledger takes it down.

use tourbillon::scheduler::{Scheduler, Shutdown};

use super::{KEYS, Terms};
use crate::almanac::Line;
use crate::ledger::{Ledger, Times};
use crate::plan::Setup;
use crate::random::Random;

/// What a run does to its scheduler, and to its own job among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    Pause(u32),
    Resume(u32),
    Remove(u32),
    Reschedule(u32, Terms, Option<Line>, Option<u64>),
    Stop,
    Start,
    ShutDown(Shutdown),
}

impl Deed {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Deed {
        let (terms, line) = Terms::random(random, setup);
        let key = random.below(u64::from(KEYS)) as u32;
        match random.below(16) {
            // A run that is paused in line takes room until somebody comes to it, and that is not told.
            0..4 if setup.is_roomy() => Deed::Pause(key),
            0..7 => Deed::Resume(key),
            7..10 => Deed::Remove(key),
            10..13 => Deed::Reschedule(key, terms, line, random.one_in(2).then(|| 1 + random.below(3))),
            // Nor is it where runs stand in line while nobody makes them, and are paused there.
            13 if setup.is_roomy() => Deed::Stop,
            13..15 => Deed::Start,
            _ => Deed::ShutDown(random.one_of(&[Shutdown::Drain, Shutdown::Abort])),
        }
    }

    /// Does it; says whether there was something to do it to.
    pub(super) fn act(self, scheduler: &Scheduler<u32>) -> bool {
        match self {
            Deed::Pause(key) => scheduler.pause(&key),
            Deed::Resume(key) => scheduler.resume(&key),
            Deed::Remove(key) => scheduler.remove(&key),
            Deed::Reschedule(key, terms, line, times) => scheduler.reschedule(&key, terms.plan(line, times)).is_ok(),
            Deed::Stop => {
                scheduler.stop();
                true
            }
            Deed::Start => {
                scheduler.start();
                true
            }
            // The run that does it is not over.
            Deed::ShutDown(how) => !scheduler.shutdown(how).is_over(),
        }
    }

    /// The same in the ledger. (No clock moves meanwhile.)
    pub(super) fn note(self, ledger: &mut Ledger, now: Times) -> bool {
        match self {
            Deed::Pause(key) => ledger.pause(key),
            Deed::Resume(key) => ledger.resume(key, now),
            Deed::Remove(key) => ledger.remove(key),
            Deed::Reschedule(key, terms, line, times) => {
                let (timing, due) = terms.timing(line, now);
                ledger.reschedule(key, (timing, terms.policy()), (due, times), now)
            }
            Deed::Stop => {
                ledger.stop();
                true
            }
            Deed::Start => {
                ledger.start(now);
                true
            }
            Deed::ShutDown(how) => {
                ledger.shut_down(how, now);
                true
            }
        }
    }
}
