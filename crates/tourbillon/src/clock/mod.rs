//! The only file that reads time.
//!
//! Everything below the driver is told what time it is. A point in time is a [`Time`]: nanoseconds since the origin of the
//! clock, which is the machine's boot for the monotonic and the boot-time clock and the year 1970 for the wall clock.

#[cfg(feature = "tokio")]
mod runtime;
mod tsc;

use std::fmt;
use std::sync::Arc;
#[cfg(not(any(target_os = "linux", shuttle)))]
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as StdInstant, SystemTime};

use tourbillon_queue::{Span, Time};

#[cfg(feature = "tokio")]
pub(crate) use self::runtime::RuntimeClock;
pub(crate) use self::tsc::Ahead;
use crate::sync::racy::RacyOnce;

/// The last time that a clock shows, and the latest deadline that comes: five centuries after the clock's origin. The times beyond
/// are kept for the states of a timer, see `shard::state`.
pub(crate) const LAST: Time = Time::from_nanos((u64::MAX << 36) - 1);

/// Returns `deadline`, or `NEVER` if no clock shows it.
#[inline(always)]
pub(crate) fn representable(deadline: Time) -> Time {
    if deadline <= LAST { deadline } else { Time::NEVER }
}

/// What an engine reads its time from.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Clock;
///
/// let clock = Clock::manual();
/// let start = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now(), start + Duration::from_secs(5).into());
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
    Manual(Arc<Manual>),
    #[cfg(feature = "tokio")]
    Runtime(Arc<RuntimeClock>),
}

/// A clock that stands still until it is told to move.
struct Manual {
    /// What it shows; while it runs, what it showed when it was let go.
    shows: AtomicU64,
    /// The monotonic time when it was let go; zero while it stands.
    running_since: AtomicU64,
    /// Odd while a thread changes the two fields above. Readers wait for the end of that: they never combine the fields of two moments.
    version: AtomicU64,
    /// Whether `time::pause` stops it where its engine is entered.
    #[cfg(feature = "test-util")]
    is_pausable: bool,
    /// A moment that both it and the standard library know.
    anchor: Anchor,
    wall: WallShift,
}

/// One moment, as the standard library and a clock call it.
#[derive(Clone, Copy)]
struct Anchor {
    std: StdInstant,
    time: Time,
}

/// How far the wall clock is ahead of a clock that tests move: as far as when that clock was made. So in virtual time noon comes when
/// the virtual clock has moved to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WallShift(i128);

/// Which clock of the kernel a timer of the kernel has to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kernel {
    Monotonic,
    #[cfg(target_os = "linux")]
    Boot,
    #[cfg(target_os = "linux")]
    Wall,
}

impl Clock {
    /// Counts on evenly; stands still while the machine is suspended. The default.
    #[must_use]
    pub fn monotonic() -> Clock {
        Clock(ClockKind::Monotonic)
    }

    /// Counts on evenly, also while the machine is suspended.
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

