//! Where the callbacks of an engine's users run: one line of them, and one at a time who makes the calls.
//!
//! ```text
//!     a timer fires, is cancelled, is stopped
//!          |  post: at the end of the line, never called here
//!          v
//!     [ waiting calls ]  ---- whoever makes calls takes all that wait, and makes them outside every lock, in order
//! ```
//!
//! Who makes them:
//!
//! - With a driver of its own, a thread of the engine, `tourbillon-calls`. It is started by the first call and sleeps while there
//!   is none. So a callback that blocks delays other callbacks, and no timer (P4, P11).
//! - Turned from outside: whoever turns, after the round. A turn makes the calls that waited when it began, so that a callback
//!   that arms again cannot keep it for ever.
//! - If the system has no thread to give: the driver, after its round. It asks for one each time before, so that callbacks delay
//!   timers for no longer than need be.
//! - Shutdown makes those that are left if no thread does. What is posted afterwards gets a thread of its own, whoever turned the
//!   engine before, since nobody may come to turn it any more. Only if the system refuses that too are the calls made by
//!   who posts them, as the last thing that it does: late and in the wrong place, but made.
//!
//! At any time at most one thread makes calls, and it looks once more before it leaves. Who would make calls meanwhile leaves
//! them to it. So calls are made in order, and a callback that turns the engine or shuts it down neither waits for itself nor
//! calls the next from within.

use crate::core::trace;
use crate::core::{Core, CoreRef};
use crate::outcome::Outcome;
use crate::sync::aside::{AtomicBool, AtomicU64};
use crate::sync::catch_panic::{CallResult, catch_panic};
use crate::sync::{Condvar, Mutex, Ordering, lock};

/// What a user wants to be called when a timer has ended.
pub(crate) type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// A callback, and what it is called with.
pub(crate) struct Call {
    pub(crate) callback: Callback,
    pub(crate) outcome: Outcome,
}

/// The calls of one engine.
pub(crate) struct CallbackQueue {
    pending: Mutex<PendingCallbacks>,
    /// The thread sleeps on it.
    posted: Condvar,
    /// Whether there ever was a call. Engines without any pay no more than a look at this.
    used: AtomicBool,
    /// CallbackQueue that were posted and have not returned.
    unreturned: AtomicU64,
    panics: AtomicU64,
    /// As if the system had no thread to give.
    #[cfg(all(test, not(any(loom, shuttle))))]
    is_refused: AtomicBool,
}

struct PendingCallbacks {
    waiting: Vec<Call>,
    /// The memory of the last batch, for the next.
    spare: Vec<Call>,
    /// Somebody makes calls, and looks once more before it leaves.
    is_draining: bool,
    thread: Thread,
    /// The engine has been shut down: nobody comes any more who would make calls by the way.
    is_closed: bool,
}

/// How the line stands to its thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Thread {
    /// There is none.
    None,
    /// It looks at the line before it sleeps.
    Awake,
    Asleep,
    /// The system has none to give.
    Refused,
}

/// Who has to be told of calls that were posted.
enum Tell {
    Nobody,
    Thread,
    NewThread,
    Driver,
}

/// The memory for so many calls is kept for the next.
const KEPT: usize = 16 * 1024;

impl Core {
    /// Puts calls at the end of the line. None is made in here, but if there is nobody else at all: see the module.
    ///
    /// The line is locked while the iterator runs.
    pub(crate) fn post(&self, calls: impl Iterator<Item = Call>) {
        let tell = {
            let mut pending = lock(&self.callbacks.pending);
            let before = pending.waiting.len();
            pending.waiting.extend(calls);
            let posted = pending.waiting.len() - before;
            if posted == 0 {
                return;
            }
            // Under the lock, so before any of them returns.
            self.callbacks.unreturned.fetch_add(posted as u64, Ordering::Relaxed);
            if !self.driver.is_external() {
                self.begin_work(posted);
            }
            self.callbacks.used.store(true, Ordering::Relaxed);
            pending.tell(self.driver.is_external())
        };
        match tell {
            Tell::Nobody => {}
            Tell::Thread => self.callbacks.posted.notify_one(),
            Tell::NewThread => self.start_calling(),
            Tell::Driver => self.driver.wake(),
        }
    }

