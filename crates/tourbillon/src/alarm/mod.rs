//! The alarm that a driver waits on. The driver sets it, and any thread can set it earlier; in virtual time also later.
//!
//! | file | back end |
//! |---|---|
//! | `sys` | a timer of the kernel: a file for each platform, and what each must do. A thread that arms an earlier timer sets the kernel's timer earlier with one system call. The call does not wake the driver, which sleeps until the new time |
//! | `condvar` | a condition variable: where the system has no such timer, or refuses it |
//! | `task_alarm` | a second timer of the kernel, for a driver that is a task on a Tokio runtime |
//! | `tokio_sleep` | an engine on the clock of a Tokio runtime: a sleep of Tokio's |
//!
//! An engine that its user turns has none of these: the alarm calls the function that the user gave.

mod condvar;
mod sys;
#[cfg(any(tourbillon_driver_task, all(loom, test)))]
pub(crate) mod task_alarm;
#[cfg(feature = "tokio")]
mod tokio_sleep;

#[cfg(tourbillon_driver_task)]
use std::io;
#[cfg(tourbillon_driver_task)]
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tourbillon_queue::Time;

use self::condvar::CondvarAlarm;
use self::sys::KernelTimer;
#[cfg(any(tourbillon_driver_task, all(loom, test)))]
pub(crate) use self::task_alarm::{DriverTaskId, ThreadRole};
#[cfg(any(tourbillon_driver_task, all(loom, test)))]
use self::task_alarm::{DriverTasks, RuntimeId};
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
    #[cfg(any(tourbillon_driver_task, all(loom, test)))]
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
    Kernel(Mutex<Option<Arc<KernelTimer>>>),
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
        // Miri does not know these timers, and a shuttle schedule has a clock of its own.
        let timer = if cfg!(any(miri, shuttle)) { None } else { KernelTimer::new(clock).ok() };
        Alarm::with_backend(match timer {
            Some(timer) => AlarmBackend::Kernel(Mutex::new(Some(Arc::new(timer)))),
            None => AlarmBackend::Condvar(CondvarAlarm::new()),
        })
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
            #[cfg(any(tourbillon_driver_task, all(loom, test)))]
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

    /// Makes the driver read the clock and notify the listeners. For a thread that knows that the clock was set.
    pub(crate) fn clock_was_set(&self) {
        self.pass_on_clock_set(&mut lock(&self.state));
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
        #[cfg(any(tourbillon_driver_task, all(loom, test)))]
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

    /// Returns whether the user turns the engine.
    pub(crate) fn is_external(&self) -> bool {
        matches!(self.backend, AlarmBackend::External(_))
    }

    /// Blocks the driver's thread until the alarm goes off. May return before that, so the driver reads the clock afterwards. Returns at once
    /// if no thread waits on this back end.
    pub(crate) fn wait(&self, clock: &Clock) {
        match &self.backend {
            AlarmBackend::Kernel(timer) => {
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
        if let AlarmBackend::Kernel(timer) = &self.backend {
            #[cfg(all(tourbillon_driver_task, not(loom)))]
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
#[cfg(any(tourbillon_driver_task, all(loom, test)))]
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

#[cfg(tourbillon_driver_task)]
impl Alarm {
    /// Returns whether the thread drives, and a task on that runtime should drive instead.
    pub(crate) fn wants_task_on(&self, runtime: RuntimeId) -> bool {
        matches!(self.backend, AlarmBackend::Kernel(_)) && lock(&self.state).tasks.are_wanted_on(runtime)
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
        let AlarmBackend::Kernel(thread_timer) = &self.backend else { return Err(no_timer()) };
        let timer = KernelTimer::new(clock)?;
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
            AlarmBackend::Kernel(timer) => {
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use tourbillon_queue::Span;

    use super::*;

    /// Sleeps on an alarm as a driver does, until the clock shows the time that the alarm was last set to.
    fn sleep_on(alarm: &Alarm, clock: &Clock) {
        loop {
            alarm.wait(clock);
            let at = lock(&alarm.state).at;
            if at <= clock.now() {
                return;
            }
            let _done = alarm.set(at, clock.now());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is no boot-time clock")]
    fn t7_an_alarm_that_is_set_earlier_while_the_driver_sleeps_goes_off_at_the_earlier_time() {
        for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
            let condvar = || Alarm::with_backend(AlarmBackend::Condvar(CondvarAlarm::new()));
            for alarm in [Alarm::new(&clock), condvar()].map(Arc::new) {
                // Off, and far away; then soon, and at once.
                for (first, then) in
                    [(None, Some(2)), (Some(3_600_000), Some(2)), (None, None), (Some(3_600_000), None)]
                {
                    let after = |millis: u64| clock.now() + Span::from_nanos(millis * 1_000_000);
                    assert_eq!(alarm.set(first.map_or(Time::NEVER, after), clock.now()), AlarmSet::Done);
                    let (send, receive) = channel();
                    let sleeps = {
                        let (alarm, clock) = (Arc::clone(&alarm), clock.clone());
                        move || {
                            sleep_on(&alarm, &clock);
                            send.send(clock.now())
                        }
                    };
                    let driver = thread::spawn(sleeps);
                    thread::sleep(Duration::from_millis(5));
                    let at = then.map_or(Time::ZERO, after);
                    alarm.set_earlier(at);
                    let woken = receive.recv_timeout(Duration::from_secs(60)).expect("the alarm did not go off");
                    assert!(woken >= at, "{clock:?}: {:?} early", at - woken);
                    assert_eq!(driver.join().unwrap(), Ok(()));
                }
                alarm.close();
            }
        }
    }

    /// A timer that is an hour away may be due at once if the clock is set or the machine was suspended, and a condition variable is not
    /// woken by either.
    #[test]
    #[cfg_attr(miri, ignore = "there is no boot-time clock")]
    fn p8_without_a_timer_of_the_kernel_a_clock_that_may_jump_is_looked_at_while_waiting() {
        let (send, receive) = channel();
        // On some systems the boot-time clock is the monotonic one.
        let clocks: Vec<_> = [Clock::wall(), Clock::boot()].into_iter().filter(|clock| !clock.is_steady()).collect();
        for clock in clocks.clone() {
            let alarm = Alarm::with_backend(AlarmBackend::Condvar(CondvarAlarm::new()));
            assert_eq!(alarm.set(clock.now() + Span::from_secs(3600), clock.now()), AlarmSet::Done);
            let send = send.clone();
            thread::spawn(move || {
                alarm.wait(&clock);
                send.send(())
            });
        }
        for _ in clocks {
            assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok(()), "it waits without reading the clock");
        }
    }
}
