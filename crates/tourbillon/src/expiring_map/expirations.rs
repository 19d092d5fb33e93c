//! The entries of a map that have expired, as a stream.

use std::fmt;
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use super::MapShared;
use super::state::{MapState, RemovedEntry};
use crate::coop;
use crate::sync::lock;

/// The entries of an [`ExpiringMap`](super::ExpiringMap) that expire, in the order of their deadlines:
/// [`Builder::build_with_expirations`](super::Builder::build_with_expirations).
///
/// With the feature `futures` it is a `Stream`. It ends when the last handle of the map is dropped, or after a shutdown of the engine, when it
/// has returned the entries that had expired by then. When it is dropped, entries that expire are dropped.
#[must_use = "expired entries wait here, and count towards the capacity of the map"]
pub struct Expirations<K, V> {
    shared: Arc<MapShared<K, V>>,
    /// Whether a poll was pending.
    has_waited: bool,
}

/// What a look under the lock has found.
enum Look<K, V> {
    Expired(RemovedEntry<K, V>),
    Over,
    /// Nothing yet; with the waker that is not registered any more, if another one is.
    Wait(#[expect(dead_code, reason = "it is dropped outside the lock")] Option<Waker>),
    /// Nothing yet, and another waker has to be registered.
    OtherWaker,
}

impl<K, V> Expirations<K, V> {
    pub(super) fn new(shared: Arc<MapShared<K, V>>) -> Expirations<K, V> {
        Expirations { shared, has_waited: false }
    }
}

impl<K, V> Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    /// Waits for the next entry to expire. `None` if there will be no more.
    ///
    /// # Cancel safety
    /// Cancel safe: an entry is taken only when it is returned.
    pub async fn next(&mut self) -> Option<(K, V)> {
        poll_fn(|context| self.poll_expired(context)).await
    }

    /// Polls for the next expired entry: see [`next`](Expirations::next).
    pub fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Option<(K, V)>> {
        let unit = ready!(coop::poll_unit(context));
        let result = if self.has_waited { coop::Result::Awaited } else { coop::Result::AtOnce };
        let mut look = self.look(Err(context.waker()));
        if let Look::OtherWaker = look {
            // Wakers are the user's: they are cloned and dropped outside the lock.
            look = self.look(Ok(context.waker().clone()));
        }
        self.has_waited = matches!(look, Look::Wait(_) | Look::OtherWaker);
        match look {
            Look::Wait(_) | Look::OtherWaker => Poll::Pending,
            Look::Over => {
                unit.spend(result);
                Poll::Ready(None)
            }
            Look::Expired(RemovedEntry { key, value, .. }) => {
                unit.spend(result);
                Poll::Ready(Some((key, value)))
            }
        }
    }

    /// Looks for an expired entry, or registers the waker. A borrowed one is only compared with the one that is registered.
    fn look(&self, waker: Result<Waker, &Waker>) -> Look<K, V> {
        let mut state = lock(&self.shared.state);
        let is_stopped = state.is_stopped || self.shared.core.is_closed();
        if is_stopped && !state.has_expired() {
            self.expire_by_hand(&mut state);
        }
        match (state.pop_expired(), waker) {
            (Some(expired), _) => Look::Expired(expired),
            (None, _) if state.is_over || is_stopped => Look::Over,
            (None, Ok(waker)) => Look::Wait(state.reader.replace(waker)),
            (None, Err(waker)) if state.reader.as_ref().is_some_and(|registered| registered.will_wake(waker)) => {
                Look::Wait(None)
            }
            (None, Err(_)) => Look::OtherWaker,
        }
    }

    /// Expires entries that are due now, after a shutdown of the engine: no driver does.
    fn expire_by_hand(&self, state: &mut MapState<K, V>) {
        let mut none = Vec::new();
        // One batch is enough: the next look continues. Expired entries go to the stream, since there is one.
        while state.take_due(self.shared.core.clock.now(), &mut none) && !state.has_expired() {}
    }
}

impl<K, V> Drop for Expirations<K, V> {
    fn drop(&mut self) {
        let rest = lock(&self.shared.state).end_stream();
        // Dropped outside the lock.
        drop(rest);
    }
}

#[cfg(feature = "futures")]
impl<K, V> futures_core::Stream for Expirations<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    type Item = (K, V);

    fn poll_next(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<(K, V)>> {
        self.poll_expired(context)
    }
}

impl<K, V> fmt::Debug for Expirations<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expirations").finish_non_exhaustive()
    }
}
