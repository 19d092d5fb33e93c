//! Wakers that are counted or that block, and a future that any thread can complete.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

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

/// A future that any thread can complete.
#[derive(Clone, Default)]
pub(crate) struct Flag(Arc<Mutex<(bool, Option<Waker>)>>);

impl Flag {
    pub(crate) fn raise(&self) {
        let waker = {
            let mut flag = self.0.lock().unwrap();
            flag.0 = true;
            flag.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

impl Future for Flag {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut flag = self.0.lock().unwrap();
        if flag.0 {
            return Poll::Ready(());
        }
        flag.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A waker that runs a closure once, on the thread that wakes it; the closure may block.
pub(crate) struct Blocks<F>(pub(crate) Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for Blocks<F> {
    fn wake(self: Arc<Self>) {
        let blocks = self.0.lock().unwrap().take();
        blocks.into_iter().for_each(|blocks| blocks());
    }
}
