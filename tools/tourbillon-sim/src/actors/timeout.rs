//! Timeouts around a future that may become ready.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::time::{Timeout, timeout, try_timeout};

use super::gate::Gate;
use super::{MOST, TaskActor, waker_behavior};
use crate::context::{SimContext, add};
use crate::plan::{SimSetup, after};
use crate::planted_fault::PlantedFault;
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::{ModelState, ObservedBy};

/// An operation on a timeout.
#[derive(Clone, Copy, Debug)]
pub enum TimeoutOp {
    /// Creates a timeout.
    New { thread: usize, after: Duration, tried: bool, behavior: Behavior },
    /// Polls the timeout, also if its task was not woken.
    Poll { which: usize, thread: usize },
    /// Completes its future.
    Open { which: usize },
    /// Sets another deadline.
    Reset { which: usize, thread: usize, after: Duration },
    /// Extends its deadline.
    Extend { which: usize, thread: usize, by: Duration },
    /// Disarms the timeout, or arms it if it is disarmed.
    Disarm { which: usize, thread: usize },
    /// Drops the timeout.
    Drop { which: usize, thread: usize },
}

/// A timeout and what is expected of it.
pub struct TimeoutActor {
    id: Id,
    timeout: Pin<Box<Timeout<Gate>>>,
    gate: Gate,
    waker: Waker,
    deadline: u64,
    is_disarmed: bool,
}

impl TimeoutOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> TimeoutOp {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        let after = after(random, setup);
        match random.below(16) {
            0..5 => TimeoutOp::New { thread, after, tried: random.one_in(4), behavior: waker_behavior(random, setup) },
            5..9 => TimeoutOp::Poll { which, thread },
            9 => TimeoutOp::Open { which },
            10..12 => TimeoutOp::Reset { which, thread, after },
            12 => TimeoutOp::Extend { which, thread, by: after },
            13 => TimeoutOp::Disarm { which, thread },
            _ => TimeoutOp::Drop { which, thread },
        }
    }
}

impl TaskActor for TimeoutActor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<TimeoutActor>, sim: &mut SimContext, index: usize, thread: usize) {
        let Some(actor) = actors.get_mut(index) else { return };
        let TimeoutActor { id, timeout, gate, waker, .. } = actor;
        sim.ready.remove(id);
        let before = sim.model.get(*id).map(|item| item.state);
        let id = *id;
        let poll = || timeout.as_mut().poll(&mut Context::from_waker(waker));
        // A disarmed timeout has no timer.
        let polled = if actor.is_disarmed { sim.threads.on(thread, poll) } else { sim.poll(id, thread, poll) };
        match polled {
            Poll::Ready(Ok(())) => {
                sim.model.expect_eq("P2", "the future of a timeout is ready", gate.is_open(), true);
                let actor = actors.swap_remove(index);
                actor.leave(sim, thread);
            }
            Poll::Ready(Err(elapsed)) => {
                sim.model.expect_eq(
                    "P2",
                    "a timeout elapsed although its future was ready or it was disarmed",
                    gate.is_open() || actor.is_disarmed,
                    false,
                );
                sim.found_elapsed(id, before, &elapsed, "the outcome of a timeout");
            }
            Poll::Pending if actor.is_disarmed => {}
            Poll::Pending => sim.found_pending(id, thread, before, actor.deadline, "timeout"),
        }
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        sim.forget_timer(self.id);
        sim.threads.on(thread, || drop(self.timeout));
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<TimeoutActor>, sim: &mut SimContext, op: TimeoutOp) {
    if let TimeoutOp::New { thread, after, tried, behavior } = op {
        if actors.len() < MOST {
            actors.extend(create(sim, thread, after, tried, behavior));
            let index = actors.len().saturating_sub(1);
            TimeoutActor::poll(actors, sim, index, thread);
        }
        return;
    }
    let (which, thread) = target(op);
    let Some(index) = which.checked_rem(actors.len()) else { return };
    // Only a poll shows whether a timer that was woken has ended or has a slot.
    if matches!(op, TimeoutOp::Reset { .. } | TimeoutOp::Extend { .. }) && sim.model.is_woken(actors[index].id) {
        let count = actors.len();
        TimeoutActor::poll(actors, sim, index, thread);
        if actors.len() < count {
            return;
        }
    }
    let actor = &mut actors[index];
    match op {
        TimeoutOp::New { .. } => {}
        TimeoutOp::Poll { .. } => TimeoutActor::poll(actors, sim, index, thread),
        TimeoutOp::Open { .. } => actor.gate.open(),
        TimeoutOp::Reset { after, .. } => {
            let deadline = sim.due_after(after);
            let instant = sim.instant_of(sim.due_after(PlantedFault::shorten(sim.planted, after)));
            sim.threads.on(thread, || actor.timeout.as_mut().reset(instant));
            note_deadline(actor, sim, thread, deadline);
        }
        TimeoutOp::Extend { by, .. } => {
            sim.threads.on(thread, || actor.timeout.as_mut().extend(by));
            let deadline = add(actor.deadline, by);
            if actor.is_disarmed {
                actor.deadline = deadline;
            } else {
                note_deadline(actor, sim, thread, deadline);
            }
        }
        TimeoutOp::Disarm { .. } if actor.is_disarmed => {
            sim.threads.on(thread, || actor.timeout.as_mut().arm());
            let deadline = actor.deadline;
            note_deadline(actor, sim, thread, deadline);
        }
        TimeoutOp::Disarm { .. } => {
            sim.threads.on(thread, || actor.timeout.as_mut().disarm());
            actor.is_disarmed = true;
            sim.model.set_idle(actor.id);
        }
        TimeoutOp::Drop { .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(sim, thread);
        }
    }
    let reported = actors.get(index).map(|actor| (actor.timeout.deadline(), actor.deadline));
    if let Some((reported, deadline)) = reported
        && deadline != crate::timer_model::NEVER
        && sim.planted != Some(PlantedFault::P5)
    {
        let reported = sim.time_of(reported);
        sim.model.expect_eq("P1", "the deadline of a timeout", reported, deadline);
    }
}

