//! Who wants to hear that an engine's clock was set.
//!
//! A timer needs no such news: it is due when the clock shows its deadline, whatever the clock showed before. But who has worked
//! out deadlines from what the clock showed, the next noon for instance, has to do so again when that was wrong (A8, B8).
//!
//! There are two ways to notice a step:
//!
//! - The kernel tells the driver of an engine on the wall clock of every step, forward and back, and of the end of a suspend: see
//!   [`Alarm`](crate::alarm::Alarm). Who listens is told from the driver.
//! - A round for a time that is earlier than the last one's: the clock went back. This is how steps of a manual clock are
//!   noticed, and those of the wall clock where the engine is turned from outside or the kernel has no timer for us. A step
//!   forward is not to be told from time that has passed: it fires what it passes.
//!
//! The same step may be noticed both ways, and told twice. Where nobody listens, a round pays for looking at one flag.

use std::sync::Weak;

use tourbillon_queue::Time;

use crate::core::Core;
use crate::sync::Ordering;
use crate::sync::aside::{self, AtomicBool, AtomicU64, Mutex};
use crate::sync::catch_panic::catch_panic;

/// Somebody who wants to hear of it.
pub(crate) trait OnClockSet: Send + Sync {
    /// The clock was set: it shows something else than the time that has passed. Called on the thread of whoever drives, outside
    /// every lock, and never inside a call that arms. It may arm and cancel timers.
    fn clock_was_set(&self);
}

#[derive(Default)]
pub(crate) struct ClockJumps {
    /// Whether there ever was anybody.
    is_watched: AtomicBool,
    /// What the clock showed last, in a round or when the first one came to listen.
    last: AtomicU64,
    listeners: Mutex<Vec<Weak<dyn OnClockSet>>>,
}

impl Core {
    /// From now on `listener` is told when the clock was set, until it is dropped.
    pub(crate) fn on_clock_set(&self, listener: Weak<dyn OnClockSet>) {
        {
            let mut listeners = aside::lock(&self.jumps.listeners);
            // Before it grows those who have gone make room.
            if listeners.len() == listeners.capacity() {
                listeners.retain(|listener| listener.strong_count() > 0);
            }
            listeners.push(listener);
        }
        if !self.jumps.is_watched.load(Ordering::Acquire) {
            self.jumps.last.fetch_max(self.clock.now().as_nanos(), Ordering::AcqRel);
            self.jumps.is_watched.store(true, Ordering::Release);
        }
    }

    /// Before a round for this time: whether the clock went back since the last.
    #[inline]
    pub(crate) fn look_for_step(&self, now: Time) {
        if self.jumps.is_watched.load(Ordering::Acquire) {
            self.look_closer(now);
        }
    }

