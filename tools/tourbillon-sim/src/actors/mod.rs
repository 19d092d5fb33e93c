//! Who uses the engine: one file for each surface. Each says what can be done with it, does that, and tells the model.

pub mod bulk_sleeps;
pub mod delay_queue;
pub mod gate;
pub mod interval;
pub mod named;
pub mod scheduler;
pub mod scope;
pub mod sleep;
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

/// At most so many of a kind are there at a time: the model looks at all of them after every step.
pub const MOST: usize = 24;

/// One that has a task of its own.
pub trait TaskActor: Sized {
    /// What the model knows it by.
    fn id(&self) -> Id;

    /// Polls the one at this index, and takes it out if that was all.
    fn poll(actors: &mut Vec<Self>, sim: &mut SimContext, index: usize, thread: usize);

    /// It goes.
    fn leave(self, sim: &mut SimContext, thread: usize);
}

/// Polls the one that was woken, if it is one of these.
pub fn wake<A: TaskActor>(actors: &mut Vec<A>, sim: &mut SimContext, id: Id, thread: usize) -> bool {
    let found = actors.iter().position(|actor| actor.id() == id);
    found.map(|index| A::poll(actors, sim, index, thread)).is_some()
}

/// Ends all of them.
pub fn finish<A: TaskActor>(actors: &mut Vec<A>, sim: &mut SimContext) {
    for (thread, actor) in actors.drain(..).enumerate() {
        actor.leave(sim, thread);
    }
}

/// How a waker behaves: mostly well.
pub fn waker_behavior(random: &mut RandomSource<'_>, setup: &SimSetup) -> Behavior {
    match random.below(16) {
        0 => Behavior::Panics,
        1 => Behavior::UsesEngine,
        // With a capacity, who turns the engine may do so in the middle of any call that leaves room: what callbacks do there with their own
        // timers comes between that call and what it says.
        2 if !setup.has_callback_actions || setup.capacity.is_none() => Behavior::TurnsEngine,
        _ => Behavior::Normal,
    }
}

/// How a callback behaves: mostly well.
pub fn callback_behavior(random: &mut RandomSource<'_>) -> Behavior {
    match random.below(16) {
        0 => Behavior::Panics,
        1 => Behavior::UsesEngine,
        2 => Behavior::PanicsInDrop,
        _ => Behavior::Normal,
    }
}

/// Polls a wait of which the model knows how it may end, and forgets it there if it has.
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
            sim.model.violate("P2", format!("{what} {id} was cancelled, and nobody did that"));
        }
        (Poll::Ready(outcome), _) => sim.model.ended(id, outcome),
    }
    sim.model.forget(id);
    Poll::Ready(())
}