fn create(
    sim: &mut SimContext,
    thread: usize,
    after: Duration,
    tried: bool,
    behavior: Behavior,
) -> Option<TimeoutActor> {
    let deadline = sim.due_after(after);
    let gate = Gate::default();
    let given = PlantedFault::shorten(sim.planted, after);
    let (made, is_armed) = if tried {
        sim.try_arm(thread, || try_timeout(given, gate.clone()))
    } else {
        (Ok(sim.threads.on(thread, || timeout(given, gate.clone()))), false)
    };
    let Some(timeout) = made.ok().map(Box::pin) else {
        let may_be = sim.model.closed || sim.setup.capacity.is_some();
        sim.model.expect_eq("P6", "a timeout is refused only after a shutdown or at capacity", may_be, true);
        sim.totals.fault("refused at capacity", u64::from(!sim.model.closed));
        return None;
    };
    let id = sim.model.add("timeout", ObservedBy::Waking);
    sim.model.set(id, deadline, sim.setup.slack.grid());
    if is_armed {
        sim.model.armed(id);
    }
    let waker = sim.waker(id, behavior);
    Some(TimeoutActor { id, timeout, gate, waker, deadline, is_disarmed: false })
}

/// Notes that the timeout has another deadline.
fn note_deadline(actor: &mut TimeoutActor, sim: &mut SimContext, thread: usize, deadline: u64) {
    let id = actor.id;
    sim.reset(id, thread, deadline, sim.setup.slack.grid());
    // A timeout that has ended, known to its user or not, is armed again by its next poll.
    if sim.model.get(id).is_some_and(|item| item.signals > 0 || item.state != ModelState::Pending) {
        sim.model.set_idle(id);
    }
    (actor.deadline, actor.is_disarmed) = (deadline, false);
}

fn target(op: TimeoutOp) -> (usize, usize) {
    match op {
        TimeoutOp::New { thread, .. } => (0, thread),
        TimeoutOp::Open { which } => (which, 0),
        TimeoutOp::Poll { which, thread }
        | TimeoutOp::Reset { which, thread, .. }
        | TimeoutOp::Extend { which, thread, .. }
        | TimeoutOp::Disarm { which, thread }
        | TimeoutOp::Drop { which, thread } => (which, thread),
    }
}
