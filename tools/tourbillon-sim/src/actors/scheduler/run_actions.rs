//! Actions of runs on their own scheduler, and what the model expects of them.

use tourbillon::scheduler::{Scheduler, Shutdown};

use super::{JobTerms, KEYS};
use crate::cron_reference::ReferenceLine;
use crate::plan::SimSetup;
use crate::random_source::RandomSource;
use crate::scheduler_model::{SchedulerModel, SimClocks};

/// An action of a run on its scheduler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchedulerAction {
    Pause(u32),
    Resume(u32),
    Remove(u32),
    Reschedule(u32, JobTerms, Option<ReferenceLine>, Option<u64>),
    Stop,
    Start,
    ShutDown(Shutdown),
}

impl SchedulerAction {
    /// Returns a random action.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> SchedulerAction {
        let (terms, line) = JobTerms::random(random, setup);
        let key = random.below(u64::from(KEYS)) as u32;
        match random.below(16) {
            // A queued run that is paused keeps its slot in the queue until the scheduler reaches it, which causes no event.
            0..4 if setup.has_roomy_queue() => SchedulerAction::Pause(key),
            0..7 => SchedulerAction::Resume(key),
            7..10 => SchedulerAction::Remove(key),
            10..13 => SchedulerAction::Reschedule(key, terms, line, random.one_in(2).then(|| 1 + random.below(3))),
            // The same holds for runs that are paused while the scheduler is stopped.
            13 if setup.has_roomy_queue() => SchedulerAction::Stop,
            13..15 => SchedulerAction::Start,
            _ => SchedulerAction::ShutDown(random.one_of(&[Shutdown::Drain, Shutdown::Abort])),
        }
    }

    /// Performs the action. Returns whether its job existed.
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
            // The run that performs the action has not ended, so neither has the shutdown.
            SchedulerAction::ShutDown(how) => !scheduler.shutdown(how).is_over(),
        }
    }

    /// Performs the action on the model, at the same time.
    pub(super) fn note(self, model: &mut SchedulerModel, now: SimClocks) -> bool {
        match self {
            SchedulerAction::Pause(key) => model.pause(key),
            SchedulerAction::Resume(key) => model.resume(key, now),
            SchedulerAction::Remove(key) => model.remove(key),
            SchedulerAction::Reschedule(key, terms, line, times) => {
                let (timing, due) = terms.timing(line, now);
                // A run makes a plan without an end, because it does not know the time.
                let terms = JobTerms { lasts: None, ..terms };
                model.reschedule(key, (timing, terms.policy(line, now)), (due, times), now)
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
