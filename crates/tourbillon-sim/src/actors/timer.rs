//! Timers as objects: an expiry, and waits that are futures or callbacks.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::timer::{Timer, Wait, WaitHandle};

use super::{MOST, manner_of_callback, manner_of_waker, poll_wait};
use crate::breakage::Break;
use crate::hub::{self, Event, Id, Manner, NOBODY, lock};
use crate::model::{SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::{Stage, add};

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

/// What a callback does with its own timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Sets it.
    Set(Duration),
    /// Cancels all its waits.
    Cancel,
    /// Cancels the oldest.
    CancelOne,
    /// Cancels the wait that it is of, which is over.
    CancelSelf,
    /// Waits once more.
    Again,
    /// Drops it, waits and all.
    Drop,
}

/// One timer.
pub struct Actor {
    /// Callbacks may drop it.
    slot: Slot,
    /// `None`: it was never set, which counts as expired.
    expiry: Option<u64>,
    waits: Vec<Waiting>,
    /// What callbacks will do, and under what the wait is known that one may begin.
    deeds: BTreeMap<Id, (Deed, Waiting)>,
}

type Slot = Arc<Mutex<Option<Arc<Timer>>>>;
/// `None` while the wait is begun.
type Handle = Arc<OnceLock<WaitHandle>>;

struct Waiting {
    id: Id,
    way: Way,
}

enum Way {
    Future(Pin<Box<Wait>>, Waker),
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
                let set = Deed::Set(after(random, setup));
                let deeds =
                    [set, set, Deed::Cancel, Deed::CancelOne, Deed::CancelSelf, Deed::Again, Deed::Again, Deed::Drop];
                let deed = (setup.has_deeds && random.one_in(3)).then(|| random.one_of(&deeds));
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
            let timer = lock(&actor.slot).take();
            drop_one(actor, timer, stage, thread);
        }
    }
}

/// A callback is told how its wait ended. With one that has fired all others have that waited with it.
pub fn told(actors: &[Actor], stage: &mut Stage, id: Id, outcome: Outcome) {
    let found = actors.iter().find(|actor| actor.waits.iter().any(|wait| wait.id == id));
    let Some(actor) = found.filter(|_| outcome == Outcome::Fired && stage.model.is_pending(id)) else { return };
    let others = actor.waits.iter().filter(|wait| wait.id != id && matches!(wait.way, Way::Call(_)));
    let others: Vec<Id> = others.filter(|wait| is_reached(wait, stage)).map(|wait| wait.id).collect();
    others.into_iter().for_each(|id| stage.model.end(id, Outcome::Fired));
}

/// A callback did something with its own timer: whether it is one of ours.
pub fn did(actors: &mut [Actor], stage: &mut Stage, event: Event, result: u64) -> bool {
    let Some(actor) = actors.iter_mut().find(|actor| actor.deeds.contains_key(&event.id)) else { return false };
    let Some((deed, again)) = actor.deeds.remove(&event.id) else { return false };
    stage.totals.fault("callbacks that use their own timer", 1);
    let pending = actor.waits.iter().filter(|wait| is_pending(wait, stage)).count();
    let most = match deed {
        Deed::CancelSelf => 0,
        Deed::CancelOne => 1,
        Deed::Set(_) | Deed::Cancel | Deed::Drop => usize::MAX,
        Deed::Again => {
            stage.model.set(again.id, actor.expiry.unwrap_or(0), stage.setup.slack.grid());
            stage.model.pend(again.id, None);
            actor.waits.push(again);
            return true;
        }
    };
    // Those whose time has come may have ended, and wait to be told.
    let is_over = stage.model.closed || actor.waits.iter().any(|wait| is_reached(wait, stage));
    let expected = pending.min(most) as u64;
    if is_over && result < expected {
        // Those that have ended are the oldest: one that was begun by a callback may wait already.
        let fired = if result == 0 { pending } else { pending - result as usize };
        let fired: Vec<Id> =
            actor.waits.iter().filter(|wait| is_pending(wait, stage)).map(|wait| wait.id).take(fired).collect();
        let is_open = !stage.model.closed;
        fired.into_iter().filter(|_| is_open).for_each(|id| stage.model.end(id, Outcome::Fired));
    } else {
        stage.model.same("P2", "waits that a callback of the same timer cancelled", result, expected);
    }
    cancel_first(actor, stage, result as usize);
    if let Deed::Set(after) = deed {
        actor.expiry = Some(add(event.clock, after));
    }
    true
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
        actor.waits.retain(|wait| {
            let Way::Call(handle) = &wait.way else { return true };
            let Some(item) = stage.model.get(wait.id) else { return false };
            let (state, signals) = (item.state, item.signals);
            let is_pending = handle.get().is_some_and(WaitHandle::is_pending);
            match state {
                State::Pending if is_pending => stage.model.still_pending(wait.id),
                // It has ended, and its callback waits to be called. After a shutdown that will say how.
                State::Pending if !stage.model.closed => stage.model.end(wait.id, Outcome::Fired),
                State::Ended(_) => stage.model.same("P2", "a wait that has ended is pending", is_pending, false),
                _ => {}
            }
            if signals > 0 {
                stage.model.forget(wait.id);
            }
            signals == 0
        });
    }
}

