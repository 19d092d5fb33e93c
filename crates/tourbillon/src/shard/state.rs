//! The state word: the state of one timer in one atomic word of its node.
//!
//! ```text
//!                 later
//!                 +--+
//!                 |  v       fire
//!     Free ----> Armed(d) ---------> Fired  -----+
//!       ^  arm    |   |      stop                |  release: the handle pushes the node
//!       |         |   +-----------> Stopped -----+----------+  onto the remote free list
//!       |         | release: cancels                        v
//!       |         +-----------------------------------> Released(next)
//!       |                                                   |
//!       +---------------------------------------------------+  recycle
//! ```
//!
//! Two parties change the word, and each of them is one thread at a time: the *handle* (the thread that has the `Entry` by `&mut`) and
//! the *shard* (the thread that holds the shard's lock). They race for one thing, to leave `Armed`, and one atomic operation decides
//! that: of `fire`, `stop` and `release` only one finds the word armed (P2). The release is a swap, because the handle gives the node back
//! however the timer has ended.
//!
//! | state | in the queue | owner of the waker | transitions out of the state |
//! |---|---|---|---|
//! | `Free` | no | there is no waker | shard: `arm` |
//! | `Armed(d)` | in the queue or the insert buffer, at `d` rounded up for its slack or before; in neither if `d` is never | shard: takes it when it fires or stops the timer | shard: `fire`, `stop`; handle: `later`, `release` |
//! | `Fired`, `Stopped` | no | shard: took it in the same visit | handle: `release` |
//! | `Released(next)` | possibly still | handle, if it has cancelled the timer: takes it before it pushes the node | shard: recycle |
//!
//! A handle that holds the shard's lock is both parties at once, and goes from any state to `Free` by a plain store.
//!
//! In `Armed` the word is the deadline, so the handle pushes the deadline later without a lock (T4): when the shard comes to fire the
//! timer at the old deadline, it finds the new one in the word. The last 2^36 values encode the other states; a deadline that would fall
//! among them, five centuries from now, is never.

use tourbillon_queue::Time;

use crate::Outcome;
use crate::clock::{LAST, representable};
use crate::sync::{AtomicU64, Ordering};

/// The state of one node, and so of the entry that has armed it.
pub(crate) struct StateWord(AtomicU64);

/// The state that a word encodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeState {
    /// Pending, with this deadline.
    Armed(Time),
    /// Ended by a visit: the deadline had passed.
    Fired,
    /// Ended by the shutdown of the engine.
    Stopped,
    /// In the remote free list, or about to be pushed there: the index of the next node there, and what the shard counts when it recycles
    /// this one.
    Released(u32, CountAs),
    /// In the list of free nodes: the index of the next node there.
    Free(u32),
}

/// The count that the shard raises when it recycles a node that a remote thread has released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CountAs {
    /// A cancelled timer.
    Cancelled,
    /// Nothing: the shard counted the timer when it fired or stopped it, or the timer has migrated.
    Nothing,
}

/// The outcome of an attempt to fire.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fire {
    /// The timer is fired; this was its deadline.
    Won(Time),
    /// The handle has pushed the deadline later, to this.
    NotYet(Time),
    /// The timer had ended already: the handle has cancelled it, or it was fired or stopped.
    Lost,
}

/// The outcome of an attempt to stop.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    Won,
    /// The timer had ended already.
    Lost,
}

/// The outcome of a release.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Released {
    /// The timer is cancelled: it will not fire, and the waker is the handle's.
    Cancelled,
    /// The timer had ended already.
    Ended(Outcome),
}

/// The outcome of an attempt to push the deadline later.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Later {
    Won,
    /// The timer had ended already.
    Lost,
}

const FIRST_SPECIAL: u64 = u64::MAX << 36;
const FIRED: u64 = FIRST_SPECIAL;
const STOPPED: u64 = FIRST_SPECIAL | 1 << 32;
const RELEASED: u64 = FIRST_SPECIAL | 2 << 32;
const RELEASED_CANCELLED: u64 = FIRST_SPECIAL | 3 << 32;
const FREE: u64 = FIRST_SPECIAL | 4 << 32;
const NEVER: u64 = u64::MAX;

