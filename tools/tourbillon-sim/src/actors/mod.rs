//! The users of the engine, one file for each surface. Each file draws random operations, performs them, and informs the model.

pub mod bulk_sleeps;
pub mod delay_queue;
pub mod expiring_map;
pub mod gate;
pub mod interval;
pub mod named;
pub mod scheduler;
pub mod scope;
pub mod sleep;
pub mod stream_timeout;
pub mod timeout;
pub mod timer;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tourbillon::Outcome;

use crate::context::SimContext;
use crate::plan::SimSetup;
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::ModelState;

/// Most actors of a kind at a time: the model visits all of them after every step.
pub const MOST: usize = 24;

/// An actor with a task of its own.
pub trait TaskActor: Sized {
    /// Returns its id in the model.
    fn id(&self) -> Id;

    /// Polls the actor at this index, and removes it if it is complete.
    fn poll(actors: &mut Vec<Self>, sim: &mut SimContext, index: usize, thread: usize);

    /// Drops the actor, and informs the model.
    fn leave(self, sim: &mut SimContext, thread: usize);
}

/// Polls the actor that was woken, if it is one of these.
pub fn wake<A: TaskActor>(actors: &mut Vec<A>, sim: &mut SimContext, id: Id, thread: usize) -> bool {
    let found = actors.iter().position(|actor| actor.id() == id);
    found.map(|index| A::poll(actors, sim, index, thread)).is_some()
}

/// Drops all actors.
pub fn finish<A: TaskActor>(actors: &mut Vec<A>, sim: &mut SimContext) {
    for (thread, actor) in actors.drain(..).enumerate() {
        actor.leave(sim, thread);
    }
}

/// Returns the behavior of a waker, which is mostly normal.
pub fn waker_behavior(random: &mut RandomSource<'_>, setup: &SimSetup) -> Behavior {
    match random.below(16) {
        0 => Behavior::Panics,
        1 => Behavior::UsesEngine,
        // With a capacity, such a waker may turn the engine within any call that frees a slot. Callbacks that use their own
        // timers would then run before the result of that call is known.
        2 if !setup.has_callback_actions || setup.capacity.is_none() => Behavior::TurnsEngine,
        _ => Behavior::Normal,
    }
}

/// Returns the behavior of a callback, which is mostly normal.
pub fn callback_behavior(random: &mut RandomSource<'_>) -> Behavior {
    match random.below(16) {
        0 => Behavior::Panics,
        1 => Behavior::UsesEngine,
        2 => Behavior::PanicsInDrop,
        _ => Behavior::Normal,
    }
}

/// Polls a wait, compares its outcome with the model, and removes it from the model if it has ended.
pub fn poll_wait(
    sim: &mut SimContext,
    thread: usize,
    id: Id,
    what: &str,
    wait: Pin<&mut impl Future<Output = Outcome>>,
    waker: &Waker,
) -> Poll<()> {
    sim.ready.remove(&id);
    let polled = sim.threads.on(thread, || wait.poll(&mut Context::from_waker(waker)));
    match (polled, sim.model.get(id).map(|item| item.state)) {
        (Poll::Pending, _) => {
            sim.model.still_pending(id);
            return Poll::Pending;
        }
        (Poll::Ready(outcome), Some(ModelState::Ended(before))) => {
            sim.model.expect_eq("P2", &format!("the outcome of a {what}"), outcome, before);
        }
        (Poll::Ready(Outcome::Cancelled), _) => {
            sim.model.violate("P2", format!("{what} {id} reports Cancelled, and the simulation did not cancel it"));
        }
        (Poll::Ready(outcome), _) => sim.model.ended(id, outcome),
    }
    sim.model.forget(id);
    Poll::Ready(())
}
