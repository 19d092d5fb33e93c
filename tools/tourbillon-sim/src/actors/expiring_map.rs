//! A map whose entries expire, used by several threads.

use std::time::Duration;

use tourbillon::expiring_map::ExpiringMap;
use tourbillon::{ArmError, Outcome};

use super::callback_behavior;
use crate::context::SimContext;
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::{LAST, ModelState, ObservedBy};

/// An operation on a map.
#[derive(Clone, Copy, Debug)]
pub enum ExpiringMapOp {
    /// Inserts an entry, in the place of another or only if there is none.
    Insert { thread: usize, key: usize, after: Duration, behavior: Behavior, only_if_absent: bool },
    /// Gives an entry another deadline.
    Renew { thread: usize, key: usize, after: Duration },
    /// Removes an entry.
    Remove { thread: usize, key: usize },
    /// Asks for an entry and its deadline.
    Look { thread: usize, key: usize },
    /// Drops all entries.
    Clear { thread: usize },
    /// Drops the map.
    Drop { thread: usize },
}

/// A map and what is expected of it.
pub struct ExpiringMapActor {
    map: ExpiringMap<usize, ExpiryCall>,
    entries: Vec<ModelEntry>,
}

/// A value of the map: it is called when it expires.
type ExpiryCall = Box<dyn FnOnce(Outcome) + Send>;

/// An entry that is in the map, or whose callback has yet to be called.
struct ModelEntry {
    id: Id,
    key: usize,
    deadline: u64,
    is_in_map: bool,
}

/// The most entries of the map.
const CAPACITY: usize = 5;
const KEYS: usize = 8;

impl ExpiringMapOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> ExpiringMapOp {
        let (thread, key, after) = (random.index(setup.threads), random.index(KEYS), after(random, setup));
        match random.below(24) {
            0..10 => {
                // The simulation drops values itself, so that their destructors must not misbehave.
                let behavior = Some(callback_behavior(random)).filter(|one| *one != Behavior::PanicsInDrop);
                let only_if_absent = random.one_in(4);
                ExpiringMapOp::Insert { thread, key, after, behavior: behavior.unwrap_or_default(), only_if_absent }
            }
            10..15 => ExpiringMapOp::Renew { thread, key, after },
            15..18 => ExpiringMapOp::Remove { thread, key },
            18..22 => ExpiringMapOp::Look { thread, key },
            22 => ExpiringMapOp::Clear { thread },
            _ => ExpiringMapOp::Drop { thread },
        }
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<ExpiringMapActor>, sim: &mut SimContext, op: ExpiringMapOp) {
    if actors.is_empty() {
        let builder = ExpiringMap::builder().engine(&sim.engine).capacity(CAPACITY);
        let map = builder.on_expiry(|_, call: ExpiryCall| call(Outcome::Fired)).build();
        actors.push(ExpiringMapActor { map, entries: Vec::new() });
    }
    let actor = &mut actors[0];
    match op {
        ExpiringMapOp::Insert { .. } => insert(actor, sim, op),
        ExpiringMapOp::Renew { thread, key, after } => {
            let found = sim.threads.on(thread, || actor.map.renew(&key, after));
            let entry = actor.find(sim, key);
            sim.model.expect_eq("P2", "an entry of a map could be renewed", found, entry.is_some());
            if let Some(index) = entry {
                actor.set_deadline(sim, index, after);
            }
        }
        ExpiringMapOp::Remove { thread, key } => {
            let removed = sim.threads.on(thread, || actor.map.remove(&key));
            let entry = actor.find(sim, key);
            sim.model.expect_eq("P2", "an entry of a map could be removed", removed.is_some(), entry.is_some());
            entry.into_iter().for_each(|index| actor.forget(sim, index));
            sim.threads.on(thread, || drop(removed));
        }
        ExpiringMapOp::Look { thread, key } => {
            let deadline = sim.threads.on(thread, || actor.map.deadline(&key));
            let expected = actor.find(sim, key).map(|index| actor.entries[index].deadline);
            sim.model.expect_eq("P1", "an entry of a map was found", deadline.is_some(), expected.is_some());
            if let (Some(deadline), Some(expected)) = (deadline, expected.filter(|deadline| *deadline < LAST)) {
                let deadline = sim.time_of(deadline);
                sim.model.expect_eq("P1", "the deadline of an entry", deadline, expected);
            }
        }
        ExpiringMapOp::Clear { thread } => {
            sim.threads.on(thread, || actor.map.clear());
            actor.forget_all(sim);
        }
        ExpiringMapOp::Drop { thread } => drop_one(actors.swap_remove(0), sim, thread),
    }
}

