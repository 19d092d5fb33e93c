//! Deadline scopes, one within the other.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::time::Deadline;
use tourbillon::time::error::Elapsed;

use super::gate::Gate;
use super::{MOST, Player};
use crate::hub::{Id, Manner};
use crate::model::{NEVER, SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::{Stage, known};

/// What can be done with a scope.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one, with another inside.
    New { thread: usize, outer: Duration, inner: Duration },
    /// It is polled, also without having been woken.
    Poll { which: usize, thread: usize },
    /// What it waits for is ready.
    Open { which: usize },
    /// It is dropped.
    Drop { which: usize, thread: usize },
}

type Ended = Result<Result<(), Elapsed>, Elapsed>;

/// A scope in a scope.
pub struct Actor {
    id: Id,
    future: Pin<Box<dyn Future<Output = Ended>>>,
    gate: Gate,
    waker: Waker,
    outer: u64,
    inner: Duration,
    /// The deadline in force inside, when it was last polled.
    current: Arc<Mutex<Option<Deadline>>>,
}

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        match random.below(10) {
            0..4 => Op::New { thread, outer: after(random, setup), inner: after(random, setup) },
            4..7 => Op::Poll { which, thread },
            7 => Op::Open { which },
            _ => Op::Drop { which, thread },
        }
    }
}

impl Player for Actor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<Actor>, stage: &mut Stage, index: usize, thread: usize) {
        let Some(Actor { id, future, gate, waker, outer, inner, current }) = actors.get_mut(index) else { return };
        let id = *id;
        stage.ready.remove(&id);
        let before = stage.model.get(id).map(|item| item.state);
        if before == Some(State::Idle) {
            // The inner scope is made in the first poll, and never outlives the outer one.
            let deadline = stage.due_after(*inner).min(*outer);
            stage.model.set(id, deadline, stage.setup.slack.grid());
        }
        let polled = stage.threads.on(thread, || future.as_mut().poll(&mut Context::from_waker(waker)));
        stage.model.same("P1", "the deadline in force outside all scopes", Deadline::current(), None);
        match polled {
            Poll::Pending => {
                stage.model.still_pending(id);
                // It may have been woken for a place.
                stage.model.waits_anew(id);
                if before == Some(State::Idle) {
                    stage.model.pend(id, None);
                    let deadline = stage.model.get(id).map_or(NEVER, |item| item.deadline);
                    let seen = *current.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    let seen = seen.and_then(Deadline::instant).map_or(NEVER, |instant| known(stage.time_of(instant)));
                    stage.model.same("P1", "the deadline in force within a scope", seen, deadline);
                }
                return;
            }
            Poll::Ready(Ok(Ok(()))) => {
                stage.model.same("P2", "what a scope waits for is ready", gate.is_open(), true);
            }
            Poll::Ready(Ok(Err(elapsed)) | Err(elapsed)) => {
                let outcome = if elapsed.is_stopped() { Outcome::Stopped } else { Outcome::Fired };
                stage.model.end(id, outcome);
            }
        }
        let actor = actors.swap_remove(index);
        actor.leave(stage, thread);
    }

    fn leave(self, stage: &mut Stage, thread: usize) {
        stage.ready.remove(&self.id);
        if stage.model.is_pending(self.id) {
            stage.model.cancel(self.id);
        }
        stage.model.forget(self.id);
        stage.threads.on(thread, || drop(self.future));
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    let which = match op {
        Op::New { thread, outer, inner } => {
            if actors.len() < MOST / 3 {
                actors.push(create(stage, thread, outer, inner));
                Actor::poll(actors, stage, actors.len() - 1, thread);
            }
            return;
        }
        Op::Poll { which, .. } | Op::Open { which } | Op::Drop { which, .. } => which,
    };
    let Some(index) = which.checked_rem(actors.len()) else { return };
    match op {
        Op::New { .. } => {}
        Op::Poll { thread, .. } => Actor::poll(actors, stage, index, thread),
        Op::Open { .. } => actors[index].gate.open(),
        Op::Drop { thread, .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(stage, thread);
        }
    }
}

fn create(stage: &mut Stage, thread: usize, outer: Duration, inner: Duration) -> Actor {
    let id = stage.model.add("scope", SeenBy::Waking);
    let (gate, current) = (Gate::default(), Arc::new(Mutex::new(None)));
    let (inside, seen) = (gate.clone(), Arc::clone(&current));
    let scope = stage.threads.on(thread, || {
        let inner_scope = async move {
            let body = async move {
                *seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Deadline::current();
                inside.await;
            };
            Deadline::after(inner).scope(body).await
        };
        Deadline::after(outer).scope(inner_scope)
    });
    let outer = stage.due_after(outer);
    let waker = stage.waker(id, Manner::Good);
    Actor { id, future: Box::pin(scope), gate, waker, outer, inner, current }
}
