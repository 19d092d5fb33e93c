//! Delay queues, and the items in them.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::delay_queue::{DelayQueue, Key};

use super::{MOST, Player};
use crate::hub::{Id, Live, Manner};
use crate::model::{LAST, NEVER, SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::{Stage, add_as_is};

/// What can be done with a delay queue.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one.
    New { thread: usize },
    /// An item is put in.
    Insert { which: usize, thread: usize, after: Duration },
    /// An item is taken out before its time; now and then one that is gone.
    Remove { which: usize, thread: usize, item: usize },
    /// An item is given another deadline.
    Reset { which: usize, thread: usize, item: usize, after: Duration },
    /// It is polled, also without having been woken.
    Poll { which: usize, thread: usize },
    /// All items are dropped.
    Clear { which: usize, thread: usize },
    /// It is dropped.
    Drop { which: usize, thread: usize },
}

/// One queue.
pub struct Actor {
    /// Its task.
    id: Id,
    queue: DelayQueue<Live>,
    waker: Waker,
    items: Vec<Item>,
    numbers: u64,
    /// A key that means nothing any more.
    stale: Option<Key>,
}

struct Item {
    id: Id,
    key: Key,
    deadline: u64,
    number: u64,
}

/// So many items are taken in one poll of the task.
const IN_A_ROW: usize = 8;

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (which, thread, item) = (random.index(3), random.index(setup.threads), random.index(MOST));
        let after = after(random, setup);
        match random.below(24) {
            0 => Op::New { thread },
            1..9 => Op::Insert { which, thread, after },
            9..12 => Op::Remove { which, thread, item },
            12..15 => Op::Reset { which, thread, item, after },
            15..22 => Op::Poll { which, thread },
            22 => Op::Clear { which, thread },
            _ => Op::Drop { which, thread },
        }
    }
}

impl Player for Actor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<Actor>, stage: &mut Stage, index: usize, thread: usize) {
        poll(&mut actors[index], stage, thread);
    }

    fn leave(self, stage: &mut Stage, thread: usize) {
        drop_one(self, stage, thread);
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    let (which, thread) = match op {
        Op::New { thread } => (usize::MAX, thread),
        Op::Insert { which, thread, .. }
        | Op::Remove { which, thread, .. }
        | Op::Reset { which, thread, .. }
        | Op::Poll { which, thread }
        | Op::Clear { which, thread }
        | Op::Drop { which, thread } => (which, thread),
    };
    if actors.is_empty() || (which == usize::MAX && actors.len() < 3) {
        let id = stage.model.add("delay queue", SeenBy::Waking);
        let waker = stage.waker(id, Manner::Good);
        let queue = stage.threads.on(thread, DelayQueue::new);
        actors.push(Actor { id, queue, waker, items: Vec::new(), numbers: 0, stale: None });
    }
    let index = which % actors.len();
    let actor = &mut actors[index];
    match op {
        Op::New { .. } => {}
        Op::Insert { after, .. } => insert(actor, stage, thread, after),
        Op::Remove { item, .. } => remove(actor, stage, thread, item),
        Op::Reset { item, after, .. } => reset(actor, stage, thread, item, after),
        Op::Poll { .. } => poll(actor, stage, thread),
        Op::Clear { .. } => {
            stage.threads.on(thread, || actor.queue.clear());
            let_go(actor, stage);
        }
        Op::Drop { .. } => {
            let actor = actors.swap_remove(index);
            return drop_one(actor, stage, thread);
        }
    }
    observe(&mut actors[index], stage);
}

fn insert(actor: &mut Actor, stage: &mut Stage, thread: usize, after: Duration) {
    if actor.items.len() >= MOST {
        return;
    }
    // Items know of every moment that the clock can show, also of the last ones that the engine has no word for.
    let deadline = add_as_is(stage.now(), after);
    let live = stage.hub.alive(Manner::Good);
    let key = stage.threads.on(thread, || actor.queue.insert(live, after));
    let id = stage.model.add("item", SeenBy::Asking);
    stage.model.set_as_is(id, deadline);
    stage.model.pend(id, None);
    actor.numbers += 1;
    actor.items.push(Item { id, key, deadline, number: actor.numbers });
    expects(actor, stage);
}

