//! Tasks where it gets difficult: blocked threads, nested runtimes, foreign threads, shutdown in the middle (F10, D11, D41, D44).

#[path = "../support/mod.rs"]
mod support;

mod blocked;
mod elsewhere;
mod end;
mod handles;
mod nested;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tourbillon_rt::{Backend, Runtime};

fn runtime(backend: Backend, workers: usize) -> Runtime {
    Runtime::builder().backend(backend).workers(workers).build().unwrap()
}

/// Says when it is dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A future that others complete, from any thread.
#[derive(Clone, Default)]
struct Flag(Arc<Mutex<(bool, Option<Waker>)>>);

impl Flag {
    fn raise(&self) {
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

/// A waker that blocks on a future: inside of whoever wakes it.
struct Blocks<F>(Mutex<Option<F>>);

impl<F: FnOnce() + Send + 'static> Wake for Blocks<F> {
    fn wake(self: Arc<Self>) {
        if let Some(blocks) = self.0.lock().unwrap().take() {
            blocks();
        }
    }
}