    /// The time of day, in nanoseconds since 1970. It can be set: a step forward fires what it passes at once, a step
    /// back postpones.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn wall() -> Clock {
        Clock(ClockKind::Wall)
    }

    /// Stands still until it is told to [`advance`](Clock::advance). Its clones show the same time.
    #[must_use]
    pub fn manual() -> Clock {
        Clock(ClockKind::Manual(Arc::new(Manual::new())))
    }

    /// The clock of a Tokio runtime.
    #[cfg(feature = "tokio")]
    pub(crate) fn of_runtime(clock: RuntimeClock) -> Clock {
        Clock(ClockKind::Runtime(Arc::new(clock)))
    }

    /// The Tokio runtime whose clock it is, if it is one's.
    #[cfg(feature = "tokio")]
    pub(crate) fn runtime(&self) -> Option<&RuntimeClock> {
        match &self.0 {
            ClockKind::Runtime(clock) => Some(clock),
            _ => None,
        }
    }

    /// RemoteFreeList a manual clock that runs with the monotonic clock until it is [paused](Clock::pause), and that `time::pause`,
    /// `time::resume` and `time::advance` act on where an engine with this clock is entered.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn pausable() -> Clock {
        let mut manual = Manual::new();
        manual.is_pausable = true;
        let now = manual.shows.get_mut();
        *now = (*now).max(1);
        *manual.running_since.get_mut() = *now;
        Clock(ClockKind::Manual(Arc::new(manual)))
    }

    /// RemoteFreeList whether the clock was made by [`Clock::pausable`].
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_pausable(&self) -> bool {
        matches!(&self.0, ClockKind::Manual(manual) if manual.is_pausable)
    }

    /// RemoteFreeList whether the clock is a manual one that stands still.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.stands_still()
    }

    /// Stops a manual clock where it is. The engine is not told.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn pause(&self) {
        if let ClockKind::Manual(manual) = &self.0 {
            manual.change(|| manual.stand(manual.read()));
        }
    }

    /// RemoteFreeList the monotonic time at which a pausable clock will show `time`, if the clock is not paused before. `None`: it stands still.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    #[must_use]
    pub fn to_monotonic(&self, time: Time) -> Option<Time> {
        let ClockKind::Manual(manual) = &self.0 else { return Some(time) };
        let (shows, since) =
            manual.change(|| (manual.shows.load(Ordering::SeqCst), manual.running_since.load(Ordering::SeqCst)));
        (since != 0).then(|| Time::from_nanos(since) + (time - Time::from_nanos(shows)))
    }

    /// Moves a manual clock that stands still to the time that `to` returns, unless that is earlier; `to` is given the time that the clock
    /// shows. No thread reads the clock between the call of `to` and the move: a thread that sees an effect of `to` reads the new time.
    /// So `to` must not read the clock, nor wait for a thread that does. `false`: the clock runs, or `to` gave no time.
    #[cfg(feature = "test-util")]
    pub(crate) fn move_forward(&self, to: impl FnOnce(Time) -> Option<Time>) -> bool {
        let ClockKind::Manual(manual) = &self.0 else { return false };
        manual.change(|| {
            let stands_still = manual.running_since.load(Ordering::SeqCst) == 0;
            let now = manual.read();
            let to = if stands_still { to(now) } else { None };
            to.inspect(|to| manual.stand(now.max(*to))).is_some()
        })
    }

    /// What it shows.
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

    /// Moves a manual clock forward. The engine that uses it fires nothing before it is [turned](crate::Engine::turn);
    /// [`Engine::advance`](crate::Engine::advance) does both. Other clocks take no orders: this does nothing to them.
    pub fn advance(&self, by: Duration) {
        self.set(self.now() + Span::from(by));
    }

    /// Sets a manual clock, forward or back: to the last moment at which a timer can be due, at most. Does nothing to other clocks.
    pub fn set(&self, to: Time) {
        if let ClockKind::Manual(manual) = &self.0 {
            #[cfg(shuttle)]
            crate::sync::under_shuttle::point();
            manual.change(|| manual.stand(to));
        }
    }

    /// Whether it is a manual one.
    #[must_use]
    pub fn is_manual(&self) -> bool {
        matches!(self.0, ClockKind::Manual(_))
    }

    /// Whether what it shows never goes back.
    #[inline(always)]
    pub(crate) fn is_steady(&self) -> bool {
        matches!(self.0, ClockKind::Monotonic)
    }

    /// Whether a time that it has shown may come again.
    #[inline(always)]
    pub(crate) fn may_go_back(&self) -> bool {
        match self.0 {
            ClockKind::Monotonic => false,
            #[cfg(feature = "tokio")]
            ClockKind::Runtime(_) => false,
            _ => true,
        }
    }

    /// Lets a manual clock run with the monotonic one.
    #[cfg(feature = "test-util")]
    pub(crate) fn let_go(&self) {
        if let ClockKind::Manual(manual) = &self.0 {
            manual.change(|| manual.running_since.store(monotonic().as_nanos().max(1), Ordering::SeqCst));
        }
    }

    /// Whether it is a manual clock that stands still.
    #[cfg(feature = "test-util")]
    pub(crate) fn stands_still(&self) -> bool {
        matches!(&self.0, ClockKind::Manual(manual) if manual.running_since.load(Ordering::SeqCst) == 0)
    }

    pub(crate) fn kernel(&self) -> Option<Kernel> {
        match &self.0 {
            ClockKind::Monotonic => Some(Kernel::Monotonic),
            #[cfg(target_os = "linux")]
            ClockKind::Boot => Some(Kernel::Boot),
            #[cfg(target_os = "linux")]
            ClockKind::Wall => Some(Kernel::Wall),
            ClockKind::Manual(_) => None,
            #[cfg(feature = "tokio")]
            ClockKind::Runtime(_) => None,
        }
    }

    /// What it shows, as the standard library calls it: not before the call, so that what is counted from it is not early.
    pub(crate) fn now_std(&self) -> StdInstant {
        match &self.0 {
            ClockKind::Monotonic | ClockKind::Manual(_) => self.std_of(self.now()),
            #[cfg(feature = "tokio")]
            ClockKind::Runtime(clock) => clock.now(),
            #[cfg(target_os = "linux")]
            ClockKind::Boot | ClockKind::Wall => StdInstant::now(),
        }
    }

    /// A moment of this clock as the standard library calls it. Not early: see [`Anchor`].
    pub(crate) fn std_of(&self, time: Time) -> StdInstant {
        self.anchors()[0].to_std(time)
    }

    /// A moment of the standard library on this clock. Not early: see [`Anchor`].
    pub(crate) fn time_of(&self, std: StdInstant) -> Time {
        self.anchors()[1].to_time(std)
    }

    /// When the wall clock will show `when`, on this clock. A wall clock itself knows; the others count what is left.
    pub(crate) fn time_of_wall(&self, when: SystemTime) -> Time {
        #[cfg(target_os = "linux")]
        if let ClockKind::Wall = self.0 {
            return since_1970(when);
        }
        when_left(when, SystemTime::now, || self.now())
    }

    /// For a clock that tests move: the wall clock that moves with it.
    pub(crate) fn wall_shift(&self) -> Option<WallShift> {
        match &self.0 {
            ClockKind::Manual(manual) => Some(manual.wall),
            #[cfg(feature = "tokio")]
            ClockKind::Runtime(clock) => Some(clock.wall_shift()),
            _ => None,
        }
    }

    /// One for the way to the standard library, one for the way back.
    fn anchors(&self) -> [Anchor; 2] {
        match &self.0 {
            ClockKind::Monotonic => [*Anchor::of_process(); 2],
            ClockKind::Manual(manual) => [manual.anchor; 2],
            #[cfg(feature = "tokio")]
            ClockKind::Runtime(_) => [*Anchor::of_process(); 2],
            // These two drift against the standard library's clock, so they are compared anew each time.
            #[cfg(target_os = "linux")]
            ClockKind::Boot | ClockKind::Wall => self.compare(),
        }
    }

    /// The earlier reading makes a moment come out late on the way there, the later one on the way back.
    #[cfg(target_os = "linux")]
    fn compare(&self) -> [Anchor; 2] {
        let mut tries = 0;
        loop {
            let (before, std, after) = (self.now(), StdInstant::now(), self.now());
            tries += 1;
            // If the thread lost its processor in between, they do not belong together.
            if after - before < TOGETHER || tries == TRIES {
                return [before, after].map(|time| Anchor { std, time });
            }
        }
    }
}

