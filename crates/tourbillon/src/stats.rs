//! What an engine counts.

use std::fmt;
use std::time::Duration;

use tourbillon_queue::Span;

/// What an engine has done so far: [`Engine::stats`](crate::Engine::stats).
///
/// `armed == fired + cancelled + stopped + pending`. While other threads arm and cancel, the shards are counted one after
/// the other.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Clock, Engine};
///
/// let engine = Engine::builder().clock(Clock::manual()).build()?;
/// let fires = engine.try_sleep(Duration::from_secs(1))?;
/// drop(engine.try_sleep(Duration::from_secs(60)));
/// engine.advance(Duration::from_secs(2));
/// let stats = engine.stats();
/// assert_eq!((stats.armed, stats.fired, stats.cancelled, stats.pending), (2, 1, 1, 0));
/// assert_eq!(stats.lateness.max(), Duration::ZERO);
/// # drop(fires);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Timers that have been armed. (A sleep that is never polled is not; one that is moved is armed once.)
    pub armed: u64,
    /// Of those, the ones whose deadline has come.
    pub fired: u64,
    /// The ones that were cancelled before that.
    pub cancelled: u64,
    /// The ones that were pending when the engine was shut down.
    pub stopped: u64,
    /// The ones that are armed now.
    pub pending: u64,
    /// Shards in use.
    pub shards: usize,
    /// Wakers that panicked. (The panic was contained; the standard panic hook has reported it.)
    pub waker_panics: u64,
    /// Callbacks that panicked, likewise.
    pub callback_panics: u64,
    /// Callbacks whose timer has ended and that have not returned yet. It grows while they are slower than timers end, since they are
    /// called one after the other, and the engine's capacity does not count them.
    pub callbacks_waiting: u64,
    /// How late timers fired: from the deadline to the moment when the driver took them out of the queue.
    pub lateness: Lateness,
}

/// A histogram of how late timers fired, in steps of an eighth or finer.
#[derive(Clone)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
}

/// A power of two is cut in so many steps.
const STEPS: u32 = 8;
const STEP_BITS: u32 = STEPS.ilog2();
const BUCKETS: usize = ((u64::BITS - STEP_BITS + 1) * STEPS) as usize;

/// The counts of one shard.
#[derive(Clone, Default)]
pub(crate) struct Counts {
    pub(crate) armed: u64,
    pub(crate) cancelled: u64,
    pub(crate) stopped: u64,
    fired: u64,
    lateness: Lateness,
}

impl Counts {
    #[inline]
    pub(crate) fn fired(&mut self, late: Span) {
        self.fired += 1;
        self.lateness.buckets[bucket(late.as_nanos())] += 1;
    }
}

impl Stats {
    pub(crate) fn add(&mut self, counts: &Counts) {
        self.armed += counts.armed;
        self.fired += counts.fired;
        self.cancelled += counts.cancelled;
        self.stopped += counts.stopped;
        self.shards += 1;
        for (sum, count) in self.lateness.buckets.iter_mut().zip(counts.lateness.buckets.iter()) {
            *sum += count;
        }
    }
}

impl Lateness {
    /// How many fires it counts.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The lateness that `quantile` (0.5 for the median, 0.99, ...) of all fires did not exceed; zero if there were none.
    /// Rounded up to the histogram's step.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (self.count() as f64 * quantile.clamp(0.0, 1.0)).ceil().max(1.0) as u64;
        let mut seen = 0;
        let found = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        Duration::from_nanos(found.map_or(0, highest))
    }

    /// What has been added since an earlier reading of the same engine: the lateness of a while, not of a life.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::Engine;
    ///
    /// let engine = Engine::global();
    /// let before = engine.stats().lateness;
    /// futures_lite::future::block_on(tourbillon::time::sleep(Duration::from_millis(1)));
    /// let lately = engine.stats().lateness.since(&before);
    /// println!("{} timers fired, 99% of them within {:?}", lately.count(), lately.quantile(0.99));
    /// ```
    #[must_use]
    pub fn since(&self, earlier: &Lateness) -> Lateness {
        let mut since = self.clone();
        for (count, earlier) in since.buckets.iter_mut().zip(earlier.buckets.iter()) {
            *count = count.saturating_sub(*earlier);
        }
        since
    }

    /// The steps that have any fires in them, from early to late: the highest lateness of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (Duration::from_nanos(highest(bucket)), *count))
    }

    /// The latest of all, rounded up likewise.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.buckets.iter().rposition(|count| *count > 0).map_or(0, highest))
    }
}

/// The bucket of a value: small values have one each, larger ones share it with those that agree in the highest bits.
#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(STEPS) {
        return nanos as usize;
    }
    let power = nanos.ilog2() - STEP_BITS;
    (power as usize + 1) * STEPS as usize + ((nanos >> power) as usize - STEPS as usize)
}

/// The highest value of a bucket.
fn highest(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS as usize, (bucket % STEPS as usize) as u64);
    match power.checked_sub(1) {
        None => step,
        Some(power) => ((u64::from(STEPS) + step) << power) + ((1 << power) - 1),
    }
}

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness { buckets: Box::new([0; BUCKETS]) }
    }
}

impl fmt::Debug for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lateness")
            .field("count", &self.count())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b5_each_value_is_in_a_bucket_that_is_at_most_an_eighth_wide() {
        for shift in 0..u64::BITS {
            for nanos in [1_u64 << shift, (1_u64 << shift) - 1, (1_u64 << shift) | 0x5555 >> (63 - shift).min(15)] {
                let high = highest(bucket(nanos));
                assert!(high >= nanos && high - nanos <= nanos / u64::from(STEPS), "{nanos} in a bucket up to {high}");
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn b5_quantiles_are_those_of_what_was_counted() {
        let mut counts = Counts::default();
        (1..=100).for_each(|nanos| counts.fired(Span::from_nanos(nanos)));
        let mut stats = Stats { armed: 100, ..Stats::default() };
        stats.add(&Counts { armed: 0, ..counts });
        assert_eq!(stats.lateness.count(), 100);
        assert_eq!(stats.lateness.quantile(0.5), Duration::from_nanos(51));
        assert_eq!(stats.lateness.max(), Duration::from_nanos(103));
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn b5_the_lateness_of_a_while_is_what_was_counted_in_it() {
        let mut counts = Counts::default();
        counts.fired(Span::from_nanos(3));
        let earlier = counts.lateness.clone();
        [3, 5, 3].iter().for_each(|nanos| counts.fired(Span::from_nanos(*nanos)));
        let since = counts.lateness.since(&earlier);
        let (three, five) = (Duration::from_nanos(3), Duration::from_nanos(5));
        assert_eq!(since.buckets().collect::<Vec<_>>(), [(three, 2), (five, 1)]);
        assert_eq!((since.count(), since.max()), (3, five));
    }
}
