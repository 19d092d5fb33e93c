//! Timer objects: an expiry, and waits that are futures or callbacks, which may use their own timer.

mod callback_actions;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::timer::{Timer, Wait, WaitHandle};

use self::callback_actions::{PlannedTimerAction, TimerAccess};
pub use self::callback_actions::{TimerAction, on_action};
use super::{MOST, callback_behavior, poll_wait, waker_behavior};
use crate::context::SimContext;
use crate::plan::{SimSetup, after};
use crate::planted_fault::PlantedFault;
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id, lock};
use crate::timer_model::{ModelState, ObservedBy};

/// An operation on a timer.
#[derive(Clone, Copy, Debug)]
pub enum TimerOp {
    /// Creates a timer.
    New,
    /// Sets the timer, which cancels its waits.
    Set { which: usize, thread: usize, after: Duration },
    /// Begins a wait with a callback, which may act on its own timer.
    Call { which: usize, thread: usize, behavior: Behavior, action: Option<TimerAction> },
    /// Begins a wait as a future.
    Wait { which: usize, thread: usize, behavior: Behavior },
    /// Cancels all waits.
    Cancel { which: usize, thread: usize },
    /// Cancels the oldest wait.
    CancelOne { which: usize, thread: usize },
    /// Cancels one wait, by its handle or by dropping the future.
    CancelThis { which: usize, thread: usize, wait: usize },
    /// Drops the timer.
    Drop { which: usize, thread: usize },
}

/// A timer and what is expected of it.
pub struct TimerActor {
    access: TimerAccess,
    /// `None` if it was never set, which counts as expired.
    expiry: Option<u64>,
    waits: Vec<TimerWait>,
    /// Planned actions of callbacks, by the ids of their waits.
    actions: BTreeMap<Id, PlannedTimerAction>,
}

/// Empty while the wait is being created.
type SharedWaitHandle = Arc<OnceLock<WaitHandle>>;

struct TimerWait {
    id: Id,
    way: TimerWaitKind,
}

enum TimerWaitKind {
    Future(Pin<Box<Wait>>, Waker, Behavior),
    Call(SharedWaitHandle),
}

impl TimerOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> TimerOp {
        let (which, thread, wait) = (random.index(4), random.index(setup.threads), random.index(MOST));
        match random.below(20) {
            0 => TimerOp::New,
            1..5 => TimerOp::Set { which, thread, after: after(random, setup) },
            5..10 => {
                let after = after(random, setup);
                let action = TimerAction::random(random, after);
                let action = (setup.has_callback_actions && random.one_in(3)).then_some(action);
                TimerOp::Call { which, thread, behavior: callback_behavior(random), action }
            }
            10..14 => TimerOp::Wait { which, thread, behavior: waker_behavior(random, setup) },
            14 => TimerOp::Cancel { which, thread },
            15..17 => TimerOp::CancelOne { which, thread },
            17..19 => TimerOp::CancelThis { which, thread, wait },
            _ => TimerOp::Drop { which, thread },
        }
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<TimerActor>, sim: &mut SimContext, op: TimerOp) {
    let (which, thread) = match op {
        TimerOp::New => (usize::MAX, 0),
        TimerOp::Set { which, thread, .. }
        | TimerOp::Call { which, thread, .. }
        | TimerOp::Wait { which, thread, .. }
        | TimerOp::Cancel { which, thread }
        | TimerOp::CancelOne { which, thread }
        | TimerOp::CancelThis { which, thread, .. }
        | TimerOp::Drop { which, thread } => (which, thread),
    };
    if actors.is_empty() || (which == usize::MAX && actors.len() < 4) {
        actors.push(TimerActor::new(sim));
    }
    let index = which % actors.len();
    let actor = &mut actors[index];
    let Some(timer) = actor.timer() else { return };
    let pending = actor.waits.iter().filter(|wait| is_pending(wait, sim)).count();
    match op {
        TimerOp::New => {}
        TimerOp::Set { after, .. } => {
            let given = PlantedFault::shorten(sim.planted, after);
            let count = sim.threads.on(thread, || timer.expires_after(given));
            sim.model.expect_eq("P2", "waits that setting a timer cancelled", count, pending);
            actor.expiry = Some(sim.due_after(after));
            cancel_first(actor, sim, usize::MAX);
        }
        TimerOp::Call { behavior, action, .. } => call(actor, sim, thread, behavior, action),
        TimerOp::Wait { behavior, .. } => wait(actor, sim, thread, behavior),
        TimerOp::Cancel { .. } => {
            let count = sim.threads.on(thread, || timer.cancel());
            sim.model.expect_eq("P2", "waits that were cancelled", count, pending);
            cancel_first(actor, sim, usize::MAX);
        }
        TimerOp::CancelOne { .. } => {
            let was_one = sim.threads.on(thread, || timer.cancel_one());
            sim.model.expect_eq("P2", "whether a wait was cancelled", was_one, pending > 0);
            cancel_first(actor, sim, 1);
        }
        TimerOp::CancelThis { wait, .. } => cancel_this(actor, sim, thread, wait),
        TimerOp::Drop { .. } => {
            drop(timer);
            let actor = actors.swap_remove(index);
            let timer = lock(&actor.access.slot).take();
            drop_one(actor, timer, sim, thread);
        }
    }
}

