//! Delay queues and their items.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::delay_queue::{DelayQueue, Key};

use super::{MOST, TaskActor};
use crate::context::{SimContext, add_exact};
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, DropCounter, Id};
use crate::timer_model::{LAST, ModelState, NEVER, ObservedBy};

/// An operation on a delay queue.
#[derive(Clone, Copy, Debug)]
pub enum DelayQueueOp {
    /// Creates a queue.
    New { thread: usize },
    /// Inserts an item.
    Insert { which: usize, thread: usize, after: Duration },
    /// Removes an item before its deadline; also tries a stale key.
    Remove { which: usize, thread: usize, item: usize },
    /// Gives an item another deadline.
    Reset { which: usize, thread: usize, item: usize, after: Duration },
    /// Polls the queue, also if its task was not woken.
    Poll { which: usize, thread: usize },
    /// Drops all items.
    Clear { which: usize, thread: usize },
    /// Drops the queue.
    Drop { which: usize, thread: usize },
}

/// A delay queue and what is expected of it.
pub struct DelayQueueActor {
    /// The task that polls the queue.
    id: Id,
    queue: DelayQueue<DropCounter>,
    waker: Waker,
    items: Vec<QueuedItem>,
    numbers: u64,
    /// A key whose item is gone.
    stale: Option<Key>,
}

struct QueuedItem {
    id: Id,
    key: Key,
    deadline: u64,
    number: u64,
}

/// Most items that one poll of the task takes.
const IN_A_ROW: usize = 8;

impl DelayQueueOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> DelayQueueOp {
        let (which, thread, item) = (random.index(3), random.index(setup.threads), random.index(MOST));
        let after = after(random, setup);
        match random.below(24) {
            0 => DelayQueueOp::New { thread },
            1..9 => DelayQueueOp::Insert { which, thread, after },
            9..12 => DelayQueueOp::Remove { which, thread, item },
            12..15 => DelayQueueOp::Reset { which, thread, item, after },
            15..22 => DelayQueueOp::Poll { which, thread },
            22 => DelayQueueOp::Clear { which, thread },
            _ => DelayQueueOp::Drop { which, thread },
        }
    }
}

impl TaskActor for DelayQueueActor {
    fn id(&self) -> Id {
        self.id
    }

