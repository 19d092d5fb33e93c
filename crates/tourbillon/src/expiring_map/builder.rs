//! The builder of a map whose entries expire.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use super::{Expirations, ExpiringMap, MapOptions};
use crate::core::CoreRef;
use crate::current;
use crate::engine::Engine;
use crate::slack::Slack;

/// Builds an [`ExpiringMap`].
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use tourbillon::ExpiringMap;
///
/// let (send, expired) = channel();
/// let leases = ExpiringMap::builder()
///     .capacity(10_000)
///     .on_expiry(move |lease: u32, owner: &str| send.send((lease, owner)).unwrap())
///     .build();
/// leases.insert(7, "Ada", Duration::from_millis(2))?;
/// assert_eq!(expired.recv(), Ok((7, "Ada")));
/// # Ok::<(), tourbillon::ArmError>(())
/// ```
#[must_use]
pub struct Builder<K, V> {
    engine: Option<Engine>,
    pub(super) options: MapOptions<K, V>,
}

impl<K, V> Builder<K, V> {
    pub(super) fn new() -> Builder<K, V> {
        let options = MapOptions { capacity: usize::MAX, slack: None, on_expiry: None, keeps_expired: false };
        Builder { engine: None, options }
    }

    /// Sets the engine of the map. By default the [current](Engine::current) one. The map does not keep it running after its last handle is
    /// dropped.
    pub fn engine(mut self, engine: &Engine) -> Builder<K, V> {
        self.engine = Some(engine.clone());
        self
    }

    /// Sets how many entries there can be, for programs whose clients choose the keys and must not take all memory. Inserting one more is
    /// [`ArmError::Full`](crate::ArmError::Full); entries that have expired and that the [stream](Builder::build_with_expirations) has not
    /// returned count. A billion by default.
    pub fn capacity(mut self, entries: usize) -> Builder<K, V> {
        self.options.capacity = entries;
        self
    }

    /// Sets how late after their deadlines entries may leave the map, instead of the slack of the engine. (No call finds them from their
    /// deadlines on.) All entries together have one wake-up, so they share it.
    pub fn slack(mut self, slack: Slack) -> Builder<K, V> {
        self.options.slack = Some(slack);
        self
    }

    /// Calls `on_expiry` with each entry that expires, in the order of the deadlines. Entries that are removed or replaced are not passed to
    /// it.
    ///
    /// It runs where the callbacks of a [`Timer`](crate::Timer#where-callbacks-run) do: never inside a call of the map, nor under a lock. It may
    /// use the map.
    pub fn on_expiry(mut self, on_expiry: impl Fn(K, V) + Send + Sync + 'static) -> Builder<K, V> {
        self.options.on_expiry = Some(Arc::new(on_expiry));
        self
    }
}

impl<K, V> Builder<K, V>
where
    K: Hash + Eq + Clone + Send + 'static,
    V: Send + 'static,
{
    /// Builds an empty map.
    #[must_use]
    pub fn build(self) -> ExpiringMap<K, V> {
        let core = self.core();
        ExpiringMap::on_core(core, self)
    }

    /// Builds an empty map, and the stream of its entries that expire. An [`on_expiry`](Builder::on_expiry) that was set is not called.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::ExpiringMap;
    ///
    /// # futures_lite::future::block_on(async {
    /// let (connections, mut idle) = ExpiringMap::builder().capacity(100).build_with_expirations();
    /// connections.insert(7, "a connection", Duration::from_millis(2))?;
    /// assert_eq!(idle.next().await, Some((7, "a connection"))); // time to close it
    /// # Ok::<(), tourbillon::ArmError>(())
    /// # }).unwrap();
    /// ```
    pub fn build_with_expirations(self) -> (ExpiringMap<K, V>, Expirations<K, V>) {
        let core = self.core();
        ExpiringMap::with_expirations(core, self)
    }

    fn core(&self) -> CoreRef {
        match &self.engine {
            Some(engine) => engine.core().clone(),
            None => current::with_current(|local| local.core().clone()),
        }
    }
}

impl<K, V> fmt::Debug for Builder<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MapOptions { capacity, slack, .. } = &self.options;
        f.debug_struct("Builder").field("capacity", capacity).field("slack", slack).finish_non_exhaustive()
    }
}
