//! The monitor's alarm in a schedule (`--cfg shuttle`).

use std::io;
use std::time::Duration;

use crate::sync::under_shuttle::Signal;

/// An alarm that goes off, once it is set, when the schedule lets the monitor run: the period has passed then.
#[derive(Default)]
pub(crate) struct MonitorAlarm(Signal);

impl MonitorAlarm {
    pub(crate) fn new() -> io::Result<MonitorAlarm> {
        Ok(MonitorAlarm::default())
    }

    /// Sets the alarm. Zero switches it off.
    pub(crate) fn set(&self, after: Duration) {
        self.0.set(!after.is_zero());
    }

    /// Waits until the alarm goes off, and switches it off.
    pub(crate) fn wait(&self) {
        // While a worker is awake the monitor sets its alarm again and again: the other threads go first.
        shuttle::thread::yield_now();
        self.0.take();
    }
}
