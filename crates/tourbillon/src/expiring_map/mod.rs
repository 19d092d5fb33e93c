//! A map whose entries expire, each at its own deadline, that threads share without a lock of their own.
//!
//! See [`ExpiringMap`].

mod builder;
mod expirations;
mod state;

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tourbillon_queue::Time;

pub use self::builder::Builder;
pub use self::expirations::Expirations;
use self::state::{InsertResult, MapState, NewEntry, RemovedEntry, WhenPresent};
use crate::clock::representable;
use crate::core::error::ArmError;
use crate::core::{Core, CoreRef, thread_shard};
use crate::engine::Engine;
use crate::instant::Instant;
use crate::multi::due_items::{self, DueItems, Firing};
use crate::multi::waiter::{self, TimerWaiter};
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;
use crate::slack::Slack;
use crate::sync::{Mutex, lock};

/// A map whose entries expire: sessions, caches, leases, idempotency keys, idle connections.
///
/// Each entry has a deadline of its own, [inserted](ExpiringMap::insert) with it and put off by [`renew`](ExpiringMap::renew). From its deadline
/// on no call finds the entry, to the nanosecond, even if the driver has not come round to it. Soon after, the entry leaves the map: it is
/// dropped, handed to a [callback](Builder::on_expiry), or returned by a [stream](Builder::build_with_expirations). Each entry leaves the map in
/// one way: replaced, removed or expired.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::ExpiringMap;
///
/// let sessions = ExpiringMap::new();
/// let idle = Duration::from_secs(1800);
/// sessions.insert("a7f3".to_owned(), "Ada", idle)?;
///
/// // On any thread, through a clone:
/// assert_eq!(sessions.get_and_renew("a7f3", idle), Some("Ada")); // a request: half an hour more
/// assert_eq!(sessions.remove("a7f3"), Some("Ada")); // a logout
/// assert_eq!(sessions.get("a7f3"), None);
/// # Ok::<(), tourbillon::ArmError>(())
/// ```
///
/// # Handles
/// Cloning is cheap, and all clones refer to the same map. Each call is one step that other threads see whole. When the last clone is
/// dropped, the entries are dropped, and do not expire. All entries together use one timer of the engine.
///
/// # Keys and values
/// The map hashes and compares keys under its lock, and [`get`](ExpiringMap::get) clones the value there: none of these may use the map. Put
/// a value that is large, or slow to clone, into an [`Arc`]. A key is kept twice, so a long one is better an `Arc<str>` than a `String`. Keys
/// and values are dropped outside the lock.
///
/// # Any deadline
/// An entry with a time to live of zero has expired at once. One of [`Duration::MAX`] never expires.
///
/// # After a shutdown
/// After a shutdown of the engine nothing expires by itself, and inserting is [`ArmError::Stopped`]. Entries can still be read until their
/// deadlines, and removed.
pub struct ExpiringMap<K, V> {
    owner: Arc<MapOwner<K, V>>,
}

/// The part that all clones share. Dropping it drops the entries.
struct MapOwner<K, V> {
    shared: Arc<MapShared<K, V>>,
}

/// The part that the handles, the expirations and the wake-up timer share.
struct MapShared<K, V> {
    core: CoreRef,
    /// Expires entries at the earliest deadline.
    wakeup: WakeupTimer,
    on_expiry: Option<ExpiryCallback<K, V>>,
    state: Mutex<MapState<K, V>>,
}

type ExpiryCallback<K, V> = Arc<dyn Fn(K, V) + Send + Sync>;

/// The settings of a map.
struct MapOptions<K, V> {
    capacity: usize,
    slack: Option<Slack>,
    on_expiry: Option<ExpiryCallback<K, V>>,
    /// Whether expired entries wait for an [`Expirations`].
    keeps_expired: bool,
}

