//! Timers by name: many under one name, cancelled together.
//!
//! See [`NamedTimers`].

mod state;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use self::state::{BATCH, Batch, Start, State};
use crate::clock::representable;
use crate::core::CoreRef;
use crate::core::error::ArmError;
use crate::core::thread_shard;
use crate::current;
use crate::engine::Engine;
use crate::instant::Instant;
use crate::multi::deadline_map::Key;
use crate::multi::waiter::{self, Answer, Awaited, Waiter};
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;
use crate::sync::{Mutex, lock};

/// Timers that have a name, which many can share, and that are cancelled by it.
///
/// A timer is [created](NamedTimers::create) under a name and then started, or both in [one call](NamedTimers::start). Each that
/// is started ends once, and its callback or future is told how: as [fired](Outcome::Fired), as [cancelled](Outcome::Cancelled),
/// or as [stopped](Outcome::Stopped). [`cancel`](NamedTimers::cancel) says how many it cancelled, exactly. However many there are,
/// starting, cancelling and firing one takes the same time.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::{NamedTimers, Outcome};
///
/// let timers = NamedTimers::new();
/// let (send, receive) = channel();
/// for _ in 0..3 {
///     let send = send.clone();
///     timers.start("session 7", Duration::from_secs(60), move |outcome| send.send(outcome).unwrap())?;
/// }
/// assert_eq!(timers.cancel_up_to("session 7", 1), 1);
/// assert_eq!(timers.cancel("session 7"), 2);
/// assert_eq!(receive.iter().take(3).collect::<Vec<_>>(), [Outcome::Cancelled; 3]);
/// # Ok::<(), tourbillon::ArmError>(())
/// ```
///
/// # Handles
/// It is cheap to clone, and all clones are the same timers. When the last is dropped, what is pending is cancelled.
///
/// # Where callbacks run
/// As those of a [`Timer`](crate::Timer#where-callbacks-run): never inside a call of this type, nor under a lock. They are called
/// in the order of the deadlines; equal ones in the order in which they were started. A callback may use the timers that it
/// is of in any way: also cancel them all, or start as many again.
///
/// # Names
/// Any text is a name, also an empty or a long one. A name takes memory as long as there is a timer under it. How many timers there
/// can be is [for you to say](NamedTimers::at_most); how long a name may be as well, before it comes here.
#[derive(Clone)]
pub struct NamedTimers {
    owner: Arc<Owner>,
}

/// A timer that has a name and was not started yet: [`NamedTimers::create`].
///
/// It counts as one of its name, and can be cancelled: starting it then completes as [cancelled](Outcome::Cancelled). Dropping it
/// frees its place.
#[must_use = "the timer is gone when this is dropped: start it"]
pub struct NamedTimer {
    shared: Arc<Shared>,
    /// Or why there is none.
    place: Result<Key, ArmError>,
}

/// The future of [`NamedTimer::wait`]: how the timer ended. Once ready, it stays ready.
///
/// # Cancel safety
/// Dropping it withdraws the timer, without a word: it counts for no cancel that comes later.
#[must_use = "the timer is cancelled when this is dropped"]
pub struct NamedWait {
    shared: Arc<Shared>,
    key: Key,
    answer: Awaited,
}

/// What the clones of a handle share. Its end is that of the timers.
struct Owner {
    shared: Arc<Shared>,
}

/// What is shared with timers and with the bell.
struct Shared {
    core: CoreRef,
    /// Rings at the earliest deadline, and when the engine is shut down.
    bell: WakeupTimer,
    state: Mutex<State>,
}

/// So many batches are fired before the driver, on whose thread that is, may see to other timers.
const IN_A_ROW: usize = 32;
/// And for so long, at least.
const PAUSE: Span = Span::from_nanos(20_000);

impl NamedTimers {
    /// Without any timers yet, on the current engine.
    #[must_use]
    pub fn new() -> NamedTimers {
        NamedTimers::on_core(current::with_current(|local| local.core().clone()))
    }

