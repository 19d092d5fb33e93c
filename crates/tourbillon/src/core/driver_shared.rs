//! The driver's planned wake-up and its alarm, which the driver shares with the threads that arm timers.
//!
//! `driver` explains why no wake-up is lost.

#[cfg(tourbillon_driver_task)]
use std::sync::OnceLock;

use tourbillon_queue::Time;

use crate::alarm::{Alarm, AlarmSet};
#[cfg(all(test, shuttle))]
use crate::clock::Clock;
use crate::core::Core;
use crate::sync::{AtomicU64, Ordering, fence};

/// The state that the driver of an engine shares with the threads that arm timers.
pub(crate) struct DriverShared {
    /// When the driver wakes up if no thread sets the alarm earlier; zero while it is awake.
    planned: AtomicU64,
    /// Adaptive timers do not wake the driver before this time.
    floor: AtomicU64,
    pub(crate) alarm: Alarm,
    /// Offers the engine to the executor of the calling thread, if the driver may become a task there.
    #[cfg(tourbillon_driver_task)]
    offer: OnceLock<OfferFn>,
}

/// See [`DriverShared::offer_to_executor`].
#[cfg(tourbillon_driver_task)]
pub(crate) type OfferFn = Box<dyn Fn(&Core) + Send + Sync>;

impl DriverShared {
    pub(crate) fn new(alarm: Alarm) -> DriverShared {
        DriverShared {
            planned: AtomicU64::new(u64::MAX),
            floor: AtomicU64::new(0),
            alarm,
            #[cfg(tourbillon_driver_task)]
            offer: OnceLock::new(),
        }
    }

    /// Sets the alarm earlier, if the driver plans to wake up too late. For a thread that has stored an earlier wake-up for a shard, or for
    /// the sleeps that wait for a slot. `next` returns that wake-up; its argument is the time before which adaptive timers do not count.
    pub(crate) fn set_earlier(&self, next: impl FnOnce(Time) -> Time) {
        let at = next(Time::from_nanos(self.floor.load(Ordering::SeqCst)));
        if at.as_nanos() < self.planned.load(Ordering::SeqCst) {
            self.alarm.set_earlier(at);
        }
    }

    /// Lets the driver move to the executor of a thread that uses the engine.
    #[cfg(tourbillon_driver_task)]
    pub(crate) fn set_offer(&self, offer: OfferFn) {
        let _first = self.offer.set(offer);
    }

    /// Offers the engine to the executor of the calling thread, which holds no lock. For a thread that uses the engine for the first time,
    /// or that has notified the driver: both are rare.
    #[cfg(tourbillon_driver_task)]
    pub(crate) fn offer_to_executor(&self, core: &Core) {
        if let Some(offer) = self.offer.get() {
            offer(core);
        }
    }

    /// Returns whether the user turns the engine.
    pub(crate) fn is_external(&self) -> bool {
        self.alarm.is_external()
    }

    /// Wakes the driver now.
    pub(crate) fn wake(&self) {
        self.alarm.set_earlier(Time::ZERO);
    }

    /// Releases the kernel's timer, after the engine has ended.
    pub(crate) fn close(&self) {
        self.alarm.close();
    }

    /// Records that the driver is awake, so that no thread sets the alarm.
    pub(crate) fn mark_awake(&self) {
        self.planned.store(0, Ordering::SeqCst);
    }

    /// Plans the next wake-up and sets the alarm. For a driver that has read the clock at `now` and is about to sleep. `None` if it must
    /// not sleep: an earlier wake-up was stored meanwhile, or a callback waits for the driver.
    pub(crate) fn plan(&self, core: &Core, now: Time, floor: Time) -> Option<Time> {
        let at = core.next_round(floor);
        self.floor.store(floor.as_nanos(), Ordering::SeqCst);
        let set = self.alarm.set(at, now);
        self.planned.store(at.as_nanos(), Ordering::SeqCst);
        // Pairs with the fence in `Core::shard`.
        fence(Ordering::SeqCst);
        if set == AlarmSet::ClockJumped {
            self.mark_awake();
            core.notify_clock_set();
            return None;
        }
        let next = core.next_round(floor);
        // Virtual time must not move to the deadline of a timer that was cancelled meanwhile.
        let is_right = if core.is_virtual { next == at } else { next >= at };
        let is_quiet = is_right && !core.has_callbacks();
        (is_quiet && !core.is_closed()).then_some(at)
    }

    /// Plans the next wake-up anew after a thread has cancelled a timer of a [virtual](Core::is_virtual) engine and stored its shard's next
    /// wake-up.
    ///
    /// As in [`plan`](DriverShared::plan): this stores the plan and then loads the shards' wake-ups again; a thread that arms a timer
    /// stores its shard's wake-up and then loads the plan.
    pub(crate) fn plan_anew(&self, core: &Core) {
        // After a cancel, a shard stores its next wake-up with less than sequential consistency.
        fence(Ordering::SeqCst);
        let mut at = core.next_round(Time::ZERO);
        // Zero while a driver is awake: it plans before it sleeps.
        while self.planned.load(Ordering::SeqCst) != 0 && !core.is_closed() {
            self.alarm.set_if_different(at);
            self.planned.store(at.as_nanos(), Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let next = core.next_round(Time::ZERO);
            if next == at {
                return;
            }
            at = next;
        }
    }

    /// Returns when the driver wakes up next.
    #[cfg(all(test, not(shuttle)))]
    pub(crate) fn planned(&self) -> Time {
        Time::from_nanos(self.planned.load(Ordering::SeqCst))
    }

    /// Returns the time that the alarm is set to.
    #[cfg(all(loom, test))]
    pub(crate) fn alarm_is_set_to(&self) -> Time {
        self.alarm.is_set_to()
    }

    /// Wakes the driver if its time has come. For schedules, which have no kernel to do it.
    #[cfg(all(test, shuttle))]
    pub(crate) fn time_has_moved(&self, clock: &Clock) {
        self.alarm.time_has_moved(clock);
    }
}
