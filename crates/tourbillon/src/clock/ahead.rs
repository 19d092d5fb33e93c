//! The monotonic clock at half the price, for those who do not mind if it is some microseconds ahead.
//!
//! Reading the clock is the larger half of what arming a timer costs. Where the kernel's own clock is the processor's time
//! stamp counter, that can be read directly, and is, for a few microseconds after each real reading:
//!
//! ```text
//!     the clock  -----*-------------------------------------*------->
//!                     | real reading                        | real reading
//!     ahead           *  . ' ' ' '                          *  . ' '
//!                        no earlier than the clock would be
//! ```
//!
//! # Never behind
//!
//! A deadline that is counted from this clock must not be early, so it is never behind the real one:
//!
//! - The counter is read before the clock, so at the counter's value the clock showed no more than what was read.
//! - From there on the counter is taken to run faster than it was measured to, by a quarter. The kernel lets its clock run at
//!   most a tenth faster or slower than the counter suggests (that is how far it can be told to slew), so between the
//!   measurement and now its pace changed by less than a quarter.
//! - After [`WINDOW`] the clock is read again. So it is ahead by little more than a quarter of the window: 5 us. Who can do with
//!   less may let more windows pass.
//!
//! The processor may read the counter a few cycles before what precedes it in the program; [`EARLY`] makes up for that.
//!
//! # Never back
//!
//! Where the clock is read again it is behind what was shown before. What was shown last is shown until the clock has caught up with it:
//! of two timers for the same duration the one that was made first is due first, or both are due at once (P3).

use std::cell::Cell;

use tourbillon_queue::Time;

/// The state of one thread.
pub(crate) struct Ahead {
    /// So many windows may pass before the clock is read again.
    windows: u64,
    /// Whether the counter is, or may turn out to be, of use.
    usable: Cell<bool>,
    /// The counter at the last real reading.
    ticks: Cell<u64>,
    /// What the clock showed.
    time: Cell<u64>,
    /// So many ticks after it another is due.
    window: Cell<u64>,
    /// What a tick is taken for, in nanoseconds of [`FRACTION`] bits.
    pace: Cell<u64>,
    /// What was shown last.
    last: Cell<Time>,
}

/// How fast the counter runs.
enum Pace {
    Known(u64),
    /// It has to be watched for longer.
    NotYet,
    /// It is not the kernel's clock, or there is none.
    Unusable,
}

/// Nanoseconds between real readings.
const WINDOW: u64 = 16_000;
const FRACTION: u32 = 20;
/// The counter and the clock are read within so many nanoseconds, or else again.
const TOGETHER: u64 = 1_000;
/// Nanoseconds by which the counter may be read too soon.
const EARLY: u64 = 50;

impl Ahead {
    pub(crate) const fn new(windows: u64) -> Ahead {
        Ahead {
            windows,
            usable: Cell::new(true),
            ticks: Cell::new(0),
            time: Cell::new(0),
            window: Cell::new(0),
            pace: Cell::new(0),
            last: Cell::new(Time::ZERO),
        }
    }

    /// A time that is not before what the monotonic clock shows, and at most some microseconds after it: five for each of the windows
    /// that may have passed since it was read. It does not go back.
    #[inline(always)]
    pub(crate) fn now(&self) -> Time {
        if !self.usable.get() {
            return super::monotonic();
        }
        let ticks = counter::read();
        let since = ticks.wrapping_sub(self.ticks.get());
        let now = if since >= self.window.get() {
            self.read_clock(ticks)
        } else {
            Time::from_nanos(self.time.get() + ((since * self.pace.get()) >> FRACTION))
        };
        let now = now.max(self.last.get());
        self.last.set(now);
        now
    }

