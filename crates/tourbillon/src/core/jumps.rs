//! Notifies listeners that an engine's clock was set.
//!
//! A timer needs no such notice: it is due when the clock shows its deadline, whatever the clock showed before. But a listener that has
//! computed deadlines from the time that the clock showed, the next noon for instance, has to compute them again (A8, B8).
//!
//! An engine notices in three ways that its clock was set:
//!
//! - The kernel tells the driver of an engine on the wall clock whenever that clock is set, forward or back, and at the end of a suspend:
//!   see [`Alarm`](crate::alarm::Alarm). The driver notifies the listeners.
//! - The user says so, of a custom clock: [`Clock::notify_set`](crate::Clock::notify_set).
//! - A round is made for an earlier time than the last one, so the clock went back. This is how an engine notices that a manual clock was
//!   set back, and also the wall clock where the user turns the engine or the kernel has no timer left. A clock that was set forward cannot
//!   be distinguished from time that has passed: the timers in between fire.
//!
//! If the engine notices in two ways, it notifies twice. Without listeners, a round pays for one load of a flag.

use std::sync::Weak;

use tourbillon_queue::Time;

use crate::core::Core;
use crate::shard::Shard;
use crate::sync::Ordering;
use crate::sync::catch_panic::catch_panic;
use crate::sync::unmodelled::{self, AtomicBool, AtomicU64, Mutex};

/// A listener that is notified when the clock was set.
pub(crate) trait OnClockSet: Send + Sync {
    /// Called after the clock was set forward or back, on the thread that turns the
    /// engine, outside every lock, and never inside a call that arms a timer. It may arm and cancel timers.
    fn clock_was_set(&self);
}

#[derive(Default)]
pub(crate) struct ClockJumps {
    /// Whether there ever was a listener.
    is_watched: AtomicBool,
    /// The time of the last round, or the time at which the first listener was added.
    last: AtomicU64,
    listeners: Mutex<Vec<Weak<dyn OnClockSet>>>,
}

