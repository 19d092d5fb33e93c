//! Named timers that are created, started, cancelled by name and stopped, and callbacks that use their own group.

mod callback_actions;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::named::{NamedTimer, NamedTimers, NamedWait};

use self::callback_actions::PlannedNamedAction;
pub use self::callback_actions::{NamedAction, on_action};
use super::{MOST, callback_behavior, poll_wait};
use crate::context::SimContext;
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id, lock};
use crate::timer_model::{ModelState, ObservedBy};

/// An operation on named timers.
#[derive(Clone, Copy, Debug)]
pub enum NamedOp {
    /// Creates a timer without starting it.
    Create { thread: usize, name: usize },
    /// Starts a created timer with a callback.
    Start { thread: usize, which: usize, after: Duration, behavior: Behavior },
    /// Starts a created timer with a future.
    Wait { thread: usize, which: usize, after: Duration },
    /// Creates and starts a timer, whose callback may act on its group.
    Begin {
        thread: usize,
        name: usize,
        after: Duration,
        behavior: Behavior,
        action: Option<NamedAction>,
        kind: NamedStart,
    },
    /// Starts `count` timers of one name, more than end in one batch.
    StartMany { thread: usize, name: usize, count: usize, after: Duration },
    /// Cancels up to `most` timers of a name.
    Cancel { thread: usize, name: usize, most: usize },
    /// Gives the started timers of a name another deadline.
    Renew { thread: usize, name: usize, after: Duration },
    /// Drops a created timer or a future.
    Drop { thread: usize, which: usize },
    /// Stops the group, which ends all its timers. A second stop replaces the group.
    Stop { thread: usize },
}

/// How a timer is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedStart {
    /// Whatever timers its name has.
    Plain,
    /// In the place of all timers of its name.
    Restart,
    /// If its name has fewer timers than this.
    IfFewer(usize),
}

/// A group of named timers and what is expected of it.
pub struct NamedActor {
    /// Callbacks may drop the handle.
    slot: SharedNamedTimers,
    list: Vec<NamedEntry>,
    is_stopped: bool,
    /// Number of timers that were started.
    started: u64,
    /// Planned actions of callbacks, by the ids of their timers.
    actions: BTreeMap<Id, PlannedNamedAction>,
}

type SharedNamedTimers = Arc<Mutex<Option<NamedTimers>>>;

struct NamedEntry {
    /// Id in the model, once it is started.
    id: Id,
    name: usize,
    way: NamedWaitKind,
    /// Rank in the order of starting.
    started: u64,
}

enum NamedWaitKind {
    Created { timer: NamedTimer, is_cancelled: bool },
    Call,
    Future(Pin<Box<NamedWait>>, Waker),
}

const NAMES: [&str; 4] = ["", "a", "b", "a name that is a little longer than others are"];

impl NamedStart {
    /// Returns a way that varies with the duration. It takes nothing from the source of random numbers, so that the worlds of seeds
    /// that are known stay as they are.
    fn varied(after: Duration) -> NamedStart {
        match one_of_eight(after) {
            0 | 1 => NamedStart::Restart,
            2 => NamedStart::IfFewer(1),
            3 => NamedStart::IfFewer(3),
            _ => NamedStart::Plain,
        }
    }
}

