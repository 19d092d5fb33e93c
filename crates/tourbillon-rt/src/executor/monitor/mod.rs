//! Looks after workers that are blocked by one of their tasks (D44, P11).
//!
//! A worker that computes for long, or waits inside a system call, does not turn its timers and does not hear of its sockets. Each
//! [`PERIOD`] this thread looks at the workers. One that has been inside of one and the same poll of a task since the last look is
//! blocked: its timers are left to the engine's driver until it comes back, who waits for its sockets is woken from here,
//! and somebody who sleeps is called to take its tasks. So a blocked worker makes others' timers and I/O late by no more than
//! two periods.
//!
//! While all workers sleep there is nothing to look after, and this thread sleeps, too, without a time (P9): the first who wakes up
//! sets its alarm, with one system call and at most once a period.

mod alarm;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use self::alarm::MonitorAlarm;
use super::shared::RuntimeShared;
use super::virtual_time;
use crate::reactor::Batch;
use crate::sync::{AtomicBool, Ordering};

/// Who has not got on for so long is blocked.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

pub(crate) struct Monitor {
    alarm: MonitorAlarm,
    watching: AlarmState,
}

/// Whether the alarm is set, or will be by who looks just now.
#[derive(Default)]
pub(crate) struct AlarmState(AtomicBool);

impl Monitor {
    pub(crate) fn new() -> io::Result<Monitor> {
        Ok(Monitor { alarm: MonitorAlarm::new()?, watching: AlarmState::default() })
    }

    /// By a worker that has woken up: from now on it may be blocked.
    pub(crate) fn watch(&self) {
        if self.watching.begin() {
            self.alarm.set(PERIOD);
        }
    }

    /// Lets the thread end.
    pub(crate) fn end(&self) {
        self.alarm.set(Duration::from_nanos(1));
    }
}

impl AlarmState {
    /// By who has woken up: whether it is to set the alarm.
    pub(crate) fn begin(&self) -> bool {
        !self.0.load(Ordering::SeqCst) && !self.0.swap(true, Ordering::SeqCst)
    }

    /// By who has looked: whether it is to set the alarm again. If not, the next worker that wakes up does; and if one has just done so,
    /// that was it.
    pub(crate) fn keep_watching(&self, all_sleep: impl Fn() -> bool) -> bool {
        if !all_sleep() {
            return true;
        }
        self.0.store(false, Ordering::SeqCst);
        // Who woke up before that has found us watching.
        !all_sleep() && !self.0.swap(true, Ordering::SeqCst)
    }
}

/// The thread. It ends when the runtime does.
pub(crate) fn run(shared: &Arc<RuntimeShared>) {
    let monitor = &shared.monitor;
    let mut batch = Batch::default();
    loop {
        monitor.alarm.wait();
        if shared.is_stopped() {
            return;
        }
        let stuck: Vec<_> =
            shared.all_workers(|workers| workers.filter(|worker| worker.check_stuck()).cloned().collect());
        // The wakers that it takes from the reactor of a blocked worker are woken before time can move, be the worker parked by then.
        let _held = if stuck.is_empty() { None } else { shared.hold_time() };
        if !stuck.is_empty() {
            virtual_time::turn_if_running(shared);
        }
        for worker in stuck {
            worker.take_over(&mut batch);
            if !worker.stealer.is_empty() {
                shared.idle.unpark_searcher();
            }
        }
        if monitor.watching.keep_watching(|| {
            shared.all_workers(|mut workers| Iterator::all(&mut workers, |worker| worker.is_parked()))
        }) {
            monitor.alarm.set(PERIOD);
        }
    }
}