    /// Without any timers yet, on this engine. It does not keep the engine from being shut down when its last handle goes.
    #[must_use]
    pub fn on(engine: &Engine) -> NamedTimers {
        NamedTimers::on_core(engine.core().clone())
    }

    /// Without any timers yet, on this engine, and never more than `most` at a time: where others choose the names, so that they cannot
    /// take all memory. To start one more is [`ArmError::Full`]; those that are created and not started count.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{ArmError, Engine, NamedTimers};
    ///
    /// let timers = NamedTimers::at_most(1, &Engine::current());
    /// timers.start("a", Duration::from_secs(60), |_| ())?;
    /// let full = timers.start("b", Duration::from_secs(60), |_| ());
    /// assert_eq!(full, Err(ArmError::Full { capacity: 1 }));
    /// # Ok::<(), ArmError>(())
    /// ```
    #[must_use]
    pub fn at_most(most: usize, engine: &Engine) -> NamedTimers {
        NamedTimers::with_most(engine.core().clone(), most)
    }

    pub(crate) fn on_core(core: CoreRef) -> NamedTimers {
        NamedTimers::with_most(core, usize::MAX)
    }

    fn with_most(core: CoreRef, most: usize) -> NamedTimers {
        let shared = Arc::new_cyclic(|shared| Shared {
            bell: WakeupTimer::of(shared, &core, Shared::ring),
            core,
            state: Mutex::new(State::new(most)),
        });
        NamedTimers { owner: Arc::new(Owner { shared }) }
    }

    /// A timer under this name, to be started later. Until then it can be cancelled, and it counts.
    ///
    /// When the timers were stopped, or there are as many as there can be (a billion, or [fewer](NamedTimers::at_most)), starting it says so.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{NamedTimers, Outcome};
    ///
    /// # futures_lite::future::block_on(async {
    /// let timers = NamedTimers::new();
    /// let late = timers.create("upload");
    /// assert_eq!(timers.cancel("upload"), 1); // before it is started
    /// assert_eq!(late.wait(Duration::from_secs(60))?.await, Outcome::Cancelled);
    /// # Ok::<(), tourbillon::ArmError>(())
    /// # }).unwrap();
    /// ```
    pub fn create(&self, name: &str) -> NamedTimer {
        let shared = self.owner.shared.clone();
        let place = shared.add(name, None, Time::NEVER).map_err(|(error, _)| error);
        NamedTimer { shared, place }
    }

    /// Creates a timer and starts it: see [`NamedTimer::start`].
    ///
    /// # Errors
    /// [`ArmError::Stopped`] after [`stop`](NamedTimers::stop) or the engine's shutdown, [`ArmError::Full`] when there are as many
    /// as there can be. The callback is not called then.
    pub fn start(
        &self,
        name: &str,
        after: Duration,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<(), ArmError> {
        let shared = &self.owner.shared;
        let due = shared.due_after(after);
        // A callback that comes back is dropped here, outside the lock.
        shared.add(name, Some(Waiter::Call(Box::new(callback))), due).map_err(|(error, _)| error)?;
        shared.bell.set(due);
        Ok(())
    }

    /// Cancels all timers of a name, and says how many: those that it was too late for do not count. Timers that are not
    /// started yet do; they are told when they are.
    ///
    /// Timers that are created under the name after this has begun, for instance by the callbacks, are not cancelled.
    pub fn cancel(&self, name: &str) -> usize {
        self.cancel_up_to(name, usize::MAX)
    }

    /// The same for no more than `max` of them, the oldest first.
    pub fn cancel_up_to(&self, name: &str, max: usize) -> usize {
        self.owner.shared.cancel(name, max)
    }

    /// Ends every pending timer as [stopped](Outcome::Stopped), and says how many: each with its one callback, in no particular
    /// order. From now on starting a timer gives [`ArmError::Stopped`], unless it was cancelled before. It can be called
    /// again.
    ///
    /// The engine goes on. Its [shutdown](Engine::shutdown) does the same to all timers on it.
    pub fn stop(&self) -> usize {
        self.owner.shared.close(Outcome::Stopped)
    }

    /// Whether they were stopped, or their engine was shut down.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let shared = &self.owner.shared;
        shared.core.is_closed() || lock(&shared.state).is_closed
    }

