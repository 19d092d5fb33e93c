//! The alarm that a driver waits on. The driver sets it, and any thread can set it earlier; in virtual time also later.
//!
//! | file | back end |
//! |---|---|
//! | `timerfd` | Linux: a timer of the kernel on the engine's own clock. A thread that arms an earlier timer sets the kernel's timer earlier with one system call. The call does not wake the driver, which sleeps until the new time |
//! | `condvar` | a condition variable: on other systems, and on Linux if the kernel refuses the timer |
//! | `tokio_sleep` | an engine on the clock of a Tokio runtime: a sleep of Tokio's |
//!
//! An engine that its user turns has none of these: the alarm calls the function that the user gave.

mod condvar;
#[cfg(target_os = "linux")]
mod timerfd;
#[cfg(feature = "tokio")]
mod tokio_sleep;

#[cfg(any(target_os = "linux", feature = "tokio"))]
use std::sync::Arc;

use tourbillon_queue::Time;

use self::condvar::CondvarAlarm;
#[cfg(target_os = "linux")]
use self::timerfd::TimerFd;
#[cfg(feature = "tokio")]
pub(crate) use self::tokio_sleep::TokioSleepAlarm;
use crate::clock::Clock;
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Mutex, lock};

pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
    backend: AlarmBackend,
}

struct AlarmState {
    /// When the alarm goes off; `NEVER` if it is off.
    at: Time,
    /// The clock was set, and the driver does not know yet.
    clock_was_set: bool,
}

/// The result of setting an alarm. In both cases the alarm is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum AlarmSet {
    Done,
    /// The wall clock was set since the alarm was last set. The kernel reports this once, here to the caller, so the driver does not learn it
    /// from the kernel.
    ClockJumped,
}

enum AlarmBackend {
    /// `None` after [`Alarm::close`]. The driver has another reference while it waits.
    #[cfg(target_os = "linux")]
    TimerFd(Mutex<Option<Arc<TimerFd>>>),
    Condvar(CondvarAlarm),
    /// No thread waits: the user turns the engine, and this function tells the user to turn it earlier.
    External(Box<dyn Fn() + Send + Sync>),
    /// No thread waits: Tokio's time driver turns the engine.
    #[cfg(feature = "tokio")]
    TokioSleep(Arc<TokioSleepAlarm>),
}

impl Alarm {
    /// Returns an alarm for a driver that [waits](Alarm::wait) on a thread.
    pub(crate) fn new(clock: &Clock) -> Alarm {
        #[cfg(all(target_os = "linux", not(any(miri, shuttle))))]
        if let Some(Ok(timer)) = clock.kernel_clock().map(TimerFd::new) {
            return Alarm::with_backend(AlarmBackend::TimerFd(Mutex::new(Some(Arc::new(timer)))));
        }
        let _ = clock;
        Alarm::with_backend(AlarmBackend::Condvar(CondvarAlarm::new()))
    }

    /// Returns an alarm for an engine that its user turns. `call` is called when the engine has to be turned earlier than planned.
    pub(crate) fn external(call: Box<dyn Fn() + Send + Sync>) -> Alarm {
        Alarm::with_backend(AlarmBackend::External(call))
    }

    /// Returns an alarm for an engine that is on the clock of a Tokio runtime and is turned by that runtime.
    #[cfg(feature = "tokio")]
    pub(crate) fn tokio_sleep(alarm: Arc<TokioSleepAlarm>) -> Alarm {
        Alarm::with_backend(AlarmBackend::TokioSleep(alarm))
    }

    fn with_backend(backend: AlarmBackend) -> Alarm {
        Alarm { state: Mutex::new(AlarmState { at: Time::NEVER, clock_was_set: false }), backend }
    }

    /// Sets the alarm to `at`. For the driver, which has read the clock at `now`.
    pub(crate) fn set(&self, at: Time, now: Time) -> AlarmSet {
        let mut state = lock(&self.state);
        state.at = at;
        let done = self.backend.set(at, Some(now));
        if std::mem::take(&mut state.clock_was_set) { AlarmSet::ClockJumped } else { done }
    }

    /// Sets the alarm to `at`, unless it is set to that already. For a thread that has computed the driver's next wake-up.
    pub(crate) fn set_if_different(&self, at: Time) {
        let mut state = lock(&self.state);
        if state.at != at {
            state.at = at;
            // Only engines of virtual time use this, and their clocks are not the wall clock.
            let _done = self.backend.set(at, None);
        }
    }

    /// Sets the alarm to `at`, unless it is set to an earlier time. For any thread.
    pub(crate) fn set_earlier(&self, at: Time) {
        let mut state = lock(&self.state);
        if at >= state.at {
            return;
        }
        state.at = at;
        if self.backend.set(at, None) == AlarmSet::ClockJumped {
            self.pass_on_clock_set(&mut state);
        }
        drop(state);
        if let AlarmBackend::External(call) = &self.backend {
            let _ignored = catch_panic(call);
        }
    }