    /// Whether calls wait for the driver to make them.
    ///
    /// A driver asks after it has set its alarm, and who posts wakes it afterwards: one of the two sees the other.
    pub(crate) fn has_callbacks(&self) -> bool {
        if !self.callbacks.used.load(Ordering::Relaxed) {
            return false;
        }
        let pending = lock(&self.callbacks.pending);
        let are_drivers = self.driver.is_external() || pending.thread == Thread::Refused;
        are_drivers && !pending.waiting.is_empty() && !pending.is_draining
    }

    /// By a driver that [has calls](Core::has_callbacks), of its own engine: there was no thread for them. If there is one now, it makes them.
    pub(crate) fn run_callbacks_or_start_thread(&self) {
        if lock(&self.callbacks.pending).try_again() {
            if thread::spawn(self.to_ref()).is_ok() {
                return;
            }
            lock(&self.callbacks.pending).thread = Thread::Refused;
        }
        self.run_callbacks();
    }

    /// Makes the calls that wait, on this thread, unless somebody makes calls already; in a closed engine also those that come in
    /// meanwhile.
    pub(crate) fn run_callbacks(&self) {
        let Some(mut batch) = lock(&self.callbacks.pending).begin() else { return };
        within(&self.to_ref(), || {
            loop {
                self.make(&mut batch);
                let mut pending = lock(&self.callbacks.pending);
                if pending.waiting.is_empty() || !pending.is_closed {
                    return pending.end(batch);
                }
                std::mem::swap(&mut pending.waiting, &mut batch);
            }
        });
    }

    /// By shutdown, as the last thing: all calls that are left are made, here or by who makes calls anyway.
    pub(crate) fn close_callbacks(&self) {
        let thread = {
            let mut pending = lock(&self.callbacks.pending);
            pending.is_closed = true;
            let awake = if pending.thread == Thread::Asleep { Thread::Awake } else { pending.thread };
            std::mem::replace(&mut pending.thread, awake)
        };
        match thread {
            // It looks once more.
            Thread::Awake => {}
            Thread::Asleep => self.callbacks.posted.notify_one(),
            Thread::None | Thread::Refused => self.run_callbacks(),
        }
    }

    /// As if the system had refused a thread before.
    #[cfg(all(test, loom))]
    pub(crate) fn refuse_thread_for_callbacks(&self) {
        lock(&self.callbacks.pending).thread = Thread::Refused;
    }

    /// How many callbacks have panicked.
    pub(crate) fn callback_panics(&self) -> u64 {
        self.callbacks.panics.load(Ordering::Relaxed)
    }

    /// How many callbacks wait to be called, or are being called.
    pub(crate) fn callbacks_waiting(&self) -> u64 {
        self.callbacks.unreturned.load(Ordering::Relaxed)
    }

    fn start_calling(&self) {
        if thread::spawn(self.to_ref()).is_ok() {
            return;
        }
        let is_closed = {
            let mut pending = lock(&self.callbacks.pending);
            pending.thread = Thread::Refused;
            pending.is_closed
        };
        // Shutdown has seen a thread that was about to start, or it will see that there is none.
        if is_closed { self.run_callbacks() } else { self.driver.wake() }
    }

