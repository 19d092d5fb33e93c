//! The life of an entry, in one word.
//!
//! ```text
//!                 later
//!                 +--+
//!                 |  v       fire
//!     Free ----> Armed(d) ---------> Fired  -----+
//!       ^  arm    |   |      stop                |  release (the handle sends the node home)
//!       |         |   +-----------> Stopped -----+----------+
//!       |         | cancel                                  v
//!       |         +---------------> Cancelled -------> Returned(next)
//!       |                                                   |
//!       +---------------------------------------------------+  recycle
//! ```
//!
//! Two parties act on the word, and each is one at a time: the *handle* (whoever has the `Entry` by `&mut`, on any thread)
//! and the *shard* (whoever holds the shard's lock). Release `Armed` is the only race between them, and it is decided by one
//! compare-and-swap: one of `fire`, `stop` and `cancel` wins, and is told so. (P2)
//!
//! | state | in the queue | who owns the waker | who may leave the state |
//! |---|---|---|---|
//! | `Free` | no | there is none | shard: `arm` |
//! | `Armed(d)` | yes, due at `d` or before; no if `d` is never | shard, to take it when it fires | shard: `fire`, `stop`; handle: `later`, `cancel` |
//! | `Fired`, `Stopped` | no | shard: it took it in the same visit | handle: release |
//! | `Cancelled` | perhaps still | handle: it drops it | handle: release |
//! | `Returned(next)` | perhaps still | nobody | shard: recycle |
//!
//! A handle that holds the shard's lock itself is both parties at once and goes from any state to `Free` by a plain store.
//!
//! In `Armed` the word is the deadline, so pushing the deadline later needs no lock (T4): the shard, coming for the old
//! deadline, finds the new one in the word. The last 2^36 values name the other states; a deadline that would fall among them,
//! five centuries from now, is never.

use tourbillon_queue::Time;

use crate::Outcome;
use crate::clock::{LAST, representable};
use crate::sync::{AtomicU64, Ordering};

/// The state of one entry.
pub(crate) struct StateWord(AtomicU64);

/// What the word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Armed(Time),
    Fired,
    Stopped,
    Cancelled,
    /// On its way home, the next one of those on their way, and how it had ended.
    Returned(u32, Ended),
    /// In the list of free nodes. The next one in that list.
    Free(u32),
}

/// How the handle found its entry when it sent the node home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ended {
    /// By its own cancel.
    Cancelled,
    /// Fired or stopped: the shard has counted it.
    Before,
}

/// What came of an attempt to fire.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fire {
    /// It is fired; its deadline had been this.
    Won(Time),
    /// Its deadline has been pushed later, to this.
    NotYet(Time),
    /// The handle has cancelled it.
    Lost,
}

/// What came of an attempt to stop.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Won,
    /// It had ended already.
    Lost,
}

/// What came of an attempt to cancel.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancel {
    /// Nobody will see it fire. The waker is the handle's.
    Won,
    /// It had ended already.
    Lost(Outcome),
}

/// What came of an attempt to push the deadline later.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Later {
    Won,
    /// It had ended already.
    Lost,
}

const FIRST_SPECIAL: u64 = u64::MAX << 36;
const KIND: u64 = 0xf << 32;
const FIRED: u64 = FIRST_SPECIAL;
const STOPPED: u64 = FIRST_SPECIAL | 1 << 32;
const CANCELLED: u64 = FIRST_SPECIAL | 2 << 32;
const RETURNED: u64 = FIRST_SPECIAL | 3 << 32;
const RETURNED_CANCELLED: u64 = FIRST_SPECIAL | 4 << 32;
const FREE: u64 = FIRST_SPECIAL | 5 << 32;
const NEVER: u64 = u64::MAX;

// No deadline can be mistaken for a state: the clocks end before the first state.
const _: () = assert!(LAST.as_nanos() == FIRST_SPECIAL - 1);
const _: () = assert!(NEVER == Time::NEVER.as_nanos() && NEVER & KIND == 0xf << 32);

impl StateWord {
    pub(crate) fn free() -> StateWord {
        StateWord(AtomicU64::new(FREE))
    }

    /// What it is now. What was written before the state was reached can be read after this.
    #[inline(always)]
    pub(crate) fn see(&self) -> Seen {
        Seen::from_word(self.0.load(Ordering::Acquire))
    }

    /// Shard, or a handle with the lock: from `Free` to `Armed`, or to another deadline.
    #[inline(always)]
    pub(crate) fn arm(&self, deadline: Time) {
        debug_assert!(deadline == representable(deadline));
        self.0.store(deadline.as_nanos(), Ordering::Relaxed);
    }

