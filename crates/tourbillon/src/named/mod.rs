//! Timers under names: many can share a name, and are cancelled together.
//!
//! See [`NamedTimers`].

mod builder;
mod renewals;
mod starts;
mod state;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tourbillon_queue::Time;

pub use self::builder::Builder;
use self::state::{BATCH, EndedTimers, NamedState, StartResult};
use crate::clock::representable;
use crate::core::error::ArmError;
use crate::core::thread_shard;
use crate::core::{Core, CoreRef};
use crate::current;
use crate::engine::Engine;
use crate::instant::Instant;
use crate::multi::deadline_map::DeadlineKey;
use crate::multi::due_items::{self, DueItems, Firing};
use crate::multi::waiter::{self, AwaitedOutcome, OutcomeCell, TimerWaiter};
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;
use crate::slack::Slack;
use crate::sync::{Mutex, lock};

/// Timers under names. Many timers can share a name, by which they are cancelled together.
///
/// A timer is [created](NamedTimers::create) under a name and then started, or both in [one call](NamedTimers::start). Each started
/// timer ends once, and its callback or future receives the outcome: [fired](Outcome::Fired), [cancelled](Outcome::Cancelled),
/// or [stopped](Outcome::Stopped). [`cancel`](NamedTimers::cancel) returns exactly how many timers it cancelled;
/// [`restart`](NamedTimers::restart) and [`start_if_fewer`](NamedTimers::start_if_fewer) look at the timers of a name and start one in a
/// single step; [`renew`](NamedTimers::renew) gives the timers of a name another deadline. Starting, cancelling and firing a timer takes the same time however many there are.
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
/// Cloning is cheap, and all clones refer to the same timers. When the last clone is dropped, pending timers are cancelled.
///
/// # Where callbacks run
/// Callbacks run on the same thread as those of a [`Timer`](crate::Timer#where-callbacks-run): never inside a call of this type, nor under a
/// lock. They are called in the order of the deadlines, and for equal deadlines in the order in which the timers were started. A callback
/// may call any method, also cancel all timers, or start as many again.
///
/// # Names
/// Any text is a name, also an empty or a long one. A name takes memory as long as there is a timer under it. The number of timers
/// can be [limited](Builder::capacity); the length of names is for the caller to limit.
#[derive(Clone)]
pub struct NamedTimers {
    owner: Arc<NamedOwner>,
}

/// A timer under a name that has not been started: see [`NamedTimers::create`].
///
/// It counts among the timers of its name, and can be cancelled: a start after that ends at once as
/// [cancelled](Outcome::Cancelled). Dropping it removes it.
#[must_use = "the timer is removed when this is dropped: start it"]
pub struct NamedTimer {
    shared: Arc<NamedShared>,
    /// The key of the timer, or why it could not be created.
    key: Result<DeadlineKey, ArmError>,
}

/// The future of [`NamedTimer::wait`], which returns how the timer ended. Once ready, it stays ready.
///
/// # Cancel safety
/// Dropping it removes the timer: a later cancel does not count it.
#[must_use = "the timer is removed when this is dropped"]
pub struct NamedWait {
    shared: Arc<NamedShared>,
    key: DeadlineKey,
    outcome: AwaitedOutcome,
}

/// The part that all clones share. Dropping it cancels the timers.
struct NamedOwner {
    shared: Arc<NamedShared>,
}

/// The part that handles, timers and the wake-up timer share.
struct NamedShared {
    core: CoreRef,
    /// Fires timers at the earliest deadline, and stops them when the engine is shut down.
    wakeup: WakeupTimer,
    state: Mutex<NamedState>,
}

impl NamedTimers {
    /// Creates an empty set of timers on the current engine.
    #[must_use]
    pub fn new() -> NamedTimers {
        NamedTimers::on_core(current::with_current(|local| local.core().clone()))
    }

    /// Creates an empty set of timers on this engine. It does not keep the engine running after its last handle is dropped.
    #[must_use]
    pub fn on(engine: &Engine) -> NamedTimers {
        NamedTimers::on_core(engine.core().clone())
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn on_core(core: CoreRef) -> NamedTimers {
        NamedTimers::built(core, usize::MAX, None)
    }

    fn built(core: CoreRef, capacity: usize, slack: Option<Slack>) -> NamedTimers {
        let shared = Arc::new_cyclic(|shared| NamedShared {
            wakeup: WakeupTimer::of(shared, &core, due_items::on_wakeup::<NamedShared>).slack(slack),
            core,
            state: Mutex::new(NamedState::new(capacity)),
        });
        NamedTimers { owner: Arc::new(NamedOwner { shared }) }
    }

    /// Creates a timer under this name, to be started later. Until then it can be cancelled, and it counts.
    ///
    /// If the timers were stopped, or there are as many as there can be (a billion, or [fewer](Builder::capacity)), starting the timer
    /// returns the error.
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
        let key = shared.add(name, None, Time::NEVER).map_err(|(error, _)| error);
        NamedTimer { shared, key }
    }