    fn poll(actors: &mut Vec<DelayQueueActor>, sim: &mut SimContext, index: usize, thread: usize) {
        poll(&mut actors[index], sim, thread);
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        drop_one(self, sim, thread);
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<DelayQueueActor>, sim: &mut SimContext, op: DelayQueueOp) {
    let (which, thread) = match op {
        DelayQueueOp::New { thread } => (usize::MAX, thread),
        DelayQueueOp::Insert { which, thread, .. }
        | DelayQueueOp::Remove { which, thread, .. }
        | DelayQueueOp::Reset { which, thread, .. }
        | DelayQueueOp::Poll { which, thread }
        | DelayQueueOp::Clear { which, thread }
        | DelayQueueOp::Drop { which, thread } => (which, thread),
    };
    if actors.is_empty() || (which == usize::MAX && actors.len() < 3) {
        let id = sim.model.add("delay queue", ObservedBy::Waking);
        let waker = sim.waker(id, Behavior::Normal);
        let queue = sim.threads.on(thread, DelayQueue::new);
        actors.push(DelayQueueActor { id, queue, waker, items: Vec::new(), numbers: 0, stale: None });
    }
    let index = which % actors.len();
    let actor = &mut actors[index];
    match op {
        DelayQueueOp::New { .. } => {}
        DelayQueueOp::Insert { after, .. } => insert(actor, sim, thread, after),
        DelayQueueOp::Remove { item, .. } => remove(actor, sim, thread, item),
        DelayQueueOp::Reset { item, after, .. } => reset(actor, sim, thread, item, after),
        DelayQueueOp::Poll { .. } => poll(actor, sim, thread),
        DelayQueueOp::Clear { .. } => {
            sim.threads.on(thread, || actor.queue.clear());
            drop_items(actor, sim);
        }
        DelayQueueOp::Drop { .. } => {
            let actor = actors.swap_remove(index);
            return drop_one(actor, sim, thread);
        }
    }
    observe(&mut actors[index], sim);
}

fn insert(actor: &mut DelayQueueActor, sim: &mut SimContext, thread: usize, after: Duration) {
    if actor.items.len() >= MOST {
        return;
    }
    // An item can be due at any time that the clock can show, also at the last ones, which an engine takes for never.
    let deadline = add_exact(sim.now(), after);
    let live = sim.recorder.drop_counter(Behavior::Normal);
    let key = sim.threads.on(thread, || actor.queue.insert(live, after));
    let id = sim.model.add("item", ObservedBy::Asking);
    sim.model.set_exact(id, deadline);
    sim.model.set_pending(id, None);
    actor.numbers += 1;
    actor.items.push(QueuedItem { id, key, deadline, number: actor.numbers });
    note_first_deadline(actor, sim);
}

fn remove(actor: &mut DelayQueueActor, sim: &mut SimContext, thread: usize, item: usize) {
    if let Some(stale) = actor.stale {
        let found = sim.threads.on(thread, || actor.queue.try_remove(&stale).is_some());
        sim.model.expect_eq("P7", "an item was found under a stale key", found, false);
    }
    let Some(index) = item.checked_rem(actor.items.len()) else { return };
    let item = actor.items.swap_remove(index);
    let removed = sim.threads.on(thread, || actor.queue.try_remove(&item.key).map(|expired| expired.deadline()));
    sim.model.expect_eq("P2", "an item of the queue was found", removed.is_some(), true);
    sim.model.cancelled(item.id);
    sim.model.forget(item.id);
    actor.stale = Some(item.key);
    note_first_deadline(actor, sim);
}

fn reset(actor: &mut DelayQueueActor, sim: &mut SimContext, thread: usize, item: usize, after: Duration) {
    let deadline = add_exact(sim.now(), after);
    let Some(index) = item.checked_rem(actor.items.len()) else { return };
    actor.numbers += 1;
    let item = &mut actor.items[index];
    let found = sim.threads.on(thread, || actor.queue.try_reset(&item.key, after).is_some());
    sim.model.expect_eq("P2", "an item of the queue was found", found, true);
    (item.deadline, item.number) = (deadline, actor.numbers);
    sim.model.set_exact(item.id, deadline);
    note_first_deadline(actor, sim);
}

fn poll(actor: &mut DelayQueueActor, sim: &mut SimContext, thread: usize) {
    sim.ready.remove(&actor.id);
    for _ in 0..IN_A_ROW {
        let DelayQueueActor { queue, waker, .. } = actor;
        let polled = sim.threads.on(thread, || queue.poll_expired(&mut Context::from_waker(waker)));
        match polled {
            Poll::Ready(Some(expired)) => {
                let first = actor.items.iter().min_by_key(|item| (item.deadline, item.number)).map(|item| item.key);
                sim.model.expect_eq("P3", "the first item", Some(expired.key()), first);
                let Some(index) = actor.items.iter().position(|item| item.key == expired.key()) else { return };
                let item = actor.items.swap_remove(index);
                if item.deadline < LAST {
                    let deadline = sim.time_of(expired.deadline());
                    sim.model.expect_eq("P1", "the deadline of an item", deadline, item.deadline);
                }
                sim.model.ended(item.id, Outcome::Fired);
                sim.model.forget(item.id);
                actor.stale = Some(item.key);
            }
            Poll::Ready(None) => {
                let is_rightly = actor.items.is_empty() || (sim.model.closed && actor.queue.is_stopped());
                sim.model.expect_eq("P2", "the queue may report that it is empty", is_rightly, true);
                sim.model.set_idle(actor.id);
                return check_late(actor, sim);
            }
            Poll::Pending => {
                if sim.model.closed {
                    sim.model.violate("P6", "a queue waits after the shutdown".into());
                }
                sim.model.set_pending(actor.id, None);
                note_first_deadline(actor, sim);
                return check_late(actor, sim);
            }
        }
    }
    sim.ready.insert(actor.id);
}

/// Checks that every item that is due came out in the poll, even if the engine was not turned.
fn check_late(actor: &DelayQueueActor, sim: &mut SimContext) {
    let now = sim.now();
    if let Some(late) = actor.items.iter().find(|item| item.deadline <= now) {
        let what = format!("item {} was due at {} and did not come out at {now}", late.id, late.deadline);
        sim.model.violate("P4", what);
    }
}

/// Notes that the task waits for the first item.
fn note_first_deadline(actor: &DelayQueueActor, sim: &mut SimContext) {
    let first = actor.items.iter().map(|item| item.deadline).min().unwrap_or(NEVER);
    sim.model.set(actor.id, first, sim.setup.slack.grid());
}

fn observe(actor: &mut DelayQueueActor, sim: &mut SimContext) {
    sim.model.expect_eq("P7", "items in a queue", actor.queue.len(), actor.items.len());
    let first = actor.items.iter().min_by_key(|item| (item.deadline, item.number));
    // Whether the last moments of the clock are ever reached is not defined.
    if first.is_none_or(|first| first.deadline < LAST) {
        sim.model.expect_eq("P3", "the first item by `peek`", actor.queue.peek(), first.map(|item| item.key));
    }
}

fn drop_items(actor: &mut DelayQueueActor, sim: &mut SimContext) {
    for item in actor.items.drain(..) {
        sim.model.cancelled(item.id);
        sim.model.forget(item.id);
        actor.stale = Some(item.key);
    }
    if sim.model.get(actor.id).is_some_and(|item| item.state == ModelState::Pending) {
        note_first_deadline(actor, sim);
    }
}

fn drop_one(mut actor: DelayQueueActor, sim: &mut SimContext, thread: usize) {
    drop_items(&mut actor, sim);
    sim.ready.remove(&actor.id);
    sim.model.forget(actor.id);
    sim.threads.on(thread, || drop(actor.queue));
}