impl<K, V> ExpiringMap<K, V>
where
    K: Hash + Eq + Clone + Send + 'static,
    V: Send + 'static,
{
    /// Creates an empty map on the current engine. Entries that expire are dropped.
    #[must_use]
    pub fn new() -> ExpiringMap<K, V> {
        ExpiringMap::builder().build()
    }

    /// Creates an empty map on this engine. It does not keep the engine running after its last handle is dropped.
    #[must_use]
    pub fn on(engine: &Engine) -> ExpiringMap<K, V> {
        ExpiringMap::builder().engine(engine).build()
    }

    /// Returns a builder with the default settings.
    pub fn builder() -> Builder<K, V> {
        Builder::new()
    }

    pub(crate) fn on_core(core: CoreRef, options: Builder<K, V>) -> ExpiringMap<K, V> {
        ExpiringMap { owner: Arc::new(MapOwner { shared: MapShared::new(core, options.options) }) }
    }

    pub(crate) fn with_expirations(
        core: CoreRef,
        mut options: Builder<K, V>,
    ) -> (ExpiringMap<K, V>, Expirations<K, V>) {
        options.options.keeps_expired = true;
        let map = ExpiringMap::on_core(core, options);
        let expirations = Expirations::new(Arc::clone(&map.owner.shared));
        (map, expirations)
    }

    /// Inserts an entry that expires `time_to_live` from now. Returns the value that the key had, if it had one.
    ///
    /// # Errors
    /// [`ArmError::Full`] if the key is new and the map has as many entries as its [capacity](Builder::capacity), [`ArmError::Stopped`] after a
    /// shutdown of the engine. Then the map is as before, and key and value are dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{ArmError, ExpiringMap};
    ///
    /// let cache = ExpiringMap::builder().capacity(1).build();
    /// let minute = Duration::from_secs(60);
    /// assert_eq!(cache.insert(7, "old", minute)?, None);
    /// assert_eq!(cache.insert(7, "new", minute)?, Some("old"));
    /// assert_eq!(cache.insert(8, "one more", minute), Err(ArmError::Full { capacity: 1 }));
    /// # Ok::<(), ArmError>(())
    /// ```
    pub fn insert(&self, key: K, value: V, time_to_live: Duration) -> Result<Option<V>, ArmError> {
        self.insert_due(key, value, self.owner.shared.due_after(time_to_live))
    }

    /// [Inserts](ExpiringMap::insert) an entry that expires at `deadline`.
    ///
    /// # Errors
    /// As for [`insert`](ExpiringMap::insert).
    pub fn insert_at(&self, key: K, value: V, deadline: Instant) -> Result<Option<V>, ArmError> {
        self.insert_due(key, value, self.owner.shared.due_at(deadline))
    }

    /// Inserts an entry if the key has none, in a single step: of many threads that do so at once, one inserts. Returns `None` if the entry was
    /// inserted; otherwise the value, and the entry that is there stays as it is, with its deadline.
    ///
    /// # Errors
    /// As for [`insert`](ExpiringMap::insert).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::{ArmError, ExpiringMap};
    ///
    /// // A request that a client repeats within an hour is not carried out again.
    /// let seen = ExpiringMap::new();
    /// let is_new = |request: &str| -> Result<bool, ArmError> {
    ///     Ok(seen.insert_if_absent(request.to_owned(), (), Duration::from_secs(3600))?.is_none())
    /// };
    /// assert!(is_new("order 7")?);
    /// assert!(!is_new("order 7")?);
    /// # Ok::<(), ArmError>(())
    /// ```
    pub fn insert_if_absent(&self, key: K, value: V, time_to_live: Duration) -> Result<Option<V>, ArmError> {
        self.insert_if_absent_due(key, value, self.owner.shared.due_after(time_to_live))
    }

    /// Returns the value of a key; `None` if it has none, or if that has expired.
    #[must_use]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let shared = &self.owner.shared;
        let now = shared.core.clock.now();
        lock(&shared.state).find(key, now).map(|(_, entry)| entry.value.clone())
    }

    /// Returns the value of a key, and lets the entry expire `time_to_live` from now, in a single step. `None` if there is no such entry.
    pub fn get_and_renew<Q: Hash + Eq + ?Sized>(&self, key: &Q, time_to_live: Duration) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        let shared = &self.owner.shared;
        shared.renew(key, shared.due_after(time_to_live), V::clone)
    }

    /// Lets the entry of a key expire `time_to_live` from now. Returns `false`, and does nothing, if there is no such entry, or if it has
    /// expired.
    pub fn renew<Q: Hash + Eq + ?Sized>(&self, key: &Q, time_to_live: Duration) -> bool
    where
        K: Borrow<Q>,
    {
        self.renew_due(key, self.owner.shared.due_after(time_to_live))
    }

    /// [Lets](ExpiringMap::renew) the entry of a key expire at `deadline`.
    pub fn renew_at<Q: Hash + Eq + ?Sized>(&self, key: &Q, deadline: Instant) -> bool
    where
        K: Borrow<Q>,
    {
        self.renew_due(key, self.owner.shared.due_at(deadline))
    }

    /// Removes the entry of a key, and returns its value; `None` if there is no such entry, or if it has expired. An entry that was removed
    /// does not expire.
    pub fn remove<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let shared = &self.owner.shared;
        let now = shared.core.clock.now();
        let removed = lock(&shared.state).remove(key, now)?;
        shared.postpone_wakeup();
        // The keys are dropped here, outside the lock.
        Some(removed.value)
    }

    /// Returns whether the key has an entry that has not expired.
    #[must_use]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        let shared = &self.owner.shared;
        let now = shared.core.clock.now();
        lock(&shared.state).find(key, now).is_some()
    }

    /// Returns when the entry of a key expires; `None` if there is no such entry. An entry that never expires has a deadline in the far future.
    #[must_use]
    pub fn deadline<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<Instant>
    where
        K: Borrow<Q>,
    {
        let shared = &self.owner.shared;
        let clock = &shared.core.clock;
        let due = lock(&shared.state).find(key, clock.now()).map(|(_, entry)| entry.due)?;
        Some(Instant::from_std(clock.std_of(due)))
    }

    /// Drops all entries. They do not expire.
    pub fn clear(&self) {
        let shared = &self.owner.shared;
        let entries = lock(&shared.state).take_entries();
        shared.postpone_wakeup();
        // Dropped outside the lock.
        drop(entries);
    }

    pub(crate) fn insert_due(&self, key: K, value: V, due: Time) -> Result<Option<V>, ArmError> {
        self.insert_with(key, value, due, WhenPresent::Replace)
    }

    pub(crate) fn insert_if_absent_due(&self, key: K, value: V, due: Time) -> Result<Option<V>, ArmError> {
        self.insert_with(key, value, due, WhenPresent::Keep)
    }

    /// Returns the value that is not in the map afterwards.
    fn insert_with(&self, key: K, value: V, due: Time, when_present: WhenPresent) -> Result<Option<V>, ArmError> {
        // What the result holds is dropped here, outside the lock.
        match self.owner.shared.insert(key, value, due, when_present) {
            InsertResult::Inserted => Ok(None),
            InsertResult::Present(other) => Ok(Some(other.value)),
            InsertResult::Refused(error, _) => Err(error),
        }
    }

    pub(crate) fn renew_due<Q: Hash + Eq + ?Sized>(&self, key: &Q, due: Time) -> bool
    where
        K: Borrow<Q>,
    {
        self.owner.shared.renew(key, due, |_| ()).is_some()
    }
}

