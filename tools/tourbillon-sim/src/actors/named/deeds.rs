//! What callbacks do with the named timers that they are of.
//!
//! A callback is called some time after its timer has ended, and how many others have ended by then is for the engine to say. So the callback
//! looks first, as any user can, how many there are: those that are missing are the first by their deadlines, and from there on it is
//! known to the last timer what comes of its deed.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tourbillon::Outcome;

use super::{Actor, NAMES, One, Slot, Way, cancelled, is_started, is_there};
use crate::hub::{self, Event, Id, Manner, NOBODY, lock};
use crate::model::SeenBy;
use crate::random::Random;
use crate::stage::{Stage, add};

/// What a callback does with its own group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Starts one more.
    Begin { name: usize, after: Duration },
    /// Cancels those of a name, its own for instance.
    Cancel { name: usize },
    /// Drops the handle, and with it all that there are.
    Drop,
}

/// What a callback is going to do.
pub(super) struct Planned {
    deed: Deed,
    /// What the timer is known by that it starts.
    other: Option<Id>,
    /// How many timers there were when it looked.
    seen: Arc<OnceLock<usize>>,
}

impl Deed {
    /// Any.
    pub fn random(random: &mut Random, name: usize, after: Duration) -> Deed {
        random.one_of(&[Deed::Begin { name, after }, Deed::Cancel { name }, Deed::Cancel { name: 1 }, Deed::Drop])
    }

    /// What a callback of this group is going to do, and how it does it.
    pub(super) fn plan(self, stage: &mut Stage, slot: &Slot) -> (Planned, hub::Deed) {
        let other = matches!(self, Deed::Begin { .. }).then(|| stage.model.add("named callback", SeenBy::Calling));
        let callback = other.map(|other| stage.hub.callback(other, Manner::Good, None));
        let planned = Planned { deed: self, other, seen: Arc::default() };
        let seen = Arc::clone(&planned.seen);
        (planned, self.act(Arc::clone(slot), callback, seen))
    }

    fn act(
        self,
        slot: Slot,
        callback: Option<impl FnOnce(Outcome) + Send + 'static>,
        seen: Arc<OnceLock<usize>>,
    ) -> hub::Deed {
        Box::new(move || {
            let timers = if self == Deed::Drop { lock(&slot).take() } else { lock(&slot).clone() };
            let Some(timers) = timers else { return NOBODY };
            let _first = seen.set(timers.len());
            match (self, callback) {
                (Deed::Begin { name, after }, Some(callback)) => {
                    u64::from(timers.start(NAMES[name], after, callback).is_ok())
                }
                (Deed::Begin { .. }, None) => NOBODY,
                (Deed::Cancel { name }, _) => timers.cancel(NAMES[name]) as u64,
                // What there is goes with the handle.
                (Deed::Drop, _) => 0,
            }
        })
    }
}

/// A callback did something with its own group: whether it is one of ours.
pub fn did(actors: &mut [Actor], stage: &mut Stage, event: Event, result: u64) -> bool {
    let Some(actor) = actors.iter_mut().find(|actor| actor.deeds.contains_key(&event.id)) else { return false };
    let Some(Planned { deed, other, seen }) = actor.deeds.remove(&event.id) else { return false };
    stage.totals.fault("callbacks that use their own timer", 1);
    let there = looked(actor, stage, seen.get().copied().unwrap_or_default());
    let expected = match deed {
        Deed::Begin { name, after } => {
            let is_refused = actor.is_stopped || stage.model.closed;
            if let Some(id) = other.filter(|_| !is_refused) {
                stage.model.set(id, add(event.clock, after), stage.setup.slack.grid());
                stage.model.pend(id, None);
                actor.start(One { id, name, way: Way::Call, started: 0 });
            }
            u64::from(!is_refused)
        }
        Deed::Cancel { name } => {
            let of_name: Vec<usize> = there.into_iter().filter(|index| actor.list[*index].name == name).collect();
            of_name.iter().for_each(|index| cancelled(&mut actor.list[*index], stage));
            of_name.len() as u64
        }
        Deed::Drop => {
            let started = there.into_iter().filter(|index| is_started(&actor.list[*index])).collect::<Vec<_>>();
            started.into_iter().for_each(|index| cancelled(&mut actor.list[index], stage));
            0
        }
    };
    stage.model.same("P2", &format!("what came of it that a callback did {deed:?}"), result, expected);
    true
}

/// Which timers were there when a callback looked and there were so many of them: all but the first by their deadlines, which have ended.
fn looked(actor: &Actor, stage: &mut Stage, len: usize) -> Vec<usize> {
    let there: Vec<usize> = (0..actor.list.len()).filter(|index| is_there(&actor.list[*index], stage)).collect();
    let is_started = |index: &usize| is_started(&actor.list[*index]);
    let mut started: Vec<usize> = there.iter().copied().filter(is_started).collect();
    started.sort_by_key(|index| {
        let One { id, started, .. } = &actor.list[*index];
        (stage.model.get(*id).map(|item| item.deadline), *started)
    });
    let is_possible = len <= there.len() && there.len() - len <= started.len();
    let what = format!("{len} of {} named timers, when a callback looks", there.len());
    stage.model.same("P2", &what, is_possible, true);
    started.truncate(there.len().saturating_sub(len));
    // After a shutdown their callbacks will say how they ended.
    if !stage.model.closed {
        started.iter().for_each(|index| stage.model.end(actor.list[*index].id, Outcome::Fired));
    }
    there.into_iter().filter(|index| !started.contains(index)).collect()
}
