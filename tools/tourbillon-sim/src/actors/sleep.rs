//! Sleeps that are armed, reset, disarmed and dropped on any thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{ArmError, Outcome};

use super::{MOST, TaskActor, waker_behavior};
use crate::context::{SimContext, engine_time};
use crate::plan::{SimSetup, SlackChoice, after};
use crate::planted_fault::PlantedFault;
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id, RecordingWaker};
use crate::timer_model::{ModelState, NEVER, ObservedBy};

/// An operation on a sleep.
#[derive(Clone, Copy, Debug)]
pub enum SleepOp {
    /// Creates a sleep.
    New { thread: usize, after: Duration, slack: Option<SlackChoice>, tried: bool, behavior: Behavior },
    /// Polls the sleep, also if it was not woken; with a fresh waker, as if its task had changed.
    Poll { which: usize, thread: usize, fresh: bool },
    /// Sets another deadline.
    Reset { which: usize, thread: usize, after: Duration },
    /// Sets a deadline in the past.
    ResetBack { which: usize, thread: usize, before: u64 },
    /// Disarms the sleep.
    Disarm { which: usize, thread: usize },
    /// Arms the sleep again for its deadline.
    Arm { which: usize, thread: usize },
    /// Drops the sleep.
    Drop { which: usize, thread: usize },
}

/// A sleep and what is expected of it.
pub struct SleepActor {
    id: Id,
    sleep: Pin<Box<Sleep>>,
    /// The waker of the next poll.
    recording_waker: Option<Arc<RecordingWaker>>,
    /// Whether the engine has a waker of this sleep.
    is_watched: bool,
    behavior: Behavior,
    slack: SlackChoice,
    deadline: u64,
    is_held: bool,
}

impl SleepOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> SleepOp {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        let (after, slack) = (after(random, setup), SlackChoice::random(random, setup.scale));
        match random.below(20) {
            0..6 => SleepOp::New {
                thread,
                after,
                slack: random.one_in(3).then_some(slack),
                tried: random.one_in(4),
                behavior: waker_behavior(random, setup),
            },
            6..11 => SleepOp::Poll { which, thread, fresh: random.one_in(4) },
            11..14 => SleepOp::Reset { which, thread, after },
            14 => SleepOp::ResetBack { which, thread, before: random.below(setup.scale) },
            15 => SleepOp::Disarm { which, thread },
            16 => SleepOp::Arm { which, thread },
            _ => SleepOp::Drop { which, thread },
        }
    }
}

impl TaskActor for SleepActor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<SleepActor>, sim: &mut SimContext, index: usize, thread: usize) {
        poll(&mut actors[index], sim, thread, false);
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        let SleepActor { id, sleep, recording_waker, .. } = self;
        sim.ready.remove(&id);
        if sim.model.is_pending(id) {
            sim.model.cancelled(id);
        }
        sim.model.forget(id);
        if sim.planted == Some(PlantedFault::P7) {
            return std::mem::forget(sleep);
        }
        let watch = recording_waker.as_ref().map(Arc::downgrade);
        drop(recording_waker);
        sim.threads.on(thread, || drop(sleep));
        let kept = watch.map_or(0, |watch| watch.strong_count());
        sim.model.expect_eq("P7", "wakers that the engine kept of a dropped sleep", kept, 0);
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<SleepActor>, sim: &mut SimContext, op: SleepOp) {
    if let SleepOp::New { thread, after, slack, tried, behavior } = op {
        if actors.len() < MOST {
            actors.extend(create(sim, thread, after, slack, tried, behavior));
            if let Some(actor) = actors.last_mut()
                && !tried
            {
                poll(actor, sim, thread, false);
            }
        }
        return;
    }
    let Some(index) = which(op).checked_rem(actors.len()) else { return };
    let actor = &mut actors[index];
    match op {
        SleepOp::New { .. } => {}
        SleepOp::Poll { thread, fresh, .. } => poll(actor, sim, thread, fresh),
        SleepOp::Reset { thread, after, .. } => {
            let deadline = sim.due_after(after);
            let shortened = sim.due_after(PlantedFault::shorten(sim.planted, after));
            reset(actor, sim, thread, deadline, shortened);
        }
        SleepOp::ResetBack { thread, before, .. } => {
            let deadline = engine_time(sim.now().saturating_sub(before));
            reset(actor, sim, thread, deadline, deadline);
        }
        SleepOp::Disarm { thread, .. } => {
            sim.threads.on(thread, || actor.sleep.as_mut().disarm());
            actor.is_held = true;
            note_deadline(actor, sim, thread, NEVER);
        }
        SleepOp::Arm { thread, .. } => {
            sim.threads.on(thread, || actor.sleep.as_mut().arm());
            // A deadline of never is the same whether it is disarmed or not.
            if std::mem::take(&mut actor.is_held) && actor.deadline != NEVER {
                note_deadline(actor, sim, thread, actor.deadline);
            }
        }
        SleepOp::Drop { thread, .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(sim, thread);
        }
    }
}

