//! A timer as an object, with an expiry and any number of waits for it.
//!
//! See [`Timer`].

mod wait;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, SystemTime};

use tourbillon_queue::Time;

pub use self::wait::{Wait, WaitHandle};
use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::current;
use crate::engine::Engine;
#[cfg(not(all(loom, test)))]
use crate::entry::Entry;
use crate::instant::Instant;
use crate::multi::waiter::{self, AwaitedOutcome, OutcomeCell, TimerWaiter};
use crate::outcome::Outcome;
use crate::slack::{Slack, SlackBits};
use crate::sync::{Mutex, lock};
#[cfg(all(loom, test))]
use crate::verify::loom::timer::Entry;

/// A timer that any number of threads can set, wait for and cancel.
///
/// It has an expiry, set by [`expires_after`](Timer::expires_after) and its like, and any number of waits, which end together
/// when the expiry comes: futures ([`wait`](Timer::wait)), callbacks ([`on_expiry`](Timer::on_expiry)) and threads
/// ([`wait_blocking`](Timer::wait_blocking)). Each wait ends once: as [fired](Outcome::Fired), as [cancelled](Outcome::Cancelled), or
/// as [stopped](Outcome::Stopped) when the engine is shut down. A cancel returns exactly how many waits it ended: those receive
/// [`Cancelled`](Outcome::Cancelled), and no others.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::{Outcome, Timer};
///
/// let timer = Timer::new();
/// timer.expires_after(Duration::from_millis(5));
/// let (send, receive) = channel();
/// timer.on_expiry(move |outcome| send.send(outcome).unwrap());
/// assert_eq!(receive.recv(), Ok(Outcome::Fired));
///
/// // A deadline that is pushed back whenever something happens.
/// timer.expires_after(Duration::from_secs(60));
/// let wait = timer.wait();
/// assert_eq!(timer.expires_after(Duration::from_secs(60)), 1);
/// assert_eq!(futures_lite::future::block_on(wait), Outcome::Cancelled);
/// ```
///
/// # Sharing and moving
/// All methods take `&self`: share a timer in an [`Arc`]. A timer can be moved while waits are pending, and so can a wait. Dropping
/// the timer cancels its waits.
///
/// # Before it is set
/// A timer that was never set counts as expired, like one whose expiry has passed: a wait ends at once as fired. (`asio` does the
/// same.) An expiry that cannot be represented, such as `Duration::MAX` from now, never comes: its waits can only be cancelled.
///
/// # Where callbacks run
/// Never inside the call that begins the wait, nor in the one that ends it, nor under a lock. An engine with a driver of its own
/// calls them on one thread, `tourbillon-cb`, in the order in which the waits ended: a slow callback delays other callbacks, but
/// no timer. An engine that is [turned](Engine::turn) from outside calls them in the turn, and those that are left when it is
/// [shut down](Engine::shutdown) in the shutdown. Callbacks of waits that end after the shutdown run on a new thread. A panic
/// is caught and [counted](crate::Stats::callback_panics). In a callback the engine is [current](Engine::current).
pub struct Timer {
    shared: Arc<TimerShared>,
}

/// The part that a timer and its waits share. It is also the waker of the engine's entry.
///
/// All data is in one [`TimerState`] behind one lock. The thread that removes a wait from `waits` decides its outcome, and moves it to
/// the *outbox*, which is emptied in order. So the count that a cancel returns is the count of waits that receive `Cancelled`.
///
/// Steps that may run the user's code (to notify a waiter, to arm an entry, to drop it) happen outside the lock, and one thread at a time
/// does them for all: it *settles* the timer, step by step, until nothing is left to do. Other threads that come meanwhile leave the
/// steps to that thread. So nothing here waits for the user's code, and waiters are notified in the order in which their waits ended.
///
/// ```text
///     waits? --- no ----> drop the entry, if there is one
///       | yes
///     entry? --- no ----> arm one for the expiry
///       | yes
///     was a setting changed since? --- yes ---> drop the entry
///       | no
///     ended? --- yes ---> all waits into the outbox
/// ```
pub(crate) struct TimerShared {
    core: CoreRef,
    state: Mutex<TimerState>,
}

