//! Virtual time of a runtime that knows when all its threads are idle, and turns its engine itself.
//!
//! The engine has a [pausable clock](crate::Clock::pausable), an external driver, no capacity and no [workers](crate::Worker). Its threads call
//! [`Engine::turn`] for what is due, and the thread that finds all of them idle calls [`Engine::auto_advance`].
//!
//! # The clock moves only to deadlines of timers that fire
//!
//! A shard's next wake-up is a lower bound: the timer that it belongs to may have been cancelled or moved since, and a queue may need a
//! visit for upkeep. So the clock is not moved there at first. The shards are visited as if it were that time; if no timer fires, the next
//! bound is tried, and if no timer is left, the clock stays where it was. As no thread can read the clock during these visits
//! ([`Clock::move_forward`](crate::Clock)), a thread that sees a timer fired reads a time that is not before its deadline (P1).

use std::task::Waker;

use tourbillon_queue::Time;

use crate::Engine;
use crate::core::Core;
use crate::core::thread_shard;
use crate::driver::MAX_TURNS_AT_ONCE;
use crate::shard::BATCH;

/// The result of [`Engine::auto_advance`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum AutoAdvance {
    /// The clock was not moved: a timer is due or a callback is queued at the present time. The caller has to [turn](Engine::turn) the engine.
    Due,
    /// The clock was moved to the next deadline, and the timers that are due then have fired, up to a batch.
    Moved,
    /// The clock was not moved: no timer is pending, or the clock runs.
    Nothing,
}

#[doc(hidden)]
impl Engine {
    /// Moves a paused clock to the next deadline and fires the timers that are due then. Their wakers are added to `fired`, and the caller
    /// wakes them by [`wake_fired`](Engine::wake_fired): this function wakes none, and runs no code of the user.
    ///
    /// From then on the driver's `notify` is called for a timer that another thread arms and that is due before all others.
    pub fn auto_advance(&self, fired: &mut Vec<Waker>) -> AutoAdvance {
        let core = self.core();
        // When the last work ends, the driver's `notify` is called.
        if core.is_inherited() || core.is_closed() || core.work.is_under_way() {
            return AutoAdvance::Nothing;
        }
        if core.has_callbacks() || core.next_round(Time::ZERO) <= core.clock.now() {
            return AutoAdvance::Due;
        }
        core.driver.mark_awake();
        let is_moved = core.clock.move_forward(|now| core.fire_next(now, None, fired));
        match (is_moved, core.driver.plan(core, core.clock.now(), Time::ZERO)) {
            (true, _) => AutoAdvance::Moved,
            // Another thread has armed a timer meanwhile, or posted a callback.
            (false, None) => AutoAdvance::Due,
            (false, Some(_)) => AutoAdvance::Nothing,
        }
    }

    /// Wakes the wakers that [`auto_advance`](Engine::auto_advance) has returned.
    pub fn wake_fired(&self, fired: &mut Vec<Waker>) {
        self.core().wake(fired);
    }

    /// Returns the time at which the engine has to be [turned](Engine::turn) next; `None` if nothing is pending.
    #[must_use]
    pub fn next_turn(&self) -> Option<Time> {
        let next = self.core().next_step();
        (!next.is_never()).then_some(next)
    }
}

impl Core {
    /// Fires the timers that are due first, at `now` or later, up to a batch; returns when they are due. Not after `last`, if that is
    /// given.
    fn fire_next(&self, now: Time, last: Option<Time>, fired: &mut Vec<Waker>) -> Option<Time> {
        let mut at = now;
        loop {
            let mut more = false;
            for shard in self.shards() {
                more |= shard.visit_remote(at, fired).more;
            }
            if !fired.is_empty() {
                return Some(at);
            }
            if !more {
                let next = self.shards().map(|shard| shard.next_wake().next(Time::ZERO)).min()?;
                if next.is_never() || last.is_some_and(|last| next > last) {
                    return None;
                }
                at = next.max(at);
            }
        }
    }

    /// Runs the queued callbacks, then moves a paused clock to the next deadline, but not after `to`, and fires the timers that are due then.
    /// Returns `false` if there is no deadline before `to`: the clock then shows `to`.
    pub(crate) fn step_paused(&self, to: Time) -> bool {
        if self.is_inherited() {
            return false;
        }
        // Timers that are due already, and callbacks. Callbacks that post others for ever do not hold the clock.
        let mut turns = 0;
        while self.turn(self.clock.now()).more && turns < MAX_TURNS_AT_ONCE {
            turns += 1;
        }
        let mut fired = Vec::with_capacity(BATCH);
        if self.clock.move_forward(|now| self.fire_next(now, Some(to), &mut fired)) {
            self.wake(&mut fired);
            return true;
        }
        self.clock.move_forward(|_| Some(to));
        // Makes the runtime's threads read the new time.
        self.driver.wake();
        false
    }
}

