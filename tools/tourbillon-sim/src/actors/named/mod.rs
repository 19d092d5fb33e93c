//! Named timers: created, started, cancelled by name, stopped; and callbacks that use their own group.

mod deeds;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::named::{NamedTimer, NamedTimers, NamedWait};

use self::deeds::Planned;
pub use self::deeds::{Deed, did};
use super::{MOST, manner_of_callback, poll_wait};
use crate::hub::{Id, Manner, lock};
use crate::model::{SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::Stage;

/// What can be done with named timers.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// One is created, not started.
    Create { thread: usize, name: usize },
    /// One that is not started is, with a callback.
    Start { thread: usize, which: usize, after: Duration, manner: Manner },
    /// Or with a future.
    Wait { thread: usize, which: usize, after: Duration },
    /// One is created and started, whose callback may do something with its group.
    Begin { thread: usize, name: usize, after: Duration, manner: Manner, deed: Option<Deed> },
    /// So many are, under one name: more than are ended in one go.
    Crowd { thread: usize, name: usize, count: usize, after: Duration },
    /// Those of a name are cancelled, up to so many.
    Cancel { thread: usize, name: usize, most: usize },
    /// One that is not started, or a future, is dropped.
    Drop { thread: usize, which: usize },
    /// All end, and no more are taken. New ones take their place.
    Stop { thread: usize },
}

/// A group of named timers.
pub struct Actor {
    /// Callbacks may drop it.
    slot: Slot,
    list: Vec<One>,
    is_stopped: bool,
    /// How many were started.
    started: u64,
    /// What callbacks will do, by their timers.
    deeds: BTreeMap<Id, Planned>,
}

type Slot = Arc<Mutex<Option<NamedTimers>>>;

struct One {
    /// What the model knows it by, once it is started.
    id: Id,
    name: usize,
    way: Way,
    /// The how-manieth that was started it is.
    started: u64,
}

enum Way {
    Created { timer: NamedTimer, is_cancelled: bool },
    Call,
    Future(Pin<Box<NamedWait>>, Waker),
}

const NAMES: [&str; 4] = ["", "a", "b", "a name that is a little longer than others are"];

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (thread, name) = (random.index(setup.threads), random.index(NAMES.len()));
        let (which, after) = (random.index(MOST), after(random, setup));
        match random.below(28) {
            0..5 => Op::Create { thread, name },
            5..9 => Op::Start { thread, which, after, manner: manner_of_callback(random) },
            9..13 => Op::Wait { thread, which, after },
            13..20 => {
                let deed = Deed::random(random, name, after);
                let deed = (setup.has_deeds && random.one_in(3)).then_some(deed);
                Op::Begin { thread, name, after, manner: manner_of_callback(random), deed }
            }
            20 if random.one_in(16) => Op::Crowd { thread, name, count: 257 + random.index(300), after },
            20..24 => Op::Cancel { thread, name, most: random.one_of(&[usize::MAX, 0, 1, 2, 300]) },
            24..27 => Op::Drop { thread, which },
            _ => Op::Stop { thread },
        }
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    if actors.is_empty() {
        let slot = Arc::new(Mutex::new(Some(NamedTimers::on(&stage.engine))));
        actors.push(Actor { slot, list: Vec::new(), is_stopped: false, started: 0, deeds: BTreeMap::new() });
    }
    let actor = &mut actors[0];
    let Some(timers) = actor.timers() else { return };
    let has_room = actor.list.len() < MOST;
    match op {
        Op::Create { thread, name } if has_room => {
            let timer = stage.threads.on(thread, || timers.create(NAMES[name]));
            let is_refused = actor.is_stopped || stage.model.closed;
            if !is_refused {
                actor.list.push(One { id: 0, name, way: Way::Created { timer, is_cancelled: false }, started: 0 });
            }
        }
        Op::Begin { .. } if has_room => begin(actor, stage, &timers, op),
        Op::Crowd { thread, name, count, after } if has_room => {
            let one = Op::Begin { thread, name, after, manner: Manner::Good, deed: None };
            (0..count).for_each(|_| begin(actor, stage, &timers, one));
        }
        Op::Start { thread, which, after, manner } => start(actor, stage, thread, which, after, Some(manner)),
        Op::Wait { thread, which, after } => start(actor, stage, thread, which, after, None),
        Op::Cancel { thread, name, most } => cancel(actor, stage, &timers, (thread, name, most)),
        Op::Drop { thread, which } => drop_one(actor, stage, thread, which),
        Op::Stop { thread } => stop(actors, stage, timers, thread),
        Op::Create { .. } | Op::Begin { .. } | Op::Crowd { .. } => {}
    }
}

