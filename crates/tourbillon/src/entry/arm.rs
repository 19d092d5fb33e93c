//! Arming: an idle entry gets a node in the shard of the calling thread.
//!
//! To clone and to drop a waker is to run the user's code, which may panic: so a waker is cloned before a slot is taken, and dropped last.

use std::task::{Poll, Waker};
use std::time::Duration;

use tourbillon_queue::Time;

use super::{Entry, EntryPhase, Target};
use crate::core::error::ArmError;
use crate::core::thread_shard::{self, ThreadShard};
use crate::outcome::Outcome;
use crate::shard::{Access, ArmKind, NotifyDriver};
use crate::slack::SlackBits;

/// The outcome of [`Entry::arm_on`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Arming {
    Armed(NotifyDriver),
    /// The deadline is past: the entry was not armed.
    Past,
    /// The engine has been shut down, or the shard is full.
    Refused,
}

impl Entry {
    /// Arms an idle entry, or returns the outcome if the deadline is past or the engine was shut down.
    ///
    /// # Errors
    /// The engine holds as many timers as it may.
    #[inline(always)]
    pub(crate) fn arm(&mut self, waker: &Waker) -> Result<Poll<Outcome>, ArmError> {
        debug_assert!(self.phase() == EntryPhase::Idle && !self.is_waiting());
        if self.core().capacity.is_some() {
            return self.arm_within_capacity(waker);
        }
        match self.arm_quickly(waker.clone()) {
            Ok(NotifyDriver::No) => Ok(Poll::Pending),
            Ok(NotifyDriver::Yes) => {
                self.notify_driver();
                Ok(Poll::Pending)
            }
            Err(waker) => self.arm_slowly(waker),
        }
    }

    /// Arms an idle entry in an engine without a capacity, if that is the current engine, the deadline is not past, the thread has the bias
    /// of its shard's lock, and the shard has a free node. Else returns the waker.
    #[inline(always)]
    fn arm_quickly(&mut self, waker: Waker) -> Result<NotifyDriver, Waker> {
        let (core, due, slack) = (self.core_ptr(), self.due(), self.slack());
        let local = match thread_shard::current() {
            Some(local) if local.core().as_ptr() == core => local,
            _ => return Err(waker),
        };
        if is_known_past(local, due, slack) {
            return Err(waker);
        }
        let (handle, notify_driver) = local.shard().arm_quickly(due, slack, waker)?;
        self.target = Target::node(handle, self.target.is_held());
        Ok(notify_driver)
    }

    /// [Arms](Entry::arm) an idle entry in an engine without a capacity.
    #[inline(never)]
    fn arm_slowly(&mut self, waker: Waker) -> Result<Poll<Outcome>, ArmError> {
        let mut waker = Some(waker);
        let arming = thread_shard::with(self.core_ptr(), |local| self.arm_on(local, &mut waker));
        self.finish_arming(arming, waker)
    }

    /// Arms an idle entry with the waker in `waker`, in an engine without a capacity, on the thread's shard of that engine. The caller then
    /// calls [`finish_arming`](Entry::finish_arming), outside of the closure that has `local`.
    fn arm_on(&mut self, local: &ThreadShard, waker: &mut Option<Waker>) -> Arming {
        let (due, slack) = (self.due(), self.slack());
        if is_known_past(local, due, slack) {
            return Arming::Past;
        }
        let Some(taken) = waker.take() else { return Arming::Past };
        let armed = local.shard().arm(ArmKind::New, due, slack, taken, waker);
        let Some(handle) = armed.handle else { return Arming::Refused };
        self.target = Target::node(handle, self.target.is_held());
        Arming::Armed(armed.notify_driver)
    }

    /// Returns an armed entry that is due in `duration` from now, with the waker in `waker`, in the engine of `local`. The caller notifies
    /// the driver if necessary, outside of the closure that has `local`. `None`: the waker is still there, and the caller has to create and
    /// poll an entry, because it may be due already, or there may be no slot for it.
    #[inline(always)]
    pub(crate) fn armed_on(
        local: &ThreadShard,
        duration: Duration,
        waker: &mut Option<Waker>,
    ) -> Option<(Entry, NotifyDriver)> {
        let core = local.core();
        if core.capacity.is_some() || duration.is_zero() {
            return None;
        }
        let deadline = core.deadline(local.deadline(duration));
        let mut refused = None;
        let armed = local.shard().arm(ArmKind::New, deadline, core.slack, waker.take()?, &mut refused);
        *waker = refused;
        let target = Target::node(armed.handle?, false);
        // The reference is the entry's from here on.
        let _core = local.take_ref();
        Some((Entry { target, deadline }, armed.notify_driver))
    }

