//! Timeouts as methods of futures.

use std::future::Future;
use std::time::Duration;

use super::timeout::Timeout;
use crate::instant::Instant;

/// Timeouts as methods of every future.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::FutureExt;
///
/// # futures_lite::future::block_on(async {
/// let answer = async { "answer" }.timeout(Duration::from_secs(5)).await;
/// assert_eq!(answer, Ok("answer"));
/// # });
/// ```
pub trait FutureExt: Future {
    /// Waits for this future, but no longer than `duration` from now: see [`timeout`](super::timeout()).
    ///
    /// # Cancel safety
    /// As cancel safe as the future.
    fn timeout(self, duration: Duration) -> Timeout<Self>
    where
        Self: Sized,
    {
        super::timeout(duration, self)
    }

    /// Waits for this future, but no longer than until `deadline`: see [`timeout_at`](super::timeout_at).
    ///
    /// # Cancel safety
    /// As cancel safe as the future.
    fn timeout_at(self, deadline: Instant) -> Timeout<Self>
    where
        Self: Sized,
    {
        super::timeout_at(deadline, self)
    }
}

impl<F: Future + ?Sized> FutureExt for F {}