/// Polls the wait that was woken.
pub fn wake(actors: &mut [TimerActor], sim: &mut SimContext, id: Id, thread: usize) -> bool {
    for actor in actors {
        let found = actor.waits.iter().position(|wait| wait.id == id);
        if let Some(index) = found {
            poll(actor, sim, index, thread);
            return true;
        }
    }
    false
}

/// Compares which callbacks are pending, and forgets those that have been called.
pub fn observe(actors: &mut Vec<TimerActor>, sim: &mut SimContext) {
    let dropped: Vec<TimerActor> = actors.extract_if(.., |actor| actor.timer().is_none()).collect();
    dropped.into_iter().for_each(|actor| drop_one(actor, None, sim, 0));
    for actor in actors {
        look(actor, sim);
        actor.waits.retain(|wait| {
            let is_told = sim.model.get(wait.id).is_none_or(|item| item.signals > 0);
            let is_over = is_told && matches!(wait.way, TimerWaitKind::Call(_));
            if is_over {
                sim.model.forget(wait.id);
            }
            !is_over
        });
        lock(&actor.access.calls).retain(|(id, _)| sim.model.get(*id).is_some());
    }
}

/// Drops all timers.
pub fn finish(actors: &mut Vec<TimerActor>, sim: &mut SimContext) {
    // A callback that is called during the drops finds no timer.
    let timers: Vec<_> = actors.iter().map(|actor| lock(&actor.access.slot).take()).collect();
    for (thread, (actor, timer)) in actors.drain(..).zip(timers).enumerate() {
        drop_one(actor, timer, sim, thread);
    }
}

/// Compares whether the waits of callbacks are pending.
fn look(actor: &TimerActor, sim: &mut SimContext) {
    for TimerWait { id, way } in &actor.waits {
        let (TimerWaitKind::Call(handle), Some(item)) = (way, sim.model.get(*id)) else { continue };
        let state = item.state;
        let is_pending = handle.get().is_some_and(WaitHandle::is_pending);
        match state {
            ModelState::Pending if is_pending => sim.model.still_pending(*id),
            // It has ended, and its callback is queued. After a shutdown the callback reports how it ended.
            ModelState::Pending if !sim.model.closed => sim.model.ended(*id, Outcome::Fired),
            ModelState::Ended(_) => {
                sim.model.expect_eq("P2", "whether a wait that has ended is pending", is_pending, false);
            }
            _ => {}
        }
    }
}

fn begin(actor: &TimerActor, sim: &mut SimContext, surface: &'static str, observed_by: ObservedBy) -> Id {
    let id = sim.model.add(surface, observed_by);
    sim.model.set(id, actor.expiry.unwrap_or(0), sim.setup.slack.grid());
    sim.model.set_pending(id, None);
    id
}

fn call(actor: &mut TimerActor, sim: &mut SimContext, thread: usize, behavior: Behavior, action: Option<TimerAction>) {
    let Some(timer) = actor.timer() else { return };
    if actor.waits.len() >= MOST / 2 {
        return;
    }
    // A waker that turns the engine during a cancel would run callbacks before the cancel has reported all waits.
    let action = action.filter(|_| !actor.turns());
    let id = begin(actor, sim, "callback", ObservedBy::Calling);
    let handle = SharedWaitHandle::default();
    let action = action.map(|action| {
        let (planned, act) = action.plan(sim, &actor.access, &handle);
        actor.actions.insert(id, planned);
        act
    });
    let callback = sim.recorder.callback(id, behavior, action);
    lock(&actor.access.calls).push((id, Arc::clone(&handle)));
    let made = sim.threads.on(thread, || timer.on_expiry(callback));
    let _first = handle.set(made);
    actor.waits.push(TimerWait { id, way: TimerWaitKind::Call(handle) });
}

