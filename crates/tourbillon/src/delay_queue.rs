//! A queue that gives each item back when its time has come.
//!
//! See [`DelayQueue`].

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tourbillon_queue::{Time, TimerQueue, Wheel};

use crate::Outcome;
use crate::coop;
use crate::entry::Entry;
use crate::instant::Instant;
use crate::instant::far_future;

/// A queue of items, each of which comes out when its deadline has passed.
///
/// [`insert`](DelayQueue::insert) puts an item in and returns a [`Key`], with which it can be
/// [removed](DelayQueue::remove) or given [another deadline](DelayQueue::reset). [`next`](DelayQueue::next),
/// [`poll_expired`](DelayQueue::poll_expired) or, with the feature `futures`, the `Stream` gives back what has expired: in
/// the order of the deadlines, equal ones in the order in which they were set, never early, exact to the nanosecond.
/// However many items there are, they take one timer of the engine.
///
/// ```
/// use std::collections::HashMap;
/// use std::time::Duration;
/// use tourbillon::delay_queue::{DelayQueue, Key};
///
/// /// Forgets what has not been asked for in a while.
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
/// An empty queue answers `None`. That is not the end: as soon as something is inserted, it answers again.
///
/// # Any deadline
///
/// An item whose deadline has passed comes out at the next poll, in its order. An instant before the beginning of the
/// engine's clock counts as that beginning. With [`Duration::MAX`], or whatever else is more than some centuries away, an item
/// never comes out and can only be removed.
///
/// # After a shutdown
///
/// When the engine has been shut down, nothing can be waited for. The queue then gives back what is due at the time of the
/// poll, and after that `None` instead of a wait without end; [`is_stopped`](DelayQueue::is_stopped) tells this `None`
/// from that of an empty queue. The other items stay where they are, to be removed.
///
/// # Cancel safety
///
/// Nothing is lost when a [`next`](DelayQueue::next) is dropped before it is ready.
pub struct DelayQueue<T> {
    wheel: Wheel<T>,
    /// The one timer. When the queue is being waited for, it is armed for `wakes_at`.
    delay: Entry,
    /// Deadlines are counted from here.
    origin: Instant,
    /// Who waits for an item, or has been told that there is none.
    waker: Option<Waker>,
    /// When the timer will wake them up.
    wakes_at: Time,
    is_stopped: bool,
    /// What was asked for and not yet given back: see [`DelayQueue::capacity`].
    capacity: usize,
}

/// Names one item of one [`DelayQueue`], for as long as it is in there.
///
/// When the item has expired or has been removed, its key is stale, and stays so for ever: it never comes to mean another
/// item, however many are inserted afterwards. A key means nothing to any queue but the one that gave it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key(tourbillon_queue::Key);

/// An item that has left a [`DelayQueue`].
#[derive(Debug)]
pub struct Expired<T> {
    value: T,
    deadline: Instant,
    key: Key,
}

impl<T> DelayQueue<T> {
    /// An empty queue, on the current engine.
    #[must_use]
    pub fn new() -> DelayQueue<T> {
        DelayQueue::with_capacity(0)
    }

    /// An empty queue that expects to hold `capacity` items: see [`capacity`](DelayQueue::capacity).
    #[must_use]
    pub fn with_capacity(capacity: usize) -> DelayQueue<T> {
        let delay = Entry::until(far_future());
        // Not from now: a clock that is set back would show times that all seem to be the first, and so to have come (P1).
        let origin = Instant::from_std(delay.core().clock.std_of(Time::ZERO));
        let mut wheel = Wheel::new();
        // It is told the time, so that what comes has slots as narrow as can be.
        let _done = wheel.settle(delay.core().clock.now(), 1);
        DelayQueue { wheel, delay, origin, waker: None, wakes_at: Time::NEVER, is_stopped: false, capacity }
    }

    /// Puts in an item that expires `timeout` from now.
    ///
    /// Should it be the first to expire, a task that waits for the queue is woken.
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

    /// Puts in an item that expires at `when`.
    ///
    /// Should it be the first to expire, a task that waits for the queue is woken.
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
    /// Cancel safe: an item is taken out only when it is returned.
    ///
    /// # Panics
    ///
    /// Never.
    pub async fn next(&mut self) -> Option<Expired<T>> {
        poll_fn(|cx| self.poll_expired(cx)).await
    }

