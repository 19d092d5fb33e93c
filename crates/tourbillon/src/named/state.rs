//! All timers and their names, behind one lock. This module reads no clock and calls no user code.
//!
//! ```text
//!     names: name -> list        deadlines: timers, by their deadlines
//!     lists: oldest <-> ... <-> newest, linked through the timers of one name
//! ```
//!
//! A restart takes the list from its name and marks it as cancelled, in one step. Its timers are ended afterwards, in batches; a thread
//! that comes across one of them earlier ends it as cancelled.

use std::collections::HashMap;
use std::sync::Arc;

use tourbillon_queue::Time;

use super::renewals::Renewal;
use crate::core::error::ArmError;
use crate::multi::deadline_map::{self, DeadlineKey, DeadlineMap, Popped};
use crate::multi::due_items::Firing;
use crate::multi::waiter::TimerWaiter;
use crate::outcome::Outcome;

/// All timers of a [`NamedTimers`](super::NamedTimers). The thread that removes a timer, under the lock, decides its outcome, and
/// notifies its waiter after it has released the lock.
pub(super) struct NamedState {
    pub(super) deadlines: DeadlineMap<NamedItem>,
    pub(super) names: HashMap<Arc<str>, u32>,
    /// Indexed by the values of `names`; some are free.
    pub(super) lists: Vec<NameList>,
    free: Vec<u32>,
    /// The most timers that there can be.
    most: usize,
    /// How many timers have been created.
    pub(super) created: u64,
    /// How many timers are started and pending.
    pub(super) pending: usize,
    /// How many timers are in lists that a restart has cancelled. They no longer count.
    cancelled: usize,
    /// Renewals that have not reached all their timers.
    pub(super) renewals: Vec<Renewal>,
    /// The id of the last renewal.
    pub(super) last_renewal: u32,
    /// Whether the timers were stopped, or all handles dropped: no more timers are accepted.
    pub(super) is_closed: bool,
    pub(super) firing: Firing,
}

/// One timer.
pub(super) struct NamedItem {
    pub(super) list: u32,
    /// The renewal that passes over this timer: it has moved the timer already, or the timer was started after it; else 0.
    pub(super) passed_by: u32,
    /// `None` before the timer is started.
    pub(super) waiter: Option<TimerWaiter>,
    /// The order of creation, in which the timers of a name are cancelled.
    pub(super) number: u64,
    /// The neighbours in the list of its name.
    before: Option<DeadlineKey>,
    pub(super) after: Option<DeadlineKey>,
}

/// The timers of one name, from the oldest to the newest, as a linked list.
pub(super) struct NameList {
    /// `None` if this list is free or cancelled.
    name: Option<Arc<str>>,
    /// The number of the restart that has cancelled the timers of this list.
    restart: Option<u64>,
    pub(super) first: Option<DeadlineKey>,
    last: Option<DeadlineKey>,
    len: usize,
    /// How many of them are started.
    pub(super) started: usize,
}

/// The result of starting a timer.
pub(super) enum StartResult {
    /// The timer is pending.
    Started,
    /// The timer had been cancelled before. The caller notifies the waiter.
    WasCancelled(TimerWaiter),
    /// The timers or the engine have been closed, so the timer was removed.
    Stopped(#[expect(dead_code, reason = "it is dropped outside the lock")] TimerWaiter),
}

/// A list that a restart has cancelled.
#[derive(Clone, Copy)]
pub(super) struct CancelledList {
    list: u32,
    /// Tells it apart from a later list with the same index.
    restart: u64,
    /// How many timers it had.
    pub(super) count: usize,
}

/// A direction in a list.
enum Side {
    /// Towards the oldest timer.
    Before,
    /// Towards the newest timer.
    After,
}

/// Timers that were removed, each with the outcome of which its waiter has to be notified.
pub(super) type EndedTimers = Vec<(TimerWaiter, Outcome)>;

/// How many timers are removed before the lock is released (D26).
pub(super) const BATCH: usize = 256;

/// How many steps of the wheel's upkeep are done, or indices looked at, before the lock is released.
const STEPS: usize = 1024;

/// The memory for this many names is kept when there are no names.
const KEPT: usize = 1024;

impl NamedState {
    pub(super) fn new(most: usize) -> NamedState {
        NamedState {
            most: most.min(deadline_map::MOST),
            deadlines: DeadlineMap::new(),
            names: HashMap::new(),
            lists: Vec::new(),
            free: Vec::new(),
            created: 0,
            pending: 0,
            cancelled: 0,
            renewals: Vec::new(),
            last_renewal: 0,
            is_closed: false,
            firing: Firing::default(),
        }
    }

