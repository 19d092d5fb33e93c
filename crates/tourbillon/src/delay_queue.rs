//! A queue that returns each item when its deadline has passed.
//!
//! See [`DelayQueue`].

mod expired;

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tourbillon_queue::{Span, Time, TimerQueue, Wheel};

pub use self::expired::{Expired, Key};
use crate::coop;
use crate::core::thread_shard;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::instant::{Instant, far_future};
use crate::outcome::Outcome;
use crate::slack::Slack;

/// A queue of items, each of which expires at its own deadline.
///
/// [`insert`](DelayQueue::insert) adds an item and returns a [`Key`], with which the item can be
/// [removed](DelayQueue::remove) or given [another deadline](DelayQueue::reset). [`next`](DelayQueue::next),
/// [`poll_expired`](DelayQueue::poll_expired) or, with the feature `futures`, the `Stream` returns expired items: in
/// the order of their deadlines, those with equal deadlines in the order in which they were set, never early, exact to the nanosecond.
/// All items together use one timer of the engine.
///
/// ```
/// use std::collections::HashMap;
/// use std::time::Duration;
/// use tourbillon::delay_queue::{DelayQueue, Key};
///
/// /// Removes entries that have not been used for a while.
/// struct Cache {
///     entries: HashMap<String, (u32, Key)>,
///     expirations: DelayQueue<String>,
/// }
///
/// impl Cache {
///     const KEPT: Duration = Duration::from_millis(2);
///
///     fn insert(&mut self, name: &str, value: u32) {
///         let key = self.expirations.insert(name.to_owned(), Self::KEPT);
///         if let Some((_, old)) = self.entries.insert(name.to_owned(), (value, key)) {
///             self.expirations.remove(&old);
///         }
///     }
///
///     fn get(&mut self, name: &str) -> Option<u32> {
///         let (value, key) = self.entries.get(name)?;
///         self.expirations.reset(key, Self::KEPT);
///         Some(*value)
///     }
///
///     async fn purge(&mut self) {
///         while let Some(expired) = self.expirations.next().await {
///             self.entries.remove(expired.get_ref());
///         }
///     }
/// }
///
/// # futures_lite::future::block_on(async {
/// let mut cache = Cache { entries: HashMap::new(), expirations: DelayQueue::new() };
/// cache.insert("answer", 42);
/// assert_eq!(cache.get("answer"), Some(42));
/// cache.purge().await;
/// assert_eq!(cache.get("answer"), None);
/// # });
/// ```
///
/// # When it is empty
///
/// An empty queue returns `None`. That is not the end: once an item is inserted, the queue returns items again.
///
/// # Any deadline
///
/// The next poll returns items whose deadlines have passed, in order. An instant before the beginning of the engine's clock counts
/// as that beginning. An item with a deadline more than some centuries away, such as [`Duration::MAX`], never expires and can only be
/// removed.
///
/// # After a shutdown
///
/// After a shutdown of the engine nothing can be waited for. A poll then returns items that are due at the time of the poll, and after
/// those `None` instead of waiting for ever; [`is_stopped`](DelayQueue::is_stopped) tells this `None` from that of an empty queue.
/// The other items stay in the queue and can be removed.
///
/// # Cancel safety
///
/// No item is lost if a [`next`](DelayQueue::next) is dropped before it is ready.
pub struct DelayQueue<T> {
    wheel: Wheel<T>,
    /// The timer of the queue. While a task waits for the queue, it is armed for `wakes_at`.
    delay: Entry,
    /// An instant, and what the engine's clock shows then: by it deadlines become times of the wheel. (Not the instant at which the clock
    /// shows zero: on Windows no instant is before the machine's boot.)
    anchor: (Instant, Time),
    /// The waker of the task that waits for an item, or was told that there is none.
    waker: Option<Waker>,
    /// When the timer will wake that task.
    wakes_at: Time,
    is_stopped: bool,
    /// How many items the user expects: see [`DelayQueue::capacity`].
    capacity: usize,
}

impl<T> DelayQueue<T> {
    /// Creates an empty queue, on the current engine.
    #[must_use]
    pub fn new() -> DelayQueue<T> {
        DelayQueue::with_capacity(0)
    }