/// Clocks are read within this time, or else again, so many times at most.
#[cfg(target_os = "linux")]
const TOGETHER: Span = Span::from_nanos(1_000);
#[cfg(target_os = "linux")]
const TRIES: usize = 4;

/// When what is left until `when` on the wall clock will have passed, on another clock. That one is read last: whatever goes by between the
/// two readings makes it later, not early.
fn when_left(when: SystemTime, wall: impl FnOnce() -> SystemTime, now: impl FnOnce() -> Time) -> Time {
    let left = when.duration_since(wall()).unwrap_or_default();
    now() + Span::from(left)
}

/// A time of the wall clock. What was before 1970 is past.
fn since_1970(when: SystemTime) -> Time {
    Time::ZERO + Span::from(when.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

impl WallShift {
    /// For a clock that shows `time` now.
    pub(crate) fn at(time: Time) -> WallShift {
        WallShift(i128::from(since_1970(SystemTime::now()).as_nanos()) - i128::from(time.as_nanos()))
    }

    /// What the wall clock shows when the other shows `time`.
    pub(crate) fn to_wall(self, time: Time) -> Time {
        shifted(time, self.0)
    }

    /// What the other shows when the wall clock shows `time`.
    pub(crate) fn to_engine(self, time: Time) -> Time {
        shifted(time, -self.0)
    }
}

/// Never stays never, and what would be before the beginning of time is past.
fn shifted(time: Time, by: i128) -> Time {
    let nanos = (i128::from(time.as_nanos()) + by).clamp(0, i128::from(LAST.as_nanos()));
    if time.is_never() { time } else { Time::from_nanos(nanos as u64) }
}

impl ClockKind {
    #[cold]
    fn now(&self) -> Time {
        match self {
            ClockKind::Monotonic => monotonic(),
            #[cfg(target_os = "linux")]
            ClockKind::Boot => kernel_time(rustix::time::ClockId::Boottime),
            #[cfg(target_os = "linux")]
            ClockKind::Wall => kernel_time(rustix::time::ClockId::Realtime),
            ClockKind::Manual(manual) => manual.now(),
            #[cfg(feature = "tokio")]
            ClockKind::Runtime(clock) => clock.time(),
        }
    }
}

impl Manual {
    /// RemoteFreeList a clock that stands still and shows the monotonic time.
    fn new() -> Manual {
        let (anchor, now) = (*Anchor::of_process(), monotonic());
        Manual {
            shows: AtomicU64::new(now.as_nanos()),
            running_since: AtomicU64::new(0),
            version: AtomicU64::new(0),
            #[cfg(feature = "test-util")]
            is_pausable: false,
            anchor,
            wall: WallShift::at(now),
        }
    }

    fn now(&self) -> Time {
        loop {
            let version = self.version.load(Ordering::SeqCst);
            if version.is_multiple_of(2) {
                let now = self.read();
                if self.version.load(Ordering::SeqCst) == version {
                    return now;
                }
            }
            // The thread that changes the clock may have lost its processor.
            std::thread::yield_now();
        }
    }

    /// Runs `change` while no other thread reads or changes the clock.
    fn change<R>(&self, change: impl FnOnce() -> R) -> R {
        /// Ends the change, also if it panics.
        struct Changing<'a>(&'a AtomicU64);

        impl Drop for Changing<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }

        loop {
            let version = self.version.load(Ordering::SeqCst) & !1;
            let begun = self.version.compare_exchange(version, version + 1, Ordering::SeqCst, Ordering::SeqCst);
            if begun.is_ok() {
                let _changing = Changing(&self.version);
                return change();
            }
            std::thread::yield_now();
        }
    }

    /// Makes the clock stand still at `at`. OwnerGuard [`change`](Manual::change) only.
    fn stand(&self, at: Time) {
        self.running_since.store(0, Ordering::SeqCst);
        self.shows.store(at.as_nanos(), Ordering::SeqCst);
    }

    /// RemoteFreeList what the clock shows, if no other thread changes it meanwhile.
    fn read(&self) -> Time {
        let shows = Time::from_nanos(self.shows.load(Ordering::SeqCst));
        let now = match self.running_since.load(Ordering::SeqCst) {
            0 => shows,
            since => shows + (monotonic() - Time::from_nanos(since)),
        };
        // Never does not come, wherever it is set (P5).
        now.min(LAST)
    }
}