    /// Returns how many timers there are.
    pub(super) fn len(&self) -> usize {
        self.deadlines.len() - self.cancelled
    }

    /// Returns how many timers there are under this name.
    pub(super) fn count(&self, name: &str) -> usize {
        self.names.get(name).map_or(0, |list| self.lists[*list as usize].len)
    }

    pub(super) fn add(
        &mut self,
        name: &str,
        waiter: Option<TimerWaiter>,
        due: Time,
    ) -> Result<DeadlineKey, (ArmError, Option<TimerWaiter>)> {
        if self.len() >= self.most || self.deadlines.is_full() {
            return Err((ArmError::Full { capacity: self.most }, waiter));
        }
        let started = usize::from(waiter.is_some());
        self.pending += started;
        let list = self.list(name);
        let before = self.lists[list as usize].last;
        let item = NamedItem { list, passed_by: 0, waiter, number: self.created, before, after: None };
        let key = self.deadlines.insert(due, item);
        self.created += 1;
        self.link(before, list, Side::After, Some(key));
        let list = &mut self.lists[list as usize];
        (list.last, list.len, list.started) = (Some(key), list.len + 1, list.started + started);
        Ok(key)
    }

    /// Cancels the timers of a name, without ending them, and adds one. Returns their list, if there were any.
    pub(super) fn restart(
        &mut self,
        name: &str,
        waiter: TimerWaiter,
        due: Time,
    ) -> Result<(DeadlineKey, Option<CancelledList>), (ArmError, Option<TimerWaiter>)> {
        let Some(list) = self.names.get(name).copied() else {
            return self.add(name, Some(waiter), due).map(|key| (key, None));
        };
        let count = self.lists[list as usize].len;
        if self.len() - count >= self.most || self.deadlines.is_full() {
            return Err((ArmError::Full { capacity: self.most }, Some(waiter)));
        }
        let (restart, old) = (self.created, &mut self.lists[list as usize]);
        let name = old.name.take().expect("a list that a name leads to has that name");
        old.restart = Some(restart);
        self.names.remove(&name);
        self.cancelled += count;
        self.renewals.retain(|renewal| renewal.list != list);
        self.add(&name, Some(waiter), due).map(|key| (key, Some(CancelledList { list, restart, count })))
    }

    /// Ends timers of a list that a restart has cancelled, and adds them to the batch. Returns whether none is left.
    #[must_use]
    pub(super) fn take_cancelled(&mut self, cancelled: CancelledList, batch: &mut EndedTimers) -> bool {
        for _ in 0..BATCH {
            let list = self.lists.get(cancelled.list as usize);
            let list = list.filter(|list| list.restart == Some(cancelled.restart));
            let Some(first) = list.and_then(|list| list.first) else { return true };
            self.end(first, Outcome::Cancelled, batch);
        }
        false
    }

    fn is_cancelled(&self, list: u32) -> bool {
        self.lists[list as usize].restart.is_some()
    }

    pub(super) fn start(
        &mut self,
        key: DeadlineKey,
        due: Time,
        waiter: TimerWaiter,
        engine_is_closed: bool,
    ) -> StartResult {
        let list = self.deadlines.get(key).map(|item| item.list);
        if list.is_some_and(|list| self.is_cancelled(list)) {
            self.remove(key);
        }
        let renewal = list.and_then(|list| self.renewal_of(list)).map_or(0, |renewal| renewal.id);
        let Some(item) = self.deadlines.get_mut(key) else { return StartResult::WasCancelled(waiter) };
        if self.is_closed || engine_is_closed {
            self.remove(key);
            return StartResult::Stopped(waiter);
        }
        (item.waiter, item.passed_by) = (Some(waiter), renewal);
        self.lists[item.list as usize].started += 1;
        self.pending += 1;
        self.deadlines.set_deadline(key, due);
        StartResult::Started
    }

    pub(super) fn remove_unstarted(&mut self, key: DeadlineKey) {
        if self.deadlines.get(key).is_some_and(|item| item.waiter.is_none()) {
            self.remove(key);
        }
    }

    /// Removes a timer; `None` if it has ended.
    pub(super) fn remove(&mut self, key: DeadlineKey) -> Option<NamedItem> {
        let item = self.deadlines.remove(key)?;
        self.link(item.before, item.list, Side::After, item.after);
        self.link(item.after, item.list, Side::Before, item.before);
        self.cancelled -= usize::from(self.is_cancelled(item.list));
        self.pass_over_in_renewals(key, item.after);
        let (list, started) = (&mut self.lists[item.list as usize], usize::from(item.waiter.is_some()));
        (list.len, list.started) = (list.len - 1, list.started - started);
        self.free_if_empty(item.list);
        self.pending -= started;
        Some(item)
    }

