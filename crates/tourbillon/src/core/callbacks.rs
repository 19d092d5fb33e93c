//! The callback queue of an engine: runs the callbacks of its users in order, on one thread at a time.
//!
//! ```text
//!     a timer fires, is cancelled, is stopped
//!          |  post: appends to the queue, and does not run the callback
//!          v
//!     [ queued callbacks ]  ---- the draining thread takes all of them, and runs them in order, outside every lock
//! ```
//!
//! Which thread drains the queue:
//!
//! - In an engine with a driver of its own, the engine's thread `tourbillon-cb`. The first callback starts it, and it sleeps while the
//!   queue is empty. So a callback that blocks delays other callbacks, and no timer (P4, P11).
//! - In an engine that its user turns, the thread that turns it, after the round. A turn runs the callbacks that were queued when it began
//!   to drain, so that a callback that arms a timer again cannot keep it for ever.
//! - If the system refuses that thread, the driver, after its round. Before each drain it tries to start the thread again, so that callbacks
//!   delay timers for no longer than necessary.
//! - Shutdown drains the queue itself if no other thread does. A callback that is posted after shutdown gets a thread of its own in any
//!   engine, because the user may not turn the engine any more. Only if the system refuses that thread too, the posting thread runs the
//!   callback, as the last thing that it does: late and in the wrong place, but it runs.
//!
//! At most one thread drains the queue at any time, and it checks the queue once more before it stops. Another thread that would drain the
//! queue leaves the callbacks to it. So callbacks run in order, and a callback that turns the engine or shuts it down neither waits for
//! itself nor runs the next callback inside.

use crate::core::trace;
use crate::core::{Core, CoreRef};
use crate::outcome::Outcome;
use crate::sync::catch_panic::{CallResult, catch_panic};
use crate::sync::unmodelled::{AtomicBool, AtomicU64};
use crate::sync::{Condvar, Mutex, Ordering, ignore_poison, lock};

/// A function of the user that runs when a timer has ended.
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// A callback and its argument.
pub(crate) struct PostedCallback {
    pub(crate) callback: Callback,
    pub(crate) outcome: Outcome,
}

/// The queue of callbacks of one engine.
pub(crate) struct CallbackQueue {
    pending: Mutex<PendingCallbacks>,
    /// Wakes the engine's callback thread.
    posted: Condvar,
    /// Whether a callback was ever posted. An engine without callbacks pays for one load of this.
    used: AtomicBool,
    /// How many callbacks were posted and have not returned.
    unreturned: AtomicU64,
    panics: AtomicU64,
    /// Whether a test refuses threads, as the system may.
    #[cfg(all(test, not(any(loom, shuttle))))]
    is_refused: AtomicBool,
}

struct PendingCallbacks {
    waiting: Vec<PostedCallback>,
    /// The memory of the last batch, for the next.
    spare: Vec<PostedCallback>,
    /// A thread drains the queue, and checks it once more before it stops.
    is_draining: bool,
    thread: CallbackThreadState,
    /// The engine has been shut down: its driver does not run callbacks any more.
    is_closed: bool,
}

/// The state of the engine's callback thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CallbackThreadState {
    /// There is none.
    None,
    /// It checks the queue before it sleeps.
    Awake,
    /// It waits until a callback is posted.
    Asleep,
    /// The system has refused it.
    Refused,
}

/// Which thread has to be woken for callbacks that were posted.
enum WakeTarget {
    /// None: the draining thread checks the queue once more.
    Nothing,
    Thread,
    NewThread,
    Driver,
}

/// The memory of a batch is kept for the next one if it has room for no more callbacks than this.
const MAX_KEPT: usize = 16 * 1024;

impl Core {
    /// Appends callbacks to the queue. Runs none of them, except after shutdown if the system refuses a thread: see the module.
    ///
    /// The queue is locked while the iterator runs.
    pub(crate) fn post(&self, calls: impl Iterator<Item = PostedCallback>) {
        let target = {
            let mut pending = lock(&self.callbacks.pending);
            let before = pending.waiting.len();
            pending.waiting.extend(calls);
            let posted = pending.waiting.len() - before;
            if posted == 0 {
                return;
            }
            // Under the lock, and so before any of them returns.
            self.callbacks.unreturned.fetch_add(posted as u64, Ordering::Relaxed);
            if !self.driver.is_external() {
                self.begin_work(posted);
            }
            self.callbacks.used.store(true, Ordering::Relaxed);
            pending.wake_target(self.driver.is_external())
        };
        match target {
            WakeTarget::Nothing => {}
            WakeTarget::Thread => self.callbacks.posted.notify_one(),
            WakeTarget::NewThread => self.start_thread(),
            WakeTarget::Driver => self.driver.wake(),
        }
    }

