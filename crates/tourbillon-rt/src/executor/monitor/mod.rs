//! The monitor: a thread that does the work of a worker which its task blocks (D44, P11).
//!
//! A worker that computes for long, or waits inside a system call, neither turns its timers nor sees events of its sockets. The monitor
//! looks at the workers each [`PERIOD`]. A worker counts as blocked if it is awake and still in the poll that the monitor saw at its last
//! look. Then the monitor leaves the worker's timers to the engine's driver, wakes the tasks that wait for its sockets, and unparks
//! another worker to steal its tasks. So a blocked worker delays others' timers and I/O by two periods at most.
//!
//! While all workers are parked the monitor sleeps, too, without a timeout (P9). The first worker that wakes up sets the monitor's alarm,
//! with one system call and at most once a period.

mod alarm;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use self::alarm::MonitorAlarm;
use super::shared::RuntimeShared;
use super::virtual_time;
use crate::reactor::EventBatch;
use crate::sync::{AtomicBool, Ordering};

/// The time between two looks of the monitor. A worker that is in the same poll at both counts as blocked.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

pub(crate) struct Monitor {
    alarm: MonitorAlarm,
    watching: AlarmFlag,
}

/// Whether the alarm is set, or about to be set by the monitor or a worker.
#[derive(Default)]
pub(crate) struct AlarmFlag(AtomicBool);

impl Monitor {
    pub(crate) fn new() -> io::Result<Monitor> {
        Ok(Monitor { alarm: MonitorAlarm::new()?, watching: AlarmFlag::default() })
    }

    /// Called by a worker that has woken up: from now on it may be blocked.
    pub(crate) fn watch(&self) {
        if self.watching.begin() {
            self.alarm.set(PERIOD);
        }
    }

    /// Makes the monitor's thread end.
    pub(crate) fn end(&self) {
        self.alarm.set(Duration::from_nanos(1));
    }
}

impl AlarmFlag {
    /// Called by a worker that has woken up: returns whether it has to set the alarm.
    #[must_use]
    pub(crate) fn begin(&self) -> bool {
        !self.0.load(Ordering::SeqCst) && !self.0.swap(true, Ordering::SeqCst)
    }

    /// Called by the monitor after a look: returns whether it has to set the alarm again. If not, the next worker that wakes up does, or
    /// has just done so.
    #[must_use]
    pub(crate) fn keep_watching(&self, all_sleep: impl Fn() -> bool) -> bool {
        if !all_sleep() {
            return true;
        }
        self.0.store(false, Ordering::SeqCst);
        // A worker that woke up before the store has seen the alarm set and has not set it.
        !all_sleep() && !self.0.swap(true, Ordering::SeqCst)
    }
}

/// The monitor's thread. It ends when the runtime does.
pub(crate) fn run(shared: &Arc<RuntimeShared>) {
    let monitor = &shared.monitor;
    let mut batch = EventBatch::default();
    loop {
        monitor.alarm.wait();
        if shared.is_stopped() {
            return;
        }
        let stuck: Vec<_> =
            shared.all_workers(|workers| workers.filter(|worker| worker.check_stuck()).cloned().collect());
        // Time must not move before the wakers from a blocked worker's reactor are woken, even if that worker has parked by then.
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
