//! The thread on which an engine runs callbacks after its shutdown, made deterministic.
//!
//! No driver turns an engine after its shutdown, so the engine starts a system thread for callbacks that are posted from then on.
//! If that thread ran freely, each run would depend on the machine's load: which of two events comes first, and whether a step
//! still sees what a callback did. So the two threads take turns:
//!
//! ```text
//!     simulation        a step posts c1, c2 | posts hold 2, ends hold 1, waits ........ | next step
//!     callback thread   in hold 1 ......................... | runs c1, c2, enters hold 2 | in hold 2 ....
//! ```
//!
//! A hold is a callback that the simulation posts. The engine runs callbacks in order and one at a time, so when the callback
//! thread has entered a hold, all callbacks that were posted before it have returned, and none runs until the hold ends.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tourbillon::{Engine, Timer};

use crate::recorder::lock;

/// Holds the callback thread of an engine that has been shut down.
pub struct CallbackThread {
    engine: Engine,
    holds: Arc<Holds>,
    /// Number of the last hold that was posted.
    last: u64,
}

/// The callback thread did not reach a hold in time: an earlier callback does not return, or was never called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stuck;

#[derive(Default)]
struct Holds {
    progress: Mutex<HoldProgress>,
    changed: Condvar,
}

#[derive(Default)]
struct HoldProgress {
    /// The last hold that the callback thread has entered.
    entered: u64,
    /// The last hold that has ended.
    ended: u64,
}

impl CallbackThread {
    /// Makes the engine start the thread, and holds it there. The engine must be shut down, with no callbacks queued.
    ///
    /// # Errors
    /// Returns [`Stuck`] if the thread does not start in time.
    pub fn hold(engine: &Engine, at_most: Duration) -> Result<CallbackThread, Stuck> {
        let mut thread = CallbackThread { engine: engine.clone(), holds: Arc::default(), last: 0 };
        thread.post_hold();
        thread.holds.wait_for(thread.last, at_most)?;
        Ok(thread)
    }

    /// Lets the thread run all queued callbacks, and those that they post in turn, and holds it again. Returns whether there were
    /// any.
    ///
    /// # Errors
    /// Returns [`Stuck`] if one of them does not return in time.
    pub fn run_waiting(&mut self, at_most: Duration) -> Result<bool, Stuck> {
        let mut has_run = false;
        // The current hold has not returned, so the engine counts it as well.
        while self.engine.stats().callbacks_waiting > 1 {
            let before = self.last;
            self.post_hold();
            self.holds.end(before);
            self.holds.wait_for(self.last, at_most)?;
            has_run = true;
        }
        Ok(has_run)
    }

    /// Posts the next hold to the engine's callback queue: a wait on a timer that was never set ends at once.
    fn post_hold(&mut self) {
        self.last += 1;
        let (holds, number, poster) = (Arc::clone(&self.holds), self.last, thread::current().id());
        Timer::on(&self.engine).on_expiry(move |_| {
            // If the system refuses a thread, the engine calls from within the post, and there is nothing to hold.
            if thread::current().id() == poster {
                holds.end(number);
            }
            holds.enter(number);
        });
    }
}

impl Drop for CallbackThread {
    fn drop(&mut self) {
        self.holds.end(u64::MAX);
    }
}

impl Holds {
    /// Enters a hold, and returns when it has ended.
    fn enter(&self, number: u64) {
        let mut progress = lock(&self.progress);
        progress.entered = number;
        self.changed.notify_all();
        let ended = self.changed.wait_while(progress, |progress| progress.ended < number);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends this hold and those before it.
    fn end(&self, number: u64) {
        let mut progress = lock(&self.progress);
        progress.ended = progress.ended.max(number);
        self.changed.notify_all();
    }

    /// Waits until the callback thread has entered this hold.
    fn wait_for(&self, number: u64, at_most: Duration) -> Result<(), Stuck> {
        let progress = lock(&self.progress);
        let waited = self.changed.wait_timeout_while(progress, at_most, |progress| progress.entered < number);
        let (progress, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if progress.entered < number { Err(Stuck) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tourbillon::{Clock, Driver};

    use super::*;

    /// Longer than any callback of these tests takes, on any machine.
    const AT_MOST: Duration = Duration::from_secs(30);

    fn closed_engine() -> Engine {
        let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).build().unwrap();
        engine.shutdown();
        engine
    }

    /// Posts a callback that sends this number, and then posts one that sends the number less one, down to zero.
    fn post(engine: &Engine, number: u32, sender: Sender<u32>) {
        let again = engine.clone();
        Timer::on(engine).on_expiry(move |_| {
            // Gives a thread that does not wait for this callback the time to continue without it.
            thread::sleep(Duration::from_millis(1));
            sender.send(number).unwrap();
            if let Some(next) = number.checked_sub(1) {
                post(&again, next, sender);
            }
        });
    }

    fn sent(receiver: &Receiver<u32>) -> Vec<u32> {
        receiver.try_iter().collect()
    }

    #[test]
    fn b6_after_a_shutdown_callbacks_run_when_the_simulation_lets_them_and_at_no_other_time() {
        let engine = closed_engine();
        let mut thread = CallbackThread::hold(&engine, AT_MOST).unwrap();
        let (sender, receiver) = channel();
        post(&engine, 0, sender.clone());
        post(&engine, 3, sender.clone());
        post(&engine, 0, sender);
        // A callback that is not held is called in much less time than this.
        thread::sleep(Duration::from_millis(20));
        assert_eq!(sent(&receiver), [0_u32; 0]);
        assert_eq!(thread.run_waiting(AT_MOST), Ok(true));
        assert_eq!(sent(&receiver), [0, 3, 0, 2, 1, 0]);
        assert_eq!(engine.stats().callbacks_waiting, 1, "the hold");
        assert_eq!(thread.run_waiting(AT_MOST), Ok(false));
    }

    #[test]
    fn b6_a_callback_that_panics_is_counted_before_the_simulation_goes_on() {
        let engine = closed_engine();
        let mut thread = CallbackThread::hold(&engine, AT_MOST).unwrap();
        for panics in 1..=100 {
            Timer::on(&engine).on_expiry(|_| std::panic::resume_unwind(Box::new(crate::recorder::PlantedPanic)));
            assert_eq!(thread.run_waiting(AT_MOST), Ok(true));
            assert_eq!(engine.stats().callback_panics, panics);
        }
    }

    #[test]
    fn p10_a_callback_that_does_not_return_is_noticed() {
        let engine = closed_engine();
        let mut thread = CallbackThread::hold(&engine, AT_MOST).unwrap();
        let (sender, receiver) = channel::<()>();
        Timer::on(&engine).on_expiry(move |_| _ = receiver.recv());
        assert_eq!(thread.run_waiting(Duration::from_millis(10)), Err(Stuck));
        drop(sender);
    }

    #[test]
    fn p7_callbacks_that_wait_when_the_simulation_ends_are_called() {
        let engine = closed_engine();
        let thread = CallbackThread::hold(&engine, AT_MOST).unwrap();
        let (sender, receiver) = channel();
        post(&engine, 2, sender);
        drop(thread);
        // The iteration ends when the last callback has dropped the sender.
        assert_eq!(receiver.iter().collect::<Vec<_>>(), [2, 1, 0]);
    }
}