    /// Has a `tracing` event sent like a callback. It is dropped if the driver would have to send it because the system refuses the thread:
    /// a subscriber may wait for a timer (D81).
    #[cfg(feature = "tracing")]
    pub(crate) fn post_event(&self, send: impl FnOnce(&Core) + Send + 'static) {
        let core = self.to_ref();
        let callback = Box::new(move |_| {
            let is_driver = {
                let pending = lock(&core.callbacks.pending);
                pending.thread == CallbackThreadState::Refused && !pending.is_closed
            };
            if !is_driver {
                send(&core);
            }
        });
        self.post(std::iter::once(PostedCallback { callback, outcome: Outcome::Fired }));
    }

    /// Returns whether callbacks are queued that the driver has to run.
    ///
    /// A driver calls this after it has set its alarm, and a posting thread wakes the driver after it has posted: one of the two sees the
    /// other.
    pub(crate) fn has_callbacks(&self) -> bool {
        if !self.callbacks.used.load(Ordering::Relaxed) {
            return false;
        }
        let pending = lock(&self.callbacks.pending);
        let is_for_driver = self.driver.is_external() || pending.thread == CallbackThreadState::Refused;
        is_for_driver && !pending.waiting.is_empty() && !pending.is_draining
    }

    /// Starts the callback thread, or runs the callbacks here if the system refuses it. For an engine's own driver that
    /// [has callbacks](Core::has_callbacks) because the system has refused the thread before.
    pub(crate) fn run_callbacks_or_start_thread(&self) {
        if lock(&self.callbacks.pending).claim_thread_start() {
            if thread::spawn(self.to_ref()).is_ok() {
                return;
            }
            lock(&self.callbacks.pending).thread = CallbackThreadState::Refused;
        }
        self.run_callbacks();
    }

    /// Runs the queued callbacks on this thread, unless another thread drains the queue. In a closed engine this runs also those that are
    /// posted meanwhile.
    pub(crate) fn run_callbacks(&self) {
        let Some(mut batch) = lock(&self.callbacks.pending).begin_drain() else { return };
        with_engine_entered(&self.to_ref(), || {
            loop {
                self.run_batch(&mut batch);
                let mut pending = lock(&self.callbacks.pending);
                if pending.waiting.is_empty() || !pending.is_closed {
                    return pending.end_drain(batch);
                }
                std::mem::swap(&mut pending.waiting, &mut batch);
            }
        });
    }

    /// Runs all callbacks that are left, here or on the thread that drains the queue. The last step of shutdown.
    pub(crate) fn close_callbacks(&self) {
        let thread = {
            let mut pending = lock(&self.callbacks.pending);
            pending.is_closed = true;
            let awake =
                if pending.thread == CallbackThreadState::Asleep { CallbackThreadState::Awake } else { pending.thread };
            std::mem::replace(&mut pending.thread, awake)
        };
        match thread {
            // It checks the queue once more.
            CallbackThreadState::Awake => {}
            CallbackThreadState::Asleep => self.callbacks.posted.notify_one(),
            CallbackThreadState::None | CallbackThreadState::Refused => self.run_callbacks(),
        }
    }

    /// Acts as if the system had refused a thread before.
    #[cfg(all(test, loom))]
    pub(crate) fn refuse_thread_for_callbacks(&self) {
        lock(&self.callbacks.pending).thread = CallbackThreadState::Refused;
    }

    /// Returns how many callbacks have panicked.
    pub(crate) fn callback_panics(&self) -> u64 {
        self.callbacks.panics.load(Ordering::Relaxed)
    }

    /// Returns how many callbacks are queued or running.
    pub(crate) fn callbacks_waiting(&self) -> u64 {
        self.callbacks.unreturned.load(Ordering::Relaxed)
    }

    fn start_thread(&self) {
        if thread::spawn(self.to_ref()).is_ok() {
            return;
        }
        let is_closed = {
            let mut pending = lock(&self.callbacks.pending);
            pending.thread = CallbackThreadState::Refused;
            pending.is_closed
        };
        // If shutdown came before, it has left the callbacks to the thread that was to start here. Otherwise it will run them itself.
        if is_closed { self.run_callbacks() } else { self.driver.wake() }
    }

