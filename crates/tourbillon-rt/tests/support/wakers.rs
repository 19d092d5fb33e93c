//! A waker that is counted.

use std::sync::Arc;
use std::task::{Wake, Waker};

/// A waker that does nothing and can be counted.
pub(crate) struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

pub(crate) fn counted() -> (Arc<Counted>, Waker) {
    let counted = Arc::new(Counted);
    let waker = Waker::from(Arc::clone(&counted));
    (counted, waker)
}
