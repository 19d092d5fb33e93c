//! Sleeps: armed, moved, held, dropped, on any thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{ArmError, Outcome};

use super::{MOST, Player, manner_of_waker};
use crate::breakage::Break;
use crate::hub::{Id, Manner, Ticket};
use crate::model::{NEVER, SeenBy, State};
use crate::plan::{Setup, SlackOf, after};
use crate::random::Random;
use crate::stage::{Stage, known};

/// What can be done with a sleep.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one.
    New { thread: usize, after: Duration, slack: Option<SlackOf>, tried: bool, manner: Manner },
    /// It is polled, also without having been woken; with a fresh waker as if its task had changed.
    Poll { which: usize, thread: usize, fresh: bool },
    /// It is given another deadline.
    Reset { which: usize, thread: usize, after: Duration },
    /// It is given a deadline in the past.
    ResetBack { which: usize, thread: usize, before: u64 },
    /// It waits for ever.
    Disarm { which: usize, thread: usize },
    /// It waits for its deadline again.
    Arm { which: usize, thread: usize },
    /// It is dropped.
    Drop { which: usize, thread: usize },
}

/// One sleep.
pub struct Actor {
    id: Id,
    sleep: Pin<Box<Sleep>>,
    /// What the next poll is made with.
    ticket: Option<Arc<Ticket>>,
    /// Whether the engine has a waker of ours.
    is_watched: bool,
    manner: Manner,
    slack: SlackOf,
    deadline: u64,
    is_held: bool,
}

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        let (after, slack) = (after(random, setup), SlackOf::random(random, setup.scale));
        match random.below(20) {
            0..6 => Op::New {
                thread,
                after,
                slack: random.one_in(3).then_some(slack),
                tried: random.one_in(4),
                manner: manner_of_waker(random, setup),
            },
            6..11 => Op::Poll { which, thread, fresh: random.one_in(4) },
            11..14 => Op::Reset { which, thread, after },
            14 => Op::ResetBack { which, thread, before: random.below(setup.scale) },
            15 => Op::Disarm { which, thread },
            16 => Op::Arm { which, thread },
            _ => Op::Drop { which, thread },
        }
    }
}

impl Player for Actor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<Actor>, stage: &mut Stage, index: usize, thread: usize) {
        poll(&mut actors[index], stage, thread, false);
    }

    fn leave(self, stage: &mut Stage, thread: usize) {
        let Actor { id, sleep, ticket, .. } = self;
        stage.ready.remove(&id);
        if stage.model.is_pending(id) {
            stage.model.cancel(id);
        }
        stage.model.forget(id);
        if stage.broken == Some(Break::P7) {
            return std::mem::forget(sleep);
        }
        let watch = ticket.as_ref().map(Arc::downgrade);
        drop(ticket);
        stage.threads.on(thread, || drop(sleep));
        let kept = watch.map_or(0, |watch| watch.strong_count());
        stage.model.same("P7", "wakers that are kept for a sleep that is gone", kept, 0);
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    if let Op::New { thread, after, slack, tried, manner } = op {
        if actors.len() < MOST {
            actors.extend(create(stage, thread, after, slack, tried, manner));
            if let Some(actor) = actors.last_mut()
                && !tried
            {
                poll(actor, stage, thread, false);
            }
        }
        return;
    }
    let Some(index) = which(op).checked_rem(actors.len()) else { return };
    let actor = &mut actors[index];
    match op {
        Op::New { .. } => {}
        Op::Poll { thread, fresh, .. } => poll(actor, stage, thread, fresh),
        Op::Reset { thread, after, .. } => {
            let deadline = stage.due_after(after);
            let shortened = stage.due_after(Break::shorten(stage.broken, after));
            reset(actor, stage, thread, deadline, shortened);
        }
        Op::ResetBack { thread, before, .. } => {
            let deadline = known(stage.now().saturating_sub(before));
            reset(actor, stage, thread, deadline, deadline);
        }
        Op::Disarm { thread, .. } => {
            stage.threads.on(thread, || actor.sleep.as_mut().disarm());
            actor.is_held = true;
            changed(actor, stage, thread, NEVER);
        }
        Op::Arm { thread, .. } => {
            stage.threads.on(thread, || actor.sleep.as_mut().arm());
            // What never comes is the same held and not held.
            if std::mem::take(&mut actor.is_held) && actor.deadline != NEVER {
                changed(actor, stage, thread, actor.deadline);
            }
        }
        Op::Drop { thread, .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(stage, thread);
        }
    }
}

/// Looks at all of them, as anybody can.
pub fn observe(actors: &mut [Actor], stage: &mut Stage) {
    for actor in actors {
        let before = stage.model.get(actor.id).map(|item| (item.state, item.signals));
        match (actor.sleep.outcome(), before) {
            (Some(outcome), Some((State::Pending, signals))) => {
                stage.model.end(actor.id, outcome);
                // One that waited may have been woken for a place, too, and not polled since.
                let most = if stage.is_exact() { 1 } else { 2 };
                if actor.is_watched && !(1..=most).contains(&signals) {
                    stage.model.violate("P4", format!("sleep {} ended, and was woken {signals} times", actor.id));
                }
            }
            (Some(outcome), Some((State::Ended(before), _))) => {
                stage.model.same("P2", "the outcome of a sleep", outcome, before);
            }
            (Some(_), Some((State::Idle, _))) => stage.model.violate("P2", format!("sleep {} ended idle", actor.id)),
            // It waited for room, and was woken to hear that there will never be any.
            (None, Some((_, 1..))) if stage.model.closed && !stage.is_exact() => {}
            (None, _) => stage.model.still_pending(actor.id),
            _ => {}
        }
    }
}