/// Panics if the engine that is entered on this thread cannot be paused: a `pause` without effect would go unnoticed.
pub(crate) fn expect_no_real_time() {
    if let Some(engine) =
        thread_shard::with_entered(Engine::of).filter(|engine| !engine.clock().is_manual() && !engine.core().is_virtual)
    {
        panic!(
            "time::pause: the engine that is entered on this thread follows {:?}, which cannot be paused. Build a runtime of \
             tourbillon-rt with `start_paused(true)` or `pausable(true)`, or leave the engine",
            engine.clock()
        );
    }
}

/// Stops the time of an engine with a pausable clock, and notifies its driver.
pub(crate) fn pause(engine: &Engine) {
    engine.clock().pause();
    engine.core().driver.wake();
}

/// Lets the time of an engine with a pausable clock run on, and notifies its driver.
pub(crate) fn resume(engine: &Engine) {
    if engine.clock().is_paused() {
        engine.clock().resume();
        engine.core().driver.wake();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::pin::pin;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Context;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::{Clock, Driver};

    fn engine() -> Engine {
        let engine = Engine::builder().clock(Clock::pausable()).shards(1).driver(Driver::external()).build();
        engine.expect("the engine needs nothing that could fail")
    }

    #[test]
    fn b6_the_clock_moves_to_the_next_deadline_and_not_to_that_of_a_cancelled_timer() {
        let engine = engine();
        engine.clock().pause();
        let start = engine.clock().now();
        let mut fired = Vec::new();
        assert_eq!(engine.auto_advance(&mut fired), AutoAdvance::Nothing);
        let cancelled = engine.try_sleep(Duration::from_secs(1)).unwrap();
        let mut sleep = pin!(engine.sleep(Duration::from_secs(2)));
        assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(cancelled);
        assert_eq!(engine.auto_advance(&mut fired), AutoAdvance::Moved);
        assert_eq!((fired.len(), engine.clock().now()), (1, start + Duration::from_secs(2).into()));
        assert!(sleep.is_elapsed());
        engine.wake_fired(&mut fired);
        assert_eq!(engine.auto_advance(&mut fired), AutoAdvance::Nothing);
        assert_eq!(engine.clock().now(), start + Duration::from_secs(2).into());
    }

    #[test]
    fn b6_a_clock_that_runs_is_not_moved_and_says_when_it_will_show_a_time() {
        let engine = engine();
        let sleep = engine.try_sleep(Duration::from_secs(3600)).unwrap();
        assert_eq!(engine.auto_advance(&mut Vec::new()), AutoAdvance::Nothing);
        assert!(!sleep.is_elapsed() && !engine.clock().is_paused());
        // It has not been paused yet, so it shows the monotonic time.
        let at = Clock::monotonic().now() + Duration::from_secs(100).into();
        assert_eq!(engine.clock().to_monotonic(at), Some(at));
        pause(&engine);
        assert_eq!(engine.clock().to_monotonic(at), None);
        engine.core().advance(engine.clock().now() + Duration::from_secs(10).into());
        resume(&engine);
        // It is ten seconds ahead by now, less the time that it stood.
        let ahead = at - engine.clock().to_monotonic(at).unwrap();
        assert!(ahead > Duration::from_secs(5).into() && ahead <= Duration::from_secs(10).into(), "{ahead:?}");
    }

    /// A reader that combined the fields of two moments would see a time long past, or one that comes later.
    #[test]
    fn p1_a_clock_that_is_paused_moved_and_resumed_never_goes_back() {
        let (engine, is_over, begin) = (engine(), AtomicBool::new(false), Barrier::new(3));
        thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    begin.wait();
                    let mut last = Time::ZERO;
                    while !is_over.load(Ordering::SeqCst) {
                        let now = engine.clock().now();
                        assert!(now >= last, "{now:?} after {last:?}");
                        last = now;
                    }
                })
            });
            begin.wait();
            for _ in 0..if cfg!(miri) { 20 } else { 100_000 } {
                pause(&engine);
                engine.core().advance(engine.clock().now() + Duration::from_secs(1).into());
                resume(&engine);
            }
            is_over.store(true, Ordering::SeqCst);
            readers.into_iter().for_each(|reader| reader.join().unwrap());
        });
    }
}
