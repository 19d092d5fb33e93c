//! The alarm that a driver waits on. The driver sets it, and any thread can set it earlier; in virtual time also later.
//!
//! | file | back end |
//! |---|---|
//! | `timerfd` | Linux: a timer of the kernel on the engine's own clock. A thread that arms an earlier timer sets the kernel's timer earlier with one system call. The call does not wake the driver, which sleeps until the new time |
//! | `condvar` | a condition variable: on other systems, and on Linux if the kernel refuses the timer |
//! | `task_alarm` | a second timer of the kernel, for a driver that is a task on a Tokio runtime |
//! | `tokio_sleep` | an engine on the clock of a Tokio runtime: a sleep of Tokio's |
//!
//! An engine that its user turns has none of these: the alarm calls the function that the user gave.

mod condvar;
#[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
pub(crate) mod task_alarm;
#[cfg(target_os = "linux")]
mod timerfd;
#[cfg(feature = "tokio")]
mod tokio_sleep;

#[cfg(all(feature = "tokio", target_os = "linux"))]
use std::io;
#[cfg(all(feature = "tokio", target_os = "linux"))]
use std::os::fd::OwnedFd;
#[cfg(any(target_os = "linux", feature = "tokio"))]
use std::sync::Arc;

use tourbillon_queue::Time;