    /// Creates an empty queue that expects `capacity` items: see [`capacity`](DelayQueue::capacity).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> DelayQueue<T> {
        DelayQueue::with_delay(Entry::until(far_future()), capacity)
    }

    /// Creates an empty queue on this engine. It does not keep the engine running after its last handle is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{Clock, DelayQueue, Engine};
    ///
    /// let engine = Engine::builder().clock(Clock::manual()).build()?;
    /// let mut sessions = DelayQueue::on(&engine);
    /// sessions.insert("session 7", Duration::from_secs(60));
    /// engine.advance(Duration::from_secs(60));
    /// let expired = futures_lite::future::block_on(sessions.next());
    /// assert_eq!(expired.map(|expired| expired.into_inner()), Some("session 7"));
    /// # Ok::<(), tourbillon::BuildError>(())
    /// ```
    #[must_use]
    pub fn on(engine: &Engine) -> DelayQueue<T> {
        let never = far_future().into_std();
        let delay =
            thread_shard::with(engine.core().as_ptr(), |local| Entry::idle(local, local.core().clock.time_of(never)));
        DelayQueue::with_delay(delay, 0)
    }

    /// Sets how late the task that waits may be woken, instead of the slack of the engine. The queue has one timer, so all items share it.
    #[must_use]
    pub fn slack(mut self, slack: Slack) -> DelayQueue<T> {
        self.delay.set_slack(slack.bits());
        // The timer of a task that waits may have ended meanwhile: then the next poll arms it.
        self.wake();
        self
    }

    fn with_delay(delay: Entry, capacity: usize) -> DelayQueue<T> {
        let clock = &delay.core().clock;
        let now = clock.now();
        let anchor = (Instant::from_std(clock.std_of(now)), now);
        let mut wheel = Wheel::new();
        // The wheel is told the time, so that new items go to slots as narrow as possible.
        let _done = wheel.settle(now, 1);
        DelayQueue { wheel, delay, anchor, waker: None, wakes_at: Time::NEVER, is_stopped: false, capacity }
    }

    /// Inserts an item that expires `timeout` from now.
    ///
    /// If it is the first to expire, the task that waits for the queue is woken.
    ///
    /// # Panics
    ///
    /// If the queue holds a billion (2<sup>30</sup> - 1) items already.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::DelayQueue;
    ///
    /// # futures_lite::future::block_on(async {
    /// let mut queue = DelayQueue::new();
    /// let key = queue.insert("tea", Duration::from_millis(2));
    /// let tea = queue.next().await.unwrap();
    /// assert_eq!((*tea.get_ref(), tea.key()), ("tea", key));
    /// # });
    /// ```
    #[track_caller]
    pub fn insert(&mut self, value: T, timeout: Duration) -> Key {
        self.insert_at(value, self.delay.now() + timeout)
    }

    /// Inserts an item that expires at `when`.
    ///
    /// If it is the first to expire, the task that waits for the queue is woken.
    ///
    /// # Panics
    ///
    /// If the queue holds a billion (2<sup>30</sup> - 1) items already.
    #[track_caller]
    pub fn insert_at(&mut self, value: T, when: Instant) -> Key {
        let deadline = self.time(when);
        let key = Key(self.wheel.insert(deadline, value));
        self.wake_if_before(deadline);
        key
    }

    /// Waits for the next item to expire; `None` if the queue is empty, or [stopped](DelayQueue#after-a-shutdown).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: an item leaves the queue only when it is returned.
    ///
    /// # Panics
    ///
    /// Never.
    pub async fn next(&mut self) -> Option<Expired<T>> {
        poll_fn(|cx| self.poll_expired(cx)).await
    }

    /// Polls for the next expired item.
    ///
    /// - `Ready(Some(..))`: an item whose deadline has passed. It has left the queue.
    /// - `Ready(None)`: the queue is empty, or [stopped](DelayQueue#after-a-shutdown). The task is woken when an item is
    ///   inserted.
    /// - `Pending`: no item has expired. The task is woken when an item has expired, or when an item is inserted or reset that
    ///   expires earlier, or when the last item is removed.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        let unit = ready!(coop::poll_unit(cx));
        let result = self.delay.kind_of_result();
        let mut now = self.time(self.delay.now());
        loop {
            if let Some(tourbillon_queue::Expired { key, deadline, value }) = self.wheel.pop(now) {
                unit.spend(result);
                return Poll::Ready(Some(Expired { value, deadline: self.instant(deadline), key: Key(key) }));
            }
            if self.wheel.is_empty() {
                self.delay.disarm();
                self.is_stopped = false;
                self.register(cx, Time::NEVER);
                unit.spend(result);
                return Poll::Ready(None);
            }
            // Also if no item ever expires the timer is armed, because a shutdown of the engine ends the wait.
            let wakes_at = self.wheel.next_wakeup().unwrap_or(Time::NEVER);
            let deadline = self.instant(wakes_at);
            if self.delay.deadline() != deadline {
                self.delay.reset(deadline);
            }
            match self.delay.poll(cx) {
                Poll::Pending => {
                    self.is_stopped = false;
                    self.register(cx, wakes_at);
                    return Poll::Pending;
                }
                Poll::Ready(Outcome::Stopped) => {
                    self.is_stopped = true;
                    self.register(cx, wakes_at);
                    unit.spend(result);
                    return Poll::Ready(None);
                }
                // The deadline passed between the two readings of the clock.
                Poll::Ready(_) if self.delay.is_past() => now = now.max(wakes_at),
                // The deadline had passed, and then the clock was set back. Items that were inserted since then must wait.
                Poll::Ready(_) => self.delay.disarm(),
            }
        }
    }

    /// Returns when an item expires. An item that never expires has a deadline in the far future.
    ///
    /// # Panics
    ///
    /// If the key is stale: see [`try_deadline`](DelayQueue::try_deadline).
    #[track_caller]
    #[must_use]
    pub fn deadline(&self, key: &Key) -> Instant {
        known(self.try_deadline(key))
    }

    /// Returns when an item expires; `None` if the key is stale.
    #[must_use]
    pub fn try_deadline(&self, key: &Key) -> Option<Instant> {
        self.wheel.deadline(key.0).map(|deadline| self.instant(deadline))
    }

    /// Removes an item before it expires.
    ///
    /// If it was the last item, the task that waits for the queue is woken.
    ///
    /// # Panics
    ///
    /// If the key is stale: see [`try_remove`](DelayQueue::try_remove).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::DelayQueue;
    ///
    /// let mut queue = DelayQueue::new();
    /// let key = queue.insert("tea", Duration::from_secs(180));
    /// assert_eq!(queue.remove(&key).into_inner(), "tea");
    /// assert!(queue.try_remove(&key).is_none());
    /// ```
    #[track_caller]
    pub fn remove(&mut self, key: &Key) -> Expired<T> {
        known(self.try_remove(key))
    }

    /// Removes an item before it expires; `None` if the key is stale.
    ///
    /// If it was the last item, the task that waits for the queue is woken.
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        let deadline = self.try_deadline(key)?;
        let value = self.wheel.remove(key.0)?;
        if self.wheel.is_empty() {
            self.on_emptied();
        } else {
            self.postpone_wakeup();
        }
        Some(Expired { value, deadline, key: *key })
    }

    /// Gives an item another deadline, `timeout` from now.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::DelayQueue;
    ///
    /// let mut sessions = DelayQueue::new();
    /// let key = sessions.insert("session 7", Duration::from_secs(60));
    /// let before = sessions.deadline(&key);
    /// sessions.reset(&key, Duration::from_secs(600)); // the user is still there
    /// assert!(sessions.deadline(&key) > before);
    /// ```
    ///
    /// Among items with the same deadline it counts as inserted now. If it has become the first to expire, the task that waits for the
    /// queue is woken.
    ///
    /// # Panics
    ///
    /// If the key is stale: see [`try_reset`](DelayQueue::try_reset).
    #[track_caller]
    pub fn reset(&mut self, key: &Key, timeout: Duration) {
        known(self.try_reset(key, timeout));
    }

    /// Gives an item another deadline.
    ///
    /// Among items with the same deadline it counts as inserted now. If it has become the first to expire, the task that waits for the
    /// queue is woken.
    ///
    /// # Panics
    ///
    /// If the key is stale: see [`try_reset_at`](DelayQueue::try_reset_at).
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, when: Instant) {
        known(self.try_reset_at(key, when));
    }

    /// Gives an item another deadline, `timeout` from now, and returns its old one. Does nothing and returns `None` if the key is
    /// stale. See [`reset`](DelayQueue::reset).
    pub fn try_reset(&mut self, key: &Key, timeout: Duration) -> Option<Instant> {
        self.try_reset_at(key, self.delay.now() + timeout)
    }

    /// Gives an item another deadline and returns its old one. Does nothing and returns `None` if the key is stale. See
    /// [`reset_at`](DelayQueue::reset_at).
    pub fn try_reset_at(&mut self, key: &Key, when: Instant) -> Option<Instant> {
        let deadline = self.time(when);
        let old = self.wheel.reschedule(key.0, deadline)?;
        self.wake_if_before(deadline);
        self.postpone_wakeup();
        Some(self.instant(old))
    }

    /// Returns the key of the item that expires next or has expired; `None` if no item ever expires.
    #[must_use]
    pub fn peek(&self) -> Option<Key> {
        self.wheel.first().map(Key)
    }

    /// Drops all items. Their keys become stale.
    ///
    /// The task that waits for the queue is woken.
    pub fn clear(&mut self) {
        if !self.wheel.is_empty() {
            // Before the items are dropped, because their destructors may panic. The task cannot poll before this call returns.
            self.on_emptied();
        }
        self.wheel.clear();
    }

    /// Returns how many items are in the queue, expired or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Returns whether there is no item in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Returns how many items the queue holds or expects.
    ///
    /// It expects as many as [`with_capacity`](DelayQueue::with_capacity) and [`reserve`](DelayQueue::reserve) said. Memory
    /// is allocated as items come, some dozens at a time, and reused for later ones.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    /// Raises the number of expected items to `additional` more than there are: see [`capacity`](DelayQueue::capacity).
    pub fn reserve(&mut self, additional: usize) {
        self.capacity = self.capacity.max(self.len().saturating_add(additional));
    }

    /// Sets the number of expected items to those that there are. An empty queue frees its memory.
    ///
    /// Keys stay valid.
    pub fn shrink_to_fit(&mut self) {
        self.capacity = 0;
        if self.wheel.is_empty() {
            self.wheel.clear();
        }
    }

    /// Does the same as [`shrink_to_fit`](DelayQueue::shrink_to_fit).
    pub fn compact(&mut self) {
        self.shrink_to_fit();
    }

    /// Returns whether the last poll could not wait because the engine was shut down: see [above](DelayQueue#after-a-shutdown).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Stores the waker of the task that waits, and when the timer will wake it.
    fn register(&mut self, cx: &Context<'_>, wakes_at: Time) {
        self.wakes_at = wakes_at;
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Wakes the task if it waits for a time later than `deadline`. Its next poll sets the timer.
    fn wake_if_before(&mut self, deadline: Time) {
        if deadline < self.wakes_at {
            self.wake();
        }
    }

    /// Postpones the timer after an item was removed or postponed, so that virtual time does not move to the old deadline.
    fn postpone_wakeup(&mut self) {
        if !self.delay.core().is_virtual || !self.delay.is_pending() {
            return;
        }
        let next = self.wheel.next_wakeup().unwrap_or(Time::NEVER);
        if next > self.wakes_at {
            self.wakes_at = next;
            self.delay.reset(self.instant(next));
        }
    }

    /// Wakes the task that waits, as the queue is empty now.
    fn on_emptied(&mut self) {
        self.wake();
        // This comes last: it drops a waker, whose destructor is the user's and may panic.
        self.delay.disarm();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.delay.core().wake_one(waker);
        }
    }

    /// Returns the time of the wheel at an instant. Also an instant before the anchor has a time of its own: if the clock is set back, such
    /// times are still to come (P1).
    fn time(&self, instant: Instant) -> Time {
        let (at, time) = self.anchor;
        if instant >= at { time + Span::from(instant - at) } else { time - Span::from(at - instant) }
    }

    fn instant(&self, time: Time) -> Instant {
        let (at, shown) = self.anchor;
        match time {
            Time::NEVER => far_future(),
            later if later >= shown => at + Duration::from(later - shown),
            earlier => at - Duration::from(shown - earlier),
        }
    }
}

/// Returns the value that was found under a key, or panics.
#[track_caller]
fn known<V>(found: Option<V>) -> V {
    match found {
        Some(found) => found,
        None => panic!("unknown key: its item has expired or has been removed"),
    }
}

// No field is ever pinned.
impl<T> Unpin for DelayQueue<T> {}

impl<T> Default for DelayQueue<T> {
    fn default() -> DelayQueue<T> {
        DelayQueue::new()
    }
}

impl<T> fmt::Debug for DelayQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayQueue").field("len", &self.len()).finish_non_exhaustive()
    }
}

/// Yields expired items: see [`DelayQueue::poll_expired`].
#[cfg(feature = "futures")]
impl<T> futures_core::Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.get_mut().poll_expired(cx)
    }
}
