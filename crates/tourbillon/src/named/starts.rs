//! Starts that depend on the timers that a name has, each in one step under the lock.

use std::time::Duration;

use tourbillon_queue::Time;

#[cfg(doc)]
use super::NamedTimer;
use super::state::{CancelledList, EndedTimers};
use super::{NamedShared, NamedTimers, NamedWait};
use crate::core::error::ArmError;
use crate::instant::Instant;
use crate::multi::deadline_map::DeadlineKey;
use crate::multi::waiter::{self, AwaitedOutcome, OutcomeCell, TimerWaiter};
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

    /// [Restarts](NamedTimers::restart) a name with a timer that fires at `deadline`.
    ///
    /// # Errors
    /// As for [`restart`](NamedTimers::restart).
    pub fn restart_at(
        &self,
        name: &str,
        deadline: Instant,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<usize, ArmError> {
        let due = self.owner.shared.due_at(deadline);
        self.restart_due(name, due, TimerWaiter::Callback(Box::new(callback)))
    }

    /// [Restarts](NamedTimers::restart) a name with a timer whose outcome is that of the future, as for [`NamedTimer::wait`].
    ///
    /// # Errors
    /// As for [`restart`](NamedTimers::restart).
    ///
    /// # Cancel safety
    /// As for [`NamedTimer::wait`].
    pub fn restart_wait(&self, name: &str, after: Duration) -> Result<NamedWait, ArmError> {
        let (shared, cell) = (&self.owner.shared, OutcomeCell::new());
        let (key, _) = shared.restart(name, shared.due_after(after), TimerWaiter::Task(cell.clone()))?;
        Ok(NamedWait { shared: shared.clone(), key, outcome: AwaitedOutcome::new(cell) })
    }

    /// Starts a timer if its name has fewer than `limit`, in a single step: of many threads that do so at once, exactly as many start a
    /// timer as there is room for. Returns whether the timer was started. If not, the callback is dropped and not called.
    ///
    /// Timers that are created and not started count. A limit of zero starts no timer.
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

    /// [Starts](NamedTimers::start_if_fewer) a timer that fires at `deadline` if its name has fewer than `limit`.
    ///
    /// # Errors
    /// As for [`start`](NamedTimers::start).
    pub fn start_if_fewer_at(
        &self,
        name: &str,
        limit: usize,
        deadline: Instant,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<bool, ArmError> {
        let due = self.owner.shared.due_at(deadline);
        self.start_if_fewer_due(name, limit, due, TimerWaiter::Callback(Box::new(callback)))
    }

    /// [Starts](NamedTimers::start_if_fewer) a timer if its name has fewer than `limit`, and returns a future of its outcome, as for
    /// [`NamedTimer::wait`]; `None` if the timer was not started.
    ///
    /// # Errors
    /// As for [`start`](NamedTimers::start).
    ///
    /// # Cancel safety
    /// As for [`NamedTimer::wait`].
    pub fn wait_if_fewer(&self, name: &str, limit: usize, after: Duration) -> Result<Option<NamedWait>, ArmError> {
        let (shared, cell) = (&self.owner.shared, OutcomeCell::new());
        let key = shared.start_if_fewer(name, limit, shared.due_after(after), TimerWaiter::Task(cell.clone()))?;
        Ok(key.map(|key| NamedWait { shared: shared.clone(), key, outcome: AwaitedOutcome::new(cell) }))
    }

    pub(crate) fn restart_due(&self, name: &str, due: Time, waiter: TimerWaiter) -> Result<usize, ArmError> {
        self.owner.shared.restart(name, due, waiter).map(|(_, cancelled)| cancelled)
    }

    pub(crate) fn start_if_fewer_due(
        &self,
        name: &str,
        limit: usize,
        due: Time,
        waiter: TimerWaiter,
    ) -> Result<bool, ArmError> {
        Ok(self.owner.shared.start_if_fewer(name, limit, due, waiter)?.is_some())
    }
}

impl NamedShared {
    /// Returns the key of the new timer, and how many timers were cancelled.
    fn restart(&self, name: &str, due: Time, waiter: TimerWaiter) -> Result<(DeadlineKey, usize), ArmError> {
        let restarted = {
            let mut state = lock(&self.state);
            match state.is_closed || self.core.is_closed() {
                true => Err((ArmError::Stopped, Some(waiter))),
                false => state.restart(name, waiter, due),
            }
        };
        // A callback that is returned with an error is dropped here, outside the lock.
        let (key, cancelled) = restarted.map_err(|(error, _)| error)?;
        self.wakeup.set(due);
        Ok((key, cancelled.map_or(0, |cancelled| self.end_cancelled(cancelled))))
    }

    /// Returns the key of the timer, or `None` if it was not started.
    fn start_if_fewer(
        &self,
        name: &str,
        limit: usize,
        due: Time,
        waiter: TimerWaiter,
    ) -> Result<Option<DeadlineKey>, ArmError> {
        let mut state = lock(&self.state);
        let started = match () {
            () if state.is_closed || self.core.is_closed() => Err((ArmError::Stopped, Some(waiter))),
            () if state.count(name) >= limit => {
                drop(state);
                drop(waiter);
                return Ok(None);
            }
            () => state.add(name, Some(waiter), due),
        };
        drop(state);
        let key = started.map_err(|(error, _)| error)?;
        self.wakeup.set(due);
        Ok(Some(key))
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
