//! What a driver waits on: one alarm that it sets, and that anybody can set earlier.
//!
//! On Linux it is a timer of the kernel (timerfd) on the engine's own clock. Whoever arms an earlier timer sets it
//! earlier with one system call, and the driver sleeps on until then: it is not woken just to go to sleep again. Elsewhere, and
//! where no file descriptor is to be had, it is a condition variable. That hears nothing of a clock that is set or of a suspend, so a
//! driver that waits on it for a clock that may jump looks at the clock every [`LOOK`].

#[cfg(feature = "tokio")]
mod tokio_sleep;

#[cfg(any(target_os = "linux", feature = "tokio"))]
use std::sync::Arc;
use std::time::Duration;

use tourbillon_queue::Time;

#[cfg(feature = "tokio")]
pub(crate) use self::tokio_sleep::RuntimeAlarm;
use crate::clock::Clock;
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Condvar, Mutex, lock};

pub(crate) struct Alarm {
    set: Mutex<AlarmState>,
    backend: AlarmBackend,
}

struct AlarmState {
    /// When it is to go off. Never: not at all.
    at: Time,
    /// The clock was set, and the driver has yet to hear of it.
    clock_was_set: bool,
}

/// What came of setting it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Set {
    Done,
    /// It is set. But the wall clock was set since the last time, and who waits does not hear of it any more.
    ClockWasSet,
}

enum AlarmBackend {
    /// `None` when the engine is gone. The driver has another reference while it waits.
    #[cfg(target_os = "linux")]
    Timer(Mutex<Option<Arc<self::timer::Timer>>>),
    Condvar(Condvar),
    /// Nobody waits: an engine that is turned by its user, who may want to be told.
    Call(Box<dyn Fn() + Send + Sync>),
    /// Nobody waits: Tokio's time driver turns the engine.
    #[cfg(feature = "tokio")]
    Runtime(Arc<RuntimeAlarm>),
}

/// How late a timer can be, without a timer of the kernel, because its clock has jumped.
const LOOK: Duration = Duration::from_secs(1);

impl Alarm {
    /// For a driver that [waits](Alarm::wait) on a thread.
    pub(crate) fn new(clock: &Clock) -> Alarm {
        #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
        if let Some(Ok(timer)) = clock.kernel().map(timer::Timer::new) {
            return Alarm::with(AlarmBackend::Timer(Mutex::new(Some(Arc::new(timer)))));
        }
        let _ = clock;
        Alarm::with(AlarmBackend::Condvar(Condvar::new()))
    }

    /// For a driver elsewhere: `call` is told whenever it has to come earlier than it planned.
    pub(crate) fn call(call: Box<dyn Fn() + Send + Sync>) -> Alarm {
        Alarm::with(AlarmBackend::Call(call))
    }

    /// For an engine that a Tokio runtime turns, on whose clock it is.
    #[cfg(feature = "tokio")]
    pub(crate) fn on_runtime(alarm: Arc<RuntimeAlarm>) -> Alarm {
        Alarm::with(AlarmBackend::Runtime(alarm))
    }

    fn with(backend: AlarmBackend) -> Alarm {
        Alarm { set: Mutex::new(AlarmState { at: Time::NEVER, clock_was_set: false }), backend }
    }

    /// By the driver, which has read the clock at `now`: goes off at `at`, whatever was set before.
    pub(crate) fn set(&self, at: Time, now: Time) -> Set {
        let mut set = lock(&self.set);
        set.at = at;
        let done = self.backend.set(at, Some(now));
        if std::mem::take(&mut set.clock_was_set) { Set::ClockWasSet } else { done }
    }

    /// By the thread that has found when the driver is wanted: goes off at `at`, whatever was set before.
    pub(crate) fn set_unless_it_is(&self, at: Time) {
        let mut set = lock(&self.set);
        if set.at != at {
            set.at = at;
            // An engine that is planned like this is on no clock that is set.
            let _done = self.backend.set(at, None);
        }
    }

    /// By anybody: goes off at `at`, or earlier if that was set before.
    pub(crate) fn set_earlier(&self, at: Time) {
        let mut set = lock(&self.set);
        if at >= set.at {
            return;
        }
        set.at = at;
        if self.backend.set(at, None) == Set::ClockWasSet {
            self.pass_on(&mut set);
        }
        drop(set);
        if let AlarmBackend::Call(call) = &self.backend {
            let _ignored = catch_panic(call);
        }
    }

    /// The driver would have heard of a step from the bell, but somebody else has. So it is woken, to hear of it when it sets
    /// the alarm again.
    fn pass_on(&self, set: &mut AlarmState) {
        *set = AlarmState { at: Time::ZERO, clock_was_set: true };
        let _ = self.backend.set(Time::ZERO, None);
    }

    #[cfg(all(loom, test))]
    pub(crate) fn is_set_to(&self) -> Time {
        lock(&self.set).at
    }

    /// In a schedule, where no kernel does it: goes off if it is time.
    #[cfg(all(test, shuttle))]
    pub(crate) fn time_has_moved(&self, clock: &Clock) {
        let set = lock(&self.set);
        if set.at <= clock.now() {
            let _ = self.backend.set(set.at, None);
        }
    }