    /// Shard: fires it, if it is due by `then`.
    pub(crate) fn fire(&self, then: Time) -> Fire {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let Seen::Armed(deadline) = Seen::from_word(word) else { return Fire::Lost };
            if deadline > then {
                return Fire::NotYet(deadline);
            }
            match self.swap(word, FIRED) {
                Ok(()) => return Fire::Won(deadline),
                Err(changed) => word = changed,
            }
        }
    }

    /// Shard: ends it, because the engine ends.
    pub(crate) fn stop(&self) -> Stop {
        let mut word = self.0.load(Ordering::Relaxed);
        while let Seen::Armed(_) = Seen::from_word(word) {
            match self.swap(word, STOPPED) {
                Ok(()) => return Stop::Won,
                Err(changed) => word = changed,
            }
        }
        Stop::Lost
    }

    /// Handle: ends it.
    pub(crate) fn cancel(&self) -> Cancel {
        let word = self.0.load(Ordering::Acquire);
        // Only the handle changes the deadline, so a failure means that the shard was first.
        match self.swap_if_armed(word, CANCELLED) {
            Ok(()) => Cancel::Won,
            Err(ended) => Cancel::Lost(Seen::from_word(ended).outcome()),
        }
    }

    /// Handle: from the deadline `from`, which it has set itself, to `to`, which is not before it.
    pub(crate) fn later(&self, from: Time, to: Time) -> Later {
        debug_assert!(from <= to && to == representable(to));
        match self.swap(from.as_nanos(), to.as_nanos()) {
            Ok(()) => Later::Won,
            Err(_) => Later::Lost,
        }
    }

    /// Handle, on sending an ended node home: leaves with it which one is sent home before it. The caller publishes
    /// the node after that.
    pub(crate) fn set_returned(&self, next: u32, ended: Ended) {
        let kind = match ended {
            Ended::Cancelled => RETURNED_CANCELLED,
            Ended::Before => RETURNED,
        };
        self.0.store(kind | u64::from(next), Ordering::Relaxed);
    }

    /// Shard, or a handle with the lock.
    #[inline(always)]
    pub(crate) fn set_free(&self, next: u32) {
        self.0.store(FREE | u64::from(next), Ordering::Relaxed);
    }

    fn swap_if_armed(&self, from: u64, to: u64) -> Result<(), u64> {
        match Seen::from_word(from) {
            Seen::Armed(_) => self.swap(from, to),
            _ => Err(from),
        }
    }

    /// Acquires what the other party did before, and releases what this one did.
    fn swap(&self, from: u64, to: u64) -> Result<(), u64> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

impl Seen {
    /// How an entry has ended that the handle finds not armed.
    pub(crate) fn outcome(self) -> Outcome {
        if self == Seen::Stopped { Outcome::Stopped } else { Outcome::Fired }
    }

    #[inline(always)]
    fn from_word(word: u64) -> Seen {
        if word < FIRST_SPECIAL || word == NEVER {
            return Seen::Armed(Time::from_nanos(word));
        }
        let next = word as u32;
        match word & !u64::from(u32::MAX) {
            FIRED => Seen::Fired,
            STOPPED => Seen::Stopped,
            CANCELLED => Seen::Cancelled,
            RETURNED => Seen::Returned(next, Ended::Before),
            RETURNED_CANCELLED => Seen::Returned(next, Ended::Cancelled),
            _ => Seen::Free(next),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// The least and the greatest deadline that a word can be, one between, and never.
    const DEADLINES: [Time; 4] =
        [Time::ZERO, Time::from_nanos(1 << 40), Time::from_nanos(FIRST_SPECIAL - 1), Time::NEVER];

    fn armed(deadline: Time) -> StateWord {
        let state = StateWord::free();
        state.arm(deadline);
        state
    }

    #[test]
    fn what_a_word_says_is_what_was_written_into_it() {
        for deadline in DEADLINES {
            assert_eq!(armed(deadline).see(), Seen::Armed(deadline));
        }
        let state = StateWord::free();
        for next in [0, 1, u32::MAX] {
            state.set_free(next);
            assert_eq!(state.see(), Seen::Free(next));
            for ended in [Ended::Cancelled, Ended::Before] {
                state.set_returned(next, ended);
                assert_eq!(state.see(), Seen::Returned(next, ended));
            }
        }
    }

    #[test]
    fn p5_a_deadline_that_would_be_mistaken_for_a_state_is_never_and_the_last_before_them_is_itself() {
        for deadline in DEADLINES {
            assert_eq!(representable(deadline), deadline);
        }
        for nanos in [FIRST_SPECIAL, FIRST_SPECIAL + 1, CANCELLED, FREE | 7, u64::MAX - 1] {
            assert_eq!(representable(Time::from_nanos(nanos)), Time::NEVER);
        }
    }

    #[test]
    fn p2_who_ends_an_entry_first_has_ended_it_and_the_others_are_told() {
        let now = Time::from_nanos(1 << 40);
        let fired = armed(now);
        assert_eq!((fired.fire(now), fired.see()), (Fire::Won(now), Seen::Fired));
        let stopped = armed(Time::NEVER);
        assert_eq!((stopped.stop(), stopped.see()), (Stop::Won, Seen::Stopped));
        let cancelled = armed(now);
        assert_eq!((cancelled.cancel(), cancelled.see()), (Cancel::Won, Seen::Cancelled));

        for ended in [fired, stopped, cancelled] {
            let seen = ended.see();
            assert_eq!((ended.fire(Time::NEVER), ended.stop()), (Fire::Lost, Stop::Lost));
            assert_eq!(ended.later(now, Time::NEVER), Later::Lost);
            let outcome = if seen == Seen::Stopped { Outcome::Stopped } else { Outcome::Fired };
            assert_eq!(ended.cancel(), Cancel::Lost(outcome));
            assert_eq!(ended.see(), seen, "and it stays as it has ended");
        }
    }

    #[test]
    fn p1_t4_an_entry_that_was_pushed_later_is_not_fired_before_its_new_deadline() {
        let [before, now, after] = [1000, 1001, 1002].map(Time::from_nanos);
        let state = armed(before);
        assert_eq!(state.later(before, after), Later::Won);
        assert_eq!(state.later(before, Time::NEVER), Later::Lost, "that is not its deadline any more");
        assert_eq!((state.fire(now), state.see()), (Fire::NotYet(after), Seen::Armed(after)));
        assert_eq!(state.fire(after), Fire::Won(after));
    }
}