    fn run_batch(&self, batch: &mut Vec<PostedCallback>) {
        for PostedCallback { callback, outcome } in batch.drain(..) {
            if catch_panic(|| self.at_work(|| callback(outcome))) == CallResult::Panicked {
                self.callbacks.panics.fetch_add(1, Ordering::Relaxed);
                trace::callback_panicked(self);
            }
            self.callbacks.unreturned.fetch_sub(1, Ordering::Relaxed);
            if !self.driver.is_external() {
                self.end_work(1);
            }
        }
    }
}

impl CallbackQueue {
    pub(crate) fn new() -> CallbackQueue {
        let (waiting, spare) = (Vec::new(), Vec::new());
        let pending = PendingCallbacks {
            waiting,
            spare,
            is_draining: false,
            thread: CallbackThreadState::None,
            is_closed: false,
        };
        CallbackQueue {
            pending: Mutex::new(pending),
            posted: Condvar::new(),
            used: AtomicBool::new(false),
            unreturned: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            #[cfg(all(test, not(any(loom, shuttle))))]
            is_refused: AtomicBool::new(false),
        }
    }

    /// Waits for the next callbacks to run. `None` if the engine is closed and none are left. For the callback thread.
    fn wait(&self) -> Option<Vec<PostedCallback>> {
        let mut pending = lock(&self.pending);
        loop {
            if let Some(batch) = pending.begin_drain() {
                return Some(batch);
            }
            // If another thread drains the queue, it runs all of them.
            if pending.is_closed {
                pending.thread = CallbackThreadState::None;
                return None;
            }
            pending.thread = CallbackThreadState::Asleep;
            pending = ignore_poison(self.posted.wait(pending));
            pending.thread = CallbackThreadState::Awake;
        }
    }
}

impl PendingCallbacks {
    /// Takes all queued callbacks, if no other thread drains the queue. The caller then drains it.
    fn begin_drain(&mut self) -> Option<Vec<PostedCallback>> {
        if self.waiting.is_empty() || self.is_draining {
            return None;
        }
        self.is_draining = true;
        let spare = std::mem::take(&mut self.spare);
        Some(std::mem::replace(&mut self.waiting, spare))
    }

    /// Ends a drain. The memory of the batch is used again.
    fn end_drain(&mut self, made: Vec<PostedCallback>) {
        self.is_draining = false;
        if made.capacity() <= MAX_KEPT {
            self.spare = made;
        }
    }

    /// Returns whether the caller has to try to start the thread again. The state is then `Awake`, and the caller resets it on failure.
    #[must_use]
    fn claim_thread_start(&mut self) -> bool {
        let is_claimed = self.thread == CallbackThreadState::Refused && !self.is_draining;
        if is_claimed {
            self.thread = CallbackThreadState::Awake;
        }
        is_claimed
    }

    fn wake_target(&mut self, is_external: bool) -> WakeTarget {
        if self.is_draining {
            return WakeTarget::Nothing;
        }
        match self.thread {
            _ if is_external && !self.is_closed => WakeTarget::Driver,
            CallbackThreadState::Refused if !self.is_closed => WakeTarget::Driver,
            CallbackThreadState::Awake => WakeTarget::Nothing,
            CallbackThreadState::Asleep => {
                self.thread = CallbackThreadState::Awake;
                WakeTarget::Thread
            }
            CallbackThreadState::None | CallbackThreadState::Refused => {
                self.thread = CallbackThreadState::Awake;
                WakeTarget::NewThread
            }
        }
    }
}

/// The callback thread: see the module.
fn run(core: &CoreRef) {
    with_engine_entered(core, || {
        while let Some(mut batch) = core.callbacks.wait() {
            core.run_batch(&mut batch);
            lock(&core.callbacks.pending).end_drain(batch);
        }
    });
}

/// Runs `calls` with this engine as the thread's current one. The engine still ends with its last handle.
#[cfg(not(loom))]
fn with_engine_entered(core: &CoreRef, calls: impl FnOnce()) {
    let guard = crate::core::thread_shard::enter(core);
    calls();
    crate::core::thread_shard::leave(guard);
}

/// The threads of a model run on one thread of the system, and would share one `ThreadShard`.
#[cfg(loom)]
fn with_engine_entered(_: &CoreRef, calls: impl FnOnce()) {
    calls();
}

mod thread {
    use std::io;

    use super::run;
    use crate::core::CoreRef;
    #[cfg(not(loom))]
    use crate::sync::unmodelled::thread::Builder;

