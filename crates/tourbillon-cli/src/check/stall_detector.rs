//! Whether a timer that was late was *stalled*, or its driver had too much to do.
//!
//! A driver with more to do than it has time for is late, and P4 says nothing of it. But it goes on: it fires one timer after the other, in order. So
//! a timer that is overdue for a second was stalled if, for that second,
//!
//! - nothing fired at all in its shard, and meanwhile the [reference](super::reference) woke up again and again: the driver overslept; or
//! - timers with later deadlines had fired in its shard already: it was forgotten. That is so on any machine, however busy.

use std::collections::VecDeque;

use super::reference::{Reference, STALL};

/// What has fired so far of the timers of one thread, which are all in one shard.
#[derive(Default)]
pub(crate) struct StallDetector {
    /// When the last waker was called.
    last: u64,
    /// The latest deadline of all that have fired.
    reached: u64,
    /// What was reached when, now and then, for some seconds.
    samples: VecDeque<Sample>,
}

#[derive(Clone, Copy)]
struct Sample {
    at: u64,
    reached: u64,
}

const EVERY: u64 = STALL / 10;
const KEPT: usize = 600;

impl StallDetector {
    /// A timer has fired, and its waker was called then.
    #[inline]
    pub(crate) fn fired(&mut self, due: u64, at: u64) {
        self.last = self.last.max(at);
        self.reached = self.reached.max(due);
        if self.samples.back().is_none_or(|sample| at >= sample.at + EVERY) {
            if self.samples.len() == KEPT {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample { at, reached: self.reached });
        }
    }

    /// Whether a timer that was to fire at `due` at the latest, and did so only at `at`, was stalled. To be asked before it is said to
    /// have [`fired`](Overdue::fired).
    #[inline]
    pub(crate) fn is_stall(&self, reference: &Reference, due: u64, at: u64) -> bool {
        at.saturating_sub(due) >= STALL && self.is_driver_to_blame(reference, due, at)
    }

    #[cold]
    fn is_driver_to_blame(&self, reference: &Reference, due: u64, at: u64) -> bool {
        let before = self.samples.partition_point(|sample| sample.at <= at - STALL);
        let overtaken = before.checked_sub(1).is_some_and(|place| self.samples[place].reached > due);
        overtaken || reference.is_stall(due.max(self.last), at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn p4_a_driver_that_is_busy_is_no_stall_and_one_that_sleeps_is() {
        let reference = Reference::that_woke_at((0..5_000).map(|n| 2 * n * MS));
        let mut overdue = StallDetector::default();
        // More and more behind, but at it all the time.
        (0..4_000).for_each(|n| overdue.fired(n * MS / 2, n * MS));
        assert!(!overdue.is_stall(&reference, 2_000 * MS, 4_000 * MS));
        // And then nothing.
        assert!(!overdue.is_stall(&reference, 2_000 * MS, 4_900 * MS));
        assert!(overdue.is_stall(&reference, 2_000 * MS, 5_100 * MS));
        let nobody_ran = Reference::that_woke_at([0, 6_000 * MS].into_iter());
        assert!(!overdue.is_stall(&nobody_ran, 2_000 * MS, 5_100 * MS));
    }

    #[test]
    fn p4_a_timer_that_others_overtook_was_forgotten() {
        let reference = Reference::that_woke_at([].into_iter());
        let mut overdue = StallDetector::default();
        (0..4_000).for_each(|n| overdue.fired(n * MS, n * MS));
        assert!(overdue.is_stall(&reference, 2_000 * MS, 4_000 * MS));
        assert!(!overdue.is_stall(&reference, 3_500 * MS, 4_000 * MS), "less than a second");
    }
}
