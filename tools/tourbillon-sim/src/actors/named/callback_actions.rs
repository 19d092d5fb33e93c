//! Actions of callbacks on their own group of named timers.
//!
//! A callback runs some time after its timer has ended, and the engine decides how many others have ended by then. So the
//! callback first counts the timers, as any user can. The missing ones are those with the first deadlines, so from there on the
//! model knows exactly what the action does.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tourbillon::Outcome;

use super::{NAMES, NamedActor, NamedEntry, NamedWaitKind, SharedNamedTimers, cancelled, is_counted, is_started};
use crate::context::{SimContext, add};
use crate::random_source::RandomSource;
use crate::recorder::{self, Behavior, Id, NO_TIMER, RecordedEvent, lock};
use crate::timer_model::ObservedBy;

/// An action of a callback on its own group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedAction {
    /// Starts one more timer.
    Begin { name: usize, after: Duration },
    /// Cancels the timers of a name.
    Cancel { name: usize },
    /// Drops the handle, and with it all timers.
    Drop,
}

/// An action that a callback is going to perform.
pub(super) struct PlannedNamedAction {
    action: NamedAction,
    /// Id of the timer that it starts.
    other: Option<Id>,
    /// Number of timers that the callback counted first.
    seen: Arc<OnceLock<usize>>,
}

impl NamedAction {
    /// Returns a random action.
    pub fn random(random: &mut RandomSource<'_>, name: usize, after: Duration) -> NamedAction {
        random.one_of(&[
            NamedAction::Begin { name, after },
            NamedAction::Cancel { name },
            NamedAction::Cancel { name: 1 },
            NamedAction::Drop,
        ])
    }

    /// Plans the action of a callback of this group. Returns the plan and the function that performs it.
    pub(super) fn plan(
        self,
        sim: &mut SimContext,
        slot: &SharedNamedTimers,
    ) -> (PlannedNamedAction, recorder::CallbackAction) {
        let other =
            matches!(self, NamedAction::Begin { .. }).then(|| sim.model.add("named callback", ObservedBy::Calling));
        let callback = other.map(|other| sim.recorder.callback(other, Behavior::Normal, None));
        let planned = PlannedNamedAction { action: self, other, seen: Arc::default() };
        let seen = Arc::clone(&planned.seen);
        (planned, self.act(Arc::clone(slot), callback, seen))
    }

    fn act(
        self,
        slot: SharedNamedTimers,
        callback: Option<impl FnOnce(Outcome) + Send + 'static>,
        seen: Arc<OnceLock<usize>>,
    ) -> recorder::CallbackAction {
        Box::new(move || {
            let timers = if self == NamedAction::Drop { lock(&slot).take() } else { lock(&slot).clone() };
            let Some(timers) = timers else { return NO_TIMER };
            let _first = seen.set(timers.len());
            match (self, callback) {
                (NamedAction::Begin { name, after }, Some(callback)) => {
                    u64::from(timers.start(NAMES[name], after, callback).is_ok())
                }
                (NamedAction::Begin { .. }, None) => NO_TIMER,
                (NamedAction::Cancel { name }, _) => timers.cancel(NAMES[name]) as u64,
                // The handle drops all timers.
                (NamedAction::Drop, _) => 0,
            }
        })
    }
}

/// Compares the result of an action. Returns whether it was an action on a named timer.
pub fn on_action(actors: &mut [NamedActor], sim: &mut SimContext, event: RecordedEvent, result: u64) -> bool {
    let Some(actor) = actors.iter_mut().find(|actor| actor.actions.contains_key(&event.id)) else { return false };
    let Some(PlannedNamedAction { action, other, seen }) = actor.actions.remove(&event.id) else { return false };
    sim.totals.fault("callbacks that use their own timer", 1);
    let there = counted_before(actor, sim, seen.get().copied().unwrap_or_default());
    let expected = match action {
        NamedAction::Begin { name, after } => {
            let is_refused = actor.is_stopped || sim.model.closed;
            if let Some(id) = other.filter(|_| !is_refused) {
                sim.model.set(id, add(event.clock, after), sim.setup.slack.grid());
                sim.model.set_pending(id, None);
                actor.start(NamedEntry { id, name, way: NamedWaitKind::Call, started: 0 });
            }
            u64::from(!is_refused)
        }
        NamedAction::Cancel { name } => {
            let of_name: Vec<usize> = there.into_iter().filter(|index| actor.list[*index].name == name).collect();
            of_name.iter().for_each(|index| cancelled(&mut actor.list[*index], sim));
            of_name.len() as u64
        }
        NamedAction::Drop => {
            let started = there.into_iter().filter(|index| is_started(&actor.list[*index])).collect::<Vec<_>>();
            started.into_iter().for_each(|index| cancelled(&mut actor.list[index], sim));
            0
        }
    };
    sim.model.expect_eq("P2", &format!("the result of the callback action {action:?}"), result, expected);
    true
}

/// Returns the timers that existed when a callback counted `len` of them: all except those with the first deadlines, which have
/// ended.
fn counted_before(actor: &NamedActor, sim: &mut SimContext, len: usize) -> Vec<usize> {
    let there: Vec<usize> = (0..actor.list.len()).filter(|index| is_counted(&actor.list[*index], sim)).collect();
    let is_started = |index: &usize| is_started(&actor.list[*index]);
    let mut started: Vec<usize> = there.iter().copied().filter(is_started).collect();
    started.sort_by_key(|index| {
        let NamedEntry { id, started, .. } = &actor.list[*index];
        (sim.model.get(*id).map(|item| item.deadline), *started)
    });
    let is_possible = len <= there.len() && there.len() - len <= started.len();
    let what = format!("{len} of {} named timers is a possible count for a callback", there.len());
    sim.model.expect_eq("P2", &what, is_possible, true);
    started.truncate(there.len().saturating_sub(len));
    // After a shutdown their callbacks report how they ended.
    if !sim.model.closed {
        started.iter().for_each(|index| sim.model.ended(actor.list[*index].id, Outcome::Fired));
    }
    there.into_iter().filter(|index| !started.contains(index)).collect()
}