    /// Creates a timer and starts it: see [`NamedTimer::start`].
    ///
    /// # Errors
    /// [`ArmError::Stopped`] after [`shutdown`](NamedTimers::shutdown) or the engine's shutdown, [`ArmError::Full`] if there are as many timers
    /// as there can be. The callback is not called then.
    pub fn start(
        &self,
        name: &str,
        after: Duration,
        callback: impl FnOnce(Outcome) + Send + 'static,
    ) -> Result<(), ArmError> {
        let shared = &self.owner.shared;
        let due = shared.due_after(after);
        // A callback that is returned with an error is dropped here, outside the lock.
        shared.add(name, Some(TimerWaiter::Callback(Box::new(callback))), due).map_err(|(error, _)| error)?;
        shared.wakeup.set(due);
        Ok(())
    }

    /// Cancels all timers of a name, and returns how many. Timers that have ended before do not count. Timers that are not started yet
    /// count, and end as cancelled when they are started.
    ///
    /// Timers that are created under the name after this call has begun, for instance by callbacks, are not cancelled.
    pub fn cancel(&self, name: &str) -> usize {
        self.cancel_up_to(name, usize::MAX)
    }

    /// Cancels at most `max` timers of a name, the oldest first, and returns how many: see [`cancel`](NamedTimers::cancel).
    pub fn cancel_up_to(&self, name: &str, max: usize) -> usize {
        self.owner.shared.cancel(name, max)
    }

    /// Ends every pending timer as [stopped](Outcome::Stopped), in no particular order, and returns how many. From now on starting a
    /// timer returns [`ArmError::Stopped`], unless the timer was cancelled before. Calling this again does nothing.
    ///
    /// The engine goes on. Its [shutdown](Engine::shutdown) stops all timers on it in the same way.
    pub fn shutdown(&self) -> usize {
        self.owner.shared.close(Outcome::Stopped)
    }

    /// Returns whether the timers, or their engine, were shut down.
    #[must_use]
    pub fn is_shutdown(&self) -> bool {
        let shared = &self.owner.shared;
        shared.core.is_closed() || lock(&shared.state).is_closed
    }

    /// Returns how many timers there are, started or not.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.owner.shared.state).len()
    }

    /// Returns whether there is no timer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how many timers there are under this name, started or not.
    #[must_use]
    pub fn count(&self, name: &str) -> usize {
        lock(&self.owner.shared.state).count(name)
    }

    /// Returns the names that have timers, in no particular order.
    #[must_use]
    pub fn names(&self) -> Vec<Arc<str>> {
        lock(&self.owner.shared.state).names.keys().cloned().collect()
    }
}

impl NamedTimer {
    /// Starts the timer: `callback` is called with [`Outcome::Fired`] `after` this duration, or earlier with another outcome. It is
    /// called once, and never inside this call. With [`Duration::MAX`] the timer never fires and can only be cancelled.
    ///
    /// # Errors
    /// [`ArmError::Stopped`] after [`NamedTimers::shutdown`] or the engine's shutdown, or if all handles were dropped;
    /// [`ArmError::Full`] if there were as many timers as there can be. The callback is not called then.
    pub fn start(self, after: Duration, callback: impl FnOnce(Outcome) + Send + 'static) -> Result<(), ArmError> {
        let due = self.shared.due_after(after);
        self.start_due(due, TimerWaiter::Callback(Box::new(callback))).map(drop)
    }

    /// Starts the timer, to fire at `deadline`: see [`start`](NamedTimer::start).
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    pub fn start_at(self, deadline: Instant, callback: impl FnOnce(Outcome) + Send + 'static) -> Result<(), ArmError> {
        let due = self.shared.due_at(deadline);
        self.start_due(due, TimerWaiter::Callback(Box::new(callback))).map(drop)
    }

    /// Starts the timer, and returns a future of its outcome. The timer runs from now on, whether the future is polled or not.
    ///
    /// # Errors
    /// As for [`start`](NamedTimer::start).
    ///
    /// # Cancel safety
    /// Dropping the future removes the timer: a later cancel does not count it.
    pub fn wait(self, after: Duration) -> Result<NamedWait, ArmError> {
        let due = self.shared.due_after(after);
        self.wait_due(due)
    }