/// Compares the outcome of every sleep.
pub fn observe(actors: &mut [SleepActor], sim: &mut SimContext) {
    for actor in actors {
        let before = sim.model.get(actor.id).map(|item| (item.state, item.signals));
        match (actor.sleep.outcome(), before) {
            (Some(outcome), Some((ModelState::Pending, signals))) => {
                sim.model.ended(actor.id, outcome);
                // A sleep that waited may also have been woken for a slot, and not polled since.
                let most = if sim.has_exact_wakes() { 1 } else { 2 };
                if actor.is_watched && !(1..=most).contains(&signals) {
                    sim.model.violate("P4", format!("sleep {} ended, and was woken {signals} times", actor.id));
                }
            }
            (Some(outcome), Some((ModelState::Ended(before), _))) => {
                sim.model.expect_eq("P2", "the outcome of a sleep", outcome, before);
            }
            (Some(_), Some((ModelState::Idle, _))) => {
                sim.model.violate("P2", format!("sleep {} ended without being armed", actor.id));
            }
            // The sleep waited for a slot, and the shutdown woke it.
            (None, Some((_, 1..))) if sim.model.closed && !sim.has_exact_wakes() => {}
            (None, _) => sim.model.still_pending(actor.id),
            _ => {}
        }
    }
}

/// Returns how many of them the engine holds armed.
#[must_use]
pub fn armed(actors: &[SleepActor], sim: &SimContext) -> usize {
    actors.iter().filter(|actor| sim.is_armed(actor.id)).count()
}

fn create(
    sim: &mut SimContext,
    thread: usize,
    after: Duration,
    slack: Option<SlackChoice>,
    tried: bool,
    behavior: Behavior,
) -> Option<SleepActor> {
    let deadline = sim.due_after(after);
    let engine = sim.engine.clone();
    let shortened = PlantedFault::shorten(sim.planted, after);
    let with_slack = |sleep: Sleep| if let Some(slack) = slack { sleep.slack(slack.slack()) } else { sleep };
    let (made, is_armed) = if tried {
        sim.try_arm(thread, || engine.try_sleep(shortened))
    } else {
        (Ok(sim.threads.on(thread, || engine.sleep(shortened))), false)
    };
    let made = made.map(|sleep| sim.threads.on(thread, || Box::pin(with_slack(sleep))));
    let sleep = match made {
        Ok(sleep) => sleep,
        Err(ArmError::Stopped) => {
            sim.model.expect_eq("P6", "arming is refused only after a shutdown", sim.model.closed, true);
            return None;
        }
        Err(ArmError::Full { capacity }) => {
            sim.model.expect_eq("P7", "the capacity", Some(capacity), sim.setup.capacity);
            sim.totals.fault("refused at capacity", 1);
            return None;
        }
        Err(_) => return None,
    };
    if tried {
        sim.model.expect_eq("P6", "a sleep is armed after a shutdown", sim.model.closed, false);
    }
    let id = sim.model.add("sleep", ObservedBy::Asking);
    let its = slack.unwrap_or(sim.setup.slack);
    sim.model.set(id, deadline, its.grid());
    // One that has ended at once becomes idle when it gets another slack.
    if tried && (slack.is_none() || is_armed) {
        let position = sim.next_position(thread, its.is_strict());
        sim.model.set_pending(id, position);
        if is_armed {
            sim.model.armed(id);
        }
    }
    Some(SleepActor {
        id,
        sleep,
        recording_waker: None,
        is_watched: false,
        behavior,
        slack: its,
        deadline,
        is_held: false,
    })
}