/// Ends all of them.
pub fn finish(actors: &mut Vec<Actor>, stage: &mut Stage) {
    // A callback that is called while others go finds no timer any more.
    let timers: Vec<_> = actors.iter().map(|actor| lock(&actor.slot).take()).collect();
    for (thread, (actor, timer)) in actors.drain(..).zip(timers).enumerate() {
        drop_one(actor, timer, stage, thread);
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
    let id = begin(actor, stage, "callback", SeenBy::Calling);
    let handle = Handle::default();
    let deed = deed.map(|deed| {
        let again = stage.model.add("callback", SeenBy::Calling);
        let its = Handle::default();
        let callback = stage.hub.callback(again, Manner::Good, None);
        let act = deed.act(Arc::clone(&actor.slot), Arc::clone(&handle), (callback, Arc::clone(&its)));
        actor.deeds.insert(id, (deed, Waiting { id: again, way: Way::Call(its) }));
        act
    });
    let callback = stage.hub.callback(id, manner, deed);
    let made = stage.threads.on(thread, || timer.on_expiry(callback));
    let _first = handle.set(made);
    actor.waits.push(Waiting { id, way: Way::Call(handle) });
}

fn wait(actor: &mut Actor, stage: &mut Stage, thread: usize, manner: Manner) {
    if actor.waits.len() >= MOST / 2 {
        return;
    }
    let id = begin(actor, stage, "wait", SeenBy::Waking);
    let waker = stage.waker(id, manner);
    let Some(timer) = actor.timer() else { return };
    let wait = stage.threads.on(thread, || Box::pin(timer.wait()));
    actor.waits.push(Waiting { id, way: Way::Future(wait, waker) });
    poll(actor, stage, actor.waits.len() - 1, thread);
}

fn poll(actor: &mut Actor, stage: &mut Stage, index: usize, thread: usize) {
    let Waiting { id, way: Way::Future(wait, waker) } = &mut actor.waits[index] else { return };
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

fn is_reached(wait: &Waiting, stage: &Stage) -> bool {
    is_pending(wait, stage) && stage.model.get(wait.id).is_some_and(|item| item.reached)
}

/// Whether a wait has not ended: a future that has was woken.
fn is_pending(wait: &Waiting, stage: &Stage) -> bool {
    stage.model.get(wait.id).is_some_and(|item| item.state == State::Pending && item.signals == 0)
}

fn drop_one(actor: Actor, timer: Option<Arc<Timer>>, stage: &mut Stage, thread: usize) {
    cancel_first(&actor, stage, usize::MAX);
    let Actor { waits, .. } = actor;
    stage.threads.on(thread, || drop(timer));
    for Waiting { id, way } in waits {
        match way {
            // The model keeps it until it has been called.
            Way::Call(_) => {}
            Way::Future(mut wait, waker) => {
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
        Actor { slot, expiry: None, waits: Vec::new(), deeds: BTreeMap::new() }
    }

    /// The timer, unless a callback has dropped it.
    fn timer(&self) -> Option<Arc<Timer>> {
        lock(&self.slot).clone()
    }
}

impl Deed {
    /// As a callback does it: with its own timer, its own wait, and what it may wait with once more.
    fn act(
        self,
        slot: Slot,
        own: Handle,
        (callback, again): (impl FnOnce(Outcome) + Send + 'static, Handle),
    ) -> hub::Deed {
        Box::new(move || {
            let timer = if self == Deed::Drop { lock(&slot).take() } else { lock(&slot).clone() };
            let Some(timer) = timer else { return NOBODY };
            match self {
                Deed::Set(after) => timer.expires_after(after) as u64,
                Deed::Cancel | Deed::Drop => timer.cancel() as u64,
                Deed::CancelOne => u64::from(timer.cancel_one()),
                Deed::CancelSelf => u64::from(own.get().is_some_and(WaitHandle::cancel)),
                Deed::Again => {
                    let _first = again.set(timer.on_expiry(callback));
                    0
                }
            }
        })
    }
}