/// Polls the one that was woken.
pub fn wake(actors: &mut [Actor], stage: &mut Stage, id: Id, thread: usize) -> bool {
    for actor in actors {
        let found = actor.list.iter().position(|one| one.id == id && matches!(one.way, Way::Future(..)));
        if let Some(index) = found {
            poll(actor, stage, index, thread);
            return true;
        }
    }
    false
}

/// Finds out which have ended, and compares how many there are.
///
/// Whoever looks for what is due ends all of that: so either all that is due now has ended, or nothing has.
pub fn observe(actors: &mut Vec<Actor>, stage: &mut Stage) {
    let dropped: Vec<Actor> = actors.extract_if(.., |actor| actor.timers().is_none()).collect();
    dropped.into_iter().for_each(|actor| end_group(actor, stage, 0));
    for actor in actors {
        let Some(timers) = actor.timers() else { continue };
        actor.list.retain(|one| {
            let is_called = stage.model.get(one.id).is_some_and(|item| item.signals > 0);
            if is_called && matches!(one.way, Way::Call) {
                stage.model.forget(one.id);
            }
            !(is_called && matches!(one.way, Way::Call))
        });
        let all = actor.list.iter().filter(|one| is_there(one, stage)).count();
        if timers.len() == all {
            continue;
        }
        let (now, closed) = (stage.now(), stage.model.closed);
        let due = |id: Id| stage.model.get(id).is_some_and(|item| item.deadline <= now || closed);
        let ended: Vec<Id> = actor
            .list
            .iter()
            .filter(|one| is_there(one, stage) && is_started(one) && due(one.id))
            .map(|one| one.id)
            .collect();
        stage.model.same("P2", "named timers", timers.len(), all - ended.len());
        if !closed {
            ended.into_iter().for_each(|id| stage.model.end(id, Outcome::Fired));
        }
    }
}

/// Ends all of them.
pub fn finish(actors: &mut Vec<Actor>, stage: &mut Stage) {
    for actor in actors.drain(..) {
        end_group(actor, stage, 0);
    }
}

fn begin(actor: &mut Actor, stage: &mut Stage, timers: &NamedTimers, op: Op) {
    let Op::Begin { thread, name, after, manner, deed } = op else { return };
    let is_refused = actor.is_stopped || stage.model.closed;
    let id = add(stage, "named callback", SeenBy::Calling, after);
    // A callback that is refused is dropped by whoever wanted to start it.
    let manner = if is_refused { Manner::Good } else { manner };
    let deed = deed.filter(|_| !is_refused).map(|deed| {
        let (planned, act) = deed.plan(stage, &actor.slot);
        actor.deeds.insert(id, planned);
        act
    });
    let callback = stage.hub.callback(id, manner, deed);
    let started = stage.threads.on(thread, || timers.start(NAMES[name], after, callback).is_ok());
    stage.model.same("P6", "whether a named timer was started", started, !is_refused);
    if started {
        actor.start(One { id, name, way: Way::Call, started: 0 });
    } else {
        stage.model.forget(id);
    }
}

fn start(actor: &mut Actor, stage: &mut Stage, thread: usize, which: usize, after: Duration, manner: Option<Manner>) {
    let Some(index) = which.checked_rem(actor.list.len()) else { return };
    if !matches!(actor.list[index].way, Way::Created { .. }) {
        return;
    }
    let one = actor.list.remove(index);
    let Way::Created { timer, is_cancelled } = one.way else { return };
    let is_refused = !is_cancelled && (actor.is_stopped || stage.model.closed);
    let (surface, seen_by) =
        if manner.is_some() { ("named callback", SeenBy::Calling) } else { ("named wait", SeenBy::Waking) };
    let id = add(stage, surface, seen_by, after);
    if is_cancelled {
        stage.model.cancel(id);
    }
    let started = match manner {
        Some(manner) => {
            let callback = stage.hub.callback(id, if is_refused { Manner::Good } else { manner }, None);
            stage.threads.on(thread, || timer.start(after, callback)).map(|()| Way::Call)
        }
        None => {
            let waker = stage.waker(id, Manner::Good);
            stage.threads.on(thread, || timer.wait(after)).map(|wait| Way::Future(Box::pin(wait), waker))
        }
    };
    stage.model.same("P6", "whether a named timer was started", started.is_ok(), !is_refused);
    match started {
        Ok(way) => {
            // The oldest of a name is cancelled first, by when they were created.
            actor.started += 1;
            actor.list.insert(index, One { id, name: one.name, way, started: actor.started });
            if matches!(actor.list[index].way, Way::Future(..)) {
                poll(actor, stage, index, thread);
            }
        }
        Err(_) => stage.model.forget(id),
    }
}

