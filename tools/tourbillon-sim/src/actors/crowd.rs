//! Hundreds of sleeps that are due together: more than one turn fires, and more than are taken home in one go.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::time::Sleep;

use super::Player;
use crate::hub::{Id, Manner};
use crate::model::{SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::{Stage, add};

/// What can be done with a crowd.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one, if there is none: so many, the first after so long, and the others each so much later.
    New { thread: usize, count: usize, after: Duration, apart: u64 },
    /// Every so manieth is given another deadline.
    Reset { thread: usize, every: usize, after: Duration },
    /// Every so manieth goes.
    Drop { thread: usize, every: usize },
}

/// One of a crowd.
pub struct Actor {
    id: Id,
    sleep: Pin<Box<Sleep>>,
    waker: Waker,
}

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (thread, every) = (random.index(setup.threads), random.one_of(&[1, 2, 7]));
        match random.below(8) {
            0..4 => {
                let apart = random.one_of(&[0, 0, 1, setup.scale / 1000]);
                Op::New { thread, count: 257 + random.index(800), after: after(random, setup), apart }
            }
            4..7 => Op::Reset { thread, every, after: after(random, setup) },
            _ => Op::Drop { thread, every },
        }
    }
}

impl Player for Actor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<Actor>, stage: &mut Stage, index: usize, thread: usize) {
        let Some(Actor { id, sleep, waker }) = actors.get_mut(index) else { return };
        let id = *id;
        stage.ready.remove(&id);
        let polled = stage.poll(id, thread, || sleep.as_mut().poll(&mut Context::from_waker(waker)));
        let is_idle = stage.model.get(id).is_some_and(|item| item.state == State::Idle);
        if polled == Poll::Pending {
            stage.model.still_pending(id);
            if is_idle {
                let place = stage.place(thread, stage.setup.slack.is_strict());
                stage.model.pend(id, place);
            }
            return;
        }
        let outcome = sleep.outcome().unwrap_or(Outcome::Cancelled);
        stage.model.end(id, outcome);
        let ended = actors.swap_remove(index);
        stage.model.forget(id);
        stage.threads.on(thread, || drop(ended));
    }

    fn leave(self, stage: &mut Stage, thread: usize) {
        stage.ready.remove(&self.id);
        if stage.model.is_pending(self.id) {
            stage.model.cancel(self.id);
        }
        stage.model.forget(self.id);
        stage.threads.on(thread, || drop(self.sleep));
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    match op {
        Op::New { thread, count, after, apart } if actors.is_empty() => {
            // Where most of a crowd waits for room, a smaller one does, and each step takes longer.
            let count = if stage.is_exact() { count } else { count / 8 };
            for index in 0..count as u64 {
                let after = after.saturating_add(Duration::from_nanos(apart * index));
                actors.push(create(stage, thread, after));
                let last = actors.len() - 1;
                Actor::poll(actors, stage, last, thread);
            }
        }
        Op::New { .. } => {}
        Op::Reset { thread, every, after } => {
            let deadline = stage.due_after(after);
            actors.iter_mut().step_by(every).for_each(|actor| reset(actor, stage, thread, deadline));
        }
        Op::Drop { thread, every } => {
            let mut index = 0;
            let gone = actors.extract_if(.., |_| {
                index += 1;
                (index - 1) % every == 0
            });
            gone.for_each(|actor| actor.leave(stage, thread));
        }
    }
}

/// How many of them the engine holds armed.
#[must_use]
pub fn armed(actors: &[Actor], stage: &Stage) -> usize {
    let is_armed = |actor: &&Actor| stage.is_armed(actor.id) && actor.sleep.outcome().is_none();
    actors.iter().filter(is_armed).count()
}

fn create(stage: &mut Stage, thread: usize, after: Duration) -> Actor {
    let engine = stage.engine.clone();
    let sleep = stage.threads.on(thread, || Box::pin(engine.sleep(after)));
    let id = stage.model.add("one of a crowd", SeenBy::Waking);
    stage.model.set(id, add(stage.now(), after), stage.setup.slack.grid());
    Actor { id, sleep, waker: stage.waker(id, Manner::Good) }
}

fn reset(actor: &mut Actor, stage: &mut Stage, thread: usize, deadline: u64) {
    let instant = stage.instant_of(deadline);
    stage.hear_wakes();
    let has_ended = actor.sleep.outcome().is_some();
    stage.threads.on(thread, || actor.sleep.as_mut().reset(instant));
    stage.reset(actor.id, thread, deadline, stage.setup.slack.grid());
    // One that had ended and has not been polled begins again when it is.
    if has_ended {
        stage.model.idle(actor.id);
        stage.ready.insert(actor.id);
    }
}
