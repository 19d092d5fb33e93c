//! The account of sets: timers that have a name of their own, and are cancelled by it only.

use std::collections::{BTreeMap, HashMap};

use super::ledger::{Faults, TimerAccount};

/// What is known of one set.
#[derive(Default, Debug)]
pub(super) struct SetAccount {
    members: Vec<u64>,
    cancels_sent: u64,
    cancels_answered: u64,
    /// How many timers the answered cancels have counted.
    counted: u64,
    /// When the first cancel was answered.
    cancelled_at: Option<u64>,
}

impl SetAccount {
    pub(super) fn add(&mut self, key: u64) {
        self.members.push(key);
    }

    pub(super) fn cancelling(&mut self) {
        self.cancels_sent += 1;
    }

    pub(super) fn cancelled(&mut self, counted: u64, at: u64) {
        self.cancels_answered += 1;
        self.counted += counted;
        self.cancelled_at = Some(self.cancelled_at.map_or(at, |first| first.min(at)));
    }

    /// Returns whether a cancel by name was sent, so that a member alone does not say whether it is lost.
    pub(super) fn may_be_cancelled(&self) -> bool {
        self.cancels_sent > 0
    }

    /// Compares what cancels have counted with what was delivered and what is pending.
    fn compare(&self, set: u64, timers: &HashMap<u64, TimerAccount>, pending: &HashMap<u64, u64>, faults: &mut Faults) {
        let (mut missing, mut unknown, mut is_any_pending) = (0, 0, false);
        for key in &self.members {
            let Some(timer) = timers.get(key) else { continue };
            // What was created without an answer may have come after the cancel.
            if timer.is_created && timer.is_fired_after(self.cancelled_at) {
                faults.cancelled_delivered.push(*key);
            }
            let is_pending = pending.contains_key(key);
            is_any_pending |= is_pending && timer.is_created;
            match (timer.is_fired() || is_pending, timer.is_created) {
                (true, _) => {}
                (false, true) => missing += 1,
                (false, false) => unknown += 1,
            }
        }
        if self.cancelled_at.is_some() && is_any_pending {
            faults.cancelled_delivered.push(set);
        }
        // A cancel by name is one transaction: one that has left a timer pending has cancelled none.
        let may_be_more = self.cancels_sent > self.cancels_answered && !is_any_pending;
        if missing > self.counted && !may_be_more {
            faults.lost.push(set);
        }
        if self.counted > missing + unknown {
            faults.cancelled_delivered.push(set);
        }
    }
}

/// The account of all sets.
#[derive(Default)]
pub(super) struct Sets(BTreeMap<u64, SetAccount>);

impl Sets {
    pub(super) fn of(&mut self, set: u64) -> &mut SetAccount {
        self.0.entry(set).or_default()
    }

    pub(super) fn may_be_cancelled(&self, set: u64) -> bool {
        self.get(set).is_some_and(SetAccount::may_be_cancelled)
    }

    pub(super) fn get(&self, set: u64) -> Option<&SetAccount> {
        self.0.get(&set)
    }

    /// Returns how many timers were counted by cancels by name.
    pub(super) fn counted(&self) -> u64 {
        self.0.values().map(|set| set.counted).sum()
    }

    pub(super) fn compare(
        &self,
        timers: &HashMap<u64, TimerAccount>,
        pending: &HashMap<u64, u64>,
        faults: &mut Faults,
    ) {
        for (set, account) in self.0.iter().filter(|(_, account)| account.may_be_cancelled()) {
            account.compare(*set, timers, pending, faults);
        }
    }
}