    #[cold]
    fn look_closer(&self, now: Time) {
        let ClockJumps { last, .. } = &self.jumps;
        let before = last.fetch_max(now.as_nanos(), Ordering::AcqRel);
        if now.as_nanos() >= before {
            return;
        }
        // Another round that began later may have come first. A clock that was not set shows no less than that one read.
        let now = self.clock.now().as_nanos();
        if now < before && last.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.tell_of_step();
        }
    }

    /// Tells all who listen. What one of them throws goes no further.
    #[cold]
    pub(crate) fn tell_of_step(&self) {
        let listeners = aside::lock(&self.jumps.listeners).iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        for listener in listeners {
            // If all others have let go of it meanwhile, it ends here, with all that is the user's in it.
            let _ignored = catch_panic(move || listener.clock_was_set());
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Arc, OnceLock};
    use std::time::Duration;

    use super::*;
    use crate::{Clock, Driver, Engine, Span};

    /// Counts what it hears, and does something then.
    struct Ear {
        heard: AtomicUsize,
        then: Box<dyn Fn() + Send + Sync>,
    }

    impl OnClockSet for Ear {
        fn clock_was_set(&self) {
            self.heard.fetch_add(1, Ordering::SeqCst);
            (self.then)();
        }
    }

    impl Ear {
        fn on(engine: &Engine) -> Arc<Ear> {
            Ear::with(engine, || {})
        }

        fn with(engine: &Engine, then: impl Fn() + Send + Sync + 'static) -> Arc<Ear> {
            let ear = Arc::new(Ear { heard: AtomicUsize::new(0), then: Box::new(then) });
            let weak: Weak<Ear> = Arc::downgrade(&ear);
            engine.core().on_clock_set(weak);
            ear
        }

        /// How often since this was last asked.
        fn heard(&self) -> usize {
            self.heard.swap(0, Ordering::SeqCst)
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn manual() -> Engine {
        Engine::builder().clock(Clock::manual()).build().unwrap()
    }

    fn set_back(engine: &Engine, by: Duration) {
        engine.clock().set(engine.clock().now() - Span::from(by));
    }

    #[test]
    fn a8_a_turn_after_the_clock_was_set_back_tells_once() {
        let engine = manual();
        engine.clock().advance(24 * HOUR);
        let ear = Ear::on(&engine);
        engine.turn();
        assert_eq!(ear.heard(), 0);
        set_back(&engine, HOUR);
        assert_eq!(ear.heard(), 0, "a manual clock tells nobody; the turn does");
        engine.turn();
        assert_eq!(ear.heard(), 1);
        engine.turn();
        assert_eq!(ear.heard(), 0);
        set_back(&engine, Duration::from_nanos(1));
        engine.turn();
        assert_eq!(ear.heard(), 1);
    }

    #[test]
    fn a8_a_clock_that_goes_on_is_no_news() {
        let engine = manual();
        let ear = Ear::on(&engine);
        for _ in 0..10 {
            engine.advance(HOUR);
            engine.turn();
            engine.clock().advance(HOUR);
            engine.turn();
        }
        assert_eq!(ear.heard(), 0);
    }

    #[test]
    fn a8_advancing_notices_a_step_back_also_where_nothing_is_pending() {
        let engine = manual();
        let ear = Ear::on(&engine);
        engine.advance(24 * HOUR);
        set_back(&engine, HOUR);
        engine.advance(Duration::ZERO);
        assert_eq!(ear.heard(), 1);
        // And one that the advance itself would make up for.
        set_back(&engine, HOUR);
        engine.advance(2 * HOUR);
        assert_eq!(ear.heard(), 1);
    }

    #[test]
    fn a8_a_step_before_anybody_listened_is_no_news() {
        let engine = manual();
        engine.advance(24 * HOUR);
        set_back(&engine, HOUR);
        let ear = Ear::on(&engine);
        engine.turn();
        assert_eq!(ear.heard(), 0);
    }

    #[test]
    fn p10_who_is_told_may_arm_and_what_it_arms_fires_in_the_same_advance() {
        let engine = manual();
        let slot = Arc::new(OnceLock::new());
        let ear = Ear::with(&engine, {
            let (core, slot) = (engine.clone(), Arc::clone(&slot));
            move || {
                let _ = slot.set(core.try_sleep(HOUR).map(Box::pin).unwrap());
            }
        });
        engine.advance(24 * HOUR);
        set_back(&engine, 12 * HOUR);
        assert_eq!(engine.advance(2 * HOUR), 1);
        assert_eq!(ear.heard(), 1);
        assert!(slot.get().unwrap().is_elapsed());
    }

    #[test]
    fn p10_who_is_told_may_listen_again_and_turn() {
        let engine = manual();
        let ear = Ear::with(&engine, {
            let engine = engine.clone();
            move || {
                drop(Ear::on(&engine));
                engine.turn();
            }
        });
        engine.advance(HOUR);
        set_back(&engine, HOUR);
        engine.turn();
        assert_eq!(ear.heard(), 1);
    }

    #[test]
    fn p6_what_one_throws_does_not_keep_the_news_from_the_others() {
        let engine = manual();
        let first = Ear::with(&engine, || panic!("contained"));
        let second = Ear::on(&engine);
        engine.advance(HOUR);
        set_back(&engine, HOUR);
        engine.turn();
        assert_eq!((first.heard(), second.heard()), (1, 1));
    }

    #[test]
    fn p7_those_who_have_gone_are_forgotten() {
        let engine = manual();
        let stays = Ear::on(&engine);
        for _ in 0..if cfg!(miri) { 300 } else { 10_000 } {
            drop(Ear::on(&engine));
        }
        assert!(aside::lock(&engine.core().jumps.listeners).len() < 100);
        engine.advance(HOUR);
        set_back(&engine, HOUR);
        engine.turn();
        assert_eq!(stays.heard(), 1);
    }

    #[test]
    fn a_round_that_is_overtaken_by_another_is_no_step() {
        let engine = manual();
        let ear = Ear::on(&engine);
        let early = engine.clock().now();
        engine.clock().advance(HOUR);
        engine.turn();
        engine.core().turn(early);
        assert_eq!(ear.heard(), 0);
    }

    /// What the kernel does when the clock is set cannot be had without setting the machine's, so the alarm is told that it
    /// did; from there on it is the real driver's way.
    #[cfg(target_os = "linux")]
    #[test]
    fn a8_b8_the_driver_of_a_wall_clock_tells_of_a_step_that_its_alarm_has_noticed() {
        let engine = Engine::builder().clock(Clock::wall()).driver(Driver::thread()).build().unwrap();
        let ear = Ear::on(&engine);
        for _ in 0..3 {
            engine.core().driver.pretend_clock_was_set();
            let start = std::time::Instant::now();
            while ear.heard() == 0 {
                assert!(start.elapsed() < Duration::from_secs(60), "nobody told");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
