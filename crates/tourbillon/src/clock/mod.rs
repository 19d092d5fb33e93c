//! The clocks of engines. Only this folder reads the clock of an engine. (Bounded waits in real time, in `scheduler/ending.rs` and
//! `virtual_time/watcher.rs`, read the standard library's `Instant`. So does `current::now_std`, if the engine's clock is that clock, and
//! `instant::far_future`, once in a process.)
//!
//! Everything below the driver gets the time as an argument. A point in time is a [`Time`]: nanoseconds since the origin of the clock.
//! The origin of the wall clock is the year 1970. That of the monotonic and the boot-time clock is the machine's boot on Linux. Elsewhere
//! it is not the kernel's, or not the one that a timer of the kernel counts from, so such a timer follows a clock by the time that is
//! left: [`Clock::wait_for`].
//!
//! | file | what it has |
//! |---|---|
//! | `sys` | the clocks of the operating system, a file for each platform |
//! | `tsc` | the monotonic clock at half the price, for timers that may count from a time slightly ahead |
//! | `manual` | the clock that a test moves |
//! | `custom` | a clock of the user's own making |
//! | `tokio` | the clock of a Tokio runtime, which Tokio's `pause` and `advance` move |
//! | `anchor` | conversion to and from the standard library's `Instant` |
//! | `wall` | conversion to and from the time of day |

mod anchor;
mod custom;
mod manual;
mod sys;
#[cfg(feature = "tokio")]
mod tokio;
mod tsc;
mod wall;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant as StdInstant, SystemTime};

use tourbillon_queue::{Span, Time};

use self::anchor::{ClockAnchor, PairedReading};
pub(crate) use self::anchor::{ClockOrigin, earliest};
pub use self::custom::ClockSource;
use self::custom::CustomClock;
pub(crate) use self::custom::FollowsClock;
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

/// The clock of an engine: monotonic, boot-time, wall, manual, or custom.
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
    Boot,
    Wall,
    Manual(Arc<ManualClock>),
    Custom(Arc<CustomClock>),
    #[cfg(feature = "tokio")]
    Tokio(Arc<TokioClock>),
}

/// A clock of the kernel that a timer of the kernel can follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KernelClock {
    Monotonic,
    Boot,
    Wall,
    /// None: a timer counts the time that is left by [`Clock::wait_for`].
    TimeLeft,
}

/// The anchors by which a clock's times are converted.
struct ConversionAnchors {
    to_std: ClockAnchor,
    to_time: ClockAnchor,
}

/// Readings of a clock that drifts against the standard library's are made within this time of each other, if possible.
const CLOSE_TOGETHER: Span = Span::from_nanos(1_000);

/// How late a timer can be at the most because its clock has jumped and nothing has told the driver.
const RECHECK_EVERY: Duration = Duration::from_secs(1);

impl Clock {
    /// Returns the monotonic clock, which is that of the standard library's `Instant`. The default.
    ///
    /// While the machine is suspended it stands still on Linux, macOS and FreeBSD, and goes on with Windows:
    /// [`counts_suspend`](Clock::counts_suspend) tells.
    #[must_use]
    pub fn monotonic() -> Clock {
        Clock(ClockKind::Monotonic)
    }

    /// Returns the boot-time clock: monotonic, and it counts the time during which the machine is suspended.
    ///
    /// Where the monotonic clock counts that time (Windows), or the system has no clock that does (FreeBSD), this is the
    /// [monotonic](Clock::monotonic) clock; [`counts_suspend`](Clock::counts_suspend) tells which. A timer that came due while the machine was
    /// suspended fires when it goes on; without a timer of the kernel on this clock (which only Linux has) at most a second later.
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
    #[must_use]
    pub fn boot() -> Clock {
        if sys::BOOT_IS_MONOTONIC { Clock::monotonic() } else { Clock(ClockKind::Boot) }
    }

    /// Returns the wall clock: the time of day, in nanoseconds since 1970.
    ///
    /// The wall clock can be set. If it is set forward, timers whose deadline it passes fire at once; if it is set back, timers fire
    /// later. Linux tells the driver when the clock is set. On other systems the driver reads the clock once a second while a timer is
    /// pending, so such a timer is at most a second late.
    #[must_use]
    pub fn wall() -> Clock {
        Clock(ClockKind::Wall)
    }

