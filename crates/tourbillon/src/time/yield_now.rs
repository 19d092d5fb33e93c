//! Lets other tasks run.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets the other tasks of the executor run, and then goes on.
///
/// It takes no time of any clock: a [`sleep`](super::sleep()) of zero is ready at once and does not yield. It works under any executor.
///
/// ```
/// use tourbillon::time::yield_now;
///
/// # futures_lite::future::block_on(async {
/// for batch in 0..3 {
///     // compute for a while
///     # let _ = batch;
///     yield_now().await;
/// }
/// # });
/// ```
///
/// # Cancel safety
/// Dropping it does nothing.
pub fn yield_now() -> YieldNow {
    YieldNow { has_yielded: false }
}

/// The future of [`yield_now`]: pending at its first poll, ready from the second on.
#[derive(Debug)]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct YieldNow {
    has_yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