fn wait(actor: &mut TimerActor, sim: &mut SimContext, thread: usize, behavior: Behavior) {
    if actor.waits.len() >= MOST / 2 {
        return;
    }
    let behavior =
        if behavior == Behavior::TurnsEngine && !actor.actions.is_empty() { Behavior::Normal } else { behavior };
    let id = begin(actor, sim, "wait", ObservedBy::Waking);
    let waker = sim.waker(id, behavior);
    let Some(timer) = actor.timer() else { return };
    let wait = sim.threads.on(thread, || Box::pin(timer.wait()));
    actor.waits.push(TimerWait { id, way: TimerWaitKind::Future(wait, waker, behavior) });
    poll(actor, sim, actor.waits.len() - 1, thread);
}

fn poll(actor: &mut TimerActor, sim: &mut SimContext, index: usize, thread: usize) {
    let TimerWait { id, way: TimerWaitKind::Future(wait, waker, _) } = &mut actor.waits[index] else { return };
    let id = *id;
    if poll_wait(sim, thread, id, "wait", wait.as_mut(), waker).is_pending() {
        return;
    }
    let ended = actor.waits.remove(index);
    sim.threads.on(thread, || drop(ended));
}

fn cancel_this(actor: &mut TimerActor, sim: &mut SimContext, thread: usize, wait: usize) {
    let Some(index) = wait.checked_rem(actor.waits.len()) else { return };
    let is_pending = is_pending(&actor.waits[index], sim);
    let id = actor.waits[index].id;
    if let TimerWaitKind::Call(handle) = &actor.waits[index].way {
        let was_pending = sim.threads.on(thread, || handle.get().is_some_and(WaitHandle::cancel));
        sim.model.expect_eq("P2", "whether this wait was cancelled", was_pending, is_pending);
        if is_pending {
            sim.model.cancelled(id);
        }
        return;
    }
    let dropped = actor.waits.remove(index);
    sim.ready.remove(&id);
    sim.model.forget(id);
    sim.threads.on(thread, || drop(dropped));
}

/// Informs the model that the oldest `most` waits were cancelled.
fn cancel_first(actor: &TimerActor, sim: &mut SimContext, most: usize) {
    let pending: Vec<Id> = actor.waits.iter().filter(|wait| is_pending(wait, sim)).map(|wait| wait.id).collect();
    pending.into_iter().take(most).for_each(|id| sim.model.cancelled(id));
}

/// Returns whether a wait has not ended; a future that has ended was woken.
fn is_pending(wait: &TimerWait, sim: &SimContext) -> bool {
    sim.model.get(wait.id).is_some_and(|item| item.state == ModelState::Pending && item.signals == 0)
}

fn drop_one(actor: TimerActor, timer: Option<Arc<Timer>>, sim: &mut SimContext, thread: usize) {
    // A timer that was dropped before may have left a slot to this one, which then found that it was late.
    look(&actor, sim);
    cancel_first(&actor, sim, usize::MAX);
    let TimerActor { waits, .. } = actor;
    sim.threads.on(thread, || drop(timer));
    for TimerWait { id, way } in waits {
        match way {
            // The model keeps it until its callback has been called.
            TimerWaitKind::Call(_) => {}
            TimerWaitKind::Future(mut wait, waker, _) => {
                let polled = sim.threads.on(thread, || wait.as_mut().poll(&mut Context::from_waker(&waker)));
                sim.model.expect_eq("P2", "a wait is ready after its timer was dropped", polled.is_ready(), true);
                sim.ready.remove(&id);
                sim.model.forget(id);
            }
        }
    }
}

impl TimerActor {
    fn new(sim: &SimContext) -> TimerActor {
        let slot = Arc::new(Mutex::new(Some(Arc::new(Timer::on(&sim.engine)))));
        let access = TimerAccess { slot, calls: Arc::default() };
        TimerActor { access, expiry: None, waits: Vec::new(), actions: BTreeMap::new() }
    }

    /// Returns whether a task that waits for this timer turns the engine when it is woken.
    fn turns(&self) -> bool {
        self.waits.iter().any(|wait| matches!(wait.way, TimerWaitKind::Future(_, _, Behavior::TurnsEngine)))
    }

    /// Returns the timer, unless a callback has dropped it.
    fn timer(&self) -> Option<Arc<Timer>> {
        lock(&self.access.slot).clone()
    }
}