// No deadline can be mistaken for a state: the last time of every clock is below the first state.
const _: () = assert!(LAST.as_nanos() == FIRST_SPECIAL - 1);
const _: () = assert!(NEVER == Time::NEVER.as_nanos() && NEVER & 0xf << 32 == 0xf << 32);

impl StateWord {
    pub(crate) fn free() -> StateWord {
        StateWord(AtomicU64::new(FREE))
    }

    /// Returns the state. The load acquires: the caller sees the writes that were made before the state was reached.
    #[inline(always)]
    pub(crate) fn load(&self) -> NodeState {
        NodeState::from_word(self.0.load(Ordering::Acquire))
    }

    /// Sets the state from `Free` to `Armed`, or sets another deadline. For the shard, or a handle that holds its lock.
    #[inline(always)]
    pub(crate) fn arm(&self, deadline: Time) {
        debug_assert!(deadline == representable(deadline));
        self.0.store(deadline.as_nanos(), Ordering::Relaxed);
    }

    /// Fires the timer if its deadline is `then` or earlier. For the shard.
    pub(crate) fn fire(&self, then: Time) -> Fire {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let NodeState::Armed(deadline) = NodeState::from_word(word) else { return Fire::Lost };
            if deadline > then {
                return Fire::NotYet(deadline);
            }
            match self.swap(word, FIRED) {
                Ok(()) => return Fire::Won(deadline),
                Err(changed) => word = changed,
            }
        }
    }

    /// Stops the timer, because the engine shuts down. For the shard.
    pub(crate) fn stop(&self) -> Stop {
        let mut word = self.0.load(Ordering::Relaxed);
        while let NodeState::Armed(_) = NodeState::from_word(word) {
            match self.swap(word, STOPPED) {
                Ok(()) => return Stop::Won,
                Err(changed) => word = changed,
            }
        }
        Stop::Lost
    }

    /// Cancels the timer, unless it has ended, and links its node to `next`, the node below it in the remote free list. The shard is to count
    /// a cancelled timer as `count`. The caller publishes the node after that. For the handle.
    #[inline(always)]
    pub(crate) fn release(&self, next: u32, count: CountAs) -> Released {
        // One operation that writes, and no read before it: the word is in another processor's cache, and comes from there once.
        match NodeState::from_word(self.0.swap(released(next, count), Ordering::AcqRel)) {
            NodeState::Armed(_) => Released::Cancelled,
            ended => {
                self.set_released(next, CountAs::Nothing);
                Released::Ended(ended.outcome())
            }
        }
    }

    /// Pushes the deadline from `from`, which the handle has set itself, to `to`, which is not before it. For the handle.
    pub(crate) fn later(&self, from: Time, to: Time) -> Later {
        debug_assert!(from <= to && to == representable(to));
        match self.swap(from.as_nanos(), to.as_nanos()) {
            Ok(()) => Later::Won,
            Err(_) => Later::Lost,
        }
    }

    /// Links a released node to `next` instead. The caller publishes the node after that. For the handle.
    pub(crate) fn set_released(&self, next: u32, count: CountAs) {
        self.0.store(released(next, count), Ordering::Relaxed);
    }

    /// Links a free node to `next`, the one after it in the list of free nodes. For the shard, or a handle that holds its lock.
    #[inline(always)]
    pub(crate) fn set_free(&self, next: u32) {
        self.0.store(FREE | u64::from(next), Ordering::Relaxed);
    }

    /// Acquires the writes that the other party made before, and releases those of this one.
    fn swap(&self, from: u64, to: u64) -> Result<(), u64> {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }
}

/// Returns the word of a released node.
#[inline(always)]
fn released(next: u32, count: CountAs) -> u64 {
    let kind = match count {
        CountAs::Cancelled => RELEASED_CANCELLED,
        CountAs::Nothing => RELEASED,
    };
    kind | u64::from(next)
}

