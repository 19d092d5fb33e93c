//! What the driver of an engine shares with the threads that arm timers: when it wakes up next, and the alarm that wakes it.

use tourbillon_queue::Time;

use crate::alarm::{Alarm, Set};
#[cfg(all(test, shuttle))]
use crate::clock::Clock;
use crate::core::Core;
use crate::sync::{AtomicU64, Ordering, fence};

/// What the driver of an engine and those who arm timers share.
pub(crate) struct DriverShared {
    /// When the driver comes next, if nobody rings; zero while it is awake.
    planned: AtomicU64,
    /// No relaxed timer is worth a wake-up before this.
    floor: AtomicU64,
    pub(crate) alarm: Alarm,
}

impl DriverShared {
    pub(crate) fn new(alarm: Alarm) -> DriverShared {
        DriverShared { planned: AtomicU64::new(u64::MAX), floor: AtomicU64::new(0), alarm }
    }

    /// By the thread that has armed a timer and stored its shard's next wake-up, or that of the sleeps that wait for room. `next`
    /// gives that wake-up; relaxed timers do not move it before the time that it is given.
    pub(crate) fn set_earlier(&self, next: impl FnOnce(Time) -> Time) {
        let at = next(Time::from_nanos(self.floor.load(Ordering::SeqCst)));
        if at.as_nanos() < self.planned.load(Ordering::SeqCst) {
            self.alarm.set_earlier(at);
        }
    }

    /// Whether whoever turns the engine comes from outside.
    pub(crate) fn is_external(&self) -> bool {
        self.alarm.is_external()
    }

    /// Wakes the driver now.
    pub(crate) fn wake(&self) {
        self.alarm.set_earlier(Time::ZERO);
    }

    /// When the engine is gone: gives the kernel's timer back.
    pub(crate) fn close(&self) {
        self.alarm.close();
    }

    /// The driver is awake: nobody needs to ring.
    pub(crate) fn awake(&self) {
        self.planned.store(0, Ordering::SeqCst);
    }

    /// The driver, which has read the clock at `now`, is about to sleep. `None`: it must not, a wish has come in that is earlier, or calls that it has to make.
    pub(crate) fn plan(&self, core: &Core, now: Time, floor: Time) -> Option<Time> {
        let at = core.next_round(floor);
        self.floor.store(floor.as_nanos(), Ordering::SeqCst);
        let set = self.alarm.set(at, now);
        self.planned.store(at.as_nanos(), Ordering::SeqCst);
        // The other half is in `Core::shard`.
        fence(Ordering::SeqCst);
        if set == Set::ClockWasSet {
            self.awake();
            core.tell_of_step();
            return None;
        }
        let next = core.next_round(floor);
        // Where time moves by itself, it must not move to the deadline of a timer that was cancelled meanwhile.
        let is_right = if core.is_virtual { next == at } else { next >= at };
        let is_quiet = is_right && !core.has_callbacks();
        (is_quiet && !core.is_closed()).then_some(at)
    }

    /// In an [exact](Core::is_virtual) engine, by the thread that has cancelled a timer and stored its shard's next wake-up: the alarm is
    /// set to what is left.
    ///
    /// As in [`plan`](DriverShared::plan): this stores the plan and then looks at the wishes again; a thread that arms a timer stores its wish
    /// and then looks at the plan.
    pub(crate) fn plan_anew(&self, core: &Core) {
        // A shard stores its wish after a cancel with less than sequential consistency.
        fence(Ordering::SeqCst);
        let mut at = core.next_round(Time::ZERO);
        // Zero while a driver is awake, which plans before it sleeps.
        while self.planned.load(Ordering::SeqCst) != 0 && !core.is_closed() {
            self.alarm.set_unless_it_is(at);
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
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn planned(&self) -> Time {
        Time::from_nanos(self.planned.load(Ordering::SeqCst))
    }

    /// In a model: what the alarm is set to.
    #[cfg(all(loom, test))]
    pub(crate) fn alarm_is_set_to(&self) -> Time {
        self.alarm.is_set_to()
    }

    /// In a schedule: the driver is woken if it is time.
    #[cfg(all(test, shuttle))]
    pub(crate) fn time_has_moved(&self, clock: &Clock) {
        self.alarm.time_has_moved(clock);
    }

    /// As if the kernel had told of a step.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn pretend_clock_was_set(&self) {
        self.alarm.clock_was_set();
    }
}
