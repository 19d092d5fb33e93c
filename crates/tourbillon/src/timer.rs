//! A timer as an object: it has an expiry, and any number of waits for it.
//!
//! See [`Timer`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use tourbillon_queue::Time;

use crate::Engine;
use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::current;
#[cfg(not(all(loom, test)))]
use crate::entry::Entry;
use crate::instant::Instant;
use crate::multi::waiter::{self, Answer, Awaited, Waiter};
use crate::outcome::Outcome;
use crate::sync::{Mutex, lock};
#[cfg(all(loom, test))]
use crate::verify::loom::timer::Entry;

/// A timer that can be set, waited for and cancelled by any number of threads.
///
/// It has an expiry, set by [`expires_after`](Timer::expires_after) and its like, and any number of waits, which end together
/// when the expiry comes: futures ([`wait`](Timer::wait)), callbacks ([`on_expiry`](Timer::on_expiry)) and threads
/// ([`wait_blocking`](Timer::wait_blocking)). Each ends once: as [fired](Outcome::Fired), as [cancelled](Outcome::Cancelled), or as
/// [stopped](Outcome::Stopped) when the engine is shut down. Whoever cancels learns how many waits that ended, exactly: those
/// are told that they were cancelled, and no other.
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
/// All methods take `&self`: share it by an [`Arc`]. It can be moved while waits are pending, and so can a wait. Dropping it
/// cancels its waits.
///
/// # Before it is set
/// A timer that was never set counts as expired, as does one whose expiry is past: a wait ends at once as fired. (That is what
/// `asio` does.) An expiry that cannot be represented, such as `Duration::MAX` from now, never comes: its waits can be cancelled.
///
/// # Where callbacks run
/// Never inside the call that begins the wait, nor in the one that ends it, nor under a lock. An engine that has a driver of its
/// own calls them on one thread, `tourbillon-calls`, in the order in which waits ended: a callback that takes long delays
/// others, but no timer. An engine that is [turned](Engine::turn) from outside calls them in the turn; and what is left when it
/// is [shut down](Engine::shutdown), in there. Posted after that, they are called on a thread that is started for it. A panic
/// is contained and [counted](crate::Stats::callback_panics). In a callback the engine is [current](Engine::current).
pub struct Timer {
    shared: Arc<Shared>,
}

/// The future of [`Timer::wait`]: how the wait ended.
///
/// It waits since it was made, not since it was polled. Once ready, it stays ready.
///
/// # Cancel safety
/// Dropping it withdraws the wait: it counts for no cancel that comes later.
#[must_use = "the wait is withdrawn when this is dropped"]
pub struct Wait {
    shared: Arc<Shared>,
    id: u64,
    answer: Awaited,
}

/// Cancels one wait, of [`Timer::on_expiry`] or of [`Timer::wait`]. Dropping it does nothing.
#[derive(Clone)]
pub struct WaitHandle {
    shared: Arc<Shared>,
    id: u64,
}

/// What a timer and its waits share. It is also what the engine wakes.
///
/// All that there is to know is in one [`State`] behind one lock, and whoever changes it says how each wait ends: a wait that is
/// taken out of `waits` has its outcome. It goes to the *outbox*, which is emptied in order. So a count that a cancel returns
/// is the count of those who are told so.
///
/// What may run the user's code (to tell a task, to arm the engine's timer, to drop it) happens outside the lock, and one thread at
/// a time does it for all: it *settles* the timer, step by step, until nothing is left to do. Others who come meanwhile
/// leave it to that thread. So nothing here waits for a user's code, and no two threads tell waits in another order than they
/// ended in.
///
/// ```text
///     waits? --- no ----> let go of the engine's timer, if it is armed
///       | yes
///     armed? --- no ----> arm it for the expiry
///       | yes
///     for another expiry, that was set before? --- yes ---> let go of it
///       | no
///     ended? --- yes ---> all waits into the outbox
/// ```
pub(crate) struct Shared {
    core: CoreRef,
    state: Mutex<State>,
}

struct State {
    /// `None`: never set.
    expiry: Option<Time>,
    /// How often the expiry was set.
    settings: u64,
    /// `None` also while it is being armed.
    armed: Option<Armed>,
    /// Whether the engine has woken us since we last looked.
    is_woken: bool,
    /// By age.
    waits: BTreeMap<u64, Waiter>,
    next_id: u64,
    /// Waits that have ended and are to be told.
    outbox: VecDeque<Ended>,
    /// Whether some thread settles it.
    is_settling: bool,
}

