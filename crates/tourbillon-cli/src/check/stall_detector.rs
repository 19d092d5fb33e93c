//! Decides whether a late timer was *stalled*, or its driver was overloaded.
//!
//! P4 does not cover an overloaded driver. But such a driver still fires one timer after the other, in order. So a timer that is
//! overdue for a second was stalled if, for that second,
//!
//! - no timer fired in its shard, and the [reference](super::reference) woke up again and again: the driver overslept; or
//! - timers with later deadlines had already fired in its shard: the timer was forgotten, however busy the machine was.

use std::collections::VecDeque;

use super::reference::{Reference, STALL};

/// Detects stalls: tracks which timers of one thread have fired. They all belong to one shard.
#[derive(Default)]
pub(crate) struct StallDetector {
    /// When the last waker was called.
    last: u64,
    /// The latest deadline of all timers that have fired.
    reached: u64,
    /// Values of `reached` over the last seconds.
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
    /// Notes that a timer fired, and when its waker was called.
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

    /// Returns whether a timer that should have fired by `due` and fired at `at` was stalled. Must be called before
    /// [`fired`](StallDetector::fired) for that timer.
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
        // A driver that is further and further behind, but busy all the time.
        (0..4_000).for_each(|n| overdue.fired(n * MS / 2, n * MS));
        assert!(!overdue.is_stall(&reference, 2_000 * MS, 4_000 * MS));
        // From then on nothing fires.
        assert!(!overdue.is_stall(&reference, 2_000 * MS, 4_900 * MS));
        assert!(overdue.is_stall(&reference, 2_000 * MS, 5_100 * MS));
        let nothing_ran = Reference::that_woke_at([0, 6_000 * MS].into_iter());
        assert!(!overdue.is_stall(&nothing_ran, 2_000 * MS, 5_100 * MS));
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