fn remove(actor: &mut Actor, stage: &mut Stage, thread: usize, item: usize) {
    if let Some(stale) = actor.stale {
        let found = stage.threads.on(thread, || actor.queue.try_remove(&stale).is_some());
        stage.model.same("P7", "an item under a stale key", found, false);
    }
    let Some(index) = item.checked_rem(actor.items.len()) else { return };
    let item = actor.items.swap_remove(index);
    let removed = stage.threads.on(thread, || actor.queue.try_remove(&item.key).map(|expired| expired.deadline()));
    stage.model.same("P2", "an item that is there", removed.is_some(), true);
    stage.model.cancel(item.id);
    stage.model.forget(item.id);
    actor.stale = Some(item.key);
    expects(actor, stage);
}

fn reset(actor: &mut Actor, stage: &mut Stage, thread: usize, item: usize, after: Duration) {
    let deadline = add_as_is(stage.now(), after);
    let Some(index) = item.checked_rem(actor.items.len()) else { return };
    actor.numbers += 1;
    let item = &mut actor.items[index];
    let found = stage.threads.on(thread, || actor.queue.try_reset(&item.key, after).is_some());
    stage.model.same("P2", "an item that is there", found, true);
    (item.deadline, item.number) = (deadline, actor.numbers);
    stage.model.set_as_is(item.id, deadline);
    expects(actor, stage);
}

fn poll(actor: &mut Actor, stage: &mut Stage, thread: usize) {
    stage.ready.remove(&actor.id);
    for _ in 0..IN_A_ROW {
        let Actor { queue, waker, .. } = actor;
        let polled = stage.threads.on(thread, || queue.poll_expired(&mut Context::from_waker(waker)));
        match polled {
            Poll::Ready(Some(expired)) => {
                let first = actor.items.iter().min_by_key(|item| (item.deadline, item.number)).map(|item| item.key);
                stage.model.same("P3", "the first item", Some(expired.key()), first);
                let Some(index) = actor.items.iter().position(|item| item.key == expired.key()) else { return };
                let item = actor.items.swap_remove(index);
                if item.deadline < LAST {
                    let deadline = stage.time_of(expired.deadline());
                    stage.model.same("P1", "the deadline of an item", deadline, item.deadline);
                }
                stage.model.end(item.id, Outcome::Fired);
                stage.model.forget(item.id);
                actor.stale = Some(item.key);
            }
            Poll::Ready(None) => {
                let is_rightly = actor.items.is_empty() || (stage.model.closed && actor.queue.is_stopped());
                stage.model.same("P2", "nothing in a queue", is_rightly, true);
                stage.model.idle(actor.id);
                return check_late(actor, stage);
            }
            Poll::Pending => {
                if stage.model.closed {
                    stage.model.violate("P6", "a queue waits after the shutdown".into());
                }
                stage.model.pend(actor.id, None);
                expects(actor, stage);
                return check_late(actor, stage);
            }
        }
    }
    stage.ready.insert(actor.id);
}

/// What is due comes out when the queue is polled, whoever has turned the engine or not.
fn check_late(actor: &Actor, stage: &mut Stage) {
    let now = stage.now();
    if let Some(late) = actor.items.iter().find(|item| item.deadline <= now) {
        let what = format!("item {} was due at {} and did not come out at {now}", late.id, late.deadline);
        stage.model.violate("P4", what);
    }
}

/// The task waits for the first item.
fn expects(actor: &Actor, stage: &mut Stage) {
    let first = actor.items.iter().map(|item| item.deadline).min().unwrap_or(NEVER);
    stage.model.set(actor.id, first, stage.setup.slack.grid());
}

fn observe(actor: &mut Actor, stage: &mut Stage) {
    stage.model.same("P7", "items in a queue", actor.queue.len(), actor.items.len());
    let first = actor.items.iter().min_by_key(|item| (item.deadline, item.number));
    // Whether the last moments of the clock are ever reached is a matter of words.
    if first.is_none_or(|first| first.deadline < LAST) {
        stage.model.same("P3", "the first item, at a glance", actor.queue.peek(), first.map(|item| item.key));
    }
}

fn let_go(actor: &mut Actor, stage: &mut Stage) {
    for item in actor.items.drain(..) {
        stage.model.cancel(item.id);
        stage.model.forget(item.id);
        actor.stale = Some(item.key);
    }
    if stage.model.get(actor.id).is_some_and(|item| item.state == State::Pending) {
        expects(actor, stage);
    }
}

fn drop_one(mut actor: Actor, stage: &mut Stage, thread: usize) {
    let_go(&mut actor, stage);
    stage.ready.remove(&actor.id);
    stage.model.forget(actor.id);
    stage.threads.on(thread, || drop(actor.queue));
}
