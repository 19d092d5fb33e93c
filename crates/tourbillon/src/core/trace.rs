//! Events for the crate `tracing`: the start and end of engines and drivers, and failures.
//!
//! All have the target `tourbillon`. Without the feature `tracing` the functions are empty and compile to nothing.
//! They are called outside every lock, and a subscriber that panics does not end the driver. A subscriber that waits for a timer keeps no
//! driver from firing it (D81): the events that a driver causes are sent by the thread of the callbacks.

#[cfg(not(feature = "tracing"))]
pub(crate) use self::disabled::*;
#[cfg(feature = "tracing")]
pub(crate) use self::enabled::*;

#[cfg(feature = "tracing")]
mod enabled {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use tourbillon_queue::{Span, Time};
    use tracing::level_filters::LevelFilter;
    use tracing::{Level, event};

    use crate::core::Core;
    use crate::sync::catch_panic::catch_panic;

    const TARGET: &str = "tourbillon";

    /// A driver that is later than this, beyond the slack of its timers, causes an event.
    const LATE: Duration = Duration::from_millis(10);
    /// There is at most one such event in this time.
    const QUIET: Duration = Duration::from_secs(1);

    /// Limits the events of late turns.
    #[derive(Default)]
    pub(crate) struct Lag {
        /// No event before this time, on the engine's clock.
        quiet_until: AtomicU64,
        /// Late turns without an event since the last event.
        untold: AtomicU64,
    }

    impl Lag {
        /// Reports a turn that fired `fired` timers, the first of them `late` after the planned wake-up.
        pub(crate) fn turned(&self, core: &Core, now: Time, late: Span, fired: usize) {
            // A timer that a moved clock passes is not late.
            if fired == 0 || late <= Span::from(LATE) || core.clock.is_manual() || core.is_virtual {
                return;
            }
            let until = self.quiet_until.load(Ordering::Relaxed);
            let next = (now + Span::from(QUIET)).as_nanos();
            // If the wall clock was set back, `until` lies too far ahead and does not count.
            let is_quiet = now.as_nanos() < until && until <= next;
            let swap = || self.quiet_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed);
            if is_quiet || swap().is_err() {
                self.untold.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let (late, untold) = (Duration::from(late), self.untold.swap(0, Ordering::Relaxed));
            beside_the_driver(core, Level::WARN, move |core| {
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

    /// `on`: where the driver runs, such as "a thread".
    pub(crate) fn driver_started(core: &Core, on: &'static str) {
        contained(|| event!(target: TARGET, Level::DEBUG, engine = ?std::ptr::from_ref(core), on, "driver started"));
    }

    /// Reports that the runtime of a driver task has ended, and a thread takes over.
    #[cfg(tourbillon_driver_task)]
    pub(crate) fn driver_took_over(core: &Core) {
        contained(|| {
            event!(
                target: TARGET, Level::INFO, engine = ?std::ptr::from_ref(core),
                "the driver's runtime has gone: a thread takes over"
            );
        });
    }

    pub(crate) fn waker_panicked(core: &Core) {
        beside_the_driver(core, Level::ERROR, |core| {
            event!(target: TARGET, Level::ERROR, engine = ?std::ptr::from_ref(core), "a waker panicked");
        });
    }

    pub(crate) fn job_failed(core: &Core, run: u64, cause: &str) {
        contained(|| {
            event!(target: TARGET, Level::ERROR, engine = ?std::ptr::from_ref(core), run, cause, "a job failed");
        });
    }

    pub(crate) fn callback_panicked(core: &Core) {
        contained(|| event!(target: TARGET, Level::ERROR, engine = ?std::ptr::from_ref(core), "a callback panicked"));
    }

    /// Has an event of this level sent by the thread of the callbacks, if the calling thread may be the engine's own driver. Without a
    /// subscriber for the level no thread is needed.
    fn beside_the_driver(core: &Core, level: Level, emit: impl FnOnce(&Core) + Send + 'static) {
        if core.driver.is_external() || core.is_inherited() || level > LevelFilter::current() {
            contained(|| emit(core));
        } else {
            core.post_event(move |core| contained(|| emit(core)));
        }
    }

    /// Runs `emit` and stops panics of the subscriber, which the panic hook has reported.
    fn contained(emit: impl FnOnce()) {
        let _ignored = catch_panic(emit);
    }
}

#[cfg(not(feature = "tracing"))]
mod disabled {
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

    #[cfg(tourbillon_driver_task)]
    #[inline(always)]
    pub(crate) fn driver_took_over(_: &Core) {}

    #[inline(always)]
    pub(crate) fn waker_panicked(_: &Core) {}

    #[inline(always)]
    pub(crate) fn job_failed(_: &Core, _: u64, _: &str) {}

    pub(crate) fn callback_panicked(_: &Core) {}
}
