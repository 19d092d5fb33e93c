//! A clock that a test moves.

use std::sync::atomic::{AtomicU64, Ordering};

use tourbillon_queue::Time;

use super::LAST;
use super::anchor::ClockAnchor;
use super::sys::monotonic;
use super::wall::WallShift;

/// A clock that stands still until a test moves it or lets it run.
pub(super) struct ManualClock {
    /// The time that it shows while it stands still; while it runs, the time that it showed when it began to run.
    shows: AtomicU64,
    /// The monotonic time at which it began to run; zero while it stands still.
    running_since: AtomicU64,
    /// Odd while a thread changes the two fields above. Readers wait until the change is over, so that they never combine the fields of
    /// two moments.
    version: AtomicU64,
    /// Whether `time::pause` stops it where its engine is entered.
    #[cfg(feature = "test-util")]
    pub(super) is_pausable: bool,
    pub(super) anchor: ClockAnchor,
    pub(super) wall: WallShift,
}

impl ManualClock {
    /// Returns a clock that stands still and shows the monotonic time.
    pub(super) fn new() -> ManualClock {
        let (anchor, now) = (*ClockAnchor::of_process(), monotonic());
        ManualClock {
            shows: AtomicU64::new(now.as_nanos()),
            running_since: AtomicU64::new(0),
            version: AtomicU64::new(0),
            #[cfg(feature = "test-util")]
            is_pausable: false,
            anchor,
            wall: WallShift::at(now),
        }
    }

    /// Returns a clock that runs with the monotonic clock, and that `time::pause` stops.
    #[cfg(feature = "test-util")]
    pub(super) fn pausable() -> ManualClock {
        let mut clock = ManualClock::new();
        clock.is_pausable = true;
        let now = clock.shows.get_mut();
        *now = (*now).max(1);
        *clock.running_since.get_mut() = *now;
        clock
    }

    pub(super) fn now(&self) -> Time {
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

    /// Stops the clock at `to`.
    pub(super) fn set(&self, to: Time) {
        self.change(|| self.stop_at(to));
    }

    /// Stops the clock at the time that it shows.
    #[cfg(feature = "test-util")]
    pub(super) fn pause(&self) {
        self.change(|| self.stop_at(self.read()));
    }

    /// Lets the clock run with the monotonic clock.
    #[cfg(feature = "test-util")]
    pub(super) fn resume(&self) {
        self.change(|| self.running_since.store(monotonic().as_nanos().max(1), Ordering::SeqCst));
    }

    #[cfg(feature = "test-util")]
    pub(super) fn is_paused(&self) -> bool {
        self.running_since.load(Ordering::SeqCst) == 0
    }

    /// See [`Clock::to_monotonic`](super::Clock::to_monotonic).
    #[cfg(feature = "test-util")]
    pub(super) fn to_monotonic(&self, time: Time) -> Option<Time> {
        let fields = || (self.shows.load(Ordering::SeqCst), self.running_since.load(Ordering::SeqCst));
        let (shows, since) = self.change(fields);
        (since != 0).then(|| Time::from_nanos(since) + (time - Time::from_nanos(shows)))
    }

    /// See [`Clock::move_forward`](super::Clock::move_forward).
    #[cfg(feature = "test-util")]
    pub(super) fn move_forward(&self, to: impl FnOnce(Time) -> Option<Time>) -> bool {
        self.change(|| {
            let now = self.read();
            let to = if self.is_paused() { to(now) } else { None };
            to.inspect(|to| self.stop_at(now.max(*to))).is_some()
        })
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

    /// Makes the clock stand still at `at`. Only inside [`change`](ManualClock::change).
    fn stop_at(&self, at: Time) {
        self.running_since.store(0, Ordering::SeqCst);
        self.shows.store(at.as_nanos(), Ordering::SeqCst);
    }

    /// Returns the time that the clock shows, if no other thread changes the clock meanwhile.
    fn read(&self) -> Time {
        let shows = Time::from_nanos(self.shows.load(Ordering::SeqCst));
        let now = match self.running_since.load(Ordering::SeqCst) {
            0 => shows,
            since => shows + (monotonic() - Time::from_nanos(since)),
        };
        // `NEVER` does not come, even if the clock is set to it (P5).
        now.min(LAST)
    }
}