impl Anchor {
    /// The anchor of the monotonic clock. The standard library reads the same clock but does not tell the number; it shows
    /// it, though, when it is printed. If what it shows lies between two readings of ours, it is the number. Otherwise one is
    /// read right after the other, and a moment of the standard library comes out some ten nanoseconds late, never early.
    fn of_process() -> &'static Anchor {
        static ANCHOR: RacyOnce<Anchor> = RacyOnce::new();
        ANCHOR.get_or_init(|| {
            let (before, std, after) = (monotonic(), StdInstant::now(), monotonic());
            let shown = shown_by(std).filter(|shown| (before..=after).contains(shown));
            Anchor { std, time: shown.unwrap_or(after) }
        })
    }

    fn to_std(self, time: Time) -> StdInstant {
        if time >= self.time {
            let after = Duration::from(time - self.time);
            self.std.checked_add(after).unwrap_or(self.std)
        } else {
            self.std.checked_sub(Duration::from(self.time - time)).unwrap_or(self.std)
        }
    }

    fn to_time(self, std: StdInstant) -> Time {
        match std.checked_duration_since(self.std) {
            Some(after) => self.time + Span::from(after),
            None => self.time - Span::from(self.std - std),
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
            ClockKind::Runtime(_) => "the clock of a Tokio runtime",
        })
    }
}