impl<K, V> ExpiringMap<K, V> {
    /// Returns how many entries there are. Entries that have expired count until the driver has come round to them.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.owner.shared.state).len()
    }

    /// Returns whether there is no entry: see [`len`](ExpiringMap::len).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K, V> Clone for ExpiringMap<K, V> {
    fn clone(&self) -> ExpiringMap<K, V> {
        ExpiringMap { owner: Arc::clone(&self.owner) }
    }
}

impl<K, V> Default for ExpiringMap<K, V>
where
    K: Hash + Eq + Clone + Send + 'static,
    V: Send + 'static,
{
    fn default() -> ExpiringMap<K, V> {
        ExpiringMap::new()
    }
}

impl<K, V> fmt::Debug for ExpiringMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringMap").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl<K, V> Drop for MapOwner<K, V> {
    fn drop(&mut self) {
        let (entries, reader) = {
            let mut state = lock(&self.shared.state);
            state.is_over = true;
            (state.take_entries(), state.reader.take())
        };
        self.shared.postpone_wakeup();
        if let Some(reader) = reader {
            self.shared.core.wake_one(reader);
        }
        drop(entries);
    }
}

impl<K, V> MapShared<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn new(core: CoreRef, options: MapOptions<K, V>) -> Arc<MapShared<K, V>> {
        let MapOptions { capacity, slack, on_expiry, keeps_expired } = options;
        Arc::new_cyclic(|shared| MapShared {
            wakeup: WakeupTimer::of(shared, &core, due_items::on_wakeup::<MapShared<K, V>>).slack(slack),
            core,
            on_expiry,
            state: Mutex::new(MapState::new(capacity, keeps_expired)),
        })
    }

    fn due_after(&self, time_to_live: Duration) -> Time {
        representable(thread_shard::with(self.core.as_ptr(), |local| local.deadline(time_to_live)))
    }

    fn due_at(&self, deadline: Instant) -> Time {
        representable(self.core.clock.time_of(deadline.into_std()))
    }

    /// Inserts an entry. The caller drops what the result gives back, outside the lock.
    fn insert(&self, key: K, value: V, due: Time, when_present: WhenPresent) -> InsertResult<K, V>
    where
        K: Clone,
    {
        let new = NewEntry { spare: key.clone(), key, value };
        let (now, mut expired) = (self.core.clock.now(), Vec::new());
        let result = {
            let mut state = lock(&self.state);
            match state.is_stopped || self.core.is_closed() {
                true => InsertResult::Refused(ArmError::Stopped, new),
                false => state.insert(new, due, now, when_present, &mut expired),
            }
        };
        let has_changed = match &result {
            InsertResult::Inserted => true,
            InsertResult::Present(_) => when_present == WhenPresent::Replace,
            InsertResult::Refused(..) => false,
        };
        if has_changed {
            self.wakeup.set(due);
            self.postpone_wakeup();
        }
        self.deliver(expired);
        result
    }

    /// Gives an entry another deadline, and returns what `read` returns of its value; `None` if there is no such entry.
    fn renew<Q: Hash + Eq + ?Sized, R>(&self, key: &Q, due: Time, read: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        let now = self.core.clock.now();
        let read = lock(&self.state).renew(key, due, now, read)?;
        self.wakeup.set(due);
        self.postpone_wakeup();
        Some(read)
    }

    /// Hands expired entries to the callback, or drops them, where the callbacks of the engine run: destructors may panic, or block.
    fn deliver(&self, expired: Vec<RemovedEntry<K, V>>) {
        if expired.is_empty() || (self.on_expiry.is_none() && !std::mem::needs_drop::<(K, V)>()) {
            return;
        }
        let callback = |RemovedEntry { key, value, spare }| {
            let on_expiry = self.on_expiry.clone();
            let callback = move |_| {
                let _spare = spare;
                if let Some(on_expiry) = on_expiry {
                    on_expiry(key, value);
                }
            };
            (TimerWaiter::Callback(Box::new(callback)), Outcome::Fired)
        };
        waiter::notify_all(&self.core, expired.into_iter().map(callback));
    }
}

impl<K, V> MapShared<K, V> {
    /// Postpones the wake-up to the deadlines that are left, in virtual time, after entries were removed or renewed.
    fn postpone_wakeup(&self) {
        if self.core.is_virtual {
            self.wakeup.postpone_to(|| lock(&self.state).next_wakeup().unwrap_or(Time::NEVER));
        }
    }
}

impl<K, V> DueItems for MapShared<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    type Batch = ();

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
        let reader = {
            let mut state = lock(&self.state);
            state.is_stopped = true;
            state.reader.take()
        };
        if let Some(reader) = reader {
            self.core.wake_one(reader);
        }
    }

    fn end_due(&self, now: Time, (): &mut ()) -> bool {
        let mut expired = Vec::new();
        let (more, reader) = {
            let mut state = lock(&self.state);
            let more = state.take_due(now, &mut expired);
            (more, if state.has_expired() { state.reader.take() } else { None })
        };
        self.deliver(expired);
        if let Some(reader) = reader {
            self.core.wake_one(reader);
        }
        more
    }

    fn next_wakeup(&self) -> Option<Time> {
        lock(&self.state).next_wakeup()
    }
}
