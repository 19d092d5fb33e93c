//! Starts that depend on the timers that a name has, each in one step under the lock.

use std::time::Duration;

use tourbillon_queue::Time;

use super::state::{CancelledList, EndedTimers};
use super::{NamedShared, NamedTimers};
use crate::core::error::ArmError;
use crate::multi::waiter::{self, TimerWaiter};
use crate::outcome::Outcome;
use crate::sync::lock;

impl NamedTimers {
    /// Cancels all timers of a name and starts one, in a single step: no other thread sees the name without a timer, with both, or with
    /// timers of two restarts. Returns how many timers were cancelled; each of them ends as [cancelled](Outcome::Cancelled), also if its
    /// time has come meanwhile.
    ///
    /// The timers that are cancelled make room for the new one, so a name that has a timer can be restarted also where there are as many
    /// timers as there can be.
    ///
    /// # Errors
    /// As for [`start`](NamedTimers::start). Then nothing is cancelled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::NamedTimers;
    ///
    /// let timers = NamedTimers::new();
    /// let idle = |name: &str| timers.restart(name, Duration::from_secs(30), |outcome| println!("idle: {outcome:?}"));
    /// assert_eq!(idle("session 7")?, 0);
    /// assert_eq!(idle("session 7")?, 1); // another packet: the time begins anew
    /// assert_eq!(timers.count("session 7"), 1);
    /// # Ok::<(), tourbillon::ArmError>(())
    /// ```
    pub fn restart(
        &self,
        name: &str,
        after: Duration,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<usize, ArmError> {
        let due = self.owner.shared.due_after(after);
        self.restart_due(name, due, TimerWaiter::Callback(Box::new(callback)))
    }

    /// Starts a timer if its name has fewer than `limit`, in a single step: of many threads that do so at once, exactly as many start a
    /// timer as there is room for. Returns whether the timer was started. If not, the callback is dropped and not called.
    ///
    /// Timers that are created and not started count.
    ///
    /// # Errors
    /// As for [`start`](NamedTimers::start).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::NamedTimers;
    ///
    /// // At most two requests of a client in ten seconds.
    /// let timers = NamedTimers::new();
    /// let may_pass = |client: &str| timers.start_if_fewer(client, 2, Duration::from_secs(10), |_| ());
    /// assert!(may_pass("10.0.0.7")? && may_pass("10.0.0.7")?);
    /// assert!(!may_pass("10.0.0.7")?);
    /// assert!(may_pass("10.0.0.8")?);
    /// # Ok::<(), tourbillon::ArmError>(())
    /// ```
    pub fn start_if_fewer(
        &self,
        name: &str,
        limit: usize,
        after: Duration,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<bool, ArmError> {
        let due = self.owner.shared.due_after(after);
        self.start_if_fewer_due(name, limit, due, TimerWaiter::Callback(Box::new(callback)))
    }

    pub(crate) fn restart_due(&self, name: &str, due: Time, waiter: TimerWaiter) -> Result<usize, ArmError> {
        self.owner.shared.restart(name, due, waiter)
    }

    pub(crate) fn start_if_fewer_due(
        &self,
        name: &str,
        limit: usize,
        due: Time,
        waiter: TimerWaiter,
    ) -> Result<bool, ArmError> {
        self.owner.shared.start_if_fewer(name, limit, due, waiter)
    }
}

impl NamedShared {
    fn restart(&self, name: &str, due: Time, waiter: TimerWaiter) -> Result<usize, ArmError> {
        let restarted = {
            let mut state = lock(&self.state);
            match state.is_closed || self.core.is_closed() {
                true => Err((ArmError::Stopped, Some(waiter))),
                false => state.restart(name, waiter, due),
            }
        };
        // A callback that is returned with an error is dropped here, outside the lock.
        let cancelled = restarted.map_err(|(error, _)| error)?;
        self.wakeup.set(due);
        Ok(cancelled.map_or(0, |cancelled| self.end_cancelled(cancelled)))
    }

    fn start_if_fewer(&self, name: &str, limit: usize, due: Time, waiter: TimerWaiter) -> Result<bool, ArmError> {
        let mut state = lock(&self.state);
        let started = match () {
            () if state.is_closed || self.core.is_closed() => Err((ArmError::Stopped, Some(waiter))),
            () if state.count(name) >= limit => {
                drop(state);
                drop(waiter);
                return Ok(false);
            }
            () => state.add(name, Some(waiter), due),
        };
        drop(state);
        started.map_err(|(error, _)| error)?;
        self.wakeup.set(due);
        Ok(true)
    }

    /// Ends timers that a restart has cancelled, in batches. Returns how many were cancelled.
    fn end_cancelled(&self, cancelled: CancelledList) -> usize {
        let mut batch = EndedTimers::new();
        loop {
            let is_over = lock(&self.state).take_cancelled(cancelled, &mut batch);
            waiter::notify_all(&self.core, batch.drain(..));
            if is_over {
                self.postpone_wakeup();
                return cancelled.count;
            }
        }
    }
}
