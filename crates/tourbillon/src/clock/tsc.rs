//! The monotonic clock at half the price, for callers that accept a time some microseconds ahead of it.
//!
//! Reading the clock is the larger half of what arming a timer costs. Where the kernel derives its clock from the processor's
//! time stamp counter, a thread can read the counter instead, for a few microseconds after each real reading of the clock (a
//! *window*):
//!
//! ```text
//!     the clock  -----*-------------------------------------*------->
//!                     | real reading                        | real reading
//!     ahead           *  . ' ' ' '                          *  . ' '
//!                        no earlier than the clock would be
//! ```
//!
//! # Never behind (P1)
//!
//! A timer that counts from a time behind the clock would fire early by the difference. So no returned time is behind the clock:
//!
//! 1. The kernel computes its clock from the same counter: a fixed number of nanoseconds for each tick, changed by slewing to
//!    at most 11 % more or less. [`CounterSource::is_clock`] checks this.
//! 2. A window starts from a reading of the counter, then of the clock, then of the counter again, less than [`TOGETHER`]
//!    apart. At the first counter value the clock showed no more than what was read.
//! 3. The thread measures the rate itself, over the last two intervals between its real readings. Each lasted from [`SHORTEST`] to
//!    [`LONGEST`], and the two rates agree to within 3 % ([`AGREE`]). The interval in ticks is taken from after the first reading
//!    of the clock to before the second: too short, if anything, so the rate is too high, if anything.
//! 4. From the start of the window the clock is taken to run a quarter faster than the higher of the two rates. Slewing changes the
//!    true rate by a factor of at most 1.11 / 0.89 = 1.247, so the clock cannot catch up.
//! 5. A processor may read the counter some cycles before the instructions that precede it; [`EARLY`] makes up for that.
//!
//! # Suspend, restore and migration
//!
//! Each of these can change the counter, its rate, or the clock's relation to it. They are harmless as follows:
//!
//! - *Pause, snapshot, restore or migration of a virtual machine*, also to a processor of another rate: the kernel inside goes on
//!   computing its clock from the counter that the thread reads, with the same nanoseconds for each tick. If the counter jumps, the
//!   clock jumps with it; if the counter's rate changes, so does the clock's. Steps 1 and 4 hold at any moment, inside a
//!   window too. (A hypervisor continues the counter from a value no smaller than any that the guest has read. If it sets the counter
//!   back, the window ends at once, see below.)
//! - *Suspend of the machine*: the clock stands still. A counter that goes on meanwhile has left the window, as a
//!   suspend lasts longer than the longest window (256 us). A counter that stands still as well changes nothing. A counter that starts
//!   again from zero is behind the start of the window, which reads as a very large distance: the next call reads the clock.
//! - *Restore of the process under another kernel*: the counter has any value and any rate, and the clock any relation to it. The
//!   counter is outside the window, in front of it or behind it, so the next call reads the clock.
//! - *Any of these inside a real reading*: the two counter values are not close together, and the reading is not used.
//! - *Any of these inside an interval*, however small the change: such an event falls into one of the two intervals of step 3 only, as
//!   both together last no longer than 2 ms. Then the two rates differ, or both are right. An event between the two
//!   intervals is noticed in the same way. If they differ, the thread forgets what it knows and [checks](CounterSource::check_again) again
//!   whether the counter is the kernel's clock; it uses the counter again after [`PROVEN`] intervals in a row have agreed. Until then it
//!   reads the clock.
//! - *Any of these while the thread did not read the time*: a longer interval proves nothing, but if its rate does not agree with the
//!   last one, the thread starts over in the same way.
//!
//! The rate is never taken from another thread, nor from a time long past, and a difference between the boot-time and the monotonic clock
//! need not be checked: a suspend of less than the resolution of the machine's battery clock would not show there, and does show in
//! the rates.
//!
//! One exception is a coincidence, which only the clock itself could rule out: after a restore under another kernel, or after a suspend
//! that set the counter to zero, the counter stands by chance inside the very window that was open, or so near to where it would have
//! been that the rates agree. Windows last 16 or 256 us; among the counter values of machines that have been up for up to a
//! hundred days, that is one case in 3 * 10^10 for each restore and each thread that was inside a window. The other exception is made by the
//! process itself: a process of one thread that sets its clock forward (it enters another time namespace, with
//! `setns`) and makes a timer before the window is over. The kernel refuses that to a process with more threads, and a process
//! whose engine has a driver thread has more; elsewhere a process that does so repeatedly does not reach [`PROVEN_ALONE`].
//!
//! A counter that stops while a processor idles, or that differs between processors, could be behind inside a window. The
//! kernel does not derive its clock from such a counter, and the processor has to say that the counter is invariant. Should the
//! kernel later choose another source for its clock, the first interval that shows a difference makes the thread check, and the
//! result holds for all threads of the process.
//!
//! # Never back (P3)
//!
//! A real reading is behind the times that were returned before it. The last returned time is repeated until the clock has caught up
//! with it: of two timers for the same duration the first made is due first, or both are due at once. No returned time is further ahead
//! than the length of the window. So if the clock is behind the last returned time by more than that, the clock itself has been set
//! back (a process can do so to itself, with a time namespace), and the thread follows it.