use self::condvar::CondvarAlarm;
#[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
pub(crate) use self::task_alarm::{DriverTaskId, ThreadRole};
#[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
use self::task_alarm::{DriverTasks, RuntimeId};
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
    /// The driver's tasks on Tokio runtimes.
    #[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
    tasks: DriverTasks,
    /// What the timer of the driver's thread is set to.
    #[cfg(all(loom, test))]
    thread_at: Time,
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
        let state = AlarmState {
            at: Time::NEVER,
            clock_was_set: false,
            #[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
            tasks: DriverTasks::default(),
            #[cfg(all(loom, test))]
            thread_at: Time::NEVER,
        };
        Alarm { state: Mutex::new(state), backend }
    }

    /// Sets the alarm to `at`. For the driver, which has read the clock at `now`.
    pub(crate) fn set(&self, at: Time, now: Time) -> AlarmSet {
        let mut state = lock(&self.state);
        let done = self.set_timers(&mut state, at, Some(now));
        if std::mem::take(&mut state.clock_was_set) { AlarmSet::ClockJumped } else { done }
    }

    /// Sets the alarm to `at`, unless it is set to that already. For a thread that has computed the driver's next wake-up.
    pub(crate) fn set_if_different(&self, at: Time) {
        let mut state = lock(&self.state);
        if state.at != at {
            // Only engines of virtual time use this, and their clocks are not the wall clock.
            let _done = self.set_timers(&mut state, at, None);
        }
    }

    /// Sets the alarm to `at`, unless it is set to an earlier time. For any thread.
    pub(crate) fn set_earlier(&self, at: Time) {
        let mut state = lock(&self.state);
        if at >= state.at {
            return;
        }
        if self.set_timers(&mut state, at, None) == AlarmSet::ClockJumped {
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
        state.clock_was_set = true;
        let _ = self.set_timers(state, Time::ZERO, None);
    }

    /// Sets the timer of the driver, or both timers while the driver is a task.
    fn set_timers(&self, state: &mut AlarmState, at: Time, now: Option<Time>) -> AlarmSet {
        state.at = at;
        #[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
        if let Some(task) = state.tasks.driving() {
            let (set, thread_at) = task.set(at);
            let thread_set = thread_at.map_or(AlarmSet::Done, |thread_at| self.set_thread_timer(state, thread_at, now));
            return if thread_set == AlarmSet::ClockJumped { thread_set } else { set };
        }
        self.set_thread_timer(state, at, now)
    }

    fn set_thread_timer(&self, state: &mut AlarmState, at: Time, now: Option<Time>) -> AlarmSet {
        #[cfg(all(loom, test))]
        {
            state.thread_at = at;
        }
        let _ = state;
        self.backend.set(at, now)
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

    /// Releases the timer of the kernel, after the engine has ended and its driver has been woken for the last time.
    pub(crate) fn close(&self) {
        #[cfg(target_os = "linux")]
        if let AlarmBackend::TimerFd(timer) = &self.backend {
            #[cfg(feature = "tokio")]
            lock(&self.state).tasks.end();
            let timer = lock(timer).take();
            drop(timer);
        }
        #[cfg(feature = "tokio")]
        if let AlarmBackend::TokioSleep(alarm) = &self.backend {
            alarm.close();
        }
    }
}

/// The driver's task, beside its thread.
#[cfg(any(all(feature = "tokio", target_os = "linux"), all(loom, test)))]
impl Alarm {
    /// Makes the task drive from now on. Returns whether it may: it was not replaced.
    #[must_use]
    pub(crate) fn task_drives(&self, id: DriverTaskId) -> bool {
        let mut state = lock(&self.state);
        state.tasks.take(id)
    }

    /// Removes a task, whose runtime has ended. Returns whether it was the engine's: then the thread drives, from now on.
    pub(crate) fn remove_task(&self, id: DriverTaskId) -> bool {
        let mut state = lock(&self.state);
        let is_mine = state.tasks.remove(id);
        if is_mine && self.set_timers(&mut state, Time::ZERO, None) == AlarmSet::ClockJumped {
            state.clock_was_set = true;
        }
        is_mine
    }

    /// Returns whether the thread drives, now that its timer has gone off. The caller holds the lock of the driver's loop, so that the task
    /// is not in the middle of a step.
    pub(crate) fn thread_role(&self, clock: &Clock) -> ThreadRole {
        let mut state = lock(&self.state);
        let at = state.at;
        let Some(task) = state.tasks.driving() else { return ThreadRole::Drives };
        let Some(thread_at) = task.give_up_if_late(at, clock.now()) else { return ThreadRole::Drives };
        if self.set_thread_timer(&mut state, thread_at, None) == AlarmSet::ClockJumped {
            self.pass_on_clock_set(&mut state);
        }
        ThreadRole::Waits
    }

    /// Has the thread take over if the task, which is awake at `now` and has more to do, makes no further step: the runtime may block, or
    /// be left, before it polls the task again.
    pub(crate) fn task_stays_awake(&self, id: DriverTaskId, now: Time) {
        let mut state = lock(&self.state);
        let Some(task) = state.tasks.driving().filter(|task| task.id == id) else { return };
        let thread_at = task.guard(now);
        // From its last step on the task can be late, not from the beginning of a long phase without sleep.
        state.at = now;
        if let Some(thread_at) = thread_at
            && self.set_thread_timer(&mut state, thread_at, None) == AlarmSet::ClockJumped
        {
            state.clock_was_set = true;
        }
    }
}

#[cfg(all(feature = "tokio", target_os = "linux"))]
impl Alarm {
    /// Returns whether the thread drives, and a task on that runtime should drive instead.
    pub(crate) fn wants_task_on(&self, runtime: RuntimeId) -> bool {
        matches!(self.backend, AlarmBackend::TimerFd(_)) && lock(&self.state).tasks.are_wanted_on(runtime)
    }

    /// Records that a runtime cannot have the driver, so that it is not asked again.
    pub(crate) fn refuse(&self, runtime: RuntimeId) {
        lock(&self.state).tasks.refuse(runtime);
    }

    /// Gives the alarm a task, and returns the task's id and the file descriptor that the task waits for; `None` if another thread has given
    /// it one meanwhile.
    ///
    /// # Errors
    /// The kernel has no timer for the task, or the engine has ended.
    pub(crate) fn add_task(&self, clock: &Clock, runtime: RuntimeId) -> io::Result<Option<(DriverTaskId, OwnedFd)>> {
        let no_timer = || io::Error::other("the system has no kernel timer (timerfd) left");
        let AlarmBackend::TimerFd(thread_timer) = &self.backend else { return Err(no_timer()) };
        let timer = TimerFd::new(clock.kernel_clock().ok_or_else(no_timer)?)?;
        let fd = timer.fd().try_clone_to_owned()?;
        let mut state = lock(&self.state);
        if lock(thread_timer).is_none() {
            return Err(no_timer());
        }
        if !state.tasks.are_wanted_on(runtime) {
            return Ok(None);
        }
        Ok(Some((state.tasks.add(timer, clock, runtime), fd)))
    }
}

/// For models, which look at the timers instead of waiting for them.
#[cfg(all(loom, test))]
impl Alarm {
    pub(crate) fn modelled() -> Alarm {
        Alarm::with_backend(AlarmBackend::Condvar(CondvarAlarm::new()))
    }

    pub(crate) fn add_modelled_task(&self, clock: &Clock, runtime: RuntimeId) -> DriverTaskId {
        lock(&self.state).tasks.add(task_alarm::TaskTimer::new(), clock, runtime)
    }

    /// Returns what the timers of the thread and of the task are set to; for the task only while it drives.
    pub(crate) fn timers(&self) -> (Time, Option<Time>) {
        let mut state = lock(&self.state);
        let task = state.tasks.driving().map(|task| task.timer.is_set_to());
        (state.thread_at, task)
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
