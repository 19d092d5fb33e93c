//! A future that is ready when it is told so, and wakes nobody.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<AtomicBool>);

impl Gate {
    /// It is ready from now on.
    pub fn open(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether it is.
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
