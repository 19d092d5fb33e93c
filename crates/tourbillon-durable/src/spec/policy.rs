//! What happens to missed fires, failed deliveries and repeated keys.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tourbillon::scheduler::Backoff;

use super::InvalidTimer;

/// What happens to occurrences that were not delivered at their time, because no process was there to deliver them (U7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum MissedFires {
    /// One fire stands for all that were missed. It has the time of the last of them, and `stands_for` is the exact number of the others.
    #[default]
    Once,
    /// Occurrences that are late by more than `older_than` are skipped.
    Skip {
        /// How late an occurrence may be and still be delivered. Longer than zero, and far longer than deliveries are usually late: each one is
        /// late by milliseconds, and by seconds after a node has failed.
        older_than: Duration,
    },
    /// Each is delivered, but at most this many: the oldest are skipped.
    All {
        /// The most missed occurrences that are delivered.
        at_most: u64,
    },
    /// Occurrences that are late by more than this become dead letters, each one of its own. Longer than zero, as `older_than` above.
    DeadAfter(Duration),
}

/// What happens after a delivery that failed or was not acknowledged in time (V4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[must_use]
pub struct RetryPolicy {
    /// The most deliveries of an occurrence, the first included.
    pub attempts: u32,
    /// How long to wait before the second delivery.
    pub first: Duration,
    /// By how much each wait is longer than the one before it.
    pub factor: u32,
    /// The longest wait.
    pub longest: Duration,
    /// By how many percent of itself a wait may be shortened, so that timers that failed together do not all come again together.
    pub jitter_percent: u8,
    /// No delivery is repeated later than this after the occurrence was due, or after its dead letter was replayed: a retry that comes later,
    /// because no process was there, makes a dead letter. How late the first delivery may be is said by [`MissedFires`].
    pub give_up_after: Option<Duration>,
}

/// What a create does if a pending timer has the same key and was asked for differently (U1). A timer that is being delivered is pending too.
///
/// A request that was sent before, word for word, is answered with its timer. For `Replace`, `Earlier` and `Later` a timer that is due once and has a delay
/// is another request each time that it is sent, because it is due later: so `Later` renews a lease, and `Replace` debounces. A repeating timer
/// that is asked for again in the same way stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConflict {
    /// The create fails.
    #[default]
    Refuse,
    /// The pending timer stays.
    Keep,
    /// The pending timer is cancelled, and the new one takes its key. If the pending one is being delivered, that delivery goes on, and the new one
    /// comes after it, also if it was asked for in the same way: so a handler arms its own key again.
    Replace,
    /// The one of the two that is due earlier stays; the pending one if both are due together.
    Earlier,
    /// The one of the two that is due later stays; the pending one if both are due together.
    Later,
}

/// Ten deliveries, one second apart at first and twice as long each time up to five minutes, each wait shortened by up to a half.
impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts: 10,
            first: Duration::from_secs(1),
            factor: 2,
            longest: Duration::from_secs(300),
            jitter_percent: 50,
            give_up_after: None,
        }
    }
}

impl RetryPolicy {
    /// Returns the policy of one delivery only: if it fails, the timer becomes a dead letter.
    pub fn never() -> RetryPolicy {
        RetryPolicy { attempts: 1, ..RetryPolicy::default() }
    }

    /// Returns the default policy with so many deliveries.
    pub fn attempts(attempts: u32) -> RetryPolicy {
        RetryPolicy { attempts, ..RetryPolicy::default() }
    }

    /// Returns the wait after the delivery number `attempt`, of which the first is 1. `random` chooses the jitter.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let longest = self.longest.max(self.first);
        let delay = Backoff::fixed(self.first).factor(self.factor).up_to(longest).delay(attempt);
        let percent = u128::from(self.jitter_percent.min(100));
        let most = delay.as_nanos() * percent / 100;
        let cut = (most * u128::from(random >> 32)) >> 32;
        delay.saturating_sub(Duration::from_nanos(u64::try_from(cut).unwrap_or(u64::MAX)))
    }

    pub(super) fn check(&self) -> Result<(), InvalidTimer> {
        match () {
            () if self.attempts == 0 => Err(InvalidTimer::Retry("there must be at least one delivery")),
            () if self.factor == 0 => Err(InvalidTimer::Retry("the factor must be at least one")),
            () if self.jitter_percent > 100 => Err(InvalidTimer::Retry("the jitter is at most 100 percent")),
            () if self.longest < self.first => {
                Err(InvalidTimer::Retry("the longest wait must not be shorter than the first"))
            }
            () => Ok(()),
        }
    }
}

impl MissedFires {
    pub(super) fn check(self) -> Result<(), InvalidTimer> {
        match self {
            MissedFires::All { at_most: 0 } => Err(InvalidTimer::ZeroMissed),
            MissedFires::Skip { older_than: Duration::ZERO } | MissedFires::DeadAfter(Duration::ZERO) => {
                Err(InvalidTimer::ZeroLateness)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v4_waits_double_up_to_the_longest_and_jitter_only_shortens_them() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.delay(1, 0), Duration::from_secs(1));
        assert_eq!(policy.delay(4, 0), Duration::from_secs(8));
        assert_eq!(policy.delay(u32::MAX, 0), Duration::from_secs(300));
        let shortest = policy.delay(1, u64::MAX);
        assert!(shortest >= Duration::from_millis(500) && shortest < Duration::from_millis(501), "{shortest:?}");
    }
}
