//! Events for the crate `tracing`, at the seams only: the engine's and its driver's life, and what goes wrong.
//!
//! All have the target `tourbillon`. Without the feature `tracing` the functions are empty and nothing of them is left.
//! They are called outside every lock, and a subscriber that panics does not take the driver with it.

#[cfg(feature = "tracing")]
pub(crate) use self::told::*;
#[cfg(not(feature = "tracing"))]
pub(crate) use self::untold::*;

#[cfg(feature = "tracing")]
mod told {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tourbillon_queue::{Span, Time};
    use tracing::{Level, event};

    use crate::core::Core;
    use crate::sync::catch_panic::catch_panic;

    const TARGET: &str = "tourbillon";

    /// A driver that comes later than this, and than the slack of its timers, is worth a word.
    const LATE: Duration = Duration::from_millis(10);
    /// But no more than one in this time.
    const QUIET: Duration = Duration::from_secs(1);

    /// What an engine remembers of late turns.
    #[derive(Default)]
    pub(crate) struct Lag {
        /// On the engine's clock.
        quiet_until: AtomicU64,
        untold: AtomicU64,
    }

    impl Lag {
        /// A turn has fired so many timers, the first of them so long after it was to.
        pub(crate) fn turned(&self, core: &Core, now: Time, late: Span, fired: usize) {
            // What a clock that is moved passes over in one step is not late.
            if fired == 0 || late <= Span::from(LATE) || core.clock.is_manual() || core.is_virtual {
                return;
            }
            let until = self.quiet_until.load(Ordering::Relaxed);
            let next = (now + Span::from(QUIET)).as_nanos();
            // A wall clock may have been set back: the quiet then ends all the same.
            let is_quiet = now.as_nanos() < until && until <= next;
            let swap = || self.quiet_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
            if is_quiet || swap().is_err() {
                self.untold.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let (late, untold) = (Duration::from(late), self.untold.swap(0, Ordering::Relaxed));
            contained(|| {
                event!(
                    target: TARGET, Level::WARN, engine = ?std::ptr::from_ref(core), ?late, fired, untold,
                    "timers fired late: the driver was kept from running"
                );
            });
        }
    }

    pub(crate) fn engine_built(core: &Core, shards: usize) {
        let clock = &core.clock;
        contained(|| {
            event!(target: TARGET, Level::DEBUG, engine = ?std::ptr::from_ref(core), ?clock, shards, "engine built");
        });
    }

    pub(crate) fn engine_shut_down(core: &Core) {
        contained(|| event!(target: TARGET, Level::DEBUG, engine = ?std::ptr::from_ref(core), "engine shut down"));
    }

    /// `on`: a thread, or what else it runs on.
    pub(crate) fn driver_started(core: &Core, on: &'static str) {
        contained(|| event!(target: TARGET, Level::DEBUG, engine = ?std::ptr::from_ref(core), on, "driver started"));
    }

    /// The runtime that the driver was a task of has gone.
    #[cfg(feature = "tokio")]
    pub(crate) fn driver_took_over(core: &Core) {
        contained(|| {
            event!(
                target: TARGET, Level::INFO, engine = ?std::ptr::from_ref(core),
                "the driver's runtime has gone: a thread takes over"
            );
        });
    }

    pub(crate) fn waker_panicked(core: &Core) {
        contained(|| event!(target: TARGET, Level::ERROR, engine = ?std::ptr::from_ref(core), "a waker panicked"));
    }

    pub(crate) fn job_failed(core: &Core, run: u64, cause: &str) {
        contained(|| {
            event!(target: TARGET, Level::ERROR, engine = ?std::ptr::from_ref(core), run, cause, "a job failed");
        });
    }

    pub(crate) fn callback_panicked(core: &Core) {
        contained(|| event!(target: TARGET, Level::ERROR, engine = ?std::ptr::from_ref(core), "a callback panicked"));
    }

    /// What a subscriber throws has been reported by the panic hook, and goes no further.
    fn contained(tell: impl FnOnce()) {
        let _ignored = catch_panic(tell);
    }
}

#[cfg(not(feature = "tracing"))]
mod untold {
    use tourbillon_queue::{Span, Time};

    use crate::core::Core;

    #[derive(Default)]
    pub(crate) struct Lag(());

    impl Lag {
        #[inline(always)]
        pub(crate) fn turned(&self, _: &Core, _: Time, _: Span, _: usize) {}
    }

    #[inline(always)]
    pub(crate) fn engine_built(_: &Core, _: usize) {}

    #[inline(always)]
    pub(crate) fn engine_shut_down(_: &Core) {}

    #[inline(always)]
    pub(crate) fn driver_started(_: &Core, _: &'static str) {}

    #[cfg(feature = "tokio")]
    #[inline(always)]
    pub(crate) fn driver_took_over(_: &Core) {}

    #[inline(always)]
    pub(crate) fn waker_panicked(_: &Core) {}

    #[inline(always)]
    pub(crate) fn job_failed(_: &Core, _: u64, _: &str) {}

    pub(crate) fn callback_panicked(_: &Core) {}
}
