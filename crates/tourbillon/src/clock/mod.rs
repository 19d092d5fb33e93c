//! The clocks of engines. Only this folder reads the clock of an engine. (Bounded waits in real time, in `scheduler/ending.rs` and
//! `virtual_time/watcher.rs`, read the standard library's `Instant`. So does `current::now_std`, if the engine's clock is that clock, and
//! `instant::far_future`, once in a process.)
//!
//! Everything below the driver gets the time as an argument. A point in time is a [`Time`]: nanoseconds since the origin of the clock.
//! The origin of the wall clock is the year 1970. That of the monotonic and the boot-time clock is the machine's boot on Linux. Elsewhere the
//! monotonic clock counts from the first reading in the process (`sys/portable.rs`), so a timer of the kernel can follow it
//! only by a relative time.
//!
//! | file | what it has |
//! |---|---|
//! | `sys` | the clocks of the operating system, a file for each platform |
//! | `tsc` | the monotonic clock at half the price, for timers that may count from a time slightly ahead |
//! | `manual` | the clock that a test moves |
//! | `tokio` | the clock of a Tokio runtime, which Tokio's `pause` and `advance` move |
//! | `anchor` | conversion to and from the standard library's `Instant` |
//! | `wall` | conversion to and from the time of day |

mod anchor;
mod manual;
mod sys;
#[cfg(feature = "tokio")]
mod tokio;
mod tsc;
mod wall;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant, SystemTime};

use tourbillon_queue::{Span, Time};

use self::anchor::ClockAnchor;
#[cfg(target_os = "linux")]
use self::anchor::PairedReading;
pub(crate) use self::anchor::{ClockOrigin, earliest};
use self::manual::ManualClock;
use self::sys::monotonic;
#[cfg(feature = "tokio")]
pub(crate) use self::tokio::TokioClock;
pub(crate) use self::tsc::Ahead;
pub(crate) use self::wall::{WallShift, since_1970};

/// The last time that a clock shows, and the latest deadline that is ever due: five centuries after the clock's origin. The states of a
/// timer are encoded as the times beyond, see `shard::state`.
pub(crate) const LAST: Time = Time::from_nanos((u64::MAX << 36) - 1);

/// Returns `deadline`, or `NEVER` if no clock shows it.
#[inline(always)]
pub(crate) fn representable(deadline: Time) -> Time {
    if deadline <= LAST { deadline } else { Time::NEVER }
}

/// Returns the processor time of the calling thread if the system tells it, else the monotonic time.
pub(crate) fn thread_time() -> Time {
    sys::thread_time()
}

/// The clock of an engine: monotonic, boot-time, wall, or manual.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Clock;
///
/// let clock = Clock::manual();
/// let start = clock.elapsed();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.elapsed(), start + Duration::from_secs(5));
/// ```
#[derive(Clone)]
pub struct Clock(ClockKind);

#[derive(Clone)]
enum ClockKind {
    Monotonic,
    #[cfg(target_os = "linux")]
    Boot,
    #[cfg(target_os = "linux")]
    Wall,
    Manual(Arc<ManualClock>),
    #[cfg(feature = "tokio")]
    Tokio(Arc<TokioClock>),
}

/// A clock of the kernel that a timer of the kernel can follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelClock {
    Monotonic,
    #[cfg(target_os = "linux")]
    Boot,
    #[cfg(target_os = "linux")]
    Wall,
}

/// The anchors by which a clock's times are converted.
struct ConversionAnchors {
    to_std: ClockAnchor,
    to_time: ClockAnchor,
}

/// Readings of a clock that drifts against the standard library's are made within this time of each other, if possible.
#[cfg(target_os = "linux")]
const CLOSE_TOGETHER: Span = Span::from_nanos(1_000);

impl Clock {
    /// Returns the monotonic clock, which stands still while the machine is suspended. The default.
    #[must_use]
    pub fn monotonic() -> Clock {
        Clock(ClockKind::Monotonic)
    }

