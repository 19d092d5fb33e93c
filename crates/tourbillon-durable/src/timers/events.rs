//! What happens to timers in this process, for those that want to watch it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use async_channel::{Receiver, Sender, TrySendError};

use super::node_loop::Message;
use super::{Timers, TimersError};
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
    /// The subscriber was too slow: so many events are not among those that it gets.
    Lagged(u64),
}

/// The most events that wait for a subscriber: there is memory for all of them from the beginning.
const MOST_EVENTS: usize = 65_536;

/// The events of this process from the moment of the subscription on. Made by [`Timers::events`].
#[derive(Debug)]
pub struct Events {
    events: Receiver<Event>,
    lost: Arc<AtomicU64>,
}

/// The node's end of a subscription.
pub(super) struct Subscriber {
    events: Sender<Event>,
    lost: Arc<AtomicU64>,
}

impl Timers {
    /// Subscribes to what happens to timers in this process. Up to `capacity` events, at most 65,536, wait for the subscriber; if it is slower, it is
    /// told how many it has lost, and nothing else waits for it.
    ///
    /// # Errors
    /// The node has ended.
    pub fn events(&self, capacity: usize) -> Result<Events, TimersError> {
        let (sender, events) = async_channel::bounded(capacity.clamp(1, MOST_EVENTS));
        let lost = Arc::new(AtomicU64::new(0));
        self.send(Message::Subscribe(Subscriber { events: sender, lost: Arc::clone(&lost) }))?;
        Ok(Events { events, lost })
    }
}

impl Events {
    /// Waits for the next event; `None` after the node has ended.
    pub async fn next(&mut self) -> Option<Event> {
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => self.events.recv().await.ok(),
            lost => Some(Event::Lagged(lost)),
        }
    }

    /// Waits for the next event, in code that is not `async`.
    pub fn next_blocking(&mut self) -> Option<Event> {
        futures_lite::future::block_on(self.next())
    }
}

impl Subscriber {
    /// Passes an event on. Returns whether the subscription goes on.
    pub(super) fn tell(&self, event: Event) -> bool {
        match self.events.try_send(event) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}
