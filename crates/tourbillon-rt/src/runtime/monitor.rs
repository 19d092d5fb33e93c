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

#[cfg(not(shuttle))]
mod alarm;

use std::io;
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(shuttle))]
use self::alarm::MonitorAlarm;
use super::shared::Shared;
use super::virtual_time;
use crate::reactor::Batch;
#[cfg(shuttle)]
use crate::sync::scheduled::MonitorAlarm;
use crate::sync::{AtomicBool, Ordering};

/// Who has not got on for so long is blocked.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

pub(crate) struct Monitor {
    alarm: MonitorAlarm,
    watching: Watching,
}

/// Whether the alarm is set, or will be by who looks just now.
#[derive(Default)]
pub(crate) struct Watching(AtomicBool);

impl Monitor {
    pub(super) fn new() -> io::Result<Monitor> {
        Ok(Monitor { alarm: MonitorAlarm::new()?, watching: Watching::default() })
    }

    /// By a worker that has woken up: from now on it may be blocked.
    pub(super) fn watch(&self) {
        if self.watching.begin() {
            self.alarm.set(PERIOD);
        }
    }

    /// Lets the thread end.
    pub(super) fn end(&self) {
        self.alarm.set(Duration::from_nanos(1));
    }
}

impl Watching {
    /// By who has woken up: whether it is to set the alarm.
    pub(crate) fn begin(&self) -> bool {
        !self.0.load(Ordering::SeqCst) && !self.0.swap(true, Ordering::SeqCst)
    }

    /// By who has looked: whether it is to set the alarm again. If not, the next worker that wakes up does; and if one has just done so,
    /// that was it.
    pub(crate) fn goes_on(&self, all_sleep: impl Fn() -> bool) -> bool {
        if !all_sleep() {
            return true;
        }
        self.0.store(false, Ordering::SeqCst);
        // Who woke up before that has found us watching.
        !all_sleep() && !self.0.swap(true, Ordering::SeqCst)
    }
}

/// The thread. It ends when the runtime does.
pub(super) fn run(shared: &Arc<Shared>) {
    let monitor = &shared.monitor;
    let mut batch = Batch::default();
    loop {
        monitor.alarm.wait();
        if shared.is_stopped() {
            return;
        }
        let stuck: Vec<_> = shared.all_seats(|seats| seats.filter(|seat| seat.is_stuck()).cloned().collect());
        // The wakers that it takes from the reactor of a blocked worker are woken before time can move, be the worker parked by then.
        let _held = if stuck.is_empty() { None } else { shared.hold_time() };
        if !stuck.is_empty() {
            virtual_time::turn_if_running(shared);
        }
        for seat in stuck {
            seat.stand_in(&mut batch);
            if !seat.stealer.is_empty() {
                shared.sleepers.call_for_help();
            }
        }
        if monitor.watching.goes_on(|| shared.all_seats(|mut seats| Iterator::all(&mut seats, |seat| seat.is_asleep())))
        {
            monitor.alarm.set(PERIOD);
        }
    }
}