    #[cold]
    fn read_clock(&self, ticks: u64) -> Time {
        let time = super::monotonic();
        let after = counter::read();
        let pace = match counter::pace(ticks, time, after) {
            Pace::Known(pace) => pace,
            Pace::NotYet => return time,
            Pace::Unusable => {
                self.usable.set(false);
                return time;
            }
        };
        // If the thread lost its processor in between, the two do not belong together: the next call tries again.
        if after.wrapping_sub(ticks) < (TOGETHER << FRACTION) / pace {
            self.pace.set(pace);
            self.window.set(self.windows * (WINDOW << FRACTION) / pace);
            self.ticks.set(ticks);
            self.time.set(time.as_nanos() + EARLY);
        }
        time
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, shuttle))))]
mod counter {
    use std::fs::read_to_string;
    use std::sync::OnceLock;

    use tourbillon_queue::Time;

    use super::{FRACTION, Pace};

    /// The pace is measured over at least so many nanoseconds.
    const LONG: u64 = 20_000_000;

    /// Ticks within which both are read before the pace is known: some microseconds, whatever it is.
    const CLOSE: u64 = 10_000;

    #[inline(always)]
    pub(super) fn read() -> u64 {
        // SAFETY: it touches no memory, and every x86-64 processor has it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// How fast it is taken to run, now that it read `ticks`, then the clock `time`, and then the counter `after`.
    ///
    /// The interval in ticks is from after the first reading of the clock to before the second: too short, if anything, so the
    /// pace is too fast, if anything.
    pub(super) fn pace(ticks: u64, time: Time, after: u64) -> Pace {
        static FIRST: OnceLock<Option<(u64, Time)>> = OnceLock::new();
        static PACE: OnceLock<Option<u64>> = OnceLock::new();
        let known = |pace: &Option<u64>| pace.map_or(Pace::Unusable, Pace::Known);
        if let Some(pace) = PACE.get() {
            return known(pace);
        }
        // As above: who lost the processor in between tries again.
        if after.wrapping_sub(ticks) > CLOSE {
            return Pace::NotYet;
        }
        let Some((first_ticks, first_time)) = *FIRST.get_or_init(|| is_the_clock().then_some((after, time))) else {
            return Pace::Unusable;
        };
        let (ticks, nanos) = (ticks.saturating_sub(first_ticks), (time - first_time).as_nanos());
        if nanos < LONG {
            return Pace::NotYet;
        }
        known(PACE.get_or_init(|| {
            let pace = u64::try_from((u128::from(nanos) << FRACTION) / u128::from(ticks.max(1))).ok()?;
            // A counter of less than 100 MHz or more than 100 GHz is none that we know.
            let plausible = (1 << FRACTION) / 100..10 << FRACTION;
            plausible.contains(&pace).then_some(pace + pace / 4)
        }))
    }

    /// Whether the kernel's clock is this counter. Then it has found it to be steady and the same on all cores.
    fn is_the_clock() -> bool {
        let source = read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
        source.is_ok_and(|name| name.trim() == "tsc")
    }
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, shuttle)))))]
mod counter {
    use tourbillon_queue::Time;

    use super::Pace;

    pub(super) fn read() -> u64 {
        0
    }

    pub(super) fn pace(_: u64, _: Time, _: u64) -> Pace {
        Pace::Unusable
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn p1_it_is_never_behind_the_clock_and_hardly_ahead() {
        for windows in [1, 16] {
            let ahead = Ahead::new(windows);
            let start = super::super::monotonic();
            let mut most = 0;
            while (super::super::monotonic() - start).as_nanos() < 100_000_000 {
                for _ in 0..100 {
                    let before = super::super::monotonic();
                    let now = ahead.now();
                    let after = super::super::monotonic();
                    assert!(now >= before, "behind the clock");
                    most = most.max((now - after).as_nanos());
                }
            }
            assert!(most <= windows * WINDOW / 4 + TOGETHER + EARLY, "{most} ns ahead after {windows} windows");
        }
    }

    /// What is armed later for the same duration would come first otherwise.
    #[test]
    fn p3_it_does_not_go_back_when_the_clock_is_read_again() {
        for windows in [1, 16] {
            let (ahead, start) = (Ahead::new(windows), super::super::monotonic());
            let mut last = start;
            while (super::super::monotonic() - start).as_nanos() < 100_000_000 {
                let now = ahead.now();
                assert!(now >= last, "{} ns back after {windows} windows", (last - now).as_nanos());
                last = now;
            }
        }
    }
}