impl NodeState {
    /// Returns how the timer has ended, for a handle that finds it not armed.
    pub(crate) fn outcome(self) -> Outcome {
        if self == NodeState::Stopped { Outcome::Stopped } else { Outcome::Fired }
    }

    #[inline(always)]
    fn from_word(word: u64) -> NodeState {
        if word < FIRST_SPECIAL || word == NEVER {
            return NodeState::Armed(Time::from_nanos(word));
        }
        let next = word as u32;
        match word & !u64::from(u32::MAX) {
            FIRED => NodeState::Fired,
            STOPPED => NodeState::Stopped,
            RELEASED => NodeState::Released(next, CountAs::Nothing),
            RELEASED_CANCELLED => NodeState::Released(next, CountAs::Cancelled),
            _ => NodeState::Free(next),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// The least and the greatest deadline that a word can encode, one between, and never.
    const DEADLINES: [Time; 4] =
        [Time::ZERO, Time::from_nanos(1 << 40), Time::from_nanos(FIRST_SPECIAL - 1), Time::NEVER];

    fn armed(deadline: Time) -> StateWord {
        let state = StateWord::free();
        state.arm(deadline);
        state
    }

    #[test]
    fn a_state_word_loads_what_was_stored() {
        for deadline in DEADLINES {
            assert_eq!(armed(deadline).load(), NodeState::Armed(deadline));
        }
        let state = StateWord::free();
        for next in [0, 1, u32::MAX] {
            state.set_free(next);
            assert_eq!(state.load(), NodeState::Free(next));
            for count in [CountAs::Cancelled, CountAs::Nothing] {
                state.set_released(next, count);
                assert_eq!(state.load(), NodeState::Released(next, count));
            }
        }
    }

    #[test]
    fn p5_a_deadline_that_would_be_mistaken_for_a_state_is_never_and_the_last_before_them_is_itself() {
        for deadline in DEADLINES {
            assert_eq!(representable(deadline), deadline);
        }
        for nanos in [FIRST_SPECIAL, FIRST_SPECIAL + 1, RELEASED, FREE | 7, u64::MAX - 1] {
            assert_eq!(representable(Time::from_nanos(nanos)), Time::NEVER);
        }
    }

    #[test]
    fn p2_the_first_to_end_an_entry_wins_and_the_others_lose() {
        let now = Time::from_nanos(1 << 40);
        let fired = armed(now);
        assert_eq!((fired.fire(now), fired.load()), (Fire::Won(now), NodeState::Fired));
        let stopped = armed(Time::NEVER);
        assert_eq!((stopped.stop(), stopped.load()), (Stop::Won, NodeState::Stopped));
        let cancelled = armed(now);
        assert_eq!(cancelled.release(7, CountAs::Cancelled), Released::Cancelled);
        assert_eq!(cancelled.load(), NodeState::Released(7, CountAs::Cancelled));

        for ended in [&fired, &stopped, &cancelled] {
            let seen = ended.load();
            assert_eq!((ended.fire(Time::NEVER), ended.stop()), (Fire::Lost, Stop::Lost));
            assert_eq!(ended.later(now, Time::NEVER), Later::Lost);
            assert_eq!(ended.load(), seen, "a lost attempt has changed the state");
        }
        for (ended, outcome) in [(fired, Outcome::Fired), (stopped, Outcome::Stopped)] {
            assert_eq!(ended.release(7, CountAs::Cancelled), Released::Ended(outcome));
            assert_eq!(ended.load(), NodeState::Released(7, CountAs::Nothing), "it was not cancelled");
        }
    }

    #[test]
    fn p1_t4_an_entry_that_was_pushed_later_is_not_fired_before_its_new_deadline() {
        let [before, now, after] = [1000, 1001, 1002].map(Time::from_nanos);
        let state = armed(before);
        assert_eq!(state.later(before, after), Later::Won);
        assert_eq!(state.later(before, Time::NEVER), Later::Lost, "this is no longer its deadline");
        assert_eq!((state.fire(now), state.load()), (Fire::NotYet(after), NodeState::Armed(after)));
        assert_eq!(state.fire(after), Fire::Won(after));
    }
}