    /// Starts the callback thread, which ends when the engine is closed and the queue is empty.
    #[cfg(not(loom))]
    pub(super) fn spawn(core: CoreRef) -> io::Result<()> {
        #[cfg(all(test, not(shuttle)))]
        core.callbacks.may_start_threads()?;
        let thread = Builder::new().name("tourbillon-cb".into());
        thread.spawn(move || run(&core)).map(drop)
    }

    #[cfg(loom)]
    pub(super) fn spawn(core: CoreRef) -> io::Result<()> {
        drop(loom::thread::spawn(move || run(&core)));
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::io;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{self, Receiver};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use super::CallbackQueue;
    use crate::{Engine, Outcome, Timer};

    impl CallbackQueue {
        pub(super) fn may_start_threads(&self) -> io::Result<()> {
            if self.is_refused.load(Ordering::SeqCst) { Err(io::Error::other("no more threads")) } else { Ok(()) }
        }
    }

    /// Makes the system refuse callback threads to this engine, or not.
    fn refuse_threads(engine: &Engine, is_refused: bool) {
        engine.core().callbacks.is_refused.store(is_refused, Ordering::SeqCst);
    }

    /// Returns the outcome that a callback of this timer gets, and its thread.
    fn outcome_of(timer: &Timer) -> Receiver<(Outcome, ThreadId)> {
        let (send, receive) = mpsc::channel();
        timer.on_expiry(move |outcome| send.send((outcome, thread::current().id())).unwrap());
        receive
    }

    #[test]
    fn p6_without_a_thread_for_them_the_driver_calls_and_goes_on_firing() {
        let engine = Engine::builder().build().unwrap();
        refuse_threads(&engine, true);
        let timer = Timer::on(&engine);
        let here = thread::current().id();
        for after in [0, 0, 1, 1, 0] {
            timer.expires_after(Duration::from_millis(after));
            let (outcome, on) = outcome_of(&timer).recv().unwrap();
            assert!(outcome == Outcome::Fired && on != here);
        }
    }

    #[test]
    fn p4_p6_a_driver_that_had_to_call_gives_the_calls_to_a_thread_as_soon_as_there_is_one() {
        let engine = Engine::builder().build().unwrap();
        refuse_threads(&engine, true);
        let timer = Timer::on(&engine);
        let driver = outcome_of(&timer).recv().unwrap().1;
        assert_eq!(outcome_of(&timer).recv().unwrap().1, driver);
        refuse_threads(&engine, false);
        let thread = outcome_of(&timer).recv().unwrap().1;
        assert_ne!(thread, driver);
        refuse_threads(&engine, true);
        assert_eq!(outcome_of(&timer).recv().unwrap().1, thread, "it stays");
    }

    #[cfg(feature = "tracing")]
    #[test]
    fn d81_the_driver_sends_no_event_that_a_thread_of_its_own_cannot_send() {
        let engine = Engine::builder().build().unwrap();
        let (send, receive) = mpsc::channel();
        let post_event = || {
            let send = send.clone();
            engine.core().post_event(move |_| send.send(thread::current().id()).unwrap());
        };
        let timer = Timer::on(&engine);
        refuse_threads(&engine, true);
        post_event();
        // Callbacks run in order, so this one comes after the event.
        let driver = outcome_of(&timer).recv().unwrap().1;
        assert!(receive.try_recv().is_err(), "the driver has sent it");
        refuse_threads(&engine, false);
        post_event();
        let thread = receive.recv().unwrap();
        assert!(thread != driver && thread != thread::current().id());
    }

    #[test]
    fn d28_without_a_callback_thread_shutdown_runs_the_callbacks_and_after_it_the_posting_thread() {
        let engine = Engine::builder().build().unwrap();
        refuse_threads(&engine, true);
        let timer = Timer::on(&engine);
        outcome_of(&timer).recv().unwrap();
        timer.expires_after(Duration::MAX);
        let stopped = outcome_of(&timer);
        engine.shutdown();
        assert_eq!(stopped.recv().unwrap().0, Outcome::Stopped);
        // The driver may have run that callback and be about to stop. It also runs the callbacks that are posted meanwhile: on one processor a
        // thread that posts one as soon as the one before has run can keep it from stopping, so this thread pauses.
        let here = (Outcome::Stopped, thread::current().id());
        let posted_later = || {
            thread::sleep(Duration::from_millis(1));
            outcome_of(&timer).recv().unwrap()
        };
        assert!((0..10_000).any(|_| posted_later() == here), "the posting thread has never run a callback");
        refuse_threads(&engine, false);
        assert_ne!(outcome_of(&timer).recv().unwrap().1, thread::current().id());
    }
}
