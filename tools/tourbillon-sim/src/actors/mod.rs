//! Who uses the engine: one file for each surface. Each says what can be done with it, does that, and tells the model.

pub mod crowd;
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

use crate::hub::{Id, Manner};
use crate::model::State;
use crate::plan::Setup;
use crate::random::Random;
use crate::stage::Stage;

/// At most so many of a kind are there at a time: the model looks at all of them after every step.
pub const MOST: usize = 24;

/// One that has a task of its own.
pub trait Player: Sized {
    /// What the model knows it by.
    fn id(&self) -> Id;

    /// Polls the one at this index, and takes it out if that was all.
    fn poll(actors: &mut Vec<Self>, stage: &mut Stage, index: usize, thread: usize);

    /// It goes.
    fn leave(self, stage: &mut Stage, thread: usize);
}

/// Polls the one that was woken, if it is one of these.
pub fn wake<A: Player>(actors: &mut Vec<A>, stage: &mut Stage, id: Id, thread: usize) -> bool {
    let found = actors.iter().position(|actor| actor.id() == id);
    found.map(|index| A::poll(actors, stage, index, thread)).is_some()
}

/// Ends all of them.
pub fn finish<A: Player>(actors: &mut Vec<A>, stage: &mut Stage) {
    for (thread, actor) in actors.drain(..).enumerate() {
        actor.leave(stage, thread);
    }
}

/// How a waker behaves: mostly well.
pub fn manner_of_waker(random: &mut Random, setup: &Setup) -> Manner {
    match random.below(16) {
        0 => Manner::Panics,
        1 => Manner::Nosy,
        // With a capacity, who turns the engine may do so in the middle of any call that leaves room: what callbacks do there with their own
        // timers comes between that call and what it says.
        2 if !setup.has_deeds || setup.capacity.is_none() => Manner::Turns,
        _ => Manner::Good,
    }
}

/// How a callback behaves: mostly well.
pub fn manner_of_callback(random: &mut Random) -> Manner {
    match random.below(16) {
        0 => Manner::Panics,
        1 => Manner::Nosy,
        2 => Manner::PanicsInDrop,
        _ => Manner::Good,
    }
}

/// Polls a wait of which the model knows how it may end, and forgets it there if it has.
pub fn poll_wait(
    stage: &mut Stage,
    thread: usize,
    id: Id,
    what: &str,
    wait: Pin<&mut impl Future<Output = Outcome>>,
    waker: &Waker,
) -> Poll<()> {
    stage.ready.remove(&id);
    let polled = stage.threads.on(thread, || wait.poll(&mut Context::from_waker(waker)));
    match (polled, stage.model.get(id).map(|item| item.state)) {
        (Poll::Pending, _) => {
            stage.model.still_pending(id);
            return Poll::Pending;
        }
        (Poll::Ready(outcome), Some(State::Ended(before))) => {
            stage.model.same("P2", &format!("the outcome of a {what}"), outcome, before);
        }
        (Poll::Ready(Outcome::Cancelled), _) => {
            stage.model.violate("P2", format!("{what} {id} was cancelled, and nobody did that"));
        }
        (Poll::Ready(outcome), _) => stage.model.end(id, outcome),
    }
    stage.model.forget(id);
    Poll::Ready(())
}
