//! Timeouts around a future that may become ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::time::{Timeout, timeout, try_timeout};

use super::gate::Gate;
use super::{MOST, Player, manner_of_waker};
use crate::breakage::Break;
use crate::hub::{Id, Manner};
use crate::model::{SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::{Stage, add};

/// What can be done with a timeout.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one.
    New { thread: usize, after: Duration, tried: bool, manner: Manner },
    /// It is polled, also without having been woken.
    Poll { which: usize, thread: usize },
    /// Its future is ready.
    Open { which: usize },
    /// It is given another deadline.
    Reset { which: usize, thread: usize, after: Duration },
    /// Its deadline is moved.
    Extend { which: usize, thread: usize, by: Duration },
    /// Its deadline is taken away.
    Disarm { which: usize, thread: usize },
    /// It is dropped.
    Drop { which: usize, thread: usize },
}

/// One timeout.
pub struct Actor {
    id: Id,
    timeout: Pin<Box<Timeout<Gate>>>,
    gate: Gate,
    waker: Waker,
    deadline: u64,
    is_disarmed: bool,
}

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        let after = after(random, setup);
        match random.below(16) {
            0..5 => Op::New { thread, after, tried: random.one_in(4), manner: manner_of_waker(random, setup) },
            5..9 => Op::Poll { which, thread },
            9 => Op::Open { which },
            10..12 => Op::Reset { which, thread, after },
            12 => Op::Extend { which, thread, by: after },
            13 => Op::Disarm { which, thread },
            _ => Op::Drop { which, thread },
        }
    }
}

impl Player for Actor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<Actor>, stage: &mut Stage, index: usize, thread: usize) {
        let Some(actor) = actors.get_mut(index) else { return };
        let Actor { id, timeout, gate, waker, .. } = actor;
        stage.ready.remove(id);
        let before = stage.model.get(*id).map(|item| item.state);
        let id = *id;
        let poll = || timeout.as_mut().poll(&mut Context::from_waker(waker));
        // One that is disarmed has no timer.
        let polled = if actor.is_disarmed { stage.threads.on(thread, poll) } else { stage.poll(id, thread, poll) };
        match polled {
            Poll::Ready(Ok(())) => {
                stage.model.same("P2", "the future of a timeout is ready", gate.is_open(), true);
                let actor = actors.swap_remove(index);
                actor.leave(stage, thread);
            }
            Poll::Ready(Err(elapsed)) => {
                let outcome = if elapsed.is_stopped() { Outcome::Stopped } else { Outcome::Fired };
                stage.model.same(
                    "P2",
                    "a future that is ready comes first, and no deadline that was taken away",
                    gate.is_open() || actor.is_disarmed,
                    false,
                );
                match before {
                    Some(State::Ended(before)) => stage.model.same("P2", "the outcome of a timeout", outcome, before),
                    _ => stage.model.end(id, outcome),
                }
            }
            Poll::Pending if actor.is_disarmed => {}
            Poll::Pending => {
                stage.model.still_pending(id);
                if before == Some(State::Idle) {
                    if actor.deadline <= stage.now() {
                        stage.model.violate("P4", format!("timeout {id} is past and was armed"));
                    }
                    let place = stage.place(thread, stage.setup.slack.is_strict());
                    stage.model.pend(id, place);
                }
            }
        }
    }

    fn leave(self, stage: &mut Stage, thread: usize) {
        stage.ready.remove(&self.id);
        if stage.model.is_pending(self.id) {
            stage.model.cancel(self.id);
        }
        stage.model.forget(self.id);
        stage.threads.on(thread, || drop(self.timeout));
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    if let Op::New { thread, after, tried, manner } = op {
        if actors.len() < MOST {
            actors.extend(create(stage, thread, after, tried, manner));
            let index = actors.len().saturating_sub(1);
            Actor::poll(actors, stage, index, thread);
        }
        return;
    }
    let (which, thread) = target(op);
    let Some(index) = which.checked_rem(actors.len()) else { return };
    // Whether one has ended that was woken, or has a place, shows when it is polled.
    if matches!(op, Op::Reset { .. } | Op::Extend { .. }) && stage.model.is_woken(actors[index].id) {
        let count = actors.len();
        Actor::poll(actors, stage, index, thread);
        if actors.len() < count {
            return;
        }
    }
    let actor = &mut actors[index];
    match op {
        Op::New { .. } => {}
        Op::Poll { .. } => Actor::poll(actors, stage, index, thread),
        Op::Open { .. } => actor.gate.open(),
        Op::Reset { after, .. } => {
            let deadline = stage.due_after(after);
            let instant = stage.instant_of(stage.due_after(Break::shorten(stage.broken, after)));
            stage.threads.on(thread, || actor.timeout.as_mut().reset(instant));
            changed(actor, stage, thread, deadline);
        }
        Op::Extend { by, .. } => {
            stage.threads.on(thread, || actor.timeout.as_mut().extend(by));
            if !actor.is_disarmed {
                let deadline = add(actor.deadline, by);
                changed(actor, stage, thread, deadline);
            }
        }
        Op::Disarm { .. } => {
            stage.threads.on(thread, || actor.timeout.as_mut().disarm());
            actor.is_disarmed = true;
            stage.model.idle(actor.id);
        }
        Op::Drop { .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(stage, thread);
        }
    }
    let told = actors.get(index).map(|actor| (actor.timeout.deadline(), actor.deadline, actor.is_disarmed));
    if let Some((Some(told), deadline, false)) = told
        && deadline != crate::model::NEVER
        && stage.broken != Some(Break::P5)
    {
        let told = stage.time_of(told);
        stage.model.same("P1", "the deadline of a timeout", told, deadline);
    }
}