struct TimerState {
    /// `None` if it was never set.
    expiry: Option<Time>,
    /// Whether the expiry is not in force: no wait fires.
    is_disarmed: bool,
    /// `None` for that of the engine.
    slack: Option<SlackBits>,
    /// How often the expiry or another setting was changed.
    settings: u64,
    /// `None` also while a thread arms the entry.
    armed: Option<ArmedEntry>,
    /// Whether the engine has woken the timer since a thread last looked at the entry.
    is_woken: bool,
    /// By their ids, which rise with time.
    waits: BTreeMap<u64, TimerWaiter>,
    next_id: u64,
    /// Waits that have ended and whose waiters are to be notified.
    outbox: VecDeque<EndedWaits>,
    /// Whether a thread is settling the timer.
    is_settling: bool,
}

/// The engine's entry, armed for an expiry or waiting for capacity.
struct ArmedEntry {
    entry: Entry,
    /// The value of [`TimerState::settings`] that the entry is armed for. Once a setting is changed, the entry is of no use.
    settings: u64,
}

/// Waits that have ended, by their ids, and their outcome.
struct EndedWaits {
    waits: BTreeMap<u64, TimerWaiter>,
    outcome: Outcome,
}

/// A step that is done outside the lock.
enum SettleStep {
    Notify(EndedWaits),
    Drop(ArmedEntry),
    Arm {
        due: Time,
        slack: Option<SlackBits>,
        settings: u64,
    },
    /// The entry may wait for capacity, and there may be some.
    Poll(ArmedEntry),
    /// Nothing is left to do.
    Done,
}

impl Timer {
    /// Creates a timer that is not set, on the current engine.
    #[must_use]
    pub fn new() -> Timer {
        Timer::on_core(current::with_current(|local| local.core().clone()))
    }

    /// Creates a timer that is not set, on this engine. It does not keep the engine running after its last handle is dropped.
    #[must_use]
    pub fn on(engine: &Engine) -> Timer {
        Timer::on_core(engine.core().clone())
    }

    /// Creates a timer that expires in `duration` from now, on the current engine.
    #[must_use]
    pub fn after(duration: Duration) -> Timer {
        let timer = Timer::new();
        timer.expires_after(duration);
        timer
    }

    /// Creates a timer that expires at `deadline`, on the current engine.
    #[must_use]
    pub fn at(deadline: Instant) -> Timer {
        let timer = Timer::new();
        timer.expires_at(deadline);
        timer
    }

    pub(crate) fn on_core(core: CoreRef) -> Timer {
        Timer { shared: Arc::new(TimerShared { core, state: Mutex::new(TimerState::new()) }) }
    }

    /// Sets the timer to expire in `duration` from now. Cancels all pending waits, and returns how many.
    pub fn expires_after(&self, duration: Duration) -> usize {
        self.set(thread_shard::with(self.shared.core.as_ptr(), |local| local.deadline(duration)))
    }

    /// Sets the timer to expire at `deadline`. Cancels all pending waits, and returns how many.
    pub fn expires_at(&self, deadline: Instant) -> usize {
        self.set(self.shared.core.clock.time_of(deadline.into_std()))
    }

    /// Sets the timer to expire when the wall clock shows `when`. Cancels all pending waits, and returns how many.
    ///
    /// On an engine with [`Clock::wall`](crate::Clock::wall) the timer follows changes of the clock; on any other engine it expires
    /// after the time that is left now.
    pub fn expires_at_wall(&self, when: SystemTime) -> usize {
        self.set(self.shared.core.clock.time_of_wall(when))
    }

    /// Returns when the timer expires or has expired; `None` if it was never set. Cancelling does not change it.
    #[must_use]
    pub fn expiry(&self) -> Option<Instant> {
        let expiry = lock(&self.shared.state).expiry;
        expiry.map(|time| Instant::from_std(self.shared.core.clock.std_of(time)))
    }

    /// Sets how late the timer may fire, instead of the slack of its engine.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Outcome, Slack, Timer};
    ///
    /// let timer = Timer::after(Duration::from_millis(1)).slack(Slack::exact());
    /// assert_eq!(timer.wait_blocking(), Outcome::Fired);
    /// ```
    #[must_use]
    pub fn slack(self, slack: Slack) -> Timer {
        self.shared.change(|state| {
            state.slack = Some(slack.bits());
            state.settings += 1;
        });
        self
    }