/// The engine's timer: armed for an expiry, or waiting for room.
struct Armed {
    entry: Entry,
    /// Of which expiry. Once that is set again, it is worth nothing.
    settings: u64,
}

/// Waits that have ended, by age, and how.
struct Ended {
    waits: BTreeMap<u64, Waiter>,
    outcome: Outcome,
}

/// What is to be done outside the lock.
enum Step {
    Tell(Ended),
    Drop(Armed),
    Arm {
        due: Time,
        settings: u64,
    },
    /// It may be that it waits for room, and that there is some.
    Poll(Armed),
    Rest,
}

impl Timer {
    /// One that is not set, on the current engine.
    #[must_use]
    pub fn new() -> Timer {
        Timer::on_core(current::with_current(|local| local.core().clone()))
    }

    /// One that is not set, on this engine. It does not keep the engine from being shut down when its last handle goes.
    #[must_use]
    pub fn on(engine: &Engine) -> Timer {
        Timer::on_core(engine.core().clone())
    }

    /// One that expires in `duration` from now, on the current engine.
    #[must_use]
    pub fn after(duration: Duration) -> Timer {
        let timer = Timer::new();
        timer.expires_after(duration);
        timer
    }

    /// One that expires at `deadline`, on the current engine.
    #[must_use]
    pub fn at(deadline: Instant) -> Timer {
        let timer = Timer::new();
        timer.expires_at(deadline);
        timer
    }

    pub(crate) fn on_core(core: CoreRef) -> Timer {
        Timer { shared: Arc::new(Shared { core, state: Mutex::new(State::new()) }) }
    }

    /// Sets it to expire in `duration` from now. Cancels all pending waits, and says how many.
    pub fn expires_after(&self, duration: Duration) -> usize {
        self.set(thread_shard::with(self.shared.core.as_ptr(), |local| local.deadline(duration)))
    }

    /// Sets it to expire at `deadline`. Cancels all pending waits, and says how many.
    pub fn expires_at(&self, deadline: Instant) -> usize {
        self.set(self.shared.core.clock.time_of(deadline.into_std()))
    }

    /// Sets it to expire when the wall clock shows `when`. Cancels all pending waits, and says how many.
    ///
    /// On an engine with [`Clock::wall`](crate::Clock::wall) it follows the clock when that is set; on any other it expires
    /// when the time that is left now has passed.
    pub fn expires_at_wall(&self, when: SystemTime) -> usize {
        self.set(self.shared.core.clock.time_of_wall(when))
    }

    /// When it expires or has expired; `None` if it was never set. Cancelling does not change it.
    #[must_use]
    pub fn expiry(&self) -> Option<Instant> {
        let expiry = lock(&self.shared.state).expiry;
        expiry.map(|time| Instant::from_std(self.shared.core.clock.std_of(time)))
    }