    /// Finishes arming outside of the closure that has the thread's shard: notifies the driver, or drops a waker that was not used.
    fn finish_arming(&mut self, arming: Arming, waker: Option<Waker>) -> Result<Poll<Outcome>, ArmError> {
        if let Arming::Armed(notify_driver) = arming {
            if notify_driver == NotifyDriver::Yes {
                self.notify_driver();
            }
            return Ok(Poll::Pending);
        }
        let ended = if arming == Arming::Past { Ok(self.ended_when_idle()) } else { self.refused() };
        // The waker's destructor is the user's code and may panic: it runs last.
        drop(waker);
        ended
    }

    /// Arms an idle entry in an engine that has a capacity.
    #[cold]
    #[inline(never)]
    fn arm_within_capacity(&mut self, waker: &Waker) -> Result<Poll<Outcome>, ArmError> {
        let (due, slack) = (self.due(), self.slack());
        if thread_shard::with(self.core_ptr(), |local| is_known_past(local, due, slack)) {
            return Ok(self.ended_when_idle());
        }
        // Cloned before a slot is reserved, which would be lost if the clone panics.
        let waker = waker.clone();
        if let Some(capacity) = &self.core().capacity
            && !capacity.take()
        {
            return Err(ArmError::Full { capacity: capacity.most });
        }
        self.arm_with_slot(waker)
    }

    /// Arms the entry before it is polled, so that its creator learns whether that is possible.
    ///
    /// # Errors
    /// The engine holds as many timers as it may, or has been shut down.
    pub(crate) fn armed(mut self) -> Result<Entry, ArmError> {
        match self.arm(Waker::noop()) {
            Ok(Poll::Ready(Outcome::Stopped)) => Err(ArmError::Stopped),
            Ok(_) => Ok(self),
            // The engine was shut down, so no slot will be free any more.
            Err(_) if self.core().is_closed() => Err(ArmError::Stopped),
            Err(full) => Err(full),
        }
    }

    /// Arms an idle entry that has a slot within the capacity.
    pub(super) fn arm_with_slot(&mut self, waker: Waker) -> Result<Poll<Outcome>, ArmError> {
        let mut refused = None;
        if self.try_arm(ArmKind::New, waker, &mut refused) {
            return Ok(Poll::Pending);
        }
        let ended = self.refused();
        // The waker's destructor is the user's code and may panic: it runs last.
        drop(refused);
        ended
    }

    /// Arms the entry in the shard of the calling thread, and returns `true`; or puts the waker into `refused`, and returns `false`.
    #[must_use]
    pub(super) fn try_arm(&mut self, kind: ArmKind, waker: Waker, refused: &mut Option<Waker>) -> bool {
        let (deadline, slack) = (self.due(), self.slack());
        let armed =
            thread_shard::with(self.core_ptr(), |local| local.shard().arm(kind, deadline, slack, waker, refused));
        let Some(handle) = armed.handle else { return false };
        self.target = Target::node(handle, self.target.is_held());
        if armed.notify_driver == NotifyDriver::Yes {
            self.notify_driver();
        }
        true
    }

    /// Notifies the driver that the shard of this armed entry has an earlier next wake-up.
    #[cold]
    pub(crate) fn notify_driver(&self) {
        let shard = self.shard();
        let by = thread_shard::with_owner(shard, |local| if local.is_some() { Access::Owner } else { Access::Remote });
        self.core().notify_driver(shard, by);
    }

    /// Frees the slot of an entry that its shard has refused to arm, and returns the outcome if the engine was shut down.
    ///
    /// # Errors
    /// The shard is full.
    #[cold]
    pub(super) fn refused(&mut self) -> Result<Poll<Outcome>, ArmError> {
        self.free_slot();
        match self.core().is_closed() {
            true => Ok(self.ended(Outcome::Stopped)),
            false => Err(ArmError::Full { capacity: crate::shard::slab::MOST as usize }),
        }
    }

    /// Ends an idle entry because its deadline is past, or its engine was shut down.
    pub(super) fn ended_when_idle(&mut self) -> Poll<Outcome> {
        self.ended(if self.core().is_closed() { Outcome::Stopped } else { Outcome::Fired })
    }
}

/// Returns whether a deadline is known to be past. Reads the clock only if the shard has no visit planned before the deadline. (If that
/// visit is overdue, this may return `false` for a deadline that is past; the visit then fires the timer.)
#[inline(always)]
fn is_known_past(local: &ThreadShard, deadline: Time, slack: SlackBits) -> bool {
    let may_be = deadline < local.shard().next_wake().get(slack.queue()) || local.core().clock.may_go_back();
    deadline <= local.seen() || (may_be && deadline <= local.now())
}
