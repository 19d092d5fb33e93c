//! Chooses how long sleeps are: short enough for some hundred thousand fires a second, and longer if the machine cannot keep up.
//!
//! P4 holds while the driver is not overloaded, and the check runs on machines of any size and load. So durations grow when fires
//! are late, and shrink again.

use std::time::Duration;

use tourbillon_tools::Random;

use crate::clock::nanos;

/// The pace of one thread.
pub(crate) struct DurationPace {
    mean: Duration,
    /// Factor on the mean.
    factor: u32,
    /// Moving average of the lateness, in nanoseconds.
    late: u64,
    seen: u32,
}

/// Fires per second, over all threads, on a machine that is fast enough.
const RATE: f64 = 400_000.0;
const SHORTEST: Duration = Duration::from_millis(5);
const TOO_LATE: u64 = 20_000_000;
const IN_TIME: u64 = 5_000_000;
const MOST: u32 = 32;

impl DurationPace {
    /// Returns the pace for a number of timers pending at a time.
    pub(crate) fn new(timers: usize) -> DurationPace {
        let mean = Duration::from_secs_f64(timers as f64 / RATE).max(SHORTEST);
        DurationPace { mean, factor: 1, late: 0, seen: 0 }
    }

    /// Returns a duration, mostly up to twice the mean, sometimes very short.
    pub(crate) fn duration(&self, random: &mut Random) -> Duration {
        if random.one_in(32) {
            return random.duration(Duration::from_micros(100));
        }
        random.duration(2 * self.mean * self.factor)
    }

    /// Adds the lateness of a fire.
    pub(crate) fn record_lateness(&mut self, late: u64) {
        self.late = self.late - self.late / 64 + late.min(nanos(Duration::from_secs(1))) / 64;
        self.seen += 1;
        if self.seen < 1024 {
            return;
        }
        self.seen = 0;
        if self.late > TOO_LATE {
            self.factor = (2 * self.factor).min(MOST);
        } else if self.late < IN_TIME {
            self.factor = (self.factor / 2).max(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_grow_while_fires_are_late_and_shrink_again() {
        let mut pace = DurationPace::new(400_000);
        let longest = |pace: &DurationPace| {
            let mut random = Random::of(1, "pace", 0);
            (0..10_000).map(|_| pace.duration(&mut random)).max().unwrap()
        };
        assert!(longest(&pace) < Duration::from_secs(2));
        (0..10_240).for_each(|_| pace.record_lateness(50_000_000));
        assert!(longest(&pace) > Duration::from_secs(4));
        (0..102_400).for_each(|_| pace.record_lateness(100_000));
        assert!(longest(&pace) < Duration::from_secs(2));
    }
}