    /// Returns the boot-time clock: monotonic, and it counts the time during which the machine is suspended.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Clock, Engine};
    ///
    /// // A lease that runs out while the laptop is closed.
    /// let leases = Engine::builder().clock(Clock::boot()).build()?;
    /// futures_lite::future::block_on(leases.sleep(Duration::from_millis(1)));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn boot() -> Clock {
        Clock(ClockKind::Boot)
    }

    /// Returns the wall clock: the time of day, in nanoseconds since 1970.
    ///
    /// The wall clock can be set. If it is set forward, timers whose deadline it passes fire at once; if it is set back, timers fire
    /// later.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn wall() -> Clock {
        Clock(ClockKind::Wall)
    }

    /// Returns a clock that stands still until [`advance`](Clock::advance) or [`set_elapsed`](Clock::set_elapsed) moves it. Its clones show the same time.
    #[must_use]
    pub fn manual() -> Clock {
        Clock(ClockKind::Manual(Arc::new(ManualClock::new())))
    }

    /// Returns the clock of a Tokio runtime.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_tokio(clock: TokioClock) -> Clock {
        Clock(ClockKind::Tokio(Arc::new(clock)))
    }

    /// Returns the clock of the Tokio runtime, if it is one.
    #[cfg(feature = "tokio")]
    pub(crate) fn as_tokio(&self) -> Option<&TokioClock> {
        match &self.0 {
            ClockKind::Tokio(clock) => Some(clock),
            _ => None,
        }
    }

    /// Returns a manual clock that runs with the monotonic clock until it is [paused](Clock::pause), and that `time::pause`,
    /// `time::resume` and `time::advance` act on where an engine with this clock is entered.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn pausable() -> Clock {
        Clock(ClockKind::Manual(Arc::new(ManualClock::pausable())))
    }

    /// Returns whether the clock was made by [`Clock::pausable`].
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_pausable(&self) -> bool {
        matches!(&self.0, ClockKind::Manual(manual) if manual.is_pausable)
    }

    /// Returns whether the clock is a manual one that stands still.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_paused(&self) -> bool {
        matches!(&self.0, ClockKind::Manual(manual) if manual.is_paused())
    }

    /// Stops a manual clock where it is. The driver of its engine is not notified.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn pause(&self) {
        if let ClockKind::Manual(manual) = &self.0 {
            manual.pause();
        }
    }

    /// Lets a manual clock run with the monotonic clock.
    #[cfg(feature = "test-util")]
    pub(crate) fn resume(&self) {
        if let ClockKind::Manual(manual) = &self.0 {
            manual.resume();
        }
    }

    /// Returns the monotonic time at which a pausable clock will show `time`, unless it is paused before. `None` if it stands still.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn to_monotonic(&self, time: Time) -> Option<Time> {
        let ClockKind::Manual(manual) = &self.0 else { return Some(time) };
        manual.to_monotonic(time)
    }

    /// Moves a manual clock that stands still to the time that `to` returns, unless that is earlier; `to` gets the time that the clock
    /// shows. No thread reads the clock between the call of `to` and the move: a thread that sees an effect of `to` reads the new time.
    /// So `to` must not read the clock, nor wait for a thread that does. Returns `false` if the clock runs, or if `to` returned no time.
    #[cfg(feature = "test-util")]
    pub(crate) fn move_forward(&self, to: impl FnOnce(Time) -> Option<Time>) -> bool {
        let ClockKind::Manual(manual) = &self.0 else { return false };
        manual.move_forward(to)
    }

    /// Returns the time that the clock shows, counted from its origin: the year 1970 for the wall clock, on Linux the machine's boot for the
    /// monotonic and the boot-time clock. A manual clock begins with the time of the monotonic one. [`Engine::now`](crate::Engine::now) returns it as an `Instant`.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.now().as_nanos())
    }

    /// Sets a manual clock forward or back, to a time counted from its origin, at most to the last moment at which a timer can be due; does
    /// nothing to other clocks.
    ///
    /// Timers that come due do not fire before the engine is [turned](crate::Engine::turn).
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tourbillon::Clock;
    ///
    /// // A clock for a test of cron lines, which count from 1970.
    /// let clock = Clock::manual();
    /// clock.set_elapsed(SystemTime::UNIX_EPOCH.elapsed()?);
    /// assert!(clock.elapsed() > Duration::from_secs(1_700_000_000));
    /// # Ok::<(), std::time::SystemTimeError>(())
    /// ```
    pub fn set_elapsed(&self, to: Duration) {
        self.set(Time::ZERO + Span::from(to));
    }

    /// Returns the time that the clock shows. For runtimes: [`elapsed`](Clock::elapsed).
    #[doc(hidden)]
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> Time {
        #[cfg(shuttle)]
        crate::sync::under_shuttle::point();
        match &self.0 {
            ClockKind::Monotonic => monotonic(),
            other => other.now(),
        }
    }

    /// Moves a manual clock forward; does nothing to other clocks.
    ///
    /// Timers that come due do not fire before the engine is [turned](crate::Engine::turn);
    /// [`Engine::advance`](crate::Engine::advance) does both.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + Span::from(by));
    }

    /// Sets a manual clock. For runtimes: [`set_elapsed`](Clock::set_elapsed).
    #[doc(hidden)]
    pub fn set(&self, to: Time) {
        if let ClockKind::Manual(manual) = &self.0 {
            #[cfg(shuttle)]
            crate::sync::under_shuttle::point();
            manual.set(to);
        }
    }

    /// Returns whether the clock is a manual one.
    #[must_use]
    pub fn is_manual(&self) -> bool {
        matches!(self.0, ClockKind::Manual(_))
    }

    /// Returns whether the clock neither jumps nor goes back.
    #[inline(always)]
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self.0, ClockKind::Monotonic)
    }

    /// Returns whether the clock may show a time that is earlier than one it has shown.
    #[inline(always)]
    pub(crate) fn may_go_back(&self) -> bool {
        match self.0 {
            ClockKind::Monotonic => false,
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => false,
            _ => true,
        }
    }

    /// Returns the clock that a timer of the kernel has to follow; `None` if the kernel does not have the clock. Outside Linux the origin of
    /// `Monotonic` is not the kernel's: a timer of the kernel there needs a conversion first.
    pub(crate) fn kernel_clock(&self) -> Option<KernelClock> {
        match &self.0 {
            ClockKind::Monotonic => Some(KernelClock::Monotonic),
            #[cfg(target_os = "linux")]
            ClockKind::Boot => Some(KernelClock::Boot),
            #[cfg(target_os = "linux")]
            ClockKind::Wall => Some(KernelClock::Wall),
            ClockKind::Manual(_) => None,
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => None,
        }
    }

    /// Returns the time that the clock shows, as an instant of the standard library: not before the call, so that a deadline that is
    /// counted from it is not early.
    pub(crate) fn now_std(&self) -> StdInstant {
        match &self.0 {
            // The standard library reads the same clock; but in a schedule the clock is the schedule's.
            ClockKind::Monotonic if !cfg!(shuttle) => StdInstant::now(),
            ClockKind::Monotonic | ClockKind::Manual(_) => self.std_of(self.now()),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(clock) => clock.now(),
            #[cfg(target_os = "linux")]
            ClockKind::Boot | ClockKind::Wall => StdInstant::now(),
        }
    }

    /// Converts a time of this clock to an instant of the standard library: see [`ClockAnchor`].
    pub(crate) fn std_of(&self, time: Time) -> StdInstant {
        self.anchors().to_std.to_std(time)
    }

    /// Converts an instant of the standard library to a time of this clock, which is not early: see [`ClockAnchor`].
    pub(crate) fn time_of(&self, std: StdInstant) -> Time {
        self.anchors().to_time.to_time(std)
    }

    /// Returns the origin of the clock; `None` if an `Instant` cannot be converted by a fixed origin.
    pub(crate) fn origin(&self) -> Option<ClockOrigin> {
        self.is_steady().then(ClockOrigin::of_process).flatten()
    }

    /// Returns the time of this clock at which the wall clock will show `when`, if the wall clock is not set before.
    pub(crate) fn time_of_wall(&self, when: SystemTime) -> Time {
        #[cfg(target_os = "linux")]
        if let ClockKind::Wall = self.0 {
            return wall::since_1970(when);
        }
        wall::time_when(when, SystemTime::now, || self.now())
    }

    /// Returns, for a clock that tests move, the wall clock that moves with it.
    pub(crate) fn wall_shift(&self) -> Option<WallShift> {
        match &self.0 {
            ClockKind::Manual(manual) => Some(manual.wall),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(clock) => Some(clock.wall_shift()),
            _ => None,
        }
    }

    fn anchors(&self) -> ConversionAnchors {
        let same = |anchor| ConversionAnchors { to_std: anchor, to_time: anchor };
        match &self.0 {
            ClockKind::Monotonic => same(*ClockAnchor::of_process()),
            ClockKind::Manual(manual) => same(manual.anchor),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => same(*ClockAnchor::of_process()),
            // These two drift against the standard library's clock, so each conversion reads both anew. A time comes out late both ways.
            #[cfg(target_os = "linux")]
            ClockKind::Boot | ClockKind::Wall => {
                let reading = PairedReading::closest(|| self.now(), CLOSE_TOGETHER);
                ConversionAnchors { to_std: reading.earlier(), to_time: reading.later() }
            }
        }
    }
}

impl ClockKind {
    #[cold]
    fn now(&self) -> Time {
        match self {
            ClockKind::Monotonic => monotonic(),
            #[cfg(target_os = "linux")]
            ClockKind::Boot => sys::boot(),
            #[cfg(target_os = "linux")]
            ClockKind::Wall => sys::wall(),
            ClockKind::Manual(manual) => manual.now(),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(clock) => clock.time(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ClockKind::Monotonic => "Clock::monotonic",
            #[cfg(target_os = "linux")]
            ClockKind::Boot => "Clock::boot",
            #[cfg(target_os = "linux")]
            ClockKind::Wall => "Clock::wall",
            ClockKind::Manual(_) => "Clock::manual",
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => "the clock of a Tokio runtime",
        })
    }
}
