//! How long a scheduler waits before it repeats a run that failed.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use super::random::Random;

/// How long to wait before each retry: see [`Plan::retry`](super::Plan::retry).
///
/// ```
/// use std::time::Duration;
/// use tourbillon::scheduler::Backoff;
///
/// // 1 s, 2 s, 4 s .. 60 s, each shortened at random by up to a half.
/// let backoff = Backoff::exponential(Duration::from_secs(1)).up_to(Duration::from_secs(60));
/// assert_eq!(backoff.delay(1), Duration::from_secs(1));
/// assert_eq!(backoff.delay(3), Duration::from_secs(4));
/// assert_eq!(backoff.delay(20), Duration::from_secs(60));
/// ```
///
/// Impossible values are an error when the job is scheduled: [`BackoffError`].
#[derive(Clone, Copy, PartialEq, Debug)]
#[must_use]
pub struct Backoff {
    first: Duration,
    factor: u32,
    longest: Duration,
    jitter: f64,
}

/// Why a [`Backoff`] cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BackoffError {
    /// The first delay must be longer than zero.
    ZeroDelay,
    /// The factor must be at least one.
    ZeroFactor,
    /// The longest delay must not be shorter than the first.
    LongestBelowFirst,
    /// The jitter must be between zero and one.
    JitterOutOfRange,
}

impl Backoff {
    /// Waits for `delay` before every retry, without jitter.
    pub const fn fixed(delay: Duration) -> Backoff {
        Backoff { first: delay, factor: 1, longest: delay, jitter: 0.0 }
    }

    /// Waits for `first` before the first retry, and twice as long before each further one, without limit. Each delay is
    /// shortened at random by up to a half, so that jobs that failed together are not all repeated together.
    pub const fn exponential(first: Duration) -> Backoff {
        Backoff { first, factor: 2, longest: Duration::MAX, jitter: 0.5 }
    }

    /// Sets by how much each delay is longer than the one before it.
    pub const fn factor(mut self, factor: u32) -> Backoff {
        self.factor = factor;
        self
    }

    /// Sets the longest delay.
    pub const fn up_to(mut self, longest: Duration) -> Backoff {
        self.longest = longest;
        self
    }

    /// Sets by which part of itself, from 0.0 to 1.0, a delay may be shortened at random. With 0.0 delays are exact, with 1.0 a
    /// retry may be due at once.
    pub const fn jitter(mut self, part: f64) -> Backoff {
        self.jitter = part;
        self
    }

    /// Returns the delay before this retry, of which the first is 1, without jitter.
    #[must_use]
    pub fn delay(&self, retry: u32) -> Duration {
        let factor = u128::from(self.factor).saturating_pow(retry.saturating_sub(1));
        let nanos = self.first.as_nanos().saturating_mul(factor).min(self.longest.as_nanos());
        // A delay that a duration of whole nanoseconds cannot hold, six centuries, is as good as the longest.
        u64::try_from(nanos).map_or(self.longest, Duration::from_nanos)
    }

    /// Returns the delay before this retry, with jitter.
    pub(super) fn delay_with_jitter(&self, retry: u32, random: &mut Random) -> Duration {
        let delay = self.delay(retry);
        if self.jitter == 0.0 {
            return delay;
        }
        let part = delay.as_secs_f64() * self.jitter * random.fraction();
        // Beyond the range of a duration only by rounding.
        delay.saturating_sub(Duration::try_from_secs_f64(part).unwrap_or(delay))
    }

    /// Returns the shortest delay before the first retry.
    pub(super) fn shortest(&self) -> Duration {
        if self.jitter >= 1.0 {
            return Duration::ZERO;
        }
        self.first.saturating_sub(self.first.mul_f64(self.jitter))
    }

    pub(super) fn check(&self) -> Result<(), BackoffError> {
        match () {
            () if self.first.is_zero() => Err(BackoffError::ZeroDelay),
            () if self.factor == 0 => Err(BackoffError::ZeroFactor),
            () if self.longest < self.first => Err(BackoffError::LongestBelowFirst),
            // Also refuses what is not a number.
            () if !(0.0..=1.0).contains(&self.jitter) => Err(BackoffError::JitterOutOfRange),
            () => Ok(()),
        }
    }
}

impl fmt::Display for BackoffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackoffError::ZeroDelay => "the first delay of a backoff must be longer than zero",
            BackoffError::ZeroFactor => "the factor of a backoff must be at least one",
            BackoffError::LongestBelowFirst => "the longest delay of a backoff must not be shorter than its first",
            BackoffError::JitterOutOfRange => "the jitter of a backoff must be between 0.0 and 1.0",
        })
    }
}

impl Error for BackoffError {}
