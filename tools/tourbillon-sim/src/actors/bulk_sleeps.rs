//! Hundreds of sleeps that are due together: more than one turn fires, and more than the owner of a shard takes over at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::time::Sleep;

use super::TaskActor;
use crate::context::{SimContext, add};
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::{ModelState, ObservedBy};

/// An operation on the sleeps.
#[derive(Clone, Copy, Debug)]
pub enum BulkSleepOp {
    /// Creates `count` sleeps if there are none, the first due after `after` and each other one `apart` nanoseconds later.
    New { thread: usize, count: usize, after: Duration, apart: u64 },
    /// Resets every `every`-th sleep.
    Reset { thread: usize, every: usize, after: Duration },
    /// Drops every `every`-th sleep.
    Drop { thread: usize, every: usize },
}

/// One of the sleeps.
pub struct BulkSleepActor {
    id: Id,
    sleep: Pin<Box<Sleep>>,
    waker: Waker,
}

impl BulkSleepOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> BulkSleepOp {
        let (thread, every) = (random.index(setup.threads), random.one_of(&[1, 2, 7]));
        match random.below(8) {
            0..4 => {
                let apart = random.one_of(&[0, 0, 1, setup.scale / 1000]);
                BulkSleepOp::New { thread, count: 257 + random.index(800), after: after(random, setup), apart }
            }
            4..7 => BulkSleepOp::Reset { thread, every, after: after(random, setup) },
            _ => BulkSleepOp::Drop { thread, every },
        }
    }
}

impl TaskActor for BulkSleepActor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<BulkSleepActor>, sim: &mut SimContext, index: usize, thread: usize) {
        let Some(BulkSleepActor { id, sleep, waker }) = actors.get_mut(index) else { return };
        let id = *id;
        sim.ready.remove(&id);
        let polled = sim.poll(id, thread, || sleep.as_mut().poll(&mut Context::from_waker(waker)));
        let is_idle = sim.model.get(id).is_some_and(|item| item.state == ModelState::Idle);
        if polled == Poll::Pending {
            sim.model.still_pending(id);
            if is_idle {
                let position = sim.next_position(thread, sim.setup.slack.is_strict());
                sim.model.set_pending(id, position);
            }
            return;
        }
        let outcome = sleep.outcome().unwrap_or(Outcome::Cancelled);
        sim.model.ended(id, outcome);
        let ended = actors.swap_remove(index);
        sim.model.forget(id);
        sim.threads.on(thread, || drop(ended));
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        sim.forget_timer(self.id);
        sim.threads.on(thread, || drop(self.sleep));
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<BulkSleepActor>, sim: &mut SimContext, op: BulkSleepOp) {
    match op {
        BulkSleepOp::New { thread, count, after, apart } if actors.is_empty() => {
            // Where most of the sleeps wait for a slot, fewer of them do as well, and each step is faster.
            let count = if sim.has_exact_wakes() { count } else { count / 8 };
            for index in 0..count as u64 {
                let after = after.saturating_add(Duration::from_nanos(apart * index));
                actors.push(create(sim, thread, after));
                let last = actors.len() - 1;
                BulkSleepActor::poll(actors, sim, last, thread);
            }
        }
        BulkSleepOp::New { .. } => {}
        BulkSleepOp::Reset { thread, every, after } => {
            let deadline = sim.due_after(after);
            actors.iter_mut().step_by(every).for_each(|actor| reset(actor, sim, thread, deadline));
        }
        BulkSleepOp::Drop { thread, every } => {
            let mut index = 0;
            let gone = actors.extract_if(.., |_| {
                index += 1;
                (index - 1) % every == 0
            });
            gone.for_each(|actor| actor.leave(sim, thread));
        }
    }
}

/// Returns how many of them the engine holds armed.
#[must_use]
pub fn armed(actors: &[BulkSleepActor], sim: &SimContext) -> usize {
    let is_armed = |actor: &&BulkSleepActor| sim.is_armed(actor.id) && actor.sleep.outcome().is_none();
    actors.iter().filter(is_armed).count()
}

fn create(sim: &mut SimContext, thread: usize, after: Duration) -> BulkSleepActor {
    let engine = sim.engine.clone();
    let sleep = sim.threads.on(thread, || Box::pin(engine.sleep(after)));
    let id = sim.model.add("bulk sleep", ObservedBy::Waking);
    sim.model.set(id, add(sim.now(), after), sim.setup.slack.grid());
    BulkSleepActor { id, sleep, waker: sim.waker(id, Behavior::Normal) }
}

fn reset(actor: &mut BulkSleepActor, sim: &mut SimContext, thread: usize, deadline: u64) {
    let instant = sim.instant_of(deadline);
    sim.note_wakes();
    let has_ended = actor.sleep.outcome().is_some();
    sim.threads.on(thread, || actor.sleep.as_mut().reset(instant));
    sim.reset(actor.id, thread, deadline, sim.setup.slack.grid());
    // A sleep that has ended and has not been polled is armed again by its next poll.
    if has_ended {
        sim.model.set_idle(actor.id);
        sim.ready.insert(actor.id);
    }
}
