//! Streams whose items have a time limit. Each item moves the deadline, on whichever thread takes it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;
use tourbillon::time::{StreamExt, StreamTimeout};

use super::{MOST, TaskActor, waker_behavior};
use crate::context::SimContext;
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::{ModelState, ObservedBy};

/// An operation on a stream.
#[derive(Clone, Copy, Debug)]
pub enum StreamOp {
    /// Creates a stream.
    New { thread: usize, limit: Duration, behavior: Behavior },
    /// Polls the stream, also if its task was not woken.
    Poll { which: usize, thread: usize },
    /// Sends an item, and takes it.
    Item { which: usize, thread: usize },
    /// Drops the stream.
    Drop { which: usize, thread: usize },
}

/// A stream and what is expected of it.
pub struct StreamActor {
    id: Id,
    stream: Pin<Box<StreamTimeout<Items>>>,
    items: Items,
    waker: Waker,
    limit: Duration,
    deadline: u64,
    /// Whether there was an error since the last item: there is no other before the next.
    is_elapsed: bool,
}

/// A stream of the items that are sent, which wakes no task and does not end.
#[derive(Clone, Default)]
struct Items(Arc<AtomicU32>);

impl Stream for Items {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<()>> {
        let taken = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |items| items.checked_sub(1));
        taken.map_or(Poll::Pending, |_| Poll::Ready(Some(())))
    }
}

impl StreamOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> StreamOp {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        match random.below(16) {
            0..4 => StreamOp::New { thread, limit: after(random, setup), behavior: waker_behavior(random, setup) },
            4..8 => StreamOp::Poll { which, thread },
            8..14 => StreamOp::Item { which, thread },
            _ => StreamOp::Drop { which, thread },
        }
    }
}

impl TaskActor for StreamActor {
    fn id(&self) -> Id {
        self.id
    }

    /// Polls a stream that has no item.
    fn poll(actors: &mut Vec<StreamActor>, sim: &mut SimContext, index: usize, thread: usize) {
        let Some(actor) = actors.get_mut(index) else { return };
        let StreamActor { id, stream, waker, deadline, is_elapsed, .. } = actor;
        let id = *id;
        sim.ready.remove(&id);
        let before = sim.model.get(id).map(|item| item.state);
        let poll = || stream.as_mut().poll_next(&mut Context::from_waker(waker));
        // After an error the stream does not look at its timer.
        let polled = if *is_elapsed { sim.threads.on(thread, poll) } else { sim.poll(id, thread, poll) };
        match polled {
            Poll::Ready(Some(Err(elapsed))) => {
                sim.model.expect_eq("P2", "a second error for one item", *is_elapsed, false);
                *is_elapsed = true;
                sim.found_elapsed(id, before, &elapsed, "the outcome of a stream's limit");
            }
            Poll::Ready(other) => sim.model.violate("P2", format!("stream {id} has no item and returned {other:?}")),
            Poll::Pending if *is_elapsed => {}
            Poll::Pending => sim.found_pending(id, thread, before, *deadline, "stream"),
        }
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        sim.forget_timer(self.id);
        sim.threads.on(thread, || drop(self.stream));
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<StreamActor>, sim: &mut SimContext, op: StreamOp) {
    let (which, thread) = match op {
        StreamOp::New { thread, limit, behavior } => {
            if actors.len() < MOST {
                actors.push(create(sim, thread, limit, behavior));
                StreamActor::poll(actors, sim, actors.len() - 1, thread);
            }
            return;
        }
        StreamOp::Poll { which, thread } | StreamOp::Item { which, thread } | StreamOp::Drop { which, thread } => {
            (which, thread)
        }
    };
    let Some(index) = which.checked_rem(actors.len()) else { return };
    match op {
        StreamOp::New { .. } => {}
        StreamOp::Poll { .. } => StreamActor::poll(actors, sim, index, thread),
        StreamOp::Item { .. } => {
            // Only a poll shows whether a timer that was woken has ended or has a slot.
            if sim.model.is_woken(actors[index].id) {
                StreamActor::poll(actors, sim, index, thread);
            }
            take_item(&mut actors[index], sim, thread);
        }
        StreamOp::Drop { .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(sim, thread);
        }
    }
}

fn create(sim: &mut SimContext, thread: usize, limit: Duration, behavior: Behavior) -> StreamActor {
    let deadline = sim.due_after(limit);
    let items = Items::default();
    let stream = sim.threads.on(thread, || Box::pin(items.clone().timeout(limit)));
    let id = sim.model.add("stream", ObservedBy::Waking);
    sim.model.set(id, deadline, sim.setup.slack.grid());
    let waker = sim.waker(id, behavior);
    StreamActor { id, stream, items, waker, limit, deadline, is_elapsed: false }
}

/// Sends an item and takes it: its limit is the next deadline.
fn take_item(actor: &mut StreamActor, sim: &mut SimContext, thread: usize) {
    let StreamActor { id, stream, items, waker, limit, .. } = actor;
    let id = *id;
    items.0.fetch_add(1, Ordering::SeqCst);
    let deadline = sim.due_after(*limit);
    let polled = sim.threads.on(thread, || stream.as_mut().poll_next(&mut Context::from_waker(waker)));
    sim.model.expect_eq("P2", "an item that is ready", matches!(polled, Poll::Ready(Some(Ok(())))), true);
    sim.reset(id, thread, deadline, sim.setup.slack.grid());
    // A limit that has been reached, known to its user or not, is armed again by the next poll.
    if sim.model.get(id).is_some_and(|item| item.signals > 0 || item.state != ModelState::Pending) {
        sim.model.set_idle(id);
    }
    (actor.deadline, actor.is_elapsed) = (deadline, false);
}