    /// Wakes the driver, which learns that the clock was set when it sets the alarm again. The kernel reports this only once, and has
    /// reported it to the calling thread.
    fn pass_on_clock_set(&self, state: &mut AlarmState) {
        *state = AlarmState { at: Time::ZERO, clock_was_set: true };
        let _ = self.backend.set(Time::ZERO, None);
    }

    #[cfg(all(loom, test))]
    pub(crate) fn is_set_to(&self) -> Time {
        lock(&self.state).at
    }

    /// Makes the alarm go off if its time has come. A shuttle schedule calls this after it has moved its time, in place of the kernel.
    #[cfg(all(test, shuttle))]
    pub(crate) fn time_has_moved(&self, clock: &Clock) {
        let state = lock(&self.state);
        if state.at <= clock.now() {
            let _ = self.backend.set(state.at, None);
        }
    }

    /// Acts as if another thread had noticed that the clock was set.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn pretend_clock_was_set(&self) {
        self.pass_on_clock_set(&mut lock(&self.state));
    }

    /// Returns whether the user turns the engine.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.backend, AlarmBackend::External(_))
    }

    /// Blocks the driver's thread until the alarm goes off. May return before that, so the driver reads the clock afterwards. Returns at once
    /// if no thread waits on this back end.
    pub(crate) fn wait(&self, clock: &Clock) {
        match &self.backend {
            #[cfg(target_os = "linux")]
            AlarmBackend::TimerFd(timer) => {
                let timer = lock(timer).clone();
                timer.inspect(|timer| timer.wait());
            }
            AlarmBackend::Condvar(condvar) => condvar.wait(lock(&self.state), clock),
            AlarmBackend::External(_) => {}
            #[cfg(feature = "tokio")]
            AlarmBackend::TokioSleep(_) => {}
        }
    }

    /// Returns a file descriptor that becomes readable when the alarm goes off; `None` if the back end has none.
    #[cfg(all(feature = "tokio", target_os = "linux"))]
    pub(crate) fn fd(&self) -> Option<std::io::Result<std::os::fd::OwnedFd>> {
        match &self.backend {
            AlarmBackend::TimerFd(timer) => Some(lock(timer).as_ref()?.fd().try_clone_to_owned()),
            _ => None,
        }
    }

    /// Releases the timer of the kernel, after the engine has ended and its driver has been woken for the last time.
    pub(crate) fn close(&self) {
        #[cfg(target_os = "linux")]
        if let AlarmBackend::TimerFd(timer) = &self.backend {
            let timer = lock(timer).take();
            drop(timer);
        }
        #[cfg(feature = "tokio")]
        if let AlarmBackend::TokioSleep(alarm) = &self.backend {
            alarm.close();
        }
    }
}

impl AlarmBackend {
    /// Sets the back end to go off at `at`. `now`: the time of the engine's clock, if the caller has just read it.
    fn set(&self, at: Time, now: Option<Time>) -> AlarmSet {
        let _ = now;
        match self {
            #[cfg(target_os = "linux")]
            AlarmBackend::TimerFd(timer) => {
                return lock(timer).as_ref().map_or(AlarmSet::Done, |timer| timer.set(at));
            }
            AlarmBackend::Condvar(condvar) => {
                let _ = at;
                condvar.notify();
            }
            AlarmBackend::External(_) => {}
            #[cfg(feature = "tokio")]
            AlarmBackend::TokioSleep(alarm) => alarm.set(at, now),
        }
        AlarmSet::Done
    }
}

#[cfg(all(test, not(any(loom, shuttle)), target_os = "linux"))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use tourbillon_queue::Span;

    use super::*;

    /// A timer that is an hour away may be due at once if the clock is set or the machine was suspended, and a condition variable is not
    /// woken by either.
    #[test]
    #[cfg_attr(miri, ignore = "there is no boot-time clock")]
    fn p8_without_a_timer_of_the_kernel_a_clock_that_may_jump_is_looked_at_while_waiting() {
        let (send, receive) = channel();
        for clock in [Clock::wall(), Clock::boot()] {
            let alarm = Alarm::with_backend(AlarmBackend::Condvar(CondvarAlarm::new()));
            assert_eq!(alarm.set(clock.now() + Span::from_secs(3600), clock.now()), AlarmSet::Done);
            let send = send.clone();
            thread::spawn(move || {
                alarm.wait(&clock);
                send.send(())
            });
        }
        for _ in 0..2 {
            assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(()), "it waits without reading the clock");
        }
    }
}
