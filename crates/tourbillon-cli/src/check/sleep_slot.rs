//! One of the many sleeps of a thread, and the record of its wake-up.
//!
//! The waker reads the clock on the driver's thread at the moment of the call, so an early fire is noticed however late the
//! arming thread looks. The reading belongs to *this* timer only if no wake-up of an earlier timer in the same slot can still be
//! under way. So a slot takes a new record after a timer whose wake-up it has not seen.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Wake, Waker};

use tourbillon::time::Sleep;

use crate::clock::CheckClock;

/// A slot for one sleep after the other.
pub(crate) struct SleepSlot {
    pub(crate) sleep: Pin<Box<Sleep>>,
    /// The sleep must not complete before this, which is counted from a reading before its creation.
    pub(crate) due: u64,
    /// The engine's deadline is not later than this, which is counted from a reading after arming. The thread may have been
    /// preempted between the two.
    pub(crate) due_by: u64,
    /// The slack of the sleep, in nanoseconds.
    pub(crate) slack: u64,
    /// Whether its lateness goes into the histogram.
    pub(crate) is_adaptive: bool,
    pub(crate) is_armed: bool,
    /// Whether its deadline was moved, so that the waker may have been called for the old one.
    pub(crate) was_moved: bool,
    record: Arc<WakeRecord>,
    waker: Waker,
}

/// The waker's record: when it was called, and for which slot.
struct WakeRecord {
    index: u32,
    clock: CheckClock,
    /// Zero if it was not called.
    woken_at: AtomicU64,
    ready: Sender<u32>,
}

impl SleepSlot {
    /// Returns a slot with a sleep that is not armed.
    pub(crate) fn new(index: u32, clock: CheckClock, ready: Sender<u32>, sleep: Sleep) -> SleepSlot {
        let record = Arc::new(WakeRecord { index, clock, woken_at: AtomicU64::new(0), ready });
        SleepSlot {
            sleep: Box::pin(sleep),
            due: 0,
            due_by: 0,
            slack: 0,
            is_adaptive: false,
            is_armed: false,
            was_moved: false,
            waker: Waker::from(Arc::clone(&record)),
            record,
        }
    }

    pub(crate) fn poll(&mut self) -> Poll<()> {
        self.sleep.as_mut().poll(&mut Context::from_waker(&self.waker))
    }

    /// Returns when its waker was called, if that was certainly for this timer.
    pub(crate) fn woken_at(&self) -> Option<u64> {
        let woken_at = self.record.woken_at.load(Ordering::Acquire);
        (woken_at != 0 && !self.was_moved).then_some(woken_at)
    }

    /// Prepares the slot for the next sleep.
    pub(crate) fn clear(&mut self) {
        if self.woken_at().is_some() {
            self.record.woken_at.store(0, Ordering::Release);
        } else {
            let WakeRecord { index, clock, ref ready, .. } = *self.record;
            self.record = Arc::new(WakeRecord { index, clock, woken_at: AtomicU64::new(0), ready: ready.clone() });
            self.waker = Waker::from(Arc::clone(&self.record));
        }
        (self.is_armed, self.was_moved) = (false, false);
    }
}

impl Wake for WakeRecord {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken_at.store(self.clock.now(), Ordering::Release);
        // An error means that the thread has ended.
        let _ = self.ready.send(self.index);
    }
}