mod counter;
#[cfg(all(test, not(shuttle)))]
mod tests;

use std::cell::Cell;

use tourbillon_queue::{Span, Time};

use self::counter::ProcessorCounter;

/// A counter and the clock that is derived from it.
pub(crate) trait CounterSource {
    /// Reads the counter.
    fn counter(&self) -> u64;

    /// Reads the clock.
    fn clock(&self) -> Time;

    /// Returns whether the clock is derived from the counter, as far as the process knows.
    fn is_clock(&self) -> bool;

    /// Checks anew whether the clock is derived from the counter, for all threads of the process.
    fn check_again(&self);
}

/// Reads the monotonic clock for one thread, ahead of it by some microseconds at most.
pub(crate) struct Ahead<S = ProcessorCounter> {
    source: S,
    /// The length of a window, in units of [`WINDOW`].
    windows: u64,
    /// Whether the counter is, or may turn out to be, of use.
    usable: Cell<bool>,
    /// The counter at the start of the window.
    ticks: Cell<u64>,
    /// The clock at the start of the window, in nanoseconds, plus [`EARLY`].
    time: Cell<u64>,
    /// The length of the window in ticks; zero if none is open.
    window: Cell<u64>,
    /// How long a tick is taken to last inside the window, in nanoseconds of [`FRACTION`] bits.
    pace: Cell<u64>,
    /// The last returned time.
    last: Cell<Time>,
    /// The real reading at which the current interval began.
    base: Cell<Option<Reading>>,
    /// The rate that the last interval showed, as for `pace`; zero if there is none to compare with.
    rate: Cell<u64>,
    /// How many intervals have agreed with the one before since the last disagreement.
    agreed: Cell<u32>,
    /// How many intervals have to agree before a window is opened.
    proven: u32,
    /// The next time at which a disagreement makes the thread check the source again.
    check_at: Cell<Time>,
}

/// The clock, and the counter right before and after it.
#[derive(Clone, Copy)]
struct Reading {
    before: u64,
    time: Time,
    after: u64,
}

/// The rate that the interval between two readings shows.
enum TickInterval {
    /// No rate: the interval is too short, or the readings were too slow for its length.
    Unclear,
    /// As `Rate`, but the interval is too long to confirm a rate. It can refute one.
    Long(u64),
    /// No steady counter behaves like this.
    Broken,
    /// Nanoseconds for each tick, of [`FRACTION`] bits. Not too low.
    Rate(u64),
}

/// Nanoseconds between real readings.
const WINDOW: u64 = 16_000;
const FRACTION: u32 = 20;
/// Nanoseconds within which a reading of the counter and the clock is made for it to start a window.
const TOGETHER: u64 = 1_000;
/// Ticks within which a reading is made for it to be of use at all: some microseconds, whatever the rate.
const CLOSE: u64 = 10_000;
/// Nanoseconds by which the counter may be read too soon.
const EARLY: u64 = 50;
/// Nanoseconds that an interval must last for the rate to be measured.
const SHORTEST: u64 = 8_000;
/// Nanoseconds that an interval may last. Much less than what lies between two suspends or restores.
const LONGEST: u64 = 1_000_000;
/// An interval is clear if it is at least this many times as long as its two readings took.
const CLEAR: u64 = 64;
/// Two rates agree if they differ by no more than this part of the higher one: twice what unclear readings can make of it.
const AGREE: u64 = 32;
/// How many intervals in a row have to agree before the counter is used: the two of step 3.
const PROVEN: u32 = 2;
/// The same for a process that may have only one thread, which can set the clock of the process.
const PROVEN_ALONE: u32 = 256;
/// Nanoseconds before the source is checked again: a check opens a file.
const CHECK_PAUSE: u64 = 10_000_000;

// A window has to last until the next interval can be measured, and an interval has to be allowed to last for a window.
const _: () = assert!(SHORTEST < WINDOW / 5 * 4 && LONGEST > 2 * 16 * WINDOW);

impl Ahead {
    /// Returns the state of a thread that has not read the clock. `windows`: how many times [`WINDOW`] pass between real readings.
    /// `has_driver`: whether the process has another thread, that of the engine's driver.
    pub(crate) const fn new(windows: u64, has_driver: bool) -> Ahead {
        Ahead::with(ProcessorCounter, windows, if has_driver { PROVEN } else { PROVEN_ALONE })
    }
}