    /// Cancels at most `most` timers of a name, the oldest first, of those with numbers below `end`. Returns how many; those that were
    /// started are added to the batch.
    pub(super) fn take_oldest(&mut self, name: &str, end: u64, most: usize, batch: &mut EndedTimers) -> usize {
        let Some(list) = self.names.get(name).copied() else { return 0 };
        let mut taken = 0;
        // Removing its last timer frees the list, and freeing the last list may free all of them.
        while taken < most
            && let Some(first) = self.lists.get(list as usize).and_then(|list| list.first)
            && self.deadlines.get(first).is_some_and(|item| item.number < end)
        {
            self.end(first, Outcome::Cancelled, batch);
            taken += 1;
        }
        taken
    }

    /// Ends started timers, by their indices from `cursor` on, and adds them to the batch. Returns whether the end was reached.
    #[must_use]
    pub(super) fn take_started(&mut self, cursor: &mut u32, outcome: Outcome, batch: &mut EndedTimers) -> bool {
        for _ in 0..STEPS {
            let Some(key) = self.deadlines.key_at(*cursor) else { return true };
            *cursor += 1;
            if self.deadlines.get(key).is_some_and(|item| item.waiter.is_some()) {
                self.end(key, outcome, batch);
            }
        }
        false
    }

    /// Ends due timers, in order, and adds them to the batch. Returns whether there may be more.
    #[must_use]
    pub(super) fn take_due(&mut self, now: Time, batch: &mut EndedTimers) -> bool {
        for _ in 0..BATCH {
            match self.deadlines.pop(now, STEPS) {
                Popped::Due(key, _) if self.try_renew(key) => {}
                Popped::Due(key, _) => self.end(key, Outcome::Fired, batch),
                Popped::NotYet => return true,
                Popped::Nothing => return false,
            }
        }
        true
    }

    /// Removes a timer. If it was started, its waiter is added to the batch.
    fn end(&mut self, key: DeadlineKey, outcome: Outcome, batch: &mut EndedTimers) {
        let list = self.deadlines.get(key).map(|item| item.list);
        let outcome = if list.is_some_and(|list| self.is_cancelled(list)) { Outcome::Cancelled } else { outcome };
        let waiter = self.remove(key).and_then(|item| item.waiter);
        batch.extend(waiter.map(|waiter| (waiter, outcome)));
    }

    /// Returns the list of a name, created if necessary.
    fn list(&mut self, name: &str) -> u32 {
        if let Some(list) = self.names.get(name) {
            return *list;
        }
        let name: Arc<str> = name.into();
        let list = NameList { name: Some(name.clone()), restart: None, first: None, last: None, len: 0, started: 0 };
        let index = match self.free.pop() {
            Some(index) => {
                self.lists[index as usize] = list;
                index
            }
            None => {
                self.lists.push(list);
                self.lists.len() as u32 - 1
            }
        };
        self.names.insert(name, index);
        index
    }

    fn free_if_empty(&mut self, index: u32) {
        let list = &mut self.lists[index as usize];
        let was_cancelled = list.len == 0 && list.restart.take().is_some();
        let name = if list.len == 0 { list.name.take() } else { None };
        if let Some(name) = &name {
            self.names.remove(name);
        }
        if was_cancelled || name.is_some() {
            self.free.push(index);
            self.give_memory_back();
        }
    }

    /// Frees the memory for names if there is no name left.
    fn give_memory_back(&mut self) {
        if self.names.is_empty() && self.cancelled == 0 && self.names.capacity() > KEPT {
            self.names = HashMap::new();
            (self.lists, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// Makes `neighbour` the one after or before `of` in a list. If `of` is `None`, makes it the list's first or last.
    fn link(&mut self, of: Option<DeadlineKey>, list: u32, side: Side, neighbour: Option<DeadlineKey>) {
        let item = of.and_then(|of| self.deadlines.get_mut(of));
        let list = &mut self.lists[list as usize];
        match (item, side) {
            (Some(item), Side::After) => item.after = neighbour,
            (Some(item), Side::Before) => item.before = neighbour,
            (None, Side::After) => list.first = neighbour,
            (None, Side::Before) => list.last = neighbour,
        }
    }
}