    /// Starts the timer, to fire at `deadline`: see [`wait`](NamedTimer::wait).
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
        let (shared, cell) = (self.shared.clone(), OutcomeCell::new());
        let key = self.start_due(due, TimerWaiter::Task(cell.clone()))?;
        Ok(NamedWait { shared, key, outcome: AwaitedOutcome::new(cell) })
    }

    pub(crate) fn start_due(mut self, due: Time, waiter: TimerWaiter) -> Result<DeadlineKey, ArmError> {
        // `Drop` has nothing to do from here on.
        let key = std::mem::replace(&mut self.key, Err(ArmError::Stopped))?;
        let started = lock(&self.shared.state).start(key, due, waiter, self.shared.core.is_closed());
        match started {
            StartResult::Started => self.shared.wakeup.set(due),
            StartResult::WasCancelled(waiter) => {
                waiter::notify_all(&self.shared.core, [(waiter, Outcome::Cancelled)].into_iter());
            }
            // The waiter is dropped here, outside the lock.
            StartResult::Stopped(_) => return Err(ArmError::Stopped),
        }
        Ok(key)
    }
}

/// Removes the timer if it was not started.
impl Drop for NamedTimer {
    fn drop(&mut self) {
        if let Ok(key) = self.key {
            lock(&self.shared.state).remove_unstarted(key);
        }
    }
}

impl Future for NamedWait {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.outcome.poll(context)
    }
}

impl Drop for NamedWait {
    fn drop(&mut self) {
        let removed = lock(&self.shared.state).remove(self.key);
        self.shared.postpone_wakeup();
        // Dropped outside the lock, because it holds a waker of the user's.
        drop(removed);
    }
}

impl Default for NamedTimers {
    fn default() -> NamedTimers {
        NamedTimers::new()
    }
}

impl Drop for NamedOwner {
    fn drop(&mut self) {
        self.shared.close(Outcome::Cancelled);
    }
}

impl NamedShared {
    fn due_after(&self, after: Duration) -> Time {
        representable(thread_shard::with(self.core.as_ptr(), |local| local.deadline(after)))
    }

    fn due_at(&self, deadline: Instant) -> Time {
        representable(self.core.clock.time_of(deadline.into_std()))
    }

    /// Adds a timer. The error gives back the waiter.
    fn add(
        &self,
        name: &str,
        waiter: Option<TimerWaiter>,
        due: Time,
    ) -> Result<DeadlineKey, (ArmError, Option<TimerWaiter>)> {
        let mut state = lock(&self.state);
        if state.is_closed || self.core.is_closed() {
            return Err((ArmError::Stopped, waiter));
        }
        state.add(name, waiter, due)
    }

    fn cancel(&self, name: &str, max: usize) -> usize {
        let (mut count, mut batch) = (0, EndedTimers::new());
        let created = lock(&self.state).created;
        loop {
            let taken = lock(&self.state).take_oldest(name, created, BATCH.min(max - count), &mut batch);
            count += taken;
            waiter::notify_all(&self.core, batch.drain(..));
            if taken < BATCH {
                self.postpone_wakeup();
                return count;
            }
        }
    }

    /// Ends all started timers, and accepts no more.
    fn close(&self, outcome: Outcome) -> usize {
        let (mut count, mut batch) = (0, EndedTimers::new());
        let mut cursor = 0;
        loop {
            let is_over = {
                let mut state = lock(&self.state);
                state.is_closed = true;
                state.take_started(&mut cursor, outcome, &mut batch)
            };
            // Timers that a restart has cancelled, and not yet ended, were counted by it.
            count += batch.iter().filter(|(_, ended)| *ended == outcome).count();
            waiter::notify_all(&self.core, batch.drain(..));
            if is_over {
                self.postpone_wakeup();
                return count;
            }
        }
    }

    /// Postpones the wake-up to the deadlines that are left, in virtual time, after timers were cancelled.
    fn postpone_wakeup(&self) {
        if self.core.is_virtual {
            self.wakeup.postpone_to(|| self.next_wakeup().unwrap_or(Time::NEVER));
        }
    }
}

impl DueItems for NamedShared {
    type Batch = EndedTimers;

    fn core(&self) -> &Core {
        &self.core
    }

    fn wakeup(&self) -> &WakeupTimer {
        &self.wakeup
    }

    fn change_firing(&self, change: impl FnOnce(&mut Firing) -> bool) -> bool {
        change(&mut lock(&self.state).firing)
    }

    fn on_engine_stopped(&self) {
        self.close(Outcome::Stopped);
    }

    fn end_due(&self, now: Time, batch: &mut EndedTimers) -> bool {
        let more = lock(&self.state).take_due(now, batch);
        waiter::notify_all(&self.core, batch.drain(..));
        more
    }

    fn next_wakeup(&self) -> Option<Time> {
        let state = lock(&self.state);
        (state.pending > 0).then(|| state.deadlines.next_wakeup())
    }
}

impl fmt::Debug for NamedTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.owner.shared.state);
        let (names, timers) = (state.names.len(), state.len());
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
