//! Timers as objects: an expiry, and waits that are futures or callbacks, which may use their own timer.

mod deeds;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::timer::{Timer, Wait, WaitHandle};

pub use self::deeds::{Deed, did};
use self::deeds::{Planned, Reach};
use super::{MOST, manner_of_callback, manner_of_waker, poll_wait};
use crate::breakage::Break;
use crate::hub::{Id, Manner, lock};
use crate::model::{SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::Stage;

/// What can be done with a timer.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one.
    New,
    /// It is set, which cancels its waits.
    Set { which: usize, thread: usize, after: Duration },
    /// A callback waits, and does something with its own timer when it is called.
    Call { which: usize, thread: usize, manner: Manner, deed: Option<Deed> },
    /// A future waits.
    Wait { which: usize, thread: usize, manner: Manner },
    /// All waits are cancelled.
    Cancel { which: usize, thread: usize },
    /// The oldest is.
    CancelOne { which: usize, thread: usize },
    /// This one is: by its handle, or by dropping the future.
    CancelThis { which: usize, thread: usize, wait: usize },
    /// The timer is dropped.
    Drop { which: usize, thread: usize },
}

/// One timer.
pub struct Actor {
    reach: Reach,
    /// `None`: it was never set, which counts as expired.
    expiry: Option<u64>,
    waits: Vec<Waiting>,
    /// What callbacks will do, by their waits.
    deeds: BTreeMap<Id, Planned>,
}

/// `None` while the wait is begun.
type Handle = Arc<OnceLock<WaitHandle>>;

struct Waiting {
    id: Id,
    way: Way,
}

enum Way {
    Future(Pin<Box<Wait>>, Waker, Manner),
    Call(Handle),
}

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (which, thread, wait) = (random.index(4), random.index(setup.threads), random.index(MOST));
        match random.below(20) {
            0 => Op::New,
            1..5 => Op::Set { which, thread, after: after(random, setup) },
            5..10 => {
                let after = after(random, setup);
                let deed = Deed::random(random, after);
                let deed = (setup.has_deeds && random.one_in(3)).then_some(deed);
                Op::Call { which, thread, manner: manner_of_callback(random), deed }
            }
            10..14 => Op::Wait { which, thread, manner: manner_of_waker(random, setup) },
            14 => Op::Cancel { which, thread },
            15..17 => Op::CancelOne { which, thread },
            17..19 => Op::CancelThis { which, thread, wait },
            _ => Op::Drop { which, thread },
        }
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    let (which, thread) = match op {
        Op::New => (usize::MAX, 0),
        Op::Set { which, thread, .. }
        | Op::Call { which, thread, .. }
        | Op::Wait { which, thread, .. }
        | Op::Cancel { which, thread }
        | Op::CancelOne { which, thread }
        | Op::CancelThis { which, thread, .. }
        | Op::Drop { which, thread } => (which, thread),
    };
    if actors.is_empty() || (which == usize::MAX && actors.len() < 4) {
        actors.push(Actor::new(stage));
    }
    let index = which % actors.len();
    let actor = &mut actors[index];
    let Some(timer) = actor.timer() else { return };
    let pending = actor.waits.iter().filter(|wait| is_pending(wait, stage)).count();
    match op {
        Op::New => {}
        Op::Set { after, .. } => {
            let given = Break::shorten(stage.broken, after);
            let count = stage.threads.on(thread, || timer.expires_after(given));
            stage.model.same("P2", "waits that setting a timer cancelled", count, pending);
            actor.expiry = Some(stage.due_after(after));
            cancel_first(actor, stage, usize::MAX);
        }
        Op::Call { manner, deed, .. } => call(actor, stage, thread, manner, deed),
        Op::Wait { manner, .. } => wait(actor, stage, thread, manner),
        Op::Cancel { .. } => {
            let count = stage.threads.on(thread, || timer.cancel());
            stage.model.same("P2", "waits that were cancelled", count, pending);
            cancel_first(actor, stage, usize::MAX);
        }
        Op::CancelOne { .. } => {
            let was_one = stage.threads.on(thread, || timer.cancel_one());
            stage.model.same("P2", "whether a wait was cancelled", was_one, pending > 0);
            cancel_first(actor, stage, 1);
        }
        Op::CancelThis { wait, .. } => cancel_this(actor, stage, thread, wait),
        Op::Drop { .. } => {
            drop(timer);
            let actor = actors.swap_remove(index);
            let timer = lock(&actor.reach.slot).take();
            drop_one(actor, timer, stage, thread);
        }
    }
}