    /// Returns a clock that stands still until [`advance`](Clock::advance) or [`set_elapsed`](Clock::set_elapsed) moves it. Its clones show the same time.
    #[must_use]
    pub fn manual() -> Clock {
        Clock(ClockKind::Manual(Arc::new(ManualClock::new())))
    }

    /// Returns a clock of the user's own making, which shows what `source` says. Its clones show the same time. [`ClockSource`] has the rules.
    ///
    /// It works with every driver. An [`Instant`](crate::time::Instant) of such an engine comes from
    /// [`Engine::now`](crate::Engine::now), or from `Instant::now` where the engine is entered, and moves with this clock.
    #[must_use]
    pub fn custom(source: impl ClockSource) -> Clock {
        Clock(ClockKind::Custom(Arc::new(CustomClock::new(Box::new(source)))))
    }

    /// Tells the engines on a [custom](Clock::custom) clock that it was set, forward or back, or runs at another pace: their drivers read it at once, and
    /// schedulers compute the times of their cron plans again. Does nothing to other clocks.
    pub fn notify_set(&self) {
        if let ClockKind::Custom(custom) = &self.0 {
            custom.notify_set();
        }
    }

    /// Has an engine told when a custom clock was set.
    pub(crate) fn add_follower(&self, follower: Weak<dyn FollowsClock>) {
        if let ClockKind::Custom(custom) = &self.0 {
            custom.add_follower(follower);
        }
    }

    /// Returns whether the clock moves with real time, so that a thread that spins sees it move. (A wall clock does, but for its jumps.)
    pub(crate) fn runs_in_real_time(&self) -> bool {
        !matches!(self.0, ClockKind::Custom(_))
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
    /// monotonic and the boot-time clock, that of its source for a custom clock. A manual clock begins with the time of the monotonic one. [`Engine::now`](crate::Engine::now) returns it as an `Instant`.
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

    /// Returns whether the clock goes on while the machine is suspended, as far as the system documents it.
    ///
    /// ```
    /// use tourbillon::Clock;
    ///
    /// assert!(Clock::wall().counts_suspend() && !Clock::manual().counts_suspend());
    /// ```
    #[must_use]
    pub fn counts_suspend(&self) -> bool {
        match self.0 {
            ClockKind::Monotonic => sys::MONOTONIC_COUNTS_SUSPEND,
            ClockKind::Boot | ClockKind::Wall => true,
            ClockKind::Manual(_) | ClockKind::Custom(_) => false,
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => false,
        }
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

    /// Returns for how long, in real time, a driver may wait before it reads the clock again: until the clock shows `at`, as far as that can
    /// be known, but no longer than [`RECHECK_EVERY`] if the clock may jump. Zero if the clock shows `at` already.
    pub(crate) fn wait_for(&self, at: Time) -> Duration {
        if let (ClockKind::Custom(custom), false) = (&self.0, at.is_never()) {
            return custom.wait_for(at);
        }
        let rest = Duration::from(at - self.now());
        if self.is_steady() || at.is_never() { rest } else { rest.min(RECHECK_EVERY) }
    }

    /// Returns the clock that a timer of the kernel has to follow; `None` if no timer of the kernel can: the clock is moved by a test.
    pub(crate) fn kernel_clock(&self) -> Option<KernelClock> {
        match &self.0 {
            ClockKind::Monotonic => Some(KernelClock::Monotonic),
            ClockKind::Boot => Some(KernelClock::Boot),
            ClockKind::Wall => Some(KernelClock::Wall),
            ClockKind::Custom(_) => Some(KernelClock::TimeLeft),
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
            ClockKind::Monotonic | ClockKind::Manual(_) | ClockKind::Custom(_) => self.std_of(self.now()),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(clock) => clock.now(),
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
            ClockKind::Custom(custom) => same(custom.anchor),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => same(*ClockAnchor::of_process()),
            // These two drift against the standard library's clock, so each conversion reads both anew. A time comes out late both ways.
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
            ClockKind::Boot => sys::boot(),
            ClockKind::Wall => sys::wall(),
            ClockKind::Manual(manual) => manual.now(),
            ClockKind::Custom(custom) => custom.now(),
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(clock) => clock.time(),
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            ClockKind::Monotonic => "Clock::monotonic",
            ClockKind::Boot => "Clock::boot",
            ClockKind::Wall => "Clock::wall",
            ClockKind::Manual(_) => "Clock::manual",
            ClockKind::Custom(_) => "Clock::custom",
            #[cfg(feature = "tokio")]
            ClockKind::Tokio(_) => "the clock of a Tokio runtime",
        })
    }
}
