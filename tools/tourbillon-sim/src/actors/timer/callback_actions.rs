//! Actions of callbacks on their own timer.
//!
//! A callback runs some time after its wait has ended, and the engine decides which other waits have ended by then. So the
//! callback first asks which of them are pending, as any user can. From there on the model knows exactly what the action does.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::timer::{Timer, WaitHandle};

use super::{SharedWaitHandle, TimerActor, TimerWait, TimerWaitKind, is_pending};
use crate::context::{SimContext, add};
use crate::random_source::RandomSource;
use crate::recorder::{self, Behavior, Id, NO_TIMER, RecordedEvent, lock};
use crate::timer_model::ObservedBy;

/// An action of a callback on its own timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimerAction {
    /// Sets the timer.
    Set(Duration),
    /// Cancels all waits.
    Cancel,
    /// Cancels the oldest wait.
    CancelOne,
    /// Cancels its own wait, which has ended.
    CancelSelf,
    /// Begins another wait.
    Again,
    /// Drops the timer with all waits.
    Drop,
}

/// How callbacks access their timer.
#[derive(Clone)]
pub(super) struct TimerAccess {
    /// Callbacks may drop the timer.
    pub(super) slot: Arc<Mutex<Option<Arc<Timer>>>>,
    /// The waits of all callbacks.
    pub(super) calls: Arc<Mutex<Vec<(Id, SharedWaitHandle)>>>,
}

/// An action that a callback is going to perform.
pub(super) struct PlannedTimerAction {
    action: TimerAction,
    /// The wait that it begins.
    again: Option<TimerWait>,
    /// The callbacks that were pending before the action.
    seen: Arc<OnceLock<Vec<Id>>>,
}

impl TimerAction {
    /// Returns a random action.
    pub fn random(random: &mut RandomSource<'_>, after: Duration) -> TimerAction {
        match random.below(8) {
            0..2 => TimerAction::Set(after),
            2 => TimerAction::Cancel,
            3 => TimerAction::CancelOne,
            4 => TimerAction::CancelSelf,
            5..7 => TimerAction::Again,
            _ => TimerAction::Drop,
        }
    }

    /// Plans the action of a wait's callback. Returns the plan and the function that performs it.
    pub(super) fn plan(
        self,
        sim: &mut SimContext,
        access: &TimerAccess,
        own: &SharedWaitHandle,
    ) -> (PlannedTimerAction, recorder::CallbackAction) {
        let again = (self == TimerAction::Again).then(|| {
            let id = sim.model.add("callback", ObservedBy::Calling);
            (id, SharedWaitHandle::default(), sim.recorder.callback(id, Behavior::Normal, None))
        });
        let planned = PlannedTimerAction {
            action: self,
            again: again
                .as_ref()
                .map(|(id, handle, _)| TimerWait { id: *id, way: TimerWaitKind::Call(Arc::clone(handle)) }),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&planned.seen);
        (planned, self.act(access.clone(), Arc::clone(own), again, seen))
    }

    fn act(
        self,
        access: TimerAccess,
        own: SharedWaitHandle,
        again: Option<(Id, SharedWaitHandle, impl FnOnce(Outcome) + Send + 'static)>,
        seen: Arc<OnceLock<Vec<Id>>>,
    ) -> recorder::CallbackAction {
        Box::new(move || {
            let TimerAccess { slot, calls } = access;
            let timer = if self == TimerAction::Drop { lock(&slot).take() } else { lock(&slot).clone() };
            let Some(timer) = timer else { return NO_TIMER };
            let _first = seen.set(pending(&calls));
            match (self, again) {
                (TimerAction::Set(after), _) => timer.expires_after(after) as u64,
                (TimerAction::Cancel | TimerAction::Drop, _) => timer.cancel() as u64,
                (TimerAction::CancelOne, _) => u64::from(timer.cancel_one()),
                (TimerAction::CancelSelf, _) => u64::from(own.get().is_some_and(WaitHandle::cancel)),
                (TimerAction::Again, Some((id, handle, callback))) => {
                    lock(&calls).push((id, Arc::clone(&handle)));
                    let _first = handle.set(timer.on_expiry(callback));
                    0
                }
                (TimerAction::Again, None) => NO_TIMER,
            }
        })
    }
}

/// Compares the result of an action. Returns whether it was an action on a timer.
pub fn on_action(actors: &mut [TimerActor], sim: &mut SimContext, event: RecordedEvent, result: u64) -> bool {
    let Some(actor) = actors.iter_mut().find(|actor| actor.actions.contains_key(&event.id)) else { return false };
    let Some(PlannedTimerAction { action, again, seen }) = actor.actions.remove(&event.id) else { return false };
    sim.totals.fault("callbacks that use their own timer", 1);
    let pending = pending_before(actor, sim, seen.get().map_or(&[], Vec::as_slice));
    let most = match action {
        TimerAction::CancelSelf | TimerAction::Again => 0,
        TimerAction::CancelOne => 1,
        TimerAction::Set(_) | TimerAction::Cancel | TimerAction::Drop => usize::MAX,
    };
    let cancelled = &pending[..pending.len().min(most)];
    sim.model.expect_eq("P2", "waits that a callback cancelled on its own timer", result, cancelled.len() as u64);
    cancelled.iter().for_each(|id| sim.model.cancelled(*id));
    if let TimerAction::Set(after) = action {
        actor.expiry = Some(add(event.clock, after));
    }
    if let Some(again) = again {
        sim.model.set(again.id, actor.expiry.unwrap_or(0), sim.setup.slack.grid());
        sim.model.set_pending(again.id, None);
        actor.waits.push(again);
    }
    true
}

/// Returns the waits that were pending before an action, oldest first. The callback asked those with callbacks; a future that has
/// ended was woken.
fn pending_before(actor: &TimerActor, sim: &mut SimContext, seen: &[Id]) -> Vec<Id> {
    let mut pending = Vec::new();
    for wait in &actor.waits {
        let (id, is_expected) = (wait.id, is_pending(wait, sim));
        let is_seen = if let TimerWaitKind::Call(_) = wait.way { seen.contains(&id) } else { is_expected };
        sim.model.checks += 1;
        match (is_expected, is_seen) {
            (false, true) => sim.model.violate("P2", format!("callback {id} is pending after its wait has ended")),
            (_, true) => pending.push(id),
            // Its callback is queued. After a shutdown the callback reports how it ended.
            (true, false) if !sim.model.closed => sim.model.ended(id, Outcome::Fired),
            (_, false) => {}
        }
    }
    pending
}

/// Returns the waits of callbacks that have not ended.
fn pending(calls: &Mutex<Vec<(Id, SharedWaitHandle)>>) -> Vec<Id> {
    let calls = lock(calls);
    let pending = calls.iter().filter(|(_, handle)| handle.get().is_some_and(WaitHandle::is_pending));
    pending.map(|(id, _)| *id).collect()
}