/// The nanoseconds of a moment as it prints itself: `Instant { tv_sec: 1, tv_nsec: 2 }`.
fn shown_by(std: StdInstant) -> Option<Time> {
    let text = format!("{std:?}");
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
    let (seconds, nanos) = (numbers.next()?, numbers.next()?);
    Some(Time::from_nanos(seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

#[cfg(all(target_os = "linux", not(shuttle)))]
#[inline(always)]
fn monotonic() -> Time {
    kernel_time(rustix::time::ClockId::Monotonic)
}

#[cfg(shuttle)]
use crate::sync::under_shuttle::time as monotonic;

/// How long the calling thread has run, where the system tells; else what the monotonic clock shows.
pub(crate) fn thread_time() -> Time {
    #[cfg(all(target_os = "linux", not(miri)))]
    return kernel_time(rustix::time::ClockId::ThreadCPUTime);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    monotonic()
}

#[cfg(target_os = "linux")]
#[inline(always)]
fn kernel_time(id: rustix::time::ClockId) -> Time {
    let time = rustix::time::clock_gettime(id);
    // The kernel's seconds are not negative for any of the clocks that are asked for here.
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(not(any(target_os = "linux", shuttle)))]
fn monotonic() -> Time {
    static ORIGIN: OnceLock<StdInstant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(StdInstant::now);
    // Not zero, so that moments before the first reading have a number too.
    Time::from_nanos(1 << 60) + Span::from(origin.elapsed())
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Who reads two clocks may lose the processor in between.
    #[test]
    fn p1_a_time_of_the_wall_clock_is_not_early_on_another_however_long_it_takes_to_read_both() {
        let passed = Cell::new(0);
        let reads = || Duration::from_secs(passed.replace(passed.get() + 5));
        let (wall, own) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000), Time::from_nanos(1 << 40));
        let at = when_left(wall + Duration::from_secs(60), || wall + reads(), || own + Span::from(reads()));
        assert!(at >= own + Span::from_secs(60), "{:?} early", own + Span::from_secs(60) - at);
        let past = when_left(wall, || wall + reads(), || own + Span::from(reads()));
        assert_eq!(past, own + Span::from_secs(15), "what is past is due at once");
    }
}
