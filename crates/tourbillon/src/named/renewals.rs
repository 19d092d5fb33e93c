//! Renewals: all started timers of a name get another deadline, in one step, and keep their callbacks.
//!
//! A renewal of many timers moves them in batches, and the lock is released between these (D26). Until it has reached a timer, the timer is
//! still in its old place; a thread that finds the timer due there moves it, so no timer ends by its old deadline after the renewal has begun.

use std::time::Duration;

use tourbillon_queue::Time;

use super::state::{BATCH, NamedState};
use super::{NamedShared, NamedTimers};
use crate::instant::Instant;
use crate::multi::deadline_map::DeadlineKey;
#[cfg(doc)]
use crate::outcome::Outcome;
use crate::sync::lock;

/// A renewal that has not reached all its timers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Renewal {
    pub(super) list: u32,
    /// Never 0.
    pub(super) id: u32,
    due: Time,
    /// The first timer that it has not reached.
    next: DeadlineKey,
    /// It ends before the timers with this number, and with higher ones, which were created later.
    end: u64,
}

impl NamedTimers {
    /// Gives all pending timers of a name another deadline, `after` from now, in a single step. They keep their callbacks and futures, and
    /// go on. Returns how many: none of them fires by its old deadline, also if that has passed meanwhile. Timers that are created and not
    /// started have no deadline, and do not count.
    ///
    /// Unlike [`restart`](NamedTimers::restart) it cancels nothing, allocates nothing and calls nothing, so it is the cheaper way to put off
    /// an idle timeout. To start a timer if there is none to renew, call [`start_if_fewer`](NamedTimers::start_if_fewer) with a limit of 1
    /// afterwards: of several threads that do so, one starts it. The deadline may also be earlier than the old one. Returns 0 if there is no such timer, as after a
    /// [`shutdown`](NamedTimers::shutdown).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::NamedTimers;
    ///
    /// let timers = NamedTimers::new();
    /// let idle = Duration::from_secs(30);
    /// timers.start("session 7", idle, |outcome| println!("session 7 ends: {outcome}"))?;
    /// assert_eq!(timers.renew("session 7", idle), 1); // another packet: 30 more seconds
    /// assert_eq!(timers.renew("session 8", idle), 0); // too late, or never there
    /// # Ok::<(), tourbillon::ArmError>(())
    /// ```
    pub fn renew(&self, name: &str, after: Duration) -> usize {
        self.renew_due(name, self.owner.shared.due_after(after))
    }

    /// [Renews](NamedTimers::renew) the timers of a name, to fire at `deadline`.
    pub fn renew_at(&self, name: &str, deadline: Instant) -> usize {
        self.renew_due(name, self.owner.shared.due_at(deadline))
    }

    pub(crate) fn renew_due(&self, name: &str, due: Time) -> usize {
        self.owner.shared.renew(name, due)
    }
}

impl NamedShared {
    fn renew(&self, name: &str, due: Time) -> usize {
        let (count, id, mut is_over) = {
            let mut state = lock(&self.state);
            if state.is_closed || self.core.is_closed() {
                return 0;
            }
            let Some((count, id)) = state.begin_renewal(name, due) else { return 0 };
            (count, id, state.renew_batch(id))
        };
        // After each batch: the wake-up for an earlier deadline may have come and gone between two of them.
        self.wakeup.set(due);
        while !is_over {
            is_over = lock(&self.state).renew_batch(id);
            self.wakeup.set(due);
        }
        self.postpone_wakeup();
        count
    }
}

impl NamedState {
    /// Begins a renewal of the started timers of a name. Returns how many there are, and the id of the renewal; `None` if there is none. It
    /// takes the place of an earlier renewal that has not reached all its timers: those are among the timers of this one.
    fn begin_renewal(&mut self, name: &str, due: Time) -> Option<(usize, u32)> {
        let list = *self.names.get(name)?;
        let count = self.lists[list as usize].started;
        let next = self.lists[list as usize].first.filter(|_| count > 0)?;
        self.renewals.retain(|renewal| renewal.list != list);
        self.last_renewal = self.last_renewal.wrapping_add(1).max(1);
        self.renewals.push(Renewal { list, id: self.last_renewal, due, next, end: self.created });
        Some((count, self.last_renewal))
    }

    /// Moves the next timers of a renewal, and returns whether it is over: it has reached all, or another has taken its place.
    #[must_use]
    fn renew_batch(&mut self, id: u32) -> bool {
        let Some(index) = self.renewals.iter().position(|renewal| renewal.id == id) else { return true };
        let Renewal { due, end, mut next, .. } = self.renewals[index];
        for _ in 0..BATCH {
            let item = self.deadlines.get_mut(next).filter(|item| item.number < end);
            let after = item.map(|item| {
                let is_passed = std::mem::take(&mut item.passed_by) == id;
                (item.after, item.waiter.is_some() && !is_passed)
            });
            if let Some((_, true)) = after {
                self.deadlines.set_deadline(next, due);
            }
            let Some(after) = after.and_then(|(after, _)| after) else {
                self.renewals.swap_remove(index);
                return true;
            };
            next = after;
        }
        self.renewals[index].next = next;
        false
    }