fn poll(actor: &mut SleepActor, sim: &mut SimContext, thread: usize, fresh: bool) {
    sim.ready.remove(&actor.id);
    if fresh || actor.recording_waker.is_none() {
        actor.recording_waker = Some(sim.recorder.recording_waker(actor.id, actor.behavior));
    }
    let Some(waker) = actor.recording_waker.clone().map(Waker::from) else { return };
    let before = sim.model.get(actor.id).map(|item| item.state);
    let is_first = !actor.is_watched;
    let poll = sim.poll(actor.id, thread, || actor.sleep.as_mut().poll(&mut Context::from_waker(&waker)));
    let outcome = actor.sleep.outcome();
    sim.model.expect_eq("P2", "a sleep is ready when it has ended", poll.is_ready(), outcome.is_some());
    match (outcome, before) {
        (None, Some(ModelState::Idle)) => {
            let deadline = if actor.is_held { NEVER } else { actor.deadline };
            if deadline <= sim.now() {
                sim.model.violate("P4", format!("sleep {} was past its deadline and was armed", actor.id));
            }
            let position = sim.next_position(thread, actor.slack.is_strict());
            sim.model.set_pending(actor.id, position);
            actor.is_watched = true;
        }
        (None, Some(ModelState::Pending)) => {
            sim.model.still_pending(actor.id);
            if fresh || is_first {
                sim.change_waker(actor.id, thread);
            }
            actor.is_watched = true;
        }
        (None, _) => sim.model.still_pending(actor.id),
        (Some(outcome), Some(ModelState::Ended(before))) => sim.model.expect_eq("P2", "an outcome", outcome, before),
        (Some(outcome), _) => sim.model.ended(actor.id, outcome),
    }
    debug_assert!(!matches!(outcome, Some(Outcome::Cancelled)) || matches!(poll, Poll::Pending));
}

fn reset(actor: &mut SleepActor, sim: &mut SimContext, thread: usize, deadline: u64, shortened: u64) {
    let instant = sim.instant_of(shortened);
    sim.threads.on(thread, || actor.sleep.as_mut().reset(instant));
    (actor.deadline, actor.is_held) = (deadline, false);
    note_deadline(actor, sim, thread, deadline);
}

/// Notes that the sleep has another deadline.
fn note_deadline(actor: &mut SleepActor, sim: &mut SimContext, thread: usize, deadline: u64) {
    sim.reset(actor.id, thread, deadline, actor.slack.grid());
    if sim.model.get(actor.id).is_some_and(|item| matches!(item.state, ModelState::Ended(_))) {
        sim.model.set_idle(actor.id);
        actor.is_watched = false;
    }
}

fn which(op: SleepOp) -> usize {
    match op {
        SleepOp::New { .. } => 0,
        SleepOp::Poll { which, .. }
        | SleepOp::Reset { which, .. }
        | SleepOp::ResetBack { which, .. }
        | SleepOp::Disarm { which, .. }
        | SleepOp::Arm { which, .. }
        | SleepOp::Drop { which, .. } => which,
    }
}