    /// How many there are, started or not.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.owner.shared.state).deadlines.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many there are of this name, started or not.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        lock(&self.owner.shared.state).count(name)
    }

    /// The names that have timers, in no particular order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        lock(&self.owner.shared.state).names.keys().cloned().collect()
    }
}

impl NamedTimer {
    /// Starts it: `after` so long `callback` is called with [`Outcome::Fired`]; or before that with how else it ended. It is called
    /// once, and never inside this call. With [`Duration::MAX`] it never fires and can only be cancelled.
    ///
    /// # Errors
    /// [`ArmError::Stopped`] after [`NamedTimers::stop`] or the engine's shutdown, or if all handles are gone;
    /// [`ArmError::Full`] if there were as many as there can be. The callback is not called then.
    pub fn start(self, after: Duration, callback: impl FnOnce(Outcome) + Send + 'static) -> Result<(), ArmError> {
        let due = self.shared.due_after(after);
        self.start_due(due, Waiter::Call(Box::new(callback))).map(drop)
    }

    /// The same, to fire at `deadline`.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    pub fn start_at(self, deadline: Instant, callback: impl FnOnce(Outcome) + Send + 'static) -> Result<(), ArmError> {
        let due = self.shared.due_at(deadline);
        self.start_due(due, Waiter::Call(Box::new(callback))).map(drop)
    }

    /// Starts it, and gives a future that says how it ended. The timer runs from now on, polled or not.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the timer: it counts for no cancel that comes later.
    pub fn wait(self, after: Duration) -> Result<NamedWait, ArmError> {
        let due = self.shared.due_after(after);
        self.wait_due(due)
    }

    /// The same, until `deadline`.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    ///
    /// # Cancel safety
    /// As for [`wait`](NamedTimer::wait).
    pub fn wait_until(self, deadline: Instant) -> Result<NamedWait, ArmError> {
        let due = self.shared.due_at(deadline);
        self.wait_due(due)
    }

    pub(crate) fn wait_due(self, due: Time) -> Result<NamedWait, ArmError> {
        let (shared, answer) = (self.shared.clone(), Answer::new());
        let key = self.start_due(due, Waiter::Task(answer.clone()))?;
        Ok(NamedWait { shared, key, answer: Awaited::new(answer) })
    }

    pub(crate) fn start_due(mut self, due: Time, waiter: Waiter) -> Result<Key, ArmError> {
        // From here on there is nothing left to drop.
        let key = std::mem::replace(&mut self.place, Err(ArmError::Stopped))?;
        let started = lock(&self.shared.state).start(key, due, waiter, self.shared.core.is_closed());
        match started {
            Start::Done => self.shared.bell.set(due),
            Start::WasCancelled(waiter) => {
                waiter::tell(&self.shared.core, [(waiter, Outcome::Cancelled)].into_iter());
            }
            // Its waiter is dropped here, outside the lock.
            Start::Stopped(_) => return Err(ArmError::Stopped),
        }
        Ok(key)
    }
}

/// If it was not started.
impl Drop for NamedTimer {
    fn drop(&mut self) {
        if let Ok(key) = self.place {
            lock(&self.shared.state).remove_unstarted(key);
        }
    }
}

impl Future for NamedWait {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.answer.poll(context)
    }
}

impl Drop for NamedWait {
    fn drop(&mut self) {
        let withdrawn = lock(&self.shared.state).remove(self.key);
        self.shared.postpone_wakeup();
        // Here, outside the lock: the waker in it is the user's.
        drop(withdrawn);
    }
}

impl Default for NamedTimers {
    fn default() -> NamedTimers {
        NamedTimers::new()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(Outcome::Cancelled);
    }
}

