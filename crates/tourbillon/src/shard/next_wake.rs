//! The next wake-up of a shard: when the driver has to visit it next.

use tourbillon_queue::{Span, Time};

use crate::slack::{PRECISE_LEAD, SlackBits};
use crate::sync::{AtomicBool, AtomicU64, Ordering};

/// When the driver or worker has to visit a shard next, for each of its queues; `NEVER` for a queue that was empty at the last visit and
/// has got no timer since. After a cancel it may be too early, never too late.
///
/// Threads write it under the shard's lock, and the driver or worker reads it without.
pub(crate) struct NextWake {
    times: [AtomicU64; 2],
    /// Whether the last visit has found a precise timer that is due within [`PRECISE_LEAD`], so that the driver stays awake until then.
    lead_in: AtomicBool,
}

/// A queue of a shard: timers with adaptive slack are in one, all others in the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum SlackQueue {
    Adaptive,
    OnTime,
}

/// Whether a change has made the next wake-up earlier, so that the driver may have planned too late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum NotifyDriver {
    /// The caller has to [notify the driver](crate::core::Core::notify_driver).
    Yes,
    No,
}

impl NextWake {
    pub(super) fn new() -> NextWake {
        NextWake { times: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)], lead_in: AtomicBool::new(false) }
    }

    /// Returns when this queue has to be visited next.
    #[inline(always)]
    pub(crate) fn get(&self, queue: SlackQueue) -> Time {
        Time::from_nanos(self.times[queue as usize].load(Ordering::SeqCst))
    }

    /// Returns when the shard has to be visited next, where timers with adaptive slack cause no visit before `floor`.
    pub(crate) fn next(&self, floor: Time) -> Time {
        self.get(SlackQueue::Adaptive).max(floor).min(self.get(SlackQueue::OnTime))
    }

    /// Makes the next visit of a queue earlier: `at`, if it was later than that. The caller holds the lock of the shard.
    #[inline(always)]
    pub(super) fn set_earlier(&self, queue: SlackQueue, at: Time) -> NotifyDriver {
        let wake = &self.times[queue as usize];
        if at.as_nanos() >= wake.load(Ordering::Relaxed) {
            return NotifyDriver::No;
        }
        // Sequentially consistent: the caller then reads the driver's plan, see `DriverShared::plan`.
        wake.store(at.as_nanos(), Ordering::SeqCst);
        NotifyDriver::Yes
    }

    /// Stores the next visits after a visit. The caller holds the lock of the shard.
    pub(super) fn set(&self, times: [Time; 2], lead_in: bool) {
        for (wake, time) in self.times.iter().zip(times) {
            wake.store(time.as_nanos(), Ordering::Release);
        }
        self.lead_in.store(lead_in, Ordering::Relaxed);
    }

    /// Returns whether the last visit has found a precise timer that is due within [`PRECISE_LEAD`].
    pub(crate) fn is_lead_in(&self) -> bool {
        self.lead_in.load(Ordering::Relaxed)
    }
}

impl SlackBits {
    /// Returns the queue that has the timers with this slack.
    #[inline(always)]
    pub(crate) fn queue(self) -> SlackQueue {
        if self == SlackBits::ADAPTIVE { SlackQueue::Adaptive } else { SlackQueue::OnTime }
    }
}

/// Returns when the lead-in of a precise timer that is due at `due` starts: the driver wakes up then.
pub(super) fn lead_start(due: Time) -> Time {
    due - Span::from(PRECISE_LEAD)
}
