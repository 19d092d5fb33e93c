//! A future that becomes ready when it is opened, and wakes no task.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// A future that becomes ready when it is opened.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// Makes the future ready.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Returns whether the future is ready.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Future for Gate {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.is_open() { Poll::Ready(()) } else { Poll::Pending }
    }
}