    /// Disarms the timer: no wait fires until [`arm`](Timer::arm) is called or the expiry is set again. The expiry and the waits are kept.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Clock, Engine, Timer};
    ///
    /// let engine = Engine::builder().clock(Clock::manual()).build()?;
    /// let lease = Timer::on(&engine);
    /// lease.expires_after(Duration::from_secs(60));
    /// let wait = lease.on_expiry(|outcome| println!("{outcome}"));
    /// lease.disarm(); // while the holder is being moved
    /// engine.advance(Duration::from_secs(3600));
    /// assert!(wait.is_pending());
    /// lease.arm(); // an hour late
    /// assert!(!wait.is_pending());
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    pub fn disarm(&self) {
        self.shared.change(|state| state.set_disarmed(true));
    }

    /// Arms a [disarmed](Timer::disarm) timer: waits end at the expiry again, at once if that has passed.
    pub fn arm(&self) {
        self.shared.change(|state| state.set_disarmed(false));
    }

    /// Returns whether the expiry is in force: `true` unless the timer is [disarmed](Timer::disarm).
    #[must_use]
    pub fn is_armed(&self) -> bool {
        !lock(&self.shared.state).is_disarmed
    }

    /// Begins a wait, now. The future returns how it ended, and does not borrow the timer.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait: a later cancel does not count it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Outcome, Timer};
    ///
    /// # futures_lite::future::block_on(async {
    /// let timer = Timer::after(Duration::from_secs(60));
    /// let (first, second) = (timer.wait(), timer.wait());
    /// assert!(timer.cancel_one()); // the oldest
    /// assert_eq!(first.await, Outcome::Cancelled);
    /// assert_eq!(timer.cancel(), 1);
    /// assert_eq!(second.await, Outcome::Cancelled);
    /// # });
    /// ```
    pub fn wait(&self) -> Wait {
        let cell = OutcomeCell::new();
        let id = self.shared.begin(TimerWaiter::Task(cell.clone()));
        Wait { shared: self.shared.clone(), id, outcome: AwaitedOutcome::new(cell) }
    }

    /// Begins a wait that ends with one call of `callback`, with the outcome. See [above](Timer#where-callbacks-run) for where it runs.
    /// The handle cancels this one wait; dropping the handle does nothing.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use tourbillon::{Outcome, Timer};
    ///
    /// let timer = Timer::after(Duration::MAX);
    /// let (send, receive) = channel();
    /// let handle = timer.on_expiry(move |outcome| send.send(outcome).unwrap());
    /// assert!(handle.cancel());
    /// assert_eq!(receive.recv(), Ok(Outcome::Cancelled));
    /// ```
    pub fn on_expiry(&self, callback: impl FnOnce(Outcome) + Send + 'static) -> WaitHandle {
        let id = self.shared.begin(TimerWaiter::Callback(Box::new(callback)));
        WaitHandle { shared: self.shared.clone(), id }
    }

    /// Waits, and blocks the thread until the wait ends. On an engine that is turned from outside, another thread has to turn it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Outcome, Timer};
    ///
    /// assert_eq!(Timer::after(Duration::from_millis(2)).wait_blocking(), Outcome::Fired);
    /// ```
    pub fn wait_blocking(&self) -> Outcome {
        waiter::block_on(self.wait())
    }

    /// Cancels all pending waits, and returns how many. Waits that have ended before do not count.
    pub fn cancel(&self) -> usize {
        self.shared.change(TimerState::cancel_all)
    }

    /// Cancels the oldest pending wait. Returns `false` if there was none.
    pub fn cancel_one(&self) -> bool {
        self.shared.change(|state| {
            let oldest = state.waits.first_key_value().map(|(id, _)| *id);
            oldest.is_some_and(|id| state.cancel(id))
        })
    }

    pub(crate) fn set(&self, expiry: Time) -> usize {
        self.shared.change(|state| {
            state.expiry = Some(expiry);
            state.is_disarmed = false;
            state.settings += 1;
            state.cancel_all()
        })
    }
}

