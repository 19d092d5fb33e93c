//! What happens to timers in this process, for those that want to watch it.
//!
//! A subscription has a queue of its own rather than a channel: the channel that the crate uses elsewhere wakes its receiver under a lock.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use super::node_loop::Message;
use super::{StoreFailing, Timers, TimersError};
use crate::catch_panic::{catch_panic, wake};
use crate::id::TimerId;
use crate::spec::TimerSpec;
use crate::store::{CancelCounts, RowId, Target, TimerRow};

/// Something that happened to a timer because of a request or a delivery of this process. Events of other processes on the same store are theirs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A timer was created.
    Created {
        /// Its id.
        id: TimerId,
        /// What was asked for.
        spec: Arc<TimerSpec>,
        /// When it is due.
        due: SystemTime,
    },
    /// A cancel has counted something.
    Cancelled {
        /// What it was for.
        target: Target,
        /// What it found.
        counts: CancelCounts,
    },
    /// A timer has another due time.
    Rescheduled {
        /// The occurrence.
        id: RowId,
        /// Its kind.
        kind: String,
        /// When it is due.
        due: SystemTime,
    },
    /// A delivery begins.
    Claimed {
        /// The occurrence.
        row: Arc<TimerRow>,
    },
    /// A delivery was acknowledged: the occurrence has fired.
    Delivered {
        /// The occurrence.
        id: RowId,
        /// The row, unless a worker had pulled it.
        row: Option<Arc<TimerRow>>,
    },
    /// A delivery failed, and the occurrence is delivered again.
    Failed {
        /// The occurrence.
        id: RowId,
        /// The row, unless a worker had pulled it.
        row: Option<Arc<TimerRow>>,
        /// Why.
        error: String,
        /// When it is delivered again.
        next: SystemTime,
    },
    /// An occurrence is a dead letter now.
    Dead {
        /// The occurrence.
        id: RowId,
        /// The row, unless a worker had pulled it, or no delivery was begun.
        row: Option<Arc<TimerRow>>,
        /// Why.
        error: String,
    },
    /// An occurrence was missed, and skipped as its policy says.
    Skipped {
        /// The occurrence.
        id: RowId,
        /// Its kind.
        kind: String,
    },
    /// The store has failed a request of this process for a minute, or for twice as long as when it was told last. The process goes on asking,
    /// and nothing is lost. With [`StoreError::Internal`](crate::StoreError::Internal) it is hardly an outage: look at the server and at this program's version.
    StoreFails(StoreFailing),
    /// After [`StoreFails`](Event::StoreFails): no request has failed for a minute any more.
    StoreRecovered,
    /// The subscriber was too slow: so many events are not among those that it gets.
    Lagged(u64),
}

/// The most events that wait for a subscriber.
const MOST_EVENTS: usize = 65_536;

/// The events of this process from the moment of the subscription on. Made by [`Timers::events`].
#[derive(Debug)]
pub struct Events(Arc<EventQueue>);

/// The node's end of a subscription.
pub(super) struct Subscriber(Arc<EventQueue>);

/// What both ends of a subscription share.
#[derive(Debug)]
struct EventQueue {
    capacity: usize,
    state: Mutex<EventQueueState>,
}

#[derive(Debug, Default)]
struct EventQueueState {
    events: VecDeque<Event>,
    /// How many events found the queue full since the subscriber was told last.
    lost: u64,
    /// The task that waits for an event.
    waiting: Option<Waker>,
    /// Whether the other end is there no more.
    has_ended: bool,
}

/// Waits for the next event.
struct NextEvent<'e>(&'e EventQueue);

impl Timers {
    /// Subscribes to what happens to timers in this process. Up to `capacity` events, at most 65,536, wait for the subscriber; if it is slower, it is
    /// told how many it has lost, and nothing else waits for it.
    ///
    /// # Errors
    /// The node has ended.
    pub fn events(&self, capacity: usize) -> Result<Events, TimersError> {
        let queue = Arc::new(EventQueue { capacity: capacity.clamp(1, MOST_EVENTS), state: Mutex::default() });
        let events = Events(Arc::clone(&queue));
        self.send(Message::Subscribe(Subscriber(queue)))?;
        Ok(events)
    }
}

impl Events {
    /// Waits for the next event; `None` after the node has ended.
    pub async fn next(&mut self) -> Option<Event> {
        NextEvent(&self.0).await
    }

    /// Waits for the next event, in code that is not `async`.
    pub fn next_blocking(&mut self) -> Option<Event> {
        futures_lite::future::block_on(self.next())
    }
}

impl Subscriber {
    /// Passes an event on. Returns whether the subscription goes on.
    pub(super) fn tell(&self, event: Event) -> bool {
        let mut state = self.0.lock();
        if state.has_ended {
            return false;
        }
        if state.events.len() < self.0.capacity {
            state.events.push_back(event);
        } else {
            state.lost += 1;
        }
        let waiting = state.waiting.take();
        drop(state);
        waiting.into_iter().for_each(wake);
        true
    }
}

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, EventQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that one end is gone, and returns the task that waited at the other.
    fn end(&self) -> Option<Waker> {
        let mut state = self.lock();
        state.has_ended = true;
        state.waiting.take()
    }
}

impl Future for NextEvent<'_> {
    type Output = Option<Event>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        // Wakers are code of the user: they are cloned and dropped while nothing is locked.
        let waker = context.waker().clone();
        let mut state = self.0.lock();
        if state.lost > 0 {
            return Poll::Ready(Some(Event::Lagged(std::mem::take(&mut state.lost))));
        }
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.has_ended {
            return Poll::Ready(None);
        }
        let former = state.waiting.replace(waker);
        drop(state);
        drop(former);
        Poll::Pending
    }
}

impl Drop for NextEvent<'_> {
    fn drop(&mut self) {
        let waiting = self.0.lock().waiting.take();
        catch_panic(|| drop(waiting));
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.end().into_iter().for_each(wake);
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let waiting = self.0.end();
        catch_panic(|| drop(waiting));
    }
}
