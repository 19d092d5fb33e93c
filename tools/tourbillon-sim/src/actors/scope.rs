//! Deadline scopes, one nested in the other.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::time::Deadline;
use tourbillon::time::error::Elapsed;

use super::gate::Gate;
use super::{MOST, TaskActor};
use crate::context::{SimContext, engine_time};
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::{ModelState, NEVER, ObservedBy};

/// An operation on a scope.
#[derive(Clone, Copy, Debug)]
pub enum ScopeOp {
    /// Creates a scope with another one inside.
    New { thread: usize, outer: Duration, inner: Duration },
    /// Polls the scope, also if its task was not woken.
    Poll { which: usize, thread: usize },
    /// Completes the future that it waits for.
    Open { which: usize },
    /// Drops the scope.
    Drop { which: usize, thread: usize },
}

type ScopeResult = Result<Result<(), Elapsed>, Elapsed>;

/// A scope with another one inside.
pub struct ScopeActor {
    id: Id,
    future: Pin<Box<dyn Future<Output = ScopeResult>>>,
    gate: Gate,
    waker: Waker,
    outer: u64,
    inner: Duration,
    /// The deadline in force inside, at the last poll.
    current: Arc<Mutex<Option<Deadline>>>,
}

impl ScopeOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> ScopeOp {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        match random.below(10) {
            0..4 => ScopeOp::New { thread, outer: after(random, setup), inner: after(random, setup) },
            4..7 => ScopeOp::Poll { which, thread },
            7 => ScopeOp::Open { which },
            _ => ScopeOp::Drop { which, thread },
        }
    }
}

impl TaskActor for ScopeActor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<ScopeActor>, sim: &mut SimContext, index: usize, thread: usize) {
        let Some(ScopeActor { id, future, gate, waker, outer, inner, current }) = actors.get_mut(index) else { return };
        let id = *id;
        sim.ready.remove(&id);
        let before = sim.model.get(id).map(|item| item.state);
        if before == Some(ModelState::Idle) {
            // The first poll creates the inner scope, which never outlives the outer one.
            let deadline = sim.due_after(*inner).min(*outer);
            sim.model.set(id, deadline, sim.setup.slack.grid());
        }
        let polled = sim.threads.on(thread, || future.as_mut().poll(&mut Context::from_waker(waker)));
        sim.model.expect_eq("P1", "the deadline in force outside all scopes", Deadline::current(), None);
        match polled {
            Poll::Pending => {
                sim.model.still_pending(id);
                // The task may have been woken for a slot.
                sim.model.reset_wakes(id);
                if before == Some(ModelState::Idle) {
                    sim.model.set_pending(id, None);
                    let deadline = sim.model.get(id).map_or(NEVER, |item| item.deadline);
                    let seen = *current.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    let seen =
                        seen.and_then(Deadline::instant).map_or(NEVER, |instant| engine_time(sim.time_of(instant)));
                    sim.model.expect_eq("P1", "the deadline in force within a scope", seen, deadline);
                }
                return;
            }
            Poll::Ready(Ok(Ok(()))) => {
                sim.model.expect_eq("P2", "the future of a scope is ready", gate.is_open(), true);
            }
            Poll::Ready(Ok(Err(elapsed)) | Err(elapsed)) => {
                let outcome = if elapsed.is_stopped() { Outcome::Stopped } else { Outcome::Fired };
                sim.model.ended(id, outcome);
            }
        }
        let actor = actors.swap_remove(index);
        actor.leave(sim, thread);
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        sim.forget_timer(self.id);
        sim.threads.on(thread, || drop(self.future));
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<ScopeActor>, sim: &mut SimContext, op: ScopeOp) {
    let which = match op {
        ScopeOp::New { thread, outer, inner } => {
            if actors.len() < MOST / 3 {
                actors.push(create(sim, thread, outer, inner));
                ScopeActor::poll(actors, sim, actors.len() - 1, thread);
            }
            return;
        }
        ScopeOp::Poll { which, .. } | ScopeOp::Open { which } | ScopeOp::Drop { which, .. } => which,
    };
    let Some(index) = which.checked_rem(actors.len()) else { return };
    match op {
        ScopeOp::New { .. } => {}
        ScopeOp::Poll { thread, .. } => ScopeActor::poll(actors, sim, index, thread),
        ScopeOp::Open { .. } => actors[index].gate.open(),
        ScopeOp::Drop { thread, .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(sim, thread);
        }
    }
}

fn create(sim: &mut SimContext, thread: usize, outer: Duration, inner: Duration) -> ScopeActor {
    let id = sim.model.add("scope", ObservedBy::Waking);
    let (gate, current) = (Gate::default(), Arc::new(Mutex::new(None)));
    let (inside, seen) = (gate.clone(), Arc::clone(&current));
    let scope = sim.threads.on(thread, || {
        let inner_scope = async move {
            let body = async move {
                *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Deadline::current();
                inside.await;
            };
            Deadline::after(inner).scope(body).await
        };
        Deadline::after(outer).scope(inner_scope)
    });
    let outer = sim.due_after(outer);
    let waker = sim.waker(id, Behavior::Normal);
    ScopeActor { id, future: Box::pin(scope), gate, waker, outer, inner, current }
}