/// Returns a number below 8 that varies with the duration.
fn one_of_eight(after: Duration) -> u64 {
    (after.as_nanos() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61
}

impl NamedOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> NamedOp {
        let (thread, name) = (random.index(setup.threads), random.index(NAMES.len()));
        let (which, after) = (random.index(MOST), after(random, setup));
        match random.below(28) {
            0..5 => NamedOp::Create { thread, name },
            5..9 => NamedOp::Start { thread, which, after, behavior: callback_behavior(random) },
            9..13 => NamedOp::Wait { thread, which, after },
            13..20 => {
                let action = NamedAction::random(random, name, after);
                let action = (setup.has_callback_actions && random.one_in(3)).then_some(action);
                let kind = NamedStart::varied(after);
                NamedOp::Begin { thread, name, after, behavior: callback_behavior(random), action, kind }
            }
            20 if random.one_in(16) => NamedOp::StartMany { thread, name, count: 257 + random.index(300), after },
            20..24 => {
                let most = random.one_of(&[usize::MAX, 0, 1, 2, 300]);
                // By the duration, as above.
                match one_of_eight(after) {
                    0..4 => NamedOp::Renew { thread, name, after },
                    _ => NamedOp::Cancel { thread, name, most },
                }
            }
            24..27 => NamedOp::Drop { thread, which },
            _ => NamedOp::Stop { thread },
        }
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<NamedActor>, sim: &mut SimContext, op: NamedOp) {
    if actors.is_empty() {
        let slot = Arc::new(Mutex::new(Some(NamedTimers::on(&sim.engine))));
        actors.push(NamedActor { slot, list: Vec::new(), is_stopped: false, started: 0, actions: BTreeMap::new() });
    }
    let actor = &mut actors[0];
    let Some(timers) = actor.timers() else { return };
    let has_room = actor.list.len() < MOST;
    match op {
        NamedOp::Create { thread, name } if has_room => {
            let timer = sim.threads.on(thread, || timers.create(NAMES[name]));
            let is_refused = actor.is_stopped || sim.model.closed;
            if !is_refused {
                actor.list.push(NamedEntry {
                    id: 0,
                    name,
                    way: NamedWaitKind::Created { timer, is_cancelled: false },
                    started: 0,
                });
            }
        }
        NamedOp::Begin { .. } if has_room => begin(actor, sim, &timers, op),
        NamedOp::StartMany { thread, name, count, after } if has_room => {
            let kind = NamedStart::Plain;
            let one = NamedOp::Begin { thread, name, after, behavior: Behavior::Normal, action: None, kind };
            (0..count).for_each(|_| begin(actor, sim, &timers, one));
        }
        NamedOp::Start { thread, which, after, behavior } => start(actor, sim, thread, which, after, Some(behavior)),
        NamedOp::Wait { thread, which, after } => start(actor, sim, thread, which, after, None),
        NamedOp::Cancel { thread, name, most } => cancel(actor, sim, &timers, (thread, name, most)),
        NamedOp::Renew { thread, name, after } => renew(actor, sim, &timers, (thread, name, after)),
        NamedOp::Drop { thread, which } => drop_one(actor, sim, thread, which),
        NamedOp::Stop { thread } => stop(actors, sim, timers, thread),
        NamedOp::Create { .. } | NamedOp::Begin { .. } | NamedOp::StartMany { .. } => {}
    }
}

/// Polls the wait that was woken.
pub fn wake(actors: &mut [NamedActor], sim: &mut SimContext, id: Id, thread: usize) -> bool {
    for actor in actors {
        let found = actor.list.iter().position(|one| one.id == id && matches!(one.way, NamedWaitKind::Future(..)));
        if let Some(index) = found {
            poll(actor, sim, index, thread);
            return true;
        }
    }
    false
}

/// Finds out which timers have ended, and compares their number.
///
/// The group ends all timers that are due together, so either all that are due now have ended, or none.
pub fn observe(actors: &mut Vec<NamedActor>, sim: &mut SimContext) {
    let dropped: Vec<NamedActor> = actors.extract_if(.., |actor| actor.timers().is_none()).collect();
    dropped.into_iter().for_each(|actor| end_group(actor, sim, 0));
    for actor in actors {
        let Some(timers) = actor.timers() else { continue };
        actor.list.retain(|one| {
            let is_called = sim.model.get(one.id).is_some_and(|item| item.signals > 0);
            if is_called && matches!(one.way, NamedWaitKind::Call) {
                sim.model.forget(one.id);
            }
            !(is_called && matches!(one.way, NamedWaitKind::Call))
        });
        let all = actor.list.iter().filter(|one| is_counted(one, sim)).count();
        if timers.len() == all {
            continue;
        }
        let (now, closed) = (sim.now(), sim.model.closed);
        let due = |id: Id| sim.model.get(id).is_some_and(|item| item.deadline <= now || closed);
        let ended: Vec<Id> = actor
            .list
            .iter()
            .filter(|one| is_counted(one, sim) && is_started(one) && due(one.id))
            .map(|one| one.id)
            .collect();
        sim.model.expect_eq("P2", "named timers", timers.len(), all - ended.len());
        if !closed {
            ended.into_iter().for_each(|id| sim.model.ended(id, Outcome::Fired));
        }
    }
}

/// Drops all groups.
pub fn finish(actors: &mut Vec<NamedActor>, sim: &mut SimContext) {
    for actor in actors.drain(..) {
        end_group(actor, sim, 0);
    }
}

fn begin(actor: &mut NamedActor, sim: &mut SimContext, timers: &NamedTimers, op: NamedOp) {
    let NamedOp::Begin { thread, name, after, behavior, action, kind } = op else { return };
    let is_refused = actor.is_stopped || sim.model.closed;
    let there = actor.counted(sim, name);
    let is_started = !is_refused && !matches!(kind, NamedStart::IfFewer(limit) if there.len() >= limit);
    let id = add(sim, "named callback", ObservedBy::Calling, after);
    // A refused callback is dropped by the caller of `start`, so it must not misbehave.
    let behavior = if is_started { behavior } else { Behavior::Normal };
    let action = action.filter(|_| is_started).map(|action| {
        let (planned, act) = action.plan(sim, &actor.slot);
        actor.actions.insert(id, planned);
        act
    });
    let callback = sim.recorder.callback(id, behavior, action);
    let (started, cancels) = sim.threads.on(thread, || match kind {
        NamedStart::Plain => (timers.start(NAMES[name], after, callback).is_ok(), None),
        NamedStart::Restart => {
            let restarted = timers.restart(NAMES[name], after, callback).ok();
            (restarted.is_some(), restarted)
        }
        NamedStart::IfFewer(limit) => {
            (timers.start_if_fewer(NAMES[name], limit, after, callback).unwrap_or(false), None)
        }
    });
    sim.model.expect_eq("P6", "whether a named timer was started", started, is_started);
    if let Some(count) = cancels {
        sim.model.expect_eq("P2", "named timers that a restart cancelled", count, there.len());
        there.into_iter().for_each(|index| cancelled(&mut actor.list[index], sim));
    }
    if started {
        actor.start(NamedEntry { id, name, way: NamedWaitKind::Call, started: 0 });
    } else {
        sim.model.forget(id);
    }
}

fn start(
    actor: &mut NamedActor,
    sim: &mut SimContext,
    thread: usize,
    which: usize,
    after: Duration,
    behavior: Option<Behavior>,
) {
    let Some(index) = which.checked_rem(actor.list.len()) else { return };
    if !matches!(actor.list[index].way, NamedWaitKind::Created { .. }) {
        return;
    }
    let one = actor.list.remove(index);
    let NamedWaitKind::Created { timer, is_cancelled } = one.way else { return };
    let is_refused = !is_cancelled && (actor.is_stopped || sim.model.closed);
    let (surface, observed_by) =
        if behavior.is_some() { ("named callback", ObservedBy::Calling) } else { ("named wait", ObservedBy::Waking) };
    let id = add(sim, surface, observed_by, after);
    if is_cancelled {
        sim.model.cancelled(id);
    }
    let started = match behavior {
        Some(behavior) => {
            let callback = sim.recorder.callback(id, if is_refused { Behavior::Normal } else { behavior }, None);
            sim.threads.on(thread, || timer.start(after, callback)).map(|()| NamedWaitKind::Call)
        }
        None => {
            let waker = sim.waker(id, Behavior::Normal);
            sim.threads.on(thread, || timer.wait(after)).map(|wait| NamedWaitKind::Future(Box::pin(wait), waker))
        }
    };
    sim.model.expect_eq("P6", "whether a named timer was started", started.is_ok(), !is_refused);
    match started {
        Ok(way) => {
            // A cancel takes the oldest timers of a name first, by when they were created.
            actor.started += 1;
            actor.list.insert(index, NamedEntry { id, name: one.name, way, started: actor.started });
            if matches!(actor.list[index].way, NamedWaitKind::Future(..)) {
                poll(actor, sim, index, thread);
            }
        }
        Err(_) => sim.model.forget(id),
    }
}

fn cancel(actor: &mut NamedActor, sim: &mut SimContext, timers: &NamedTimers, op: (usize, usize, usize)) {
    let (thread, name, most) = op;
    let there = actor.counted(sim, name);
    let seen = timers.count(NAMES[name]);
    sim.model.expect_eq("P2", "timers of a name", seen, there.len());
    let count = sim.threads.on(thread, || timers.cancel_up_to(NAMES[name], most));
    sim.model.expect_eq("P2", "named timers that were cancelled", count, there.len().min(most));
    there.into_iter().take(most).for_each(|index| cancelled(&mut actor.list[index], sim));
}

fn renew(actor: &NamedActor, sim: &mut SimContext, timers: &NamedTimers, op: (usize, usize, Duration)) {
    let (thread, name, after) = op;
    let there: Vec<Id> = actor
        .counted(sim, name)
        .iter()
        .map(|index| &actor.list[*index])
        .filter(|one| is_started(one))
        .map(|one| one.id)
        .collect();
    let count = sim.threads.on(thread, || timers.renew(NAMES[name], after));
    sim.model.expect_eq("P2", "named timers that were renewed", count, there.len());
    let (due, grid) = (sim.due_after(after), sim.setup.slack.grid());
    there.into_iter().for_each(|id| sim.model.set(id, due, grid));
}

fn cancelled(one: &mut NamedEntry, sim: &mut SimContext) {
    match &mut one.way {
        NamedWaitKind::Created { is_cancelled, .. } => *is_cancelled = true,
        _ => sim.model.cancelled(one.id),
    }
}

fn drop_one(actor: &mut NamedActor, sim: &mut SimContext, thread: usize, which: usize) {
    let Some(index) = which.checked_rem(actor.list.len()) else { return };
    match &actor.list[index].way {
        NamedWaitKind::Call => {}
        NamedWaitKind::Created { .. } => {
            let one = actor.list.remove(index);
            sim.threads.on(thread, || drop(one));
        }
        NamedWaitKind::Future(..) => {
            let one = actor.list.remove(index);
            sim.ready.remove(&one.id);
            sim.model.forget(one.id);
            sim.threads.on(thread, || drop(one));
        }
    }
}

fn stop(actors: &mut Vec<NamedActor>, sim: &mut SimContext, timers: NamedTimers, thread: usize) {
    let actor = &mut actors[0];
    let pending = actor.list.iter().filter(|one| is_counted(one, sim) && is_started(one)).count();
    let count = sim.threads.on(thread, || timers.shutdown());
    drop(timers);
    let expected = if actor.is_stopped || sim.model.closed { 0 } else { pending };
    sim.model.expect_eq("P2", "named timers that were stopped", count, expected);
    if actor.is_stopped {
        let actor = actors.swap_remove(0);
        return end_group(actor, sim, thread);
    }
    actor.is_stopped = true;
    let stopped: Vec<Id> =
        actor.list.iter().filter(|one| is_counted(one, sim) && is_started(one)).map(|one| one.id).collect();
    stopped.into_iter().for_each(|id| sim.model.stopped_by_user(id));
}

fn add(sim: &mut SimContext, surface: &'static str, observed_by: ObservedBy, after: Duration) -> Id {
    let id = sim.model.add(surface, observed_by);
    sim.model.set(id, sim.due_after(after), sim.setup.slack.grid());
    sim.model.set_pending(id, None);
    id
}

fn poll(actor: &mut NamedActor, sim: &mut SimContext, index: usize, thread: usize) {
    let NamedEntry { id, way: NamedWaitKind::Future(wait, waker), .. } = &mut actor.list[index] else { return };
    let id = *id;
    if poll_wait(sim, thread, id, "named wait", wait.as_mut(), waker).is_pending() {
        return;
    }
    let ended = actor.list.remove(index);
    sim.threads.on(thread, || drop(ended));
}

/// Returns whether the group counts the timer.
fn is_counted(one: &NamedEntry, sim: &SimContext) -> bool {
    match &one.way {
        NamedWaitKind::Created { is_cancelled, .. } => !is_cancelled,
        _ => sim.model.get(one.id).is_some_and(|item| item.state == ModelState::Pending && item.signals == 0),
    }
}

fn is_started(one: &NamedEntry) -> bool {
    !matches!(one.way, NamedWaitKind::Created { .. })
}

/// Drops a group. Its last handle cancels everything that is started.
fn end_group(actor: NamedActor, sim: &mut SimContext, thread: usize) {
    let timers = lock(&actor.slot).take();
    let NamedActor { list, is_stopped, .. } = actor;
    for one in &list {
        if is_counted(one, sim) && is_started(one) && !is_stopped && !sim.model.closed {
            sim.model.cancelled(one.id);
        }
    }
    sim.threads.on(thread, || drop(timers));
    for mut one in list {
        if let NamedWaitKind::Future(wait, waker) = &mut one.way {
            let polled = sim.threads.on(thread, || wait.as_mut().poll(&mut Context::from_waker(waker)));
            sim.model.expect_eq("P2", "a named wait is ready after its group was dropped", polled.is_ready(), true);
            sim.ready.remove(&one.id);
            sim.model.forget(one.id);
        }
        sim.threads.on(thread, || drop(one));
    }
}

impl NamedActor {
    /// Adds a timer that was started.
    fn start(&mut self, one: NamedEntry) {
        self.started += 1;
        self.list.push(NamedEntry { started: self.started, ..one });
    }

    /// Returns the indices of the timers that the group counts under a name, the oldest first.
    fn counted(&self, sim: &SimContext, name: usize) -> Vec<usize> {
        let is_of = |one: &NamedEntry| one.name == name && is_counted(one, sim);
        (0..self.list.len()).filter(|index| is_of(&self.list[*index])).collect()
    }

    /// Returns the handle, unless a callback has dropped it.
    fn timers(&self) -> Option<NamedTimers> {
        lock(&self.slot).clone()
    }
}
