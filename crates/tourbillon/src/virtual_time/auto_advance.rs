//! Virtual time of an engine whose users turn it: a runtime that knows when all its threads are idle.
//!
//! The engine has a [pausable clock](crate::Clock::pausable), an external driver, no capacity and no [workers](crate::Worker). Its threads call
//! [`Engine::turn`] for what is due, and the thread that finds all of them idle calls [`Engine::auto_advance`].
//!
//! # The clock moves only to deadlines of timers that fire
//!
//! A shard's next wake-up is a lower bound: the timer that it belongs to may have been cancelled or moved since, and a queue may want a
//! visit for upkeep. So the clock is not moved there. The shards are visited as if it were that time; if nothing fires, the next
//! bound is tried, and if no timer is left, the clock stays where it was. As no thread can read the clock during these visits
//! ([`Clock::move_forward`](crate::Clock)), a thread that sees a timer fired reads a time that is not before its deadline (P1).

use std::task::Waker;

use tourbillon_queue::Time;

use crate::Engine;
use crate::core::Core;
use crate::core::thread_shard;
use crate::driver::MAX_TURNS_AT_ONCE;
use crate::shard::{Access, BATCH};

/// What [`Engine::auto_advance`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum AutoAdvance {
    /// Nothing: a timer is due or a callback waits to be called at the present time. The caller is to [turn](Engine::turn) the engine.
    Due,
    /// It has moved the clock to the next deadline and fired the timers that are due then, up to a batch.
    Moved,
    /// Nothing: no timer is pending, or the clock runs.
    Nothing,
}

#[doc(hidden)]
impl Engine {
    /// Moves a paused clock to the next deadline and fires what is due then. The wakers are added to `fired`, and the caller wakes them
    /// by [`wake_fired`](Engine::wake_fired): here none is woken, and nothing of the user's runs.
    ///
    /// A timer that another thread arms from now on is told of by the driver's `notify`, if it is due before all others.
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

    /// Wakes the wakers that [`auto_advance`](Engine::auto_advance) has given.
    pub fn wake_fired(&self, fired: &mut Vec<Waker>) {
        self.core().wake(fired);
    }

    /// RemoteFreeList the time at which the engine has to be [turned](Engine::turn) next; `None`: never, as far as is known.
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
                // SAFETY: a guest needs no promise.
                more |= unsafe { shard.visit(Access::Remote, at, fired) }.more;
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

    /// Moves a paused clock to the next deadline, but not after `to`, and fires what is due then; callbacks are called first. `false`:
    /// there is no deadline before `to`, and the clock shows `to`.
    pub(crate) fn step_paused(&self, to: Time) -> bool {
        if self.is_inherited() {
            return false;
        }
        // What is due already, and callbacks. A callback that posts another for ever does not hold the clock.
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
        // Its threads are to see the new time.
        self.driver.wake();
        false
    }
}

/// Panics if an engine is entered on this thread whose time no call can stop: a `pause` that is not followed would go unnoticed.
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

/// Stops the time of an engine with a pausable clock, and tells its driver.
pub(crate) fn pause(engine: &Engine) {
    engine.clock().pause();
    engine.core().driver.wake();
}

/// Lets the time of an engine with a pausable clock run on, and tells its driver.
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
        engine.expect("it needs nothing that could fail")
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