impl<S: CounterSource> Ahead<S> {
    const fn with(source: S, windows: u64, proven: u32) -> Ahead<S> {
        Ahead {
            source,
            windows,
            usable: Cell::new(true),
            ticks: Cell::new(0),
            time: Cell::new(0),
            window: Cell::new(0),
            pace: Cell::new(0),
            last: Cell::new(Time::ZERO),
            base: Cell::new(None),
            rate: Cell::new(0),
            agreed: Cell::new(0),
            proven,
            check_at: Cell::new(Time::ZERO),
        }
    }

    /// Returns a time that is not before the monotonic clock's, and at most some microseconds after it: five for each of the windows that
    /// may have passed since the clock was read. It does not go back.
    #[inline(always)]
    pub(crate) fn now(&self) -> Time {
        if !self.usable.get() {
            return self.source.clock().max(self.last.get());
        }
        let ticks = self.source.counter();
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
    fn read_clock(&self, before: u64) -> Time {
        let time = self.source.clock();
        let after = self.source.counter();
        self.window.set(0);
        self.follow_back(time);
        if !self.source.is_clock() {
            self.usable.set(false);
            return time;
        }
        // If the thread lost its processor in between, or the counter was set, the three do not belong together.
        if after.wrapping_sub(before) <= CLOSE
            && let Some(pace) = self.pace_after(Reading { before, time, after })
            && (after - before) * pace < TOGETHER << FRACTION
        {
            self.pace.set(pace);
            self.ticks.set(before);
            self.time.set(time.as_nanos() + EARLY);
            self.window.set((self.windows * (WINDOW << FRACTION)) / pace);
        }
        time
    }

    /// Forgets the last returned time if the clock itself was set back.
    fn follow_back(&self, time: Time) {
        let most = Span::from_nanos(self.windows * WINDOW + EARLY);
        if self.last.get() > time + most {
            self.last.set(time);
            self.check_at.set(Time::ZERO);
        }
    }

    /// Returns the pace of a window that starts with this reading; `None` if the rate is not known.
    fn pace_after(&self, reading: Reading) -> Option<u64> {
        let Some(base) = self.base.get() else {
            self.base.set(Some(reading));
            return None;
        };
        let rate = match base.interval_to(reading) {
            TickInterval::Unclear => return None,
            TickInterval::Long(rate) => {
                self.base.set(Some(reading));
                let before = self.rate.get();
                if before != 0 && !agree(before, rate) {
                    self.start_over(reading.time);
                }
                return None;
            }
            TickInterval::Broken => 0,
            TickInterval::Rate(rate) => rate,
        };
        let before = self.rate.replace(rate);
        self.base.set(Some(reading));
        if rate == 0 || !agree(before, rate) {
            if rate == 0 || before != 0 {
                self.start_over(reading.time);
            }
            return None;
        }
        self.agreed.set(self.agreed.get().saturating_add(1));
        let rate = rate.max(before);
        (self.agreed.get() >= self.proven).then_some(rate + rate / 4)
    }

    /// Forgets the rate: the counter or the clock has changed, or the clock is not derived from the counter any more.
    #[cold]
    fn start_over(&self, now: Time) {
        self.rate.set(0);
        self.agreed.set(0);
        if now >= self.check_at.get() {
            self.check_at.set(now + Span::from_nanos(CHECK_PAUSE));
            self.source.check_again();
        }
    }
}

impl Reading {
    fn interval_to(self, next: Reading) -> TickInterval {
        let (from, to) = (self.time.as_nanos(), next.time.as_nanos());
        let ticks = next.before.wrapping_sub(self.after);
        // A clock or a counter that goes back.
        if to < from || ticks > u64::MAX / 2 {
            return TickInterval::Broken;
        }
        let nanos = to - from;
        let unclear = (self.after - self.before) + (next.after - next.before);
        if nanos < SHORTEST || unclear * CLEAR > ticks {
            return TickInterval::Unclear;
        }
        // No known counter has less than 100 MHz or more than 100 GHz.
        let known = (1 << FRACTION) / 100..10 << FRACTION;
        let is_long = nanos > LONGEST;
        let rate = if is_long {
            let rate = (u128::from(nanos) << FRACTION) / u128::from(ticks.max(1));
            u64::try_from(rate).unwrap_or(u64::MAX)
        } else {
            ((nanos + EARLY) << FRACTION) / ticks.max(1) + 1
        };
        match (known.contains(&rate), is_long) {
            (false, _) => TickInterval::Broken,
            (true, true) => TickInterval::Long(rate),
            (true, false) => TickInterval::Rate(rate),
        }
    }
}

fn agree(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= one.max(other) / AGREE
}