    fn make(&self, batch: &mut Vec<Call>) {
        for Call { callback, outcome } in batch.drain(..) {
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
        let pending = PendingCallbacks { waiting, spare, is_draining: false, thread: Thread::None, is_closed: false };
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

    /// By the thread: the next calls to make, for which it waits. `None`: the engine is closed, and nothing is left for it.
    fn wait(&self) -> Option<Vec<Call>> {
        let mut pending = lock(&self.pending);
        loop {
            if let Some(batch) = pending.begin() {
                return Some(batch);
            }
            // If somebody else makes calls, it makes all of them.
            if pending.is_closed {
                pending.thread = Thread::None;
                return None;
            }
            pending.thread = Thread::Asleep;
            pending = self.posted.wait(pending).unwrap_or_else(|poisoned| poisoned.into_inner());
            pending.thread = Thread::Awake;
        }
    }
}

impl PendingCallbacks {
    /// All that waits, if nobody else makes calls. The caller does from now on.
    fn begin(&mut self) -> Option<Vec<Call>> {
        if self.waiting.is_empty() || self.is_draining {
            return None;
        }
        self.is_draining = true;
        let spare = std::mem::take(&mut self.spare);
        Some(std::mem::replace(&mut self.waiting, spare))
    }

    /// The calls of a batch have been made. Its memory is used again.
    fn end(&mut self, made: Vec<Call>) {
        self.is_draining = false;
        if made.capacity() <= KEPT {
            self.spare = made;
        }
    }

    /// Whether it is time to ask for a thread once more. From now on there is one, unless the caller takes that back.
    fn try_again(&mut self) -> bool {
        let is_time = self.thread == Thread::Refused && !self.is_draining;
        if is_time {
            self.thread = Thread::Awake;
        }
        is_time
    }

    fn tell(&mut self, is_external: bool) -> Tell {
        if self.is_draining {
            return Tell::Nobody;
        }
        match self.thread {
            _ if is_external && !self.is_closed => Tell::Driver,
            Thread::Refused if !self.is_closed => Tell::Driver,
            Thread::Awake => Tell::Nobody,
            Thread::Asleep => {
                self.thread = Thread::Awake;
                Tell::Thread
            }
            Thread::None | Thread::Refused => {
                self.thread = Thread::Awake;
                Tell::NewThread
            }
        }
    }
}

/// The thread's work: see the module.
fn run(core: &CoreRef) {
    within(core, || {
        while let Some(mut batch) = core.callbacks.wait() {
            core.make(&mut batch);
            lock(&core.callbacks.pending).end(batch);
        }
    });
}

/// With this engine as the current one of the thread. (It does not keep the engine from ending with its last handle.)
#[cfg(not(loom))]
fn within(core: &CoreRef, calls: impl FnOnce()) {
    let guard = crate::core::thread_shard::enter(core);
    calls();
    crate::core::thread_shard::leave(guard);
}

/// The threads of a model are one thread of the system, and would share a home.
#[cfg(loom)]
fn within(_: &CoreRef, calls: impl FnOnce()) {
    calls();
}

mod thread {
    use std::io;

    use super::run;
    use crate::core::CoreRef;
    #[cfg(not(loom))]
    use crate::sync::aside::thread::Builder;

    /// Starts it. It ends when the engine is closed and nothing is left to call.
    #[cfg(not(loom))]
    pub(super) fn spawn(core: CoreRef) -> io::Result<()> {
        #[cfg(all(test, not(shuttle)))]
        core.callbacks.may_start_threads()?;
        let thread = Builder::new().name("tourbillon-calls".into());
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

    /// From now on threads for calls are refused to this engine, or not.
    fn refuse_threads(engine: &Engine, is_refused: bool) {
        engine.core().callbacks.is_refused.store(is_refused, Ordering::SeqCst);
    }

    /// What a callback of this timer is told, and on which thread.
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

    #[test]
    fn d28_without_a_thread_for_them_shutdown_calls_and_after_it_who_posts() {
        let engine = Engine::builder().build().unwrap();
        refuse_threads(&engine, true);
        let timer = Timer::on(&engine);
        outcome_of(&timer).recv().unwrap();
        timer.expires_after(Duration::MAX);
        let stopped = outcome_of(&timer);
        engine.shutdown();
        assert_eq!(stopped.recv().unwrap().0, Outcome::Stopped);
        // The driver may have made that call and be about to leave. What is posted meanwhile it makes as well.
        let here = (Outcome::Stopped, thread::current().id());
        let after = || outcome_of(&timer).recv().unwrap();
        assert!((0..1000).any(|_| after() == here), "who posts has never called");
        refuse_threads(&engine, false);
        assert_ne!(outcome_of(&timer).recv().unwrap().1, thread::current().id());
    }
}