fn insert(actor: &mut ExpiringMapActor, sim: &mut SimContext, op: ExpiringMapOp) {
    let ExpiringMapOp::Insert { thread, key, after, behavior, only_if_absent } = op else { return };
    let present = actor.find(sim, key);
    // An entry that has expired, and has not left the map, leaves it now.
    let stale = actor.entries.iter().position(|one| one.is_in_map && one.key == key).filter(|_| present.is_none());
    let stale = stale.filter(|_| !sim.model.closed);
    let in_map = actor.entries.iter().filter(|one| one.is_in_map).count() - usize::from(stale.is_some());
    let expected = match present {
        _ if sim.model.closed => Err(ArmError::Stopped),
        Some(_) => Ok(!only_if_absent),
        None if in_map >= CAPACITY => Err(ArmError::Full { capacity: CAPACITY }),
        None => Ok(true),
    };
    let id = sim.model.add("map entry", ObservedBy::Calling);
    let call: ExpiryCall = Box::new(sim.recorder.callback(id, behavior, None));
    let inserted = sim.threads.on(thread, || match only_if_absent {
        true => actor.map.insert_if_absent(key, call, after).map(|refused| refused.is_none()),
        // The old value is dropped here.
        false => actor.map.insert(key, call, after).map(|_old| true),
    });
    sim.model.expect_eq("P7", "an entry was inserted", inserted, expected);
    if let Some(index) = stale {
        actor.entries[index].is_in_map = false;
        sim.model.ended(actor.entries[index].id, Outcome::Fired);
    }
    if expected != Ok(true) {
        return sim.model.forget(id);
    }
    present.into_iter().for_each(|index| actor.forget(sim, index));
    actor.entries.push(ModelEntry { id, key, deadline: 0, is_in_map: true });
    actor.set_deadline(sim, actor.entries.len() - 1, after);
    sim.model.set_pending(id, None);
}

/// Finds out which entries have expired, and compares their number.
///
/// The map expires all entries that are due together, so either all that are due now have left, or none. After a shutdown none expires.
pub fn observe(actors: &mut Vec<ExpiringMapActor>, sim: &mut SimContext) {
    for actor in actors.iter_mut() {
        actor.entries.retain(|one| {
            let is_called = sim.model.get(one.id).is_some_and(|item| item.signals > 0);
            if is_called {
                sim.model.forget(one.id);
            }
            !is_called
        });
        let (now, in_map) = (sim.now(), actor.entries.iter().filter(|one| one.is_in_map).count());
        if actor.map.len() == in_map {
            continue;
        }
        let mut left = 0;
        for one in actor.entries.iter_mut().filter(|one| one.is_in_map && one.deadline <= now) {
            (one.is_in_map, left) = (false, left + 1);
            sim.model.ended(one.id, Outcome::Fired);
        }
        sim.model.expect_eq("P2", "entries of a map", actor.map.len(), in_map - left);
    }
    if sim.model.closed {
        // All callbacks that were posted have been called.
        for actor in actors.drain(..) {
            drop_one(actor, sim, 0);
        }
    }
}

/// Drops all maps.
pub fn finish(actors: &mut Vec<ExpiringMapActor>, sim: &mut SimContext) {
    for actor in actors.drain(..) {
        drop_one(actor, sim, 0);
    }
}

/// Drops a map. Its entries do not expire; callbacks of those that have are still called.
fn drop_one(mut actor: ExpiringMapActor, sim: &mut SimContext, thread: usize) {
    actor.forget_all(sim);
    sim.threads.on(thread, || drop(actor.map));
}

impl ExpiringMapActor {
    /// Returns the entry of a key that the map has to find.
    fn find(&self, sim: &SimContext, key: usize) -> Option<usize> {
        let is_there = |one: &ModelEntry| {
            let is_pending =
                sim.model.get(one.id).is_some_and(|item| item.state == ModelState::Pending && item.signals == 0);
            one.key == key && one.is_in_map && one.deadline > sim.now() && is_pending
        };
        self.entries.iter().position(is_there)
    }

    fn set_deadline(&mut self, sim: &mut SimContext, index: usize, after: Duration) {
        let entry = &mut self.entries[index];
        entry.deadline = sim.due_after(after);
        sim.model.set(entry.id, entry.deadline, sim.setup.slack.grid());
    }

    /// Removes an entry that was taken out of the map, and will not expire.
    fn forget(&mut self, sim: &mut SimContext, index: usize) {
        let entry = self.entries.swap_remove(index);
        sim.model.cancelled(entry.id);
        sim.model.forget(entry.id);
    }

    /// Removes the entries that are in the map, and will not expire.
    fn forget_all(&mut self, sim: &mut SimContext) {
        for entry in self.entries.extract_if(.., |one| one.is_in_map) {
            sim.model.forget(entry.id);
        }
    }
}
