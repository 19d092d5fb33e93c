//! The counts of an engine, and a histogram of its lateness.

use std::fmt;
use std::time::Duration;

use tourbillon_queue::Span;

/// The counts of an engine since it was built: [`Engine::stats`](crate::Engine::stats).
///
/// `armed == fired + cancelled + stopped + pending`. The shards are read one after another, while other threads may arm and cancel.
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
    /// Timers that have been armed. (A sleep that is never polled is not armed; a sleep that is reset counts once.)
    pub armed: u64,
    /// Armed timers that have fired.
    pub fired: u64,
    /// Armed timers that were cancelled.
    pub cancelled: u64,
    /// Armed timers that were pending when the engine was shut down.
    pub stopped: u64,
    /// Armed timers that are pending now.
    pub pending: u64,
    /// Shards in use.
    pub shards: usize,
    /// Wakers that panicked. (The engine caught the panic; the standard panic hook has reported it.)
    pub waker_panics: u64,
    /// Callbacks that panicked. (The engine caught the panic; the standard panic hook has reported it.)
    pub callback_panics: u64,
    /// Callbacks that are queued or running. They run one after another, so this grows while timers end faster than callbacks return. The
    /// engine's capacity does not limit them.
    pub callbacks_waiting: u64,
    /// How late timers fired: from the deadline until the driver took the timer out of its queue.
    pub lateness: Lateness,
}

/// A histogram of how late timers fired. A bucket is at most an eighth of its values wide.
#[derive(Clone)]
pub struct Lateness {
    buckets: Box<[u64; BUCKETS]>,
}

/// How many buckets a power of two is divided into.
const STEPS: u32 = 8;
const STEP_BITS: u32 = STEPS.ilog2();
const BUCKETS: usize = ((u64::BITS - STEP_BITS + 1) * STEPS) as usize;

/// The counts of one shard.
#[derive(Clone, Default)]
pub(crate) struct ShardCounts {
    pub(crate) armed: u64,
    pub(crate) cancelled: u64,
    pub(crate) stopped: u64,
    fired: u64,
    lateness: Lateness,
}

impl ShardCounts {
    #[inline]
    pub(crate) fn fired(&mut self, late: Span) {
        self.fired += 1;
        self.lateness.record(late);
    }
}

impl Stats {
    pub(crate) fn add(&mut self, counts: &ShardCounts) {
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
    #[inline]
    pub(crate) fn record(&mut self, span: Span) {
        self.buckets[bucket(span.as_nanos())] += 1;
    }

    /// Returns how many timers it has counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the lateness that `quantile` (0.5 for the median, 0.99, ...) of all timers did not exceed, rounded up to the end of its
    /// bucket; zero if no timer has fired.
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

    /// Returns the difference to an earlier histogram of the same engine: the lateness since then.
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

    /// Returns the buckets that are not empty, in ascending order: the highest lateness of each, and its count.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let counts = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(bucket, count)| (Duration::from_nanos(highest(bucket)), *count))
    }

    /// Returns the highest lateness, rounded up to the end of its bucket; zero if no timer has fired.
    #[must_use]
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.buckets.iter().rposition(|count| *count > 0).map_or(0, highest))
    }
}

/// Returns the bucket of a value. Small values have one each; larger ones share it with the values that have the same highest bits.
#[inline]
fn bucket(nanos: u64) -> usize {
    if nanos < u64::from(STEPS) {
        return nanos as usize;
    }
    let power = nanos.ilog2() - STEP_BITS;
    (power as usize + 1) * STEPS as usize + ((nanos >> power) as usize - STEPS as usize)
}

/// Returns the highest value of a bucket.
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
        let mut counts = ShardCounts::default();
        (1..=100).for_each(|nanos| counts.fired(Span::from_nanos(nanos)));
        let mut stats = Stats { armed: 100, ..Stats::default() };
        stats.add(&ShardCounts { armed: 0, ..counts });
        assert_eq!(stats.lateness.count(), 100);
        assert_eq!(stats.lateness.quantile(0.5), Duration::from_nanos(51));
        assert_eq!(stats.lateness.max(), Duration::from_nanos(103));
        assert_eq!(Lateness::default().quantile(0.99), Duration::ZERO);
    }

    #[test]
    fn b5_the_lateness_of_a_while_is_what_was_counted_in_it() {
        let mut counts = ShardCounts::default();
        counts.fired(Span::from_nanos(3));
        let earlier = counts.lateness.clone();
        [3, 5, 3].iter().for_each(|nanos| counts.fired(Span::from_nanos(*nanos)));
        let since = counts.lateness.since(&earlier);
        let (three, five) = (Duration::from_nanos(3), Duration::from_nanos(5));
        assert_eq!(since.buckets().collect::<Vec<_>>(), [(three, 2), (five, 1)]);
        assert_eq!((since.count(), since.max()), (3, five));
    }
}
