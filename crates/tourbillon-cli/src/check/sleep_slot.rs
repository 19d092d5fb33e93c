//! One sleep of a thread that has many, and who is told when it fires.
//!
//! The waker reads the clock on the thread that drives, at the moment of the call. So a timer that fires early is seen to do so, however long
//! it takes until the thread that armed it looks. That reading belongs to *this* timer only if no wake-up of an earlier one in the
//! same slot can still be on its way. Hence a slot takes a new note after a timer whose wake-up it has not seen.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Wake, Waker};

use tourbillon::time::Sleep;

use crate::clock::KernelClock;

/// A place for one sleep after the other.
pub(crate) struct SleepSlot {
    pub(crate) sleep: Pin<Box<Sleep>>,
    /// Not to complete before this: counted from a reading before it was made.
    pub(crate) due: u64,
    /// The engine's own deadline is not later than this: counted from a reading after it was armed. Between the two the thread may have
    /// lost its core.
    pub(crate) due_by: u64,
    /// How late it may be on purpose.
    pub(crate) slack: u64,
    /// Whether it is one of those whose lateness is in the histogram.
    pub(crate) is_adaptive: bool,
    pub(crate) is_armed: bool,
    /// Its deadline was moved: the reading of the waker may be that of the old one.
    pub(crate) was_moved: bool,
    record: Arc<WakeRecord>,
    waker: Waker,
}

/// Remembers when the waker was called, and says which slot it was.
struct WakeRecord {
    index: u32,
    clock: KernelClock,
    /// Zero: it was not.
    woken_at: AtomicU64,
    ready: Sender<u32>,
}

impl SleepSlot {
    /// With a sleep that is not armed.
    pub(crate) fn new(index: u32, clock: KernelClock, ready: Sender<u32>, sleep: Sleep) -> SleepSlot {
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

    /// When its waker was called, if that is known for sure to have been for this timer.
    pub(crate) fn woken_at(&self) -> Option<u64> {
        let woken_at = self.record.woken_at.load(Ordering::Acquire);
        (woken_at != 0 && !self.was_moved).then_some(woken_at)
    }

    /// Makes it ready for the next sleep.
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
        // Whoever is gone needs no telling.
        let _ = self.ready.send(self.index);
    }
}