impl Default for Timer {
    fn default() -> Timer {
        Timer::new()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl TimerShared {
    fn begin(self: &Arc<Self>, waiter: TimerWaiter) -> u64 {
        self.change(|state| {
            let id = state.next_id;
            state.next_id += 1;
            state.waits.insert(id, waiter);
            id
        })
    }

    /// Changes the state, and settles the timer.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut TimerState) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.settle();
        result
    }

    /// Does the steps that are left to do, unless another thread is doing them.
    fn settle(self: &Arc<Self>) {
        let mut first = true;
        loop {
            let step = {
                let mut state = lock(&self.state);
                if first && state.is_settling {
                    return;
                }
                let step = state.next_step();
                state.is_settling = !matches!(step, SettleStep::Done);
                step
            };
            first = false;
            match step {
                SettleStep::Notify(EndedWaits { waits, outcome }) => {
                    waiter::notify_all(&self.core, waits.into_values().map(|waiter| (waiter, outcome)));
                }
                SettleStep::Drop(armed) => drop(armed),
                SettleStep::Arm { due, slack, settings } => {
                    let mut entry = Entry::on(&self.core, due);
                    if let Some(slack) = slack {
                        entry.set_slack(slack);
                    }
                    self.poll(ArmedEntry { entry, settings });
                }
                SettleStep::Poll(armed) => self.poll(armed),
                SettleStep::Done => return,
            }
        }
    }

    /// Polls the entry, which arms it. Whether it has ended is seen in the next step, under the lock.
    fn poll(self: &Arc<Self>, mut armed: ArmedEntry) {
        let waker = Waker::from(self.clone());
        let _later = armed.entry.poll(&mut Context::from_waker(&waker));
        lock(&self.state).armed = Some(armed);
    }
}

/// The engine wakes the timer when its entry has ended, or when there may be capacity for it.
impl Wake for TimerShared {
    fn wake(self: Arc<Self>) {
        self.change(|state| state.is_woken = true);
    }
}

impl TimerState {
    fn new() -> TimerState {
        TimerState {
            expiry: None,
            is_disarmed: false,
            slack: None,
            settings: 0,
            armed: None,
            is_woken: false,
            waits: BTreeMap::new(),
            next_id: 0,
            outbox: VecDeque::new(),
            is_settling: false,
        }
    }

    fn set_disarmed(&mut self, is_disarmed: bool) {
        if self.is_disarmed != is_disarmed {
            self.is_disarmed = is_disarmed;
            self.settings += 1;
        }
    }

    fn cancel_all(&mut self) -> usize {
        let count = self.waits.len();
        self.end_all(Outcome::Cancelled);
        count
    }

    fn cancel(&mut self, id: u64) -> bool {
        let Some(waiter) = self.waits.remove(&id) else { return false };
        self.outbox.push_back(EndedWaits { waits: BTreeMap::from([(id, waiter)]), outcome: Outcome::Cancelled });
        true
    }

    fn end_all(&mut self, outcome: Outcome) {
        if !self.waits.is_empty() {
            self.outbox.push_back(EndedWaits { waits: std::mem::take(&mut self.waits), outcome });
        }
    }

    /// Returns the next step.
    fn next_step(&mut self) -> SettleStep {
        if let Some(step) = self.check_armed() {
            return step;
        }
        if let Some(ended) = self.outbox.pop_front() {
            return SettleStep::Notify(ended);
        }
        if self.armed.is_none() && !self.waits.is_empty() {
            let due = if self.is_disarmed { Time::NEVER } else { self.expiry.unwrap_or(Time::ZERO) };
            return SettleStep::Arm { due, slack: self.slack, settings: self.settings };
        }
        SettleStep::Done
    }

    fn check_armed(&mut self) -> Option<SettleStep> {
        let is_woken = std::mem::take(&mut self.is_woken);
        let armed = self.armed.take()?;
        if armed.settings != self.settings || self.waits.is_empty() {
            return Some(SettleStep::Drop(armed));
        }
        if let Some(outcome) = armed.entry.outcome() {
            self.end_all(outcome);
            return Some(SettleStep::Drop(armed));
        }
        if is_woken {
            return Some(SettleStep::Poll(armed));
        }
        self.armed = Some(armed);
        None
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = lock(&self.shared.state).waits.len();
        f.debug_struct("Timer").field("expiry", &self.expiry()).field("waits", &waits).finish()
    }
}
