//! Another deadline for an entry, in any phase.

use std::ptr::NonNull;

use tourbillon_queue::Time;

use super::{Entry, EntryPhase};
use crate::clock::representable;
use crate::core::capacity::Moved;
use crate::instant::Instant;
use crate::shard::slab::origin_of;
use crate::shard::state::Later;

impl Entry {
    /// Sets another deadline, in any phase. An armed entry keeps its waker, which is woken at the new deadline.
    #[inline]
    pub(crate) fn reset(&mut self, deadline: Instant) {
        if !self.set_later(deadline) {
            self.reset_anyhow(deadline);
        }
    }

    /// Sets a later deadline if the entry is armed in an engine on the monotonic clock: one change of the state word. Returns whether it did.
    #[inline]
    fn set_later(&mut self, deadline: Instant) -> bool {
        if self.phase() != EntryPhase::Armed || self.target.is_held() {
            return false;
        }
        let node = self.node();
        let Some(due) = origin_of(node).and_then(|origin| origin.to_time(deadline.into_std())) else { return false };
        let is_later = due >= self.deadline && node.state().later(self.deadline, due) == Later::Won;
        if is_later {
            self.deadline = due;
        }
        is_later
    }

    #[inline(never)]
    fn reset_anyhow(&mut self, deadline: Instant) {
        self.reset_on_clock(self.core().clock.time_of(deadline.into_std()));
    }

    /// [Resets](Entry::reset) the entry to a deadline on the engine's clock.
    pub(crate) fn reset_on_clock(&mut self, deadline: Time) {
        let (before, deadline) = (self.due(), self.core().deadline(deadline));
        self.set_held(false);
        if self.is_waiting() {
            return self.set_waiting_deadline(deadline);
        }
        self.deadline = deadline;
        self.deadline_changed(before);
    }

    /// Makes the entry idle, with another deadline on the engine's clock; the next poll arms it. Unlike [`reset`](Entry::reset) it wakes no
    /// waker, and never means never in virtual time too.
    pub(crate) fn set_due(&mut self, deadline: Time) {
        self.make_idle();
        let deadline = representable(deadline);
        if !self.is_waiting() {
            self.deadline = deadline;
        } else if self.move_wait(deadline) == Moved::Ended {
            drop(self.leave_wait_queue());
            self.deadline = deadline;
        }
    }

    /// Cancels the timer, or ends the wait for a slot, and drops the waker. The deadline stays; the next poll arms the entry again.
    pub(crate) fn disarm(&mut self) {
        self.make_idle();
        drop(self.leave_wait_queue());
    }

    /// Holds the entry: it is never due until [`let_go`](Entry::let_go) or [`reset`](Entry::reset). The deadline and the waker stay.
    pub(crate) fn hold(&mut self) {
        let before = self.due();
        self.set_held(true);
        self.deadline_changed(before);
    }

    /// Ends a [`hold`](Entry::hold): the entry is due at its deadline again.
    pub(crate) fn let_go(&mut self) {
        let before = self.due();
        self.set_held(false);
        if self.due() != before {
            self.deadline_changed(before);
        }
    }

    /// Applies a changed effective deadline, which was `before`, to the node or to the wait for a slot.
    fn deadline_changed(&mut self, before: Time) {
        let due = self.due();
        if self.is_waiting() {
            self.set_waiting_deadline(self.stored_deadline());
        } else if self.phase() != EntryPhase::Armed {
            self.set_phase(EntryPhase::Idle);
        } else if due < before {
            self.move_or_migrate(due);
        } else if due > before && self.core().is_virtual {
            self.set_later_virtual(due);
        } else if due > before && self.core().clock.is_manual() && self.move_if_owner(due) {
            // The order of equal deadlines then depends on the calls alone, and not on when the queue finds the new deadline.
        } else if self.node().state().later(before, due) == Later::Lost {
            self.make_idle();
        }
    }

    /// Sets a later deadline in a virtual engine: its next wake-up has to be exact at once.
    #[cold]
    fn set_later_virtual(&mut self, due: Time) {
        let core = self.core().to_ref();
        let shard = NonNull::from(self.shard());
        self.move_or_migrate(due);
        // The timer may have fired at its old deadline meanwhile: then the next poll arms the entry again.
        if self.phase() == EntryPhase::Fired && !self.is_past() {
            self.set_phase(EntryPhase::Idle);
        }
        core.refresh_and_replan(shard);
    }
}
