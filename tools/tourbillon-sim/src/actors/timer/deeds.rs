//! What callbacks do with the timer that they are of.
//!
//! A callback is called some time after its wait has ended, and which other waits have ended by then is for the engine to say. So the callback
//! looks first, as any user can, which of them are pending: from there on it is known to the last wait what comes of its deed.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::timer::{Timer, WaitHandle};

use super::{Actor, Handle, Waiting, Way, is_pending};
use crate::hub::{self, Event, Id, Manner, NOBODY, lock};
use crate::model::SeenBy;
use crate::random::Random;
use crate::stage::{Stage, add};

/// What a callback does with its own timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Sets it.
    Set(Duration),
    /// Cancels all its waits.
    Cancel,
    /// Cancels the oldest.
    CancelOne,
    /// Cancels the wait that it is of, which is over.
    CancelSelf,
    /// Waits once more.
    Again,
    /// Drops it, waits and all.
    Drop,
}

/// What callbacks of a timer reach it by.
#[derive(Clone)]
pub(super) struct Reach {
    /// They may drop it.
    pub(super) slot: Arc<Mutex<Option<Arc<Timer>>>>,
    /// The waits of all callbacks.
    pub(super) calls: Arc<Mutex<Vec<(Id, Handle)>>>,
}

/// What a callback is going to do.
pub(super) struct Planned {
    deed: Deed,
    /// What it begins.
    again: Option<Waiting>,
    /// Which callbacks waited when it looked.
    seen: Arc<OnceLock<Vec<Id>>>,
}

impl Deed {
    /// Any.
    pub fn random(random: &mut Random, after: Duration) -> Deed {
        match random.below(8) {
            0..2 => Deed::Set(after),
            2 => Deed::Cancel,
            3 => Deed::CancelOne,
            4 => Deed::CancelSelf,
            5..7 => Deed::Again,
            _ => Deed::Drop,
        }
    }

    /// What the callback of this wait is going to do, and how it does it.
    pub(super) fn plan(self, stage: &mut Stage, reach: &Reach, own: &Handle) -> (Planned, hub::Deed) {
        let again = (self == Deed::Again).then(|| {
            let id = stage.model.add("callback", SeenBy::Calling);
            (id, Handle::default(), stage.hub.callback(id, Manner::Good, None))
        });
        let planned = Planned {
            deed: self,
            again: again.as_ref().map(|(id, handle, _)| Waiting { id: *id, way: Way::Call(Arc::clone(handle)) }),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&planned.seen);
        (planned, self.act(reach.clone(), Arc::clone(own), again, seen))
    }

    fn act(
        self,
        reach: Reach,
        own: Handle,
        again: Option<(Id, Handle, impl FnOnce(Outcome) + Send + 'static)>,
        seen: Arc<OnceLock<Vec<Id>>>,
    ) -> hub::Deed {
        Box::new(move || {
            let Reach { slot, calls } = reach;
            let timer = if self == Deed::Drop { lock(&slot).take() } else { lock(&slot).clone() };
            let Some(timer) = timer else { return NOBODY };
            let _first = seen.set(pending(&calls));
            match (self, again) {
                (Deed::Set(after), _) => timer.expires_after(after) as u64,
                (Deed::Cancel | Deed::Drop, _) => timer.cancel() as u64,
                (Deed::CancelOne, _) => u64::from(timer.cancel_one()),
                (Deed::CancelSelf, _) => u64::from(own.get().is_some_and(WaitHandle::cancel)),
                (Deed::Again, Some((id, handle, callback))) => {
                    lock(&calls).push((id, Arc::clone(&handle)));
                    let _first = handle.set(timer.on_expiry(callback));
                    0
                }
                (Deed::Again, None) => NOBODY,
            }
        })
    }
}

/// A callback did something with its own timer: whether it is one of ours.
pub fn did(actors: &mut [Actor], stage: &mut Stage, event: Event, result: u64) -> bool {
    let Some(actor) = actors.iter_mut().find(|actor| actor.deeds.contains_key(&event.id)) else { return false };
    let Some(Planned { deed, again, seen }) = actor.deeds.remove(&event.id) else { return false };
    stage.totals.fault("callbacks that use their own timer", 1);
    let pending = looked(actor, stage, seen.get().map_or(&[], Vec::as_slice));
    let most = match deed {
        Deed::CancelSelf | Deed::Again => 0,
        Deed::CancelOne => 1,
        Deed::Set(_) | Deed::Cancel | Deed::Drop => usize::MAX,
    };
    let cancelled = &pending[..pending.len().min(most)];
    stage.model.same("P2", "waits that a callback of the same timer cancelled", result, cancelled.len() as u64);
    cancelled.iter().for_each(|id| stage.model.cancel(*id));
    if let Deed::Set(after) = deed {
        actor.expiry = Some(add(event.clock, after));
    }
    if let Some(again) = again {
        stage.model.set(again.id, actor.expiry.unwrap_or(0), stage.setup.slack.grid());
        stage.model.pend(again.id, None);
        actor.waits.push(again);
    }
    true
}

/// Which waits were pending when a callback looked, by age. It has seen that of those with callbacks; a future that has ended was woken.
fn looked(actor: &Actor, stage: &mut Stage, seen: &[Id]) -> Vec<Id> {
    let mut pending = Vec::new();
    for wait in &actor.waits {
        let (id, is_expected) = (wait.id, is_pending(wait, stage));
        let is_seen = if let Way::Call(_) = wait.way { seen.contains(&id) } else { is_expected };
        stage.model.checks += 1;
        match (is_expected, is_seen) {
            (false, true) => stage.model.violate("P2", format!("callback {id} waits after its wait has ended")),
            (_, true) => pending.push(id),
            // It waits to be called. After a shutdown that will say how it ended.
            (true, false) if !stage.model.closed => stage.model.end(id, Outcome::Fired),
            (_, false) => {}
        }
    }
    pending
}

/// The waits of callbacks that have not ended.
fn pending(calls: &Mutex<Vec<(Id, Handle)>>) -> Vec<Id> {
    let calls = lock(calls);
    let pending = calls.iter().filter(|(_, handle)| handle.get().is_some_and(WaitHandle::is_pending));
    pending.map(|(id, _)| *id).collect()
}