impl Shared {
    fn due_after(&self, after: Duration) -> Time {
        representable(thread_shard::with(self.core.as_ptr(), |local| local.deadline(after)))
    }

    fn due_at(&self, deadline: Instant) -> Time {
        representable(self.core.clock.time_of(deadline.into_std()))
    }

    /// The waiter comes back if it cannot be added.
    fn add(&self, name: &str, waiter: Option<Waiter>, due: Time) -> Result<Key, (ArmError, Option<Waiter>)> {
        let mut state = lock(&self.state);
        if state.is_closed || self.core.is_closed() {
            return Err((ArmError::Stopped, waiter));
        }
        state.add(name, waiter, due)
    }

    fn cancel(&self, name: &str, max: usize) -> usize {
        let (mut count, mut batch) = (0, Batch::new());
        let youngest = lock(&self.state).created;
        loop {
            let taken = lock(&self.state).take_oldest(name, youngest, BATCH.min(max - count), &mut batch);
            count += taken;
            waiter::tell(&self.core, batch.drain(..));
            if taken < BATCH {
                self.postpone_wakeup();
                return count;
            }
        }
    }

    /// Ends all that are started, and takes no more.
    fn close(&self, outcome: Outcome) -> usize {
        let (mut count, mut batch) = (0, Batch::new());
        let mut cursor = 0;
        loop {
            let is_over = {
                let mut state = lock(&self.state);
                state.is_closed = true;
                state.take_started(&mut cursor, outcome, &mut batch)
            };
            count += batch.len();
            waiter::tell(&self.core, batch.drain(..));
            if is_over {
                self.postpone_wakeup();
                return count;
            }
        }
    }

    /// In an engine whose time may move by itself, after timers were cancelled: the bell waits for what is left.
    fn postpone_wakeup(&self) {
        let next = || {
            let state = lock(&self.state);
            if state.pending > 0 { state.deadlines.next_wakeup() } else { Time::NEVER }
        };
        if !self.core.is_virtual {
            return;
        }
        loop {
            let left = next();
            self.bell.put_off(left);
            // A timer that was started meanwhile has set the bell, which this may have put off again.
            let now = next();
            if now >= left {
                return;
            }
            self.bell.set(now);
        }
    }

    /// Fires what is due, and sets the bell for what is not; unless another thread is at it, which then looks again.
    fn ring(&self) {
        if !lock(&self.state).begin_ringing() {
            return;
        }
        loop {
            if self.bell.rang() == Some(Outcome::Stopped) {
                self.close(Outcome::Stopped);
            }
            let is_done = self.fire();
            let next = {
                let state = lock(&self.state);
                (state.pending > 0).then(|| state.deadlines.next_wakeup())
            };
            match next {
                // This may ring it at once: then we go round again.
                Some(next) => self.bell.set(if is_done { next } else { self.core.clock.now() + PAUSE }),
                None => self.bell.rest(),
            }
            if lock(&self.state).end_ringing() {
                return;
            }
        }
    }

    /// Fires what is due now. Not all, if that takes so long that other timers of the engine would be late; time that is moved by
    /// hand can wait.
    fn fire(&self) -> bool {
        let now = self.core.clock.now();
        let mut batch = Batch::new();
        for batches in 1.. {
            let more = lock(&self.state).take_due(now, &mut batch);
            waiter::tell(&self.core, batch.drain(..));
            if !more {
                break;
            }
            if batches == IN_A_ROW && !self.core.clock.is_manual() && !self.core.is_virtual {
                return false;
            }
        }
        true
    }
}

impl fmt::Debug for NamedTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.owner.shared.state);
        let (names, timers) = (state.names.len(), state.deadlines.len());
        f.debug_struct("NamedTimers").field("names", &names).field("timers", &timers).finish_non_exhaustive()
    }
}

impl fmt::Debug for NamedTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedTimer").finish_non_exhaustive()
    }
}

impl fmt::Debug for NamedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamedWait").finish_non_exhaustive()
    }
}