    /// Moves a timer, which is due by the deadline that it has, if a renewal has not reached it yet. Returns whether there is such a renewal.
    #[must_use]
    pub(super) fn try_renew(&mut self, key: DeadlineKey) -> bool {
        if self.renewals.is_empty() {
            return false;
        }
        let Some(item) = self.deadlines.get(key) else { return false };
        let Some(Renewal { id, due, next, end, .. }) = self.renewal_of(item.list) else { return false };
        let reached = self.deadlines.get(next).map_or(end, |next| next.number);
        if item.passed_by == id || !(reached..end).contains(&item.number) {
            return false;
        }
        if let Some(item) = self.deadlines.get_mut(key) {
            item.passed_by = id;
        }
        self.deadlines.set_deadline(key, due);
        true
    }

    /// Returns the renewal of a list that has not reached all its timers.
    pub(super) fn renewal_of(&self, list: u32) -> Option<Renewal> {
        self.renewals.iter().find(|renewal| renewal.list == list).copied()
    }

    /// Notes that a timer is removed, and which one came after it in its list.
    pub(super) fn pass_over_in_renewals(&mut self, removed: DeadlineKey, after: Option<DeadlineKey>) {
        let Some(index) = self.renewals.iter().position(|renewal| renewal.next == removed) else { return };
        match after {
            Some(after) => self.renewals[index].next = after,
            None => _ = self.renewals.swap_remove(index),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::multi::waiter::TimerWaiter;
    use crate::named::state::EndedTimers;

    const SOON: Time = Time::from_nanos(10);
    const LATE: Time = Time::from_nanos(1_000);
    const MANY: usize = 3 * BATCH;

    fn started(state: &mut NamedState, due: Time) -> DeadlineKey {
        let waiter = Some(TimerWaiter::Callback(Box::new(|_| ())));
        state.add("a", waiter, due).unwrap_or_else(|(error, _)| panic!("{error}"))
    }

    /// Ends all timers that are due, and returns how many.
    fn fired(state: &mut NamedState, now: Time) -> usize {
        let mut batch = EndedTimers::new();
        while state.take_due(now, &mut batch) {}
        batch.len()
    }

    fn renewed_to_the_end(state: &mut NamedState, id: u32) {
        while !state.renew_batch(id) {}
        assert!(state.renewals.is_empty());
    }

    #[test]
    fn e6_d26_a_timer_that_a_renewal_has_not_reached_does_not_fire_by_its_old_deadline() {
        let mut state = NamedState::new(usize::MAX);
        (0..MANY).for_each(|_| _ = started(&mut state, SOON));
        let (count, id) = state.begin_renewal("a", LATE).unwrap();
        assert_eq!(count, MANY);
        assert!(!state.renew_batch(id), "there are three batches");
        assert_eq!(fired(&mut state, SOON), 0);
        renewed_to_the_end(&mut state, id);
        assert_eq!((fired(&mut state, SOON), fired(&mut state, LATE)), (0, MANY));
    }

    #[test]
    fn e6_d26_timers_that_begin_or_end_during_a_renewal_keep_their_own_deadlines() {
        let mut state = NamedState::new(usize::MAX);
        let keys: Vec<_> = (0..MANY).map(|_| started(&mut state, SOON)).collect();
        let created = state.add("a", None, Time::NEVER).unwrap_or_else(|(error, _)| panic!("{error}"));
        let (count, id) = state.begin_renewal("a", LATE).unwrap();
        assert_eq!(count, MANY, "one is not started");
        assert!(!state.renew_batch(id));
        // The timer that comes next, and the last ones.
        drop(state.remove(keys[BATCH]));
        drop(state.remove(keys[MANY - 1]));
        let waiter = TimerWaiter::Callback(Box::new(|_| ()));
        let _started = state.start(created, SOON, waiter, false);
        started(&mut state, SOON);
        assert_eq!(fired(&mut state, SOON), 2, "both were started after the renewal had begun");
        renewed_to_the_end(&mut state, id);
        assert_eq!((fired(&mut state, SOON), fired(&mut state, LATE)), (0, MANY - 2));
    }

    #[test]
    fn e6_d26_of_two_renewals_the_later_one_counts_and_a_restart_ends_both() {
        let mut state = NamedState::new(usize::MAX);
        (0..MANY).for_each(|_| _ = started(&mut state, SOON));
        let (_, first) = state.begin_renewal("a", Time::NEVER).unwrap();
        assert!(!state.renew_batch(first));
        assert_eq!(fired(&mut state, SOON), 0, "all have been moved by now");
        let (count, second) = state.begin_renewal("a", LATE).unwrap();
        assert_eq!(count, MANY);
        assert!(state.renew_batch(first), "it has been replaced");
        renewed_to_the_end(&mut state, second);
        assert_eq!(fired(&mut state, LATE), MANY);

        (0..MANY).for_each(|_| _ = started(&mut state, SOON));
        let (_, id) = state.begin_renewal("a", LATE).unwrap();
        let waiter = TimerWaiter::Callback(Box::new(|_| ()));
        let (_, cancelled) = state.restart("a", waiter, LATE).unwrap_or_else(|(error, _)| panic!("{error}"));
        assert!(state.renew_batch(id) && state.renewals.is_empty());
        let mut batch = EndedTimers::new();
        while !state.take_cancelled(cancelled.unwrap(), &mut batch) {}
        assert_eq!((batch.len(), state.len()), (MANY, 1));
    }
}