impl Core {
    /// Adds a listener, which is notified until it is dropped.
    pub(crate) fn on_clock_set(&self, listener: Weak<dyn OnClockSet>) {
        {
            let mut listeners = unmodelled::lock(&self.jumps.listeners);
            // Listeners that were dropped make room before the list grows.
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

    /// Makes the driver and all workers read the clock again, and the driver notify the listeners.
    pub(crate) fn clock_was_set(&self) {
        if !self.is_inherited() {
            self.driver.alarm.clock_was_set();
            self.shards().for_each(Shard::notify_worker);
        }
    }

    /// Notifies the listeners if the clock went back since the last round. Called before a round for `now`.
    #[inline]
    pub(crate) fn check_for_clock_jump(&self, now: Time) {
        if self.jumps.is_watched.load(Ordering::Acquire) {
            self.compare_with_last_round(now);
        }
    }

    #[cold]
    fn compare_with_last_round(&self, now: Time) {
        let ClockJumps { last, .. } = &self.jumps;
        let before = last.fetch_max(now.as_nanos(), Ordering::AcqRel);
        if now.as_nanos() >= before {
            return;
        }
        // A round that began later may have been recorded first. A clock that was not set shows at least the time of that round.
        let now = self.clock.now().as_nanos();
        if now < before && last.compare_exchange(before, now, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            self.notify_clock_set();
        }
    }

    /// Notifies all listeners. A panic of one of them does not reach the others.
    #[cold]
    pub(crate) fn notify_clock_set(&self) {
        let listeners = unmodelled::lock(&self.jumps.listeners).iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        for listener in listeners {
            // If this is its last reference by now, it is dropped here, together with values of the user, whose destructors may panic.
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

    /// Counts its notifications, and then calls `then`.
    struct TestListener {
        notified: AtomicUsize,
        then: Box<dyn Fn() + Send + Sync>,
    }

    impl OnClockSet for TestListener {
        fn clock_was_set(&self) {
            self.notified.fetch_add(1, Ordering::SeqCst);
            (self.then)();
        }
    }

    impl TestListener {
        fn on(engine: &Engine) -> Arc<TestListener> {
            TestListener::with(engine, || {})
        }

        fn with(engine: &Engine, then: impl Fn() + Send + Sync + 'static) -> Arc<TestListener> {
            let listener = Arc::new(TestListener { notified: AtomicUsize::new(0), then: Box::new(then) });
            let weak: Weak<TestListener> = Arc::downgrade(&listener);
            engine.core().on_clock_set(weak);
            listener
        }

        /// Returns how often it was notified since the last call.
        fn notified(&self) -> usize {
            self.notified.swap(0, Ordering::SeqCst)
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
    fn a8_a_turn_after_the_clock_was_set_back_notifies_once() {
        let engine = manual();
        engine.clock().advance(24 * HOUR);
        let listener = TestListener::on(&engine);
        engine.turn();
        assert_eq!(listener.notified(), 0);
        set_back(&engine, HOUR);
        assert_eq!(listener.notified(), 0, "a manual clock notifies nobody; the turn does");
        engine.turn();
        assert_eq!(listener.notified(), 1);
        engine.turn();
        assert_eq!(listener.notified(), 0);
        set_back(&engine, Duration::from_nanos(1));
        engine.turn();
        assert_eq!(listener.notified(), 1);
    }

    #[test]
    fn a8_a_clock_that_runs_on_notifies_nobody() {
        let engine = manual();
        let listener = TestListener::on(&engine);
        for _ in 0..10 {
            engine.advance(HOUR);
            engine.turn();
            engine.clock().advance(HOUR);
            engine.turn();
        }
        assert_eq!(listener.notified(), 0);
    }

    #[test]
    fn a8_advancing_notices_a_step_back_also_where_nothing_is_pending() {
        let engine = manual();
        let listener = TestListener::on(&engine);
        engine.advance(24 * HOUR);
        set_back(&engine, HOUR);
        engine.advance(Duration::ZERO);
        assert_eq!(listener.notified(), 1);
        // And one that the advance itself would make up for.
        set_back(&engine, HOUR);
        engine.advance(2 * HOUR);
        assert_eq!(listener.notified(), 1);
    }

    #[test]
    fn a8_a_clock_that_was_set_before_the_first_listener_notifies_nobody() {
        let engine = manual();
        engine.advance(24 * HOUR);
        set_back(&engine, HOUR);
        let listener = TestListener::on(&engine);
        engine.turn();
        assert_eq!(listener.notified(), 0);
    }

    #[test]
    fn p10_a_listener_may_arm_a_timer_which_fires_in_the_same_advance() {
        let engine = manual();
        let slot = Arc::new(OnceLock::new());
        let listener = TestListener::with(&engine, {
            let (core, slot) = (engine.clone(), Arc::clone(&slot));
            move || {
                let _ = slot.set(core.try_sleep(HOUR).map(Box::pin).unwrap());
            }
        });
        engine.advance(24 * HOUR);
        set_back(&engine, 12 * HOUR);
        assert_eq!(engine.advance(2 * HOUR), 1);
        assert_eq!(listener.notified(), 1);
        assert!(slot.get().unwrap().is_elapsed());
    }

    #[test]
    fn p10_a_listener_may_add_a_listener_and_turn_the_engine() {
        let engine = manual();
        let listener = TestListener::with(&engine, {
            let engine = engine.clone();
            move || {
                drop(TestListener::on(&engine));
                engine.turn();
            }
        });
        engine.advance(HOUR);
        set_back(&engine, HOUR);
        engine.turn();
        assert_eq!(listener.notified(), 1);
    }

    #[test]
    fn p6_a_panic_of_one_listener_does_not_keep_the_others_from_being_notified() {
        let engine = manual();
        let first = TestListener::with(&engine, || panic!("contained"));
        let second = TestListener::on(&engine);
        engine.advance(HOUR);
        set_back(&engine, HOUR);
        engine.turn();
        assert_eq!((first.notified(), second.notified()), (1, 1));
    }

    #[test]
    fn p7_listeners_that_were_dropped_are_forgotten() {
        let engine = manual();
        let stays = TestListener::on(&engine);
        for _ in 0..if cfg!(miri) { 300 } else { 10_000 } {
            drop(TestListener::on(&engine));
        }
        assert!(unmodelled::lock(&engine.core().jumps.listeners).len() < 100);
        engine.advance(HOUR);
        set_back(&engine, HOUR);
        engine.turn();
        assert_eq!(stays.notified(), 1);
    }

    #[test]
    fn a_round_that_is_overtaken_by_another_notifies_nobody() {
        let engine = manual();
        let listener = TestListener::on(&engine);
        let early = engine.clock().now();
        engine.clock().advance(HOUR);
        engine.turn();
        engine.core().turn(early);
        assert_eq!(listener.notified(), 0);
    }

    /// The test cannot set the machine's clock, so it makes the alarm act as if the kernel had reported it. The rest is the real driver's
    /// path.
    #[test]
    fn a8_b8_the_driver_of_a_wall_clock_notifies_when_its_alarm_has_noticed_that_the_clock_was_set() {
        let engine = Engine::builder().clock(Clock::wall()).driver(Driver::thread()).build().unwrap();
        let listener = TestListener::on(&engine);
        for _ in 0..3 {
            engine.core().driver.alarm.clock_was_set();
            let start = std::time::Instant::now();
            while listener.notified() == 0 {
                assert!(start.elapsed() < Duration::from_secs(60), "the listener was not notified");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
