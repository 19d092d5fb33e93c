//! What jobs do to their scheduler from within a run: as they do it, and as the ledger takes it down.

use tourbillon::scheduler::{Scheduler, Shutdown};

use super::{JobTerms, KEYS};
use crate::cron_reference::CronLine;
use crate::plan::SimSetup;
use crate::random_source::RandomSource;
use crate::scheduler_model::{SchedulerModel, SimClocks};

/// What a run does to its scheduler, and to its own job among others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulerAction {
    Pause(u32),
    Resume(u32),
    Remove(u32),
    Reschedule(u32, JobTerms, Option<CronLine>, Option<u64>),
    Stop,
    Start,
    ShutDown(Shutdown),
}

impl SchedulerAction {
    /// Any.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> SchedulerAction {
        let (terms, line) = JobTerms::random(random, setup);
        let key = random.below(u64::from(KEYS)) as u32;
        match random.below(16) {
            // A run that is paused in line takes room until somebody comes to it, and that is not told.
            0..4 if setup.is_roomy() => SchedulerAction::Pause(key),
            0..7 => SchedulerAction::Resume(key),
            7..10 => SchedulerAction::Remove(key),
            10..13 => SchedulerAction::Reschedule(key, terms, line, random.one_in(2).then(|| 1 + random.below(3))),
            // Nor is it where runs stand in line while nobody makes them, and are paused there.
            13 if setup.is_roomy() => SchedulerAction::Stop,
            13..15 => SchedulerAction::Start,
            _ => SchedulerAction::ShutDown(random.one_of(&[Shutdown::Drain, Shutdown::Abort])),
        }
    }

    /// Does it; says whether there was something to do it to.
    pub(super) fn act(self, scheduler: &Scheduler<u32>) -> bool {
        match self {
            SchedulerAction::Pause(key) => scheduler.pause(&key),
            SchedulerAction::Resume(key) => scheduler.resume(&key),
            SchedulerAction::Remove(key) => scheduler.remove(&key),
            SchedulerAction::Reschedule(key, terms, line, times) => {
                scheduler.reschedule(&key, terms.plan(line, times)).is_ok()
            }
            SchedulerAction::Stop => {
                scheduler.stop();
                true
            }
            SchedulerAction::Start => {
                scheduler.start();
                true
            }
            // The run that does it is not over.
            SchedulerAction::ShutDown(how) => !scheduler.shutdown(how).is_over(),
        }
    }

    /// The same in the ledger. (No clock moves meanwhile.)
    pub(super) fn note(self, model: &mut SchedulerModel, now: SimClocks) -> bool {
        match self {
            SchedulerAction::Pause(key) => model.pause(key),
            SchedulerAction::Resume(key) => model.resume(key, now),
            SchedulerAction::Remove(key) => model.remove(key),
            SchedulerAction::Reschedule(key, terms, line, times) => {
                let (timing, due) = terms.timing(line, now);
                model.reschedule(key, (timing, terms.policy()), (due, times), now)
            }
            SchedulerAction::Stop => {
                model.stop();
                true
            }
            SchedulerAction::Start => {
                model.start(now);
                true
            }
            SchedulerAction::ShutDown(how) => {
                model.shut_down(how, now);
                true
            }
        }
    }
}