fn cancel(actor: &mut Actor, stage: &mut Stage, timers: &NamedTimers, op: (usize, usize, usize)) {
    let (thread, name, most) = op;
    let there: Vec<usize> = (0..actor.list.len())
        .filter(|index| actor.list[*index].name == name && is_there(&actor.list[*index], stage))
        .collect();
    let seen = timers.count(NAMES[name]);
    stage.model.same("P2", "timers of a name", seen, there.len());
    let count = stage.threads.on(thread, || timers.cancel_up_to(NAMES[name], most));
    stage.model.same("P2", "named timers that were cancelled", count, there.len().min(most));
    there.into_iter().take(most).for_each(|index| cancelled(&mut actor.list[index], stage));
}

fn cancelled(one: &mut One, stage: &mut Stage) {
    match &mut one.way {
        Way::Created { is_cancelled, .. } => *is_cancelled = true,
        _ => stage.model.cancel(one.id),
    }
}

fn drop_one(actor: &mut Actor, stage: &mut Stage, thread: usize, which: usize) {
    let Some(index) = which.checked_rem(actor.list.len()) else { return };
    match &actor.list[index].way {
        Way::Call => {}
        Way::Created { .. } => {
            let one = actor.list.remove(index);
            stage.threads.on(thread, || drop(one));
        }
        Way::Future(..) => {
            let one = actor.list.remove(index);
            stage.ready.remove(&one.id);
            stage.model.forget(one.id);
            stage.threads.on(thread, || drop(one));
        }
    }
}

fn stop(actors: &mut Vec<Actor>, stage: &mut Stage, timers: NamedTimers, thread: usize) {
    let actor = &mut actors[0];
    let pending = actor.list.iter().filter(|one| is_there(one, stage) && is_started(one)).count();
    let count = stage.threads.on(thread, || timers.stop());
    drop(timers);
    let expected = if actor.is_stopped || stage.model.closed { 0 } else { pending };
    stage.model.same("P2", "named timers that were stopped", count, expected);
    if actor.is_stopped {
        let actor = actors.swap_remove(0);
        return end_group(actor, stage, thread);
    }
    actor.is_stopped = true;
    let stopped: Vec<Id> =
        actor.list.iter().filter(|one| is_there(one, stage) && is_started(one)).map(|one| one.id).collect();
    stopped.into_iter().for_each(|id| stage.model.stop(id));
}

fn add(stage: &mut Stage, surface: &'static str, seen_by: SeenBy, after: Duration) -> Id {
    let id = stage.model.add(surface, seen_by);
    stage.model.set(id, stage.due_after(after), stage.setup.slack.grid());
    stage.model.pend(id, None);
    id
}

fn poll(actor: &mut Actor, stage: &mut Stage, index: usize, thread: usize) {
    let One { id, way: Way::Future(wait, waker), .. } = &mut actor.list[index] else { return };
    let id = *id;
    if poll_wait(stage, thread, id, "named wait", wait.as_mut(), waker).is_pending() {
        return;
    }
    let ended = actor.list.remove(index);
    stage.threads.on(thread, || drop(ended));
}

/// Whether it counts.
fn is_there(one: &One, stage: &Stage) -> bool {
    match &one.way {
        Way::Created { is_cancelled, .. } => !is_cancelled,
        _ => stage.model.get(one.id).is_some_and(|item| item.state == State::Pending && item.signals == 0),
    }
}

fn is_started(one: &One) -> bool {
    !matches!(one.way, Way::Created { .. })
}

/// With its last handle everything that is started is cancelled.
fn end_group(actor: Actor, stage: &mut Stage, thread: usize) {
    let timers = lock(&actor.slot).take();
    let Actor { list, is_stopped, .. } = actor;
    for one in &list {
        if is_there(one, stage) && is_started(one) && !is_stopped && !stage.model.closed {
            stage.model.cancel(one.id);
        }
    }
    stage.threads.on(thread, || drop(timers));
    for mut one in list {
        if let Way::Future(wait, waker) = &mut one.way {
            let polled = stage.threads.on(thread, || wait.as_mut().poll(&mut Context::from_waker(waker)));
            stage.model.same("P2", "a named wait whose timers are gone", polled.is_ready(), true);
            stage.ready.remove(&one.id);
            stage.model.forget(one.id);
        }
        stage.threads.on(thread, || drop(one));
    }
}

impl Actor {
    /// One more is started.
    fn start(&mut self, one: One) {
        self.started += 1;
        self.list.push(One { started: self.started, ..one });
    }

    /// The handle, unless a callback has dropped it.
    fn timers(&self) -> Option<NamedTimers> {
        lock(&self.slot).clone()
    }
}