/// Polls the wait that was woken.
pub fn wake(actors: &mut [Actor], stage: &mut Stage, id: Id, thread: usize) -> bool {
    for actor in actors {
        let found = actor.waits.iter().position(|wait| wait.id == id);
        if let Some(index) = found {
            poll(actor, stage, index, thread);
            return true;
        }
    }
    false
}

/// Callbacks that have been called need not be kept; and of the others it can be asked whether they wait.
pub fn observe(actors: &mut Vec<Actor>, stage: &mut Stage) {
    let dropped: Vec<Actor> = actors.extract_if(.., |actor| actor.timer().is_none()).collect();
    dropped.into_iter().for_each(|actor| drop_one(actor, None, stage, 0));
    for actor in actors {
        look(actor, stage);
        actor.waits.retain(|wait| {
            let is_told = stage.model.get(wait.id).is_none_or(|item| item.signals > 0);
            let is_over = is_told && matches!(wait.way, Way::Call(_));
            if is_over {
                stage.model.forget(wait.id);
            }
            !is_over
        });
        lock(&actor.reach.calls).retain(|(id, _)| stage.model.get(*id).is_some());
    }
}

/// Ends all of them.
pub fn finish(actors: &mut Vec<Actor>, stage: &mut Stage) {
    // A callback that is called while others go finds no timer any more.
    let timers: Vec<_> = actors.iter().map(|actor| lock(&actor.reach.slot).take()).collect();
    for (thread, (actor, timer)) in actors.drain(..).zip(timers).enumerate() {
        drop_one(actor, timer, stage, thread);
    }
}

/// Asks the waits of callbacks whether they are pending.
fn look(actor: &Actor, stage: &mut Stage) {
    for Waiting { id, way } in &actor.waits {
        let (Way::Call(handle), Some(item)) = (way, stage.model.get(*id)) else { continue };
        let state = item.state;
        let is_pending = handle.get().is_some_and(WaitHandle::is_pending);
        match state {
            State::Pending if is_pending => stage.model.still_pending(*id),
            // It has ended, and its callback waits to be called. After a shutdown that will say how.
            State::Pending if !stage.model.closed => stage.model.end(*id, Outcome::Fired),
            State::Ended(_) => stage.model.same("P2", "a wait that has ended is pending", is_pending, false),
            _ => {}
        }
    }
}

fn begin(actor: &Actor, stage: &mut Stage, surface: &'static str, seen_by: SeenBy) -> Id {
    let id = stage.model.add(surface, seen_by);
    stage.model.set(id, actor.expiry.unwrap_or(0), stage.setup.slack.grid());
    stage.model.pend(id, None);
    id
}

fn call(actor: &mut Actor, stage: &mut Stage, thread: usize, manner: Manner, deed: Option<Deed>) {
    let Some(timer) = actor.timer() else { return };
    if actor.waits.len() >= MOST / 2 {
        return;
    }
    // Who turns the engine in the middle of a cancel has callbacks called of waits that were not all told yet.
    let deed = deed.filter(|_| !actor.turns());
    let id = begin(actor, stage, "callback", SeenBy::Calling);
    let handle = Handle::default();
    let deed = deed.map(|deed| {
        let (planned, act) = deed.plan(stage, &actor.reach, &handle);
        actor.deeds.insert(id, planned);
        act
    });
    let callback = stage.hub.callback(id, manner, deed);
    lock(&actor.reach.calls).push((id, Arc::clone(&handle)));
    let made = stage.threads.on(thread, || timer.on_expiry(callback));
    let _first = handle.set(made);
    actor.waits.push(Waiting { id, way: Way::Call(handle) });
}