fn create(stage: &mut Stage, thread: usize, after: Duration, tried: bool, manner: Manner) -> Option<Actor> {
    let deadline = stage.due_after(after);
    let gate = Gate::default();
    let given = Break::shorten(stage.broken, after);
    let (made, is_armed) = if tried {
        stage.try_arm(thread, || try_timeout(given, gate.clone()))
    } else {
        (Ok(stage.threads.on(thread, || timeout(given, gate.clone()))), false)
    };
    let Some(timeout) = made.ok().map(Box::pin) else {
        let may_be = stage.model.closed || stage.setup.capacity.is_some();
        stage.model.same("P6", "a timeout is refused after a shutdown or for want of room", may_be, true);
        stage.totals.fault("refused for want of room", u64::from(!stage.model.closed));
        return None;
    };
    let id = stage.model.add("timeout", SeenBy::Waking);
    stage.model.set(id, deadline, stage.setup.slack.grid());
    if is_armed {
        stage.model.armed(id);
    }
    let waker = stage.waker(id, manner);
    Some(Actor { id, timeout, gate, waker, deadline, is_disarmed: false })
}

/// It has another deadline.
fn changed(actor: &mut Actor, stage: &mut Stage, thread: usize, deadline: u64) {
    let id = actor.id;
    stage.reset(id, thread, deadline, stage.setup.slack.grid());
    // One that had ended, known to its user or not, waits again when it is polled.
    if stage.model.get(id).is_some_and(|item| item.signals > 0 || item.state != State::Pending) {
        stage.model.idle(id);
    }
    (actor.deadline, actor.is_disarmed) = (deadline, false);
}

fn target(op: Op) -> (usize, usize) {
    match op {
        Op::New { thread, .. } => (0, thread),
        Op::Open { which } => (which, 0),
        Op::Poll { which, thread }
        | Op::Reset { which, thread, .. }
        | Op::Extend { which, thread, .. }
        | Op::Disarm { which, thread }
        | Op::Drop { which, thread } => (which, thread),
    }
}