    /// Polls for the next item that has expired.
    ///
    /// - `Ready(Some(..))`: an item whose deadline has passed. It has left the queue.
    /// - `Ready(None)`: the queue is empty, or [stopped](DelayQueue#after-a-shutdown). The task is woken when an item is
    ///   inserted.
    /// - `Pending`: nothing has expired. The task is woken when something has, or when an item is inserted or reset that
    ///   will do so earlier, or when the last item is removed.
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
                self.waits(cx, Time::NEVER);
                unit.spend(result);
                return Poll::Ready(None);
            }
            // What never expires is waited for as well: the end of the engine would end the wait.
            let wakes_at = self.wheel.next_wakeup().unwrap_or(Time::NEVER);
            let deadline = self.instant(wakes_at);
            if self.delay.deadline() != deadline {
                self.delay.reset(deadline);
            }
            match self.delay.poll(cx) {
                Poll::Pending => {
                    self.is_stopped = false;
                    self.waits(cx, wakes_at);
                    return Poll::Pending;
                }
                Poll::Ready(Outcome::Stopped) => {
                    self.is_stopped = true;
                    self.waits(cx, wakes_at);
                    unit.spend(result);
                    return Poll::Ready(None);
                }
                // The time came between the two looks at the clock.
                Poll::Ready(_) if self.delay.is_past() => now = now.max(wakes_at),
                // It had come, and then the clock was set back. What was inserted since then must wait for it.
                Poll::Ready(_) => self.delay.disarm(),
            }
        }
    }

    /// When an item expires. One that never does has a deadline in the far future.
    ///
    /// # Panics
    ///
    /// If the key is stale: see [`try_deadline`](DelayQueue::try_deadline).
    #[track_caller]
    #[must_use]
    pub fn deadline(&self, key: &Key) -> Instant {
        known(self.try_deadline(key))
    }

    /// When an item expires; `None` if the key is stale.
    #[must_use]
    pub fn try_deadline(&self, key: &Key) -> Option<Instant> {
        self.wheel.deadline(key.0).map(|deadline| self.instant(deadline))
    }

    /// Takes an item out before it comes out by itself.
    ///
    /// Should it be the last one, a task that waits for the queue is woken.
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

    /// Takes an item out before it comes out by itself; `None` if the key is stale.
    ///
    /// Should it be the last one, a task that waits for the queue is woken.
    pub fn try_remove(&mut self, key: &Key) -> Option<Expired<T>> {
        let deadline = self.try_deadline(key)?;
        let value = self.wheel.remove(key.0)?;
        if self.wheel.is_empty() {
            self.emptied();
        } else {
            self.put_delay_off();
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
    /// sessions.reset(&key, Duration::from_secs(600)); // somebody is there
    /// assert!(sessions.deadline(&key) > before);
    /// ```
    ///
    /// Among items of the same deadline it counts as inserted just now. Should it have become the first to expire, a task
    /// that waits for the queue is woken.
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
    /// Among items of the same deadline it counts as inserted just now. Should it have become the first to expire, a task
    /// that waits for the queue is woken.
    ///
    /// # Panics
    ///
    /// If the key is stale: see [`try_reset_at`](DelayQueue::try_reset_at).
    #[track_caller]
    pub fn reset_at(&mut self, key: &Key, when: Instant) {
        known(self.try_reset_at(key, when));
    }

    /// The same as [`reset`](DelayQueue::reset), without the panic. RemoteFreeList the deadline that the item had; `None`, and no
    /// effect, if the key is stale.
    pub fn try_reset(&mut self, key: &Key, timeout: Duration) -> Option<Instant> {
        self.try_reset_at(key, self.delay.now() + timeout)
    }

    /// The same as [`reset_at`](DelayQueue::reset_at), without the panic. RemoteFreeList the deadline that the item had; `None`,
    /// and no effect, if the key is stale.
    pub fn try_reset_at(&mut self, key: &Key, when: Instant) -> Option<Instant> {
        let deadline = self.time(when);
        let old = self.wheel.reschedule(key.0, deadline)?;
        self.wake_if_before(deadline);
        self.put_delay_off();
        Some(self.instant(old))
    }

    /// The key of the item that comes out next, whether it has expired or not; `None` if there is none that ever will.
    #[must_use]
    pub fn peek(&self) -> Option<Key> {
        self.wheel.first().map(Key)
    }

    /// Drops all items. Their keys are stale.
    ///
    /// A task that waits for the queue is woken.
    pub fn clear(&mut self) {
        if !self.wheel.is_empty() {
            // Before the items go, whose destructors may panic. Who is woken cannot look before they have gone.
            self.emptied();
        }
        self.wheel.clear();
    }

    /// How many items are in the queue, expired or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether there is no item in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// How many items the queue holds or expects to hold.
    ///
    /// It expects as many as [`with_capacity`](DelayQueue::with_capacity) and [`reserve`](DelayQueue::reserve) said. Memory
    /// is taken as items come, some dozens at a time, and used again for later ones.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity.max(self.len())
    }

    /// Says that `additional` more items are expected: see [`capacity`](DelayQueue::capacity).
    pub fn reserve(&mut self, additional: usize) {
        self.capacity = self.capacity.max(self.len().saturating_add(additional));
    }

    /// Expects no more items than there are. An empty queue gives its memory back.
    ///
    /// Keys stay what they are.
    pub fn shrink_to_fit(&mut self) {
        self.capacity = 0;
        if self.wheel.is_empty() {
            self.wheel.clear();
        }
    }

    /// The same as [`shrink_to_fit`](DelayQueue::shrink_to_fit).
    pub fn compact(&mut self) {
        self.shrink_to_fit();
    }

    /// Whether the last poll could not wait because the engine was shut down: see [above](DelayQueue#after-a-shutdown).
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Remembers who waits, and for how long.
    fn waits(&mut self, cx: &Context<'_>, wakes_at: Time) {
        self.wakes_at = wakes_at;
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => self.waker = Some(cx.waker().clone()),
        }
    }

    /// Wakes who waits for something later than `deadline`. Polling the queue then sets the timer.
    fn wake_if_before(&mut self, deadline: Time) {
        if deadline < self.wakes_at {
            self.wake();
        }
    }

    /// Where time may move by itself, it does not move to the deadline of an item that was removed or put off.
    fn put_delay_off(&mut self) {
        if !self.delay.core().is_virtual || !self.delay.is_pending() {
            return;
        }
        let next = self.wheel.next_wakeup().unwrap_or(Time::NEVER);
        if next > self.wakes_at {
            self.wakes_at = next;
            self.delay.reset(self.instant(next));
        }
    }

    /// Wakes who waits: there is nothing more to wait for.
    fn emptied(&mut self) {
        self.wake();
        // With it goes a waker, whose destructor is the user's and may panic: it comes last.
        self.delay.disarm();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            self.delay.core().wake_one(waker);
        }
    }

    fn time(&self, instant: Instant) -> Time {
        let nanos = (instant - self.origin).as_nanos();
        u64::try_from(nanos).map_or(Time::NEVER, Time::from_nanos)
    }

    fn instant(&self, time: Time) -> Instant {
        if time.is_never() { far_future() } else { self.origin + Duration::from_nanos(time.as_nanos()) }
    }
}

#[track_caller]
fn known<V>(found: Option<V>) -> V {
    match found {
        Some(found) => found,
        None => panic!("unknown key: its item has expired or has been removed"),
    }
}

impl<T> Expired<T> {
    /// The item.
    pub fn get_ref(&self) -> &T {
        &self.value
    }

    /// The item, to change it.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.value
    }

    /// The item alone.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// The deadline that it had.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// The key that it had; stale by now.
    pub fn key(&self) -> Key {
        self.key
    }
}

// Nothing in it is ever pinned.
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

/// What has expired: see [`DelayQueue::poll_expired`].
#[cfg(feature = "futures")]
impl<T> futures_core::Stream for DelayQueue<T> {
    type Item = Expired<T>;

    fn poll_next(self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Expired<T>>> {
        self.get_mut().poll_expired(cx)
    }
}