fn wait(actor: &mut Actor, stage: &mut Stage, thread: usize, manner: Manner) {
    if actor.waits.len() >= MOST / 2 {
        return;
    }
    let manner = if manner == Manner::Turns && !actor.deeds.is_empty() { Manner::Good } else { manner };
    let id = begin(actor, stage, "wait", SeenBy::Waking);
    let waker = stage.waker(id, manner);
    let Some(timer) = actor.timer() else { return };
    let wait = stage.threads.on(thread, || Box::pin(timer.wait()));
    actor.waits.push(Waiting { id, way: Way::Future(wait, waker, manner) });
    poll(actor, stage, actor.waits.len() - 1, thread);
}

fn poll(actor: &mut Actor, stage: &mut Stage, index: usize, thread: usize) {
    let Waiting { id, way: Way::Future(wait, waker, _) } = &mut actor.waits[index] else { return };
    let id = *id;
    if poll_wait(stage, thread, id, "wait", wait.as_mut(), waker).is_pending() {
        return;
    }
    let ended = actor.waits.remove(index);
    stage.threads.on(thread, || drop(ended));
}

fn cancel_this(actor: &mut Actor, stage: &mut Stage, thread: usize, wait: usize) {
    let Some(index) = wait.checked_rem(actor.waits.len()) else { return };
    let is_pending = is_pending(&actor.waits[index], stage);
    let id = actor.waits[index].id;
    if let Way::Call(handle) = &actor.waits[index].way {
        let was_pending = stage.threads.on(thread, || handle.get().is_some_and(WaitHandle::cancel));
        stage.model.same("P2", "whether this wait was cancelled", was_pending, is_pending);
        if is_pending {
            stage.model.cancel(id);
        }
        return;
    }
    let dropped = actor.waits.remove(index);
    stage.ready.remove(&id);
    stage.model.forget(id);
    stage.threads.on(thread, || drop(dropped));
}

/// The model hears that the oldest so many were cancelled.
fn cancel_first(actor: &Actor, stage: &mut Stage, most: usize) {
    let pending: Vec<Id> = actor.waits.iter().filter(|wait| is_pending(wait, stage)).map(|wait| wait.id).collect();
    pending.into_iter().take(most).for_each(|id| stage.model.cancel(id));
}

/// Whether a wait has not ended: a future that has was woken.
fn is_pending(wait: &Waiting, stage: &Stage) -> bool {
    stage.model.get(wait.id).is_some_and(|item| item.state == State::Pending && item.signals == 0)
}

fn drop_one(actor: Actor, timer: Option<Arc<Timer>>, stage: &mut Stage, thread: usize) {
    // One that went before may have left the room that this one had waited for, to find that it was late.
    look(&actor, stage);
    cancel_first(&actor, stage, usize::MAX);
    let Actor { waits, .. } = actor;
    stage.threads.on(thread, || drop(timer));
    for Waiting { id, way } in waits {
        match way {
            // The model keeps it until it has been called.
            Way::Call(_) => {}
            Way::Future(mut wait, waker, _) => {
                let polled = stage.threads.on(thread, || wait.as_mut().poll(&mut Context::from_waker(&waker)));
                stage.model.same("P2", "a wait of a timer that is gone", polled.is_ready(), true);
                stage.ready.remove(&id);
                stage.model.forget(id);
            }
        }
    }
}

impl Actor {
    fn new(stage: &Stage) -> Actor {
        let slot = Arc::new(Mutex::new(Some(Arc::new(Timer::on(&stage.engine)))));
        let reach = Reach { slot, calls: Arc::default() };
        Actor { reach, expiry: None, waits: Vec::new(), deeds: BTreeMap::new() }
    }

    /// Whether a task that waits for it turns the engine when it is woken.
    fn turns(&self) -> bool {
        self.waits.iter().any(|wait| matches!(wait.way, Way::Future(_, _, Manner::Turns)))
    }

    /// The timer, unless a callback has dropped it.
    fn timer(&self) -> Option<Arc<Timer>> {
        lock(&self.reach.slot).clone()
    }
}