/// How many of them the engine holds armed.
#[must_use]
pub fn armed(actors: &[Actor], stage: &Stage) -> usize {
    actors.iter().filter(|actor| stage.is_armed(actor.id)).count()
}

fn create(
    stage: &mut Stage,
    thread: usize,
    after: Duration,
    slack: Option<SlackOf>,
    tried: bool,
    manner: Manner,
) -> Option<Actor> {
    let deadline = stage.due_after(after);
    let engine = stage.engine.clone();
    let shortened = Break::shorten(stage.broken, after);
    let with_slack = |sleep: Sleep| if let Some(slack) = slack { sleep.slack(slack.slack()) } else { sleep };
    let (made, is_armed) = if tried {
        stage.try_arm(thread, || engine.try_sleep(shortened))
    } else {
        (Ok(stage.threads.on(thread, || engine.sleep(shortened))), false)
    };
    let made = made.map(|sleep| stage.threads.on(thread, || Box::pin(with_slack(sleep))));
    let sleep = match made {
        Ok(sleep) => sleep,
        Err(ArmError::Stopped) => {
            stage.model.same("P6", "arming is refused after a shutdown only", stage.model.closed, true);
            return None;
        }
        Err(ArmError::Full { capacity }) => {
            stage.model.same("P7", "the capacity", Some(capacity), stage.setup.capacity);
            stage.totals.fault("refused for want of room", 1);
            return None;
        }
        Err(_) => return None,
    };
    if tried {
        stage.model.same("P6", "a sleep is armed after a shutdown", stage.model.closed, false);
    }
    let id = stage.model.add("sleep", SeenBy::Asking);
    let its = slack.unwrap_or(stage.setup.slack);
    stage.model.set(id, deadline, its.grid());
    // With another slack it is armed anew when it is polled.
    if tried && slack.is_none() {
        let place = stage.place(thread, its.is_strict());
        stage.model.pend(id, place);
        if is_armed {
            stage.model.armed(id);
        }
    }
    Some(Actor { id, sleep, ticket: None, is_watched: false, manner, slack: its, deadline, is_held: false })
}

fn poll(actor: &mut Actor, stage: &mut Stage, thread: usize, fresh: bool) {
    stage.ready.remove(&actor.id);
    if fresh || actor.ticket.is_none() {
        actor.ticket = Some(stage.hub.ticket(actor.id, actor.manner));
    }
    let Some(waker) = actor.ticket.clone().map(Waker::from) else { return };
    let before = stage.model.get(actor.id).map(|item| item.state);
    let is_first = !actor.is_watched;
    let poll = stage.poll(actor.id, thread, || actor.sleep.as_mut().poll(&mut Context::from_waker(&waker)));
    let outcome = actor.sleep.outcome();
    stage.model.same("P2", "ready and ended", poll.is_ready(), outcome.is_some());
    match (outcome, before) {
        (None, Some(State::Idle)) => {
            let deadline = if actor.is_held { NEVER } else { actor.deadline };
            if deadline <= stage.now() {
                stage.model.violate("P4", format!("sleep {} is past and was armed", actor.id));
            }
            let place = stage.place(thread, actor.slack.is_strict());
            stage.model.pend(actor.id, place);
            actor.is_watched = true;
        }
        (None, Some(State::Pending)) => {
            stage.model.still_pending(actor.id);
            if fresh || is_first {
                stage.change_waker(actor.id, thread);
            }
            actor.is_watched = true;
        }
        (None, _) => stage.model.still_pending(actor.id),
        (Some(outcome), Some(State::Ended(before))) => stage.model.same("P2", "an outcome", outcome, before),
        (Some(outcome), _) => stage.model.end(actor.id, outcome),
    }
    debug_assert!(!matches!(outcome, Some(Outcome::Cancelled)) || matches!(poll, Poll::Pending));
}

fn reset(actor: &mut Actor, stage: &mut Stage, thread: usize, deadline: u64, shortened: u64) {
    let instant = stage.instant_of(shortened);
    stage.threads.on(thread, || actor.sleep.as_mut().reset(instant));
    (actor.deadline, actor.is_held) = (deadline, false);
    changed(actor, stage, thread, deadline);
}

/// It has another deadline.
fn changed(actor: &mut Actor, stage: &mut Stage, thread: usize, deadline: u64) {
    stage.reset(actor.id, thread, deadline, actor.slack.grid());
    if stage.model.get(actor.id).is_some_and(|item| matches!(item.state, State::Ended(_))) {
        stage.model.idle(actor.id);
        actor.is_watched = false;
    }
}

fn which(op: Op) -> usize {
    match op {
        Op::New { .. } => 0,
        Op::Poll { which, .. }
        | Op::Reset { which, .. }
        | Op::ResetBack { which, .. }
        | Op::Disarm { which, .. }
        | Op::Arm { which, .. }
        | Op::Drop { which, .. } => which,
    }
}