    /// As if somebody had noticed a step.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn clock_was_set(&self) {
        self.pass_on(&mut lock(&self.set));
    }

    /// Whether nobody waits on it.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.backend, AlarmBackend::Call(_))
    }

    /// By the driver: waits until it goes off, and now and then for less.
    pub(crate) fn wait(&self, clock: &Clock) {
        match &self.backend {
            #[cfg(target_os = "linux")]
            AlarmBackend::Timer(timer) => {
                let timer = lock(timer).clone();
                timer.inspect(|timer| timer.wait());
            }
            AlarmBackend::Condvar(condvar) => {
                let set = lock(&self.set);
                let rest = Duration::from(set.at - clock.now());
                let may_jump = !clock.is_steady() && !set.at.is_never();
                let rest = if may_jump { rest.min(LOOK) } else { rest };
                if !rest.is_zero() {
                    drop(condvar.wait_timeout(set, rest));
                }
            }
            AlarmBackend::Call(_) => {}
            #[cfg(feature = "tokio")]
            AlarmBackend::Runtime(_) => {}
        }
    }

    /// What an event loop can watch; it becomes readable when the alarm goes off.
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    pub(crate) fn fd(&self) -> Option<std::io::Result<std::os::fd::OwnedFd>> {
        match &self.backend {
            AlarmBackend::Timer(timer) => Some(lock(timer).as_ref()?.fd().try_clone_to_owned()),
            _ => None,
        }
    }

    /// When the engine is gone and the driver has been woken for the last time: gives the kernel's timer back.
    pub(crate) fn close(&self) {
        #[cfg(target_os = "linux")]
        if let AlarmBackend::Timer(timer) = &self.backend {
            let timer = lock(timer).take();
            drop(timer);
        }
        #[cfg(feature = "tokio")]
        if let AlarmBackend::Runtime(alarm) = &self.backend {
            alarm.close();
        }
    }
}

impl AlarmBackend {
    /// The engine's clock shows `now`, if the caller has just read it.
    fn set(&self, at: Time, now: Option<Time>) -> Set {
        let _ = now;
        match self {
            #[cfg(target_os = "linux")]
            AlarmBackend::Timer(timer) => return lock(timer).as_ref().map_or(Set::Done, |timer| timer.set(at)),
            AlarmBackend::Condvar(condvar) => {
                let _ = at;
                condvar.notify_one();
            }
            AlarmBackend::Call(_) => {}
            #[cfg(feature = "tokio")]
            AlarmBackend::Runtime(alarm) => alarm.set(at, now),
        }
        Set::Done
    }
}

#[cfg(target_os = "linux")]
mod timer {
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
    };
    use tourbillon_queue::Time;

    use super::Set;
    use crate::clock::KernelClock;
    use crate::sync::fork;

    /// A timer of the kernel.
    pub(super) struct Timer {
        fd: OwnedFd,
        flags: TimerfdTimerFlags,
        /// Of the process that has made it: a child has the same timer, not a copy.
        generation: u32,
    }

    impl Timer {
        pub(super) fn new(clock: KernelClock) -> io::Result<Timer> {
            let (id, more) = match clock {
                KernelClock::Monotonic => (TimerfdClockId::Monotonic, TimerfdTimerFlags::empty()),
                KernelClock::Boot => (TimerfdClockId::Boottime, TimerfdTimerFlags::empty()),
                // It also goes off when the clock is set.
                KernelClock::Wall => (TimerfdClockId::Realtime, TimerfdTimerFlags::CANCEL_ON_SET),
            };
            let fd = timerfd_create(id, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
            Ok(Timer { fd, flags: TimerfdTimerFlags::ABSTIME | more, generation: fork::generation() })
        }

        pub(super) fn set(&self, at: Time) -> Set {
            if self.generation != fork::generation() {
                return Set::Done;
            }
            // All zero means off. A wall clock's timer is set even to the end of time, so that a step is noticed.
            let nanos = match at.as_nanos() {
                0 => 1,
                u64::MAX if self.flags.contains(TimerfdTimerFlags::CANCEL_ON_SET) => i64::MAX as u64,
                u64::MAX => 0,
                nanos => nanos.min(i64::MAX as u64),
            };
            let at = Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as _ };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
            // The descriptor is ours and the time is valid, so nothing else can be wrong.
            match timerfd_settime(&self.fd, self.flags, &once) {
                Err(rustix::io::Errno::CANCELED) => Set::ClockWasSet,
                _ => Set::Done,
            }
        }

        /// Waits until it has gone off since it was last set. (AlarmState it again is what takes the news back: there is no
        /// need to read it.)
        pub(super) fn wait(&self) {
            // Interrupted, or the clock was set: the driver looks at the clock anyway.
            let _ = poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None);
        }

        #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only event loops watch it"))]
        pub(super) fn fd(&self) -> BorrowedFd<'_> {
            self.fd.as_fd()
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle)), target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use tourbillon_queue::Span;

    use super::*;

    /// What is waited for an hour may be due at once, if the clock is set or the machine was suspended; a condition variable
    /// hears nothing of either.
    #[test]
    #[cfg_attr(miri, ignore = "there is no boot-time clock")]
    fn p8_without_a_timer_of_the_kernel_a_clock_that_may_jump_is_looked_at_while_waiting() {
        let (send, receive) = channel();
        for clock in [Clock::wall(), Clock::boot()] {
            let alarm = Alarm::with(AlarmBackend::Condvar(Condvar::new()));
            assert_eq!(alarm.set(clock.now() + Span::from_secs(3600), clock.now()), Set::Done);
            let send = send.clone();
            thread::spawn(move || {
                alarm.wait(&clock);
                send.send(())
            });
        }
        for _ in 0..2 {
            assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(()), "it waits without looking");
        }
    }
}
