//! An earlier deadline or another waker for an armed entry: the owning thread changes the timer within its shard, a remote thread migrates
//! it to its own shard.

use std::ptr::NonNull;
use std::task::{Poll, Waker};

use tourbillon_queue::Time;

use super::Entry;
use crate::core::thread_shard;
use crate::outcome::Outcome;
use crate::shard::{ArmKind, NotifyDriver, Release};
use crate::slack::SlackBits;

impl Entry {
    /// Moves the timer to `due` within its shard, or migrates it.
    pub(super) fn move_or_migrate(&mut self, due: Time) {
        if !self.is_past() && self.move_if_owner(due) {
            return;
        }
        if self.outcome().is_some() {
            self.make_idle();
        } else {
            _ = self.migrate(None);
        }
    }

    /// Moves the timer to `due` within its shard if the calling thread is the owner, and returns whether it is. If the timer has ended, the
    /// entry becomes idle.
    pub(super) fn move_if_owner(&mut self, due: Time) -> bool {
        let moved = thread_shard::with_owner(self.shard(), |local| {
            local.map(|local| local.shard().move_timer(&self.handle(), due))
        });
        match moved {
            Some(Some(NotifyDriver::Yes)) => self.notify_driver(),
            Some(Some(NotifyDriver::No)) => {}
            Some(None) => self.make_idle(),
            None => return false,
        }
        true
    }

    /// Polls an armed entry with another waker than its own.
    #[cold]
    pub(super) fn change_waker(&mut self, waker: &Waker) -> Poll<Outcome> {
        let mut new = Some(waker.clone());
        let changed = thread_shard::with_owner(self.shard(), |local| {
            local.map(|local| local.shard().change_waker(&self.handle(), &mut new))
        });
        match changed {
            Some(Some(old)) => {
                drop(old);
                Poll::Pending
            }
            Some(None) => self.poll_armed(waker),
            None => self.migrate(new),
        }
    }

    /// Migrates an armed entry from its shard to that of the calling thread, with the waker `new` or the one that it had.
    ///
    /// The entry keeps its slot within the capacity. While it is between the two shards no code of the user runs: if that panicked, the
    /// timer would be lost.
    fn migrate(&mut self, new: Option<Waker>) -> Poll<Outcome> {
        let old = match self.release_node(Release::Migrating) {
            Ok(old) => old,
            Err(outcome) => return self.ended(outcome),
        };
        let (waker, replaced) = match new {
            Some(new) => (new, Some(old)),
            None => (old, None),
        };
        let poll = if self.is_past() { self.fire(waker) } else { self.arm_again(waker) };
        drop(replaced);
        poll
    }

    /// Arms an armed entry anew, with another slack. It keeps its waker and its slot within the capacity, as in [`migrate`](Entry::migrate).
    /// If the timer has ended, the entry becomes idle.
    #[cold]
    pub(super) fn arm_with_slack(&mut self, slack: SlackBits) {
        let core = self.core().to_ref();
        let shard = NonNull::from(self.shard());
        let released = self.release_node(Release::Migrating);
        self.set_slack_when_idle(slack);
        if let Ok(waker) = released {
            _ = if self.is_past() { self.fire(waker) } else { self.arm_again(waker) };
            if core.is_virtual {
                core.refresh_and_replan(shard);
            }
        }
    }

    /// Arms a migrating entry in the shard of the calling thread.
    fn arm_again(&mut self, waker: Waker) -> Poll<Outcome> {
        let mut refused = None;
        if self.try_arm(ArmKind::Migrated, waker, &mut refused) {
            return Poll::Pending;
        }
        let poll = self.refused().unwrap_or(Poll::Pending);
        // The shard has refused it: the task is woken, so that it polls and sees the outcome.
        refused.into_iter().for_each(|waker| self.core().wake_one(waker));
        poll
    }

    /// Fires a migrating entry that is past its deadline.
    fn fire(&mut self, waker: Waker) -> Poll<Outcome> {
        let due = self.due();
        thread_shard::with(self.core_ptr(), |local| {
            local.shard().count_fired(local.now() - due);
        });
        self.free_slot();
        let ready = self.ended(Outcome::Fired);
        self.core().wake_one(waker);
        ready
    }
}