    /// Begins a wait, now. The future tells how it ended, and does not borrow the timer.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the wait: it counts for no cancel that comes later.
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
        let answer = Answer::new();
        let id = self.shared.begin(Waiter::Task(answer.clone()));
        Wait { shared: self.shared.clone(), id, answer: Awaited::new(answer) }
    }

    /// Begins a wait that ends with a call of `callback`: once, with how it ended. See [above](Timer#where-callbacks-run) for
    /// where. The handle cancels this one wait; without it, the wait goes on.
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
        let id = self.shared.begin(Waiter::Call(Box::new(callback)));
        WaitHandle { shared: self.shared.clone(), id }
    }

    /// Blocks the thread until the wait ends. On an engine that is turned from outside, another thread has to turn it.
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

    /// Cancels all pending waits, and says how many. Zero: it was too late for all of them, or there was none.
    pub fn cancel(&self) -> usize {
        self.shared.change(State::cancel_all)
    }

    /// Cancels the oldest pending wait. `false`: it was too late, or there was none.
    pub fn cancel_one(&self) -> bool {
        self.shared.change(|state| {
            let oldest = state.waits.first_key_value().map(|(id, _)| *id);
            oldest.is_some_and(|id| state.cancel(id))
        })
    }

    pub(crate) fn set(&self, expiry: Time) -> usize {
        self.shared.change(|state| {
            state.expiry = Some(expiry);
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

impl Wait {
    /// RemoteFreeList a handle that cancels this wait: the future is then ready, with [`Cancelled`](Outcome::Cancelled).
    #[must_use]
    pub fn handle(&self) -> WaitHandle {
        WaitHandle { shared: self.shared.clone(), id: self.id }
    }
}

impl Future for Wait {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.answer.poll(context)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let waiter = self.shared.change(|state| state.waits.remove(&self.id));
        // Here, outside the lock: the waker in it is the user's.
        drop(waiter);
    }
}

impl WaitHandle {
    /// Cancels this wait. `true`: its callback or its future sees [`Cancelled`](Outcome::Cancelled). `false`: it had ended before.
    pub fn cancel(&self) -> bool {
        self.shared.change(|state| state.cancel(self.id))
    }

    /// Whether the wait has not ended yet.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        lock(&self.shared.state).waits.contains_key(&self.id)
    }
}

impl Shared {
    fn begin(self: &Arc<Self>, waiter: Waiter) -> u64 {
        self.change(|state| {
            let id = state.next_id;
            state.next_id += 1;
            state.waits.insert(id, waiter);
            id
        })
    }

    /// Changes the state, and does what comes of it.
    fn change<R>(self: &Arc<Self>, change: impl FnOnce(&mut State) -> R) -> R {
        let result = change(&mut lock(&self.state));
        self.settle();
        result
    }

    /// Does what there is to do, unless another thread is at it: that one sees to all of it.
    fn settle(self: &Arc<Self>) {
        let mut first = true;
        loop {
            let step = {
                let mut state = lock(&self.state);
                if first && state.is_settling {
                    return;
                }
                let step = state.next_step();
                state.is_settling = !matches!(step, Step::Rest);
                step
            };
            first = false;
            match step {
                Step::Tell(Ended { waits, outcome }) => {
                    waiter::tell(&self.core, waits.into_values().map(|waiter| (waiter, outcome)));
                }
                Step::Drop(armed) => drop(armed),
                Step::Arm { due, settings } => self.poll(Armed { entry: Entry::on(&self.core, due), settings }),
                Step::Poll(armed) => self.poll(armed),
                Step::Rest => return,
            }
        }
    }

    /// Arms it, if it is not. Whether it has ended is seen later, under the lock.
    fn poll(self: &Arc<Self>, mut armed: Armed) {
        let waker = Waker::from(self.clone());
        let _later = armed.entry.poll(&mut Context::from_waker(&waker));
        lock(&self.state).armed = Some(armed);
    }
}

/// The engine's timer has ended, or there may be room for it.
impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.change(|state| state.is_woken = true);
    }
}

impl State {
    fn new() -> State {
        State {
            expiry: None,
            settings: 0,
            armed: None,
            is_woken: false,
            waits: BTreeMap::new(),
            next_id: 0,
            outbox: VecDeque::new(),
            is_settling: false,
        }
    }

    fn cancel_all(&mut self) -> usize {
        let count = self.waits.len();
        self.end_all(Outcome::Cancelled);
        count
    }

    fn cancel(&mut self, id: u64) -> bool {
        let Some(waiter) = self.waits.remove(&id) else { return false };
        self.outbox.push_back(Ended { waits: BTreeMap::from([(id, waiter)]), outcome: Outcome::Cancelled });
        true
    }

    fn end_all(&mut self, outcome: Outcome) {
        if !self.waits.is_empty() {
            self.outbox.push_back(Ended { waits: std::mem::take(&mut self.waits), outcome });
        }
    }

    /// What to do next outside the lock.
    fn next_step(&mut self) -> Step {
        if let Some(step) = self.look_at_armed() {
            return step;
        }
        if let Some(ended) = self.outbox.pop_front() {
            return Step::Tell(ended);
        }
        if self.armed.is_none() && !self.waits.is_empty() {
            return Step::Arm { due: self.expiry.unwrap_or(Time::ZERO), settings: self.settings };
        }
        Step::Rest
    }

    fn look_at_armed(&mut self) -> Option<Step> {
        let is_woken = std::mem::take(&mut self.is_woken);
        let armed = self.armed.take()?;
        if armed.settings != self.settings || self.waits.is_empty() {
            return Some(Step::Drop(armed));
        }
        if let Some(outcome) = armed.entry.outcome() {
            self.end_all(outcome);
            return Some(Step::Drop(armed));
        }
        if is_woken {
            return Some(Step::Poll(armed));
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

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wait").finish_non_exhaustive()
    }
}

impl fmt::Debug for WaitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitHandle").field("is_pending", &self.is_pending()).finish()
    }
}
