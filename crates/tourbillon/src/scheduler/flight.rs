//! A run that is a future, on its way.
//!
//! It is polled by the scheduler's own threads, or by an executor of the user's. Either way it ends once: by its own
//! end, by a panic, or, if it is aborted or its executor drops it, without one.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use super::shared::Shared;
use super::work::{BoxedRun, Ended, Run};
use crate::agenda::Key;
use crate::core::contain;
use crate::sync::{Mutex, lock};

/// By which a run is told to end.
#[derive(Default)]
pub(super) struct Flag {
    is_down: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

pub(super) struct Flight<K: Send + Sync + 'static> {
    /// `None` once it has ended.
    future: Option<BoxedRun>,
    flag: Arc<Flag>,
    key: Key,
    run: Run<K>,
}

impl Flag {
    /// Whoever polls the run drops it.
    pub(super) fn lower(&self) {
        self.is_down.store(true, Ordering::SeqCst);
        let waker = lock(&self.waker).take();
        if let Some(waker) = waker {
            let _its_own_affair = contain(|| waker.wake());
        }
    }

    /// Whether it has been lowered. If it is later, the waker is woken.
    fn watch(&self, waker: &Waker) -> bool {
        let mut kept = lock(&self.waker);
        let old = match &*kept {
            Some(old) if old.will_wake(waker) => None,
            _ => kept.replace(waker.clone()),
        };
        drop(kept);
        drop(old);
        // After leaving the waker: one that lowers it before does not see the waker, but is seen.
        self.is_down.load(Ordering::SeqCst)
    }
}

impl<K: Send + Sync + 'static> Flight<K> {
    pub(super) fn new(future: BoxedRun, flag: Arc<Flag>, key: Key, run: Run<K>) -> Flight<K> {
        Flight { future: Some(future), flag, key, run }
    }

    fn poll_run(&mut self, context: &mut Context<'_>) -> Poll<Result<Ended, Box<dyn std::any::Any + Send>>> {
        let Some(future) = &mut self.future else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    }

    /// Drops the future, and only then is the run over.
    fn land(&mut self, ended: Landed) {
        let future = self.future.take();
        let _its_own_affair = contain(move || drop(future));
        let shared = Arc::clone(&self.run.shared);
        shared.land(self.key, &self.run, ended);
    }
}

/// How a flight ended.
pub(super) enum Landed {
    Ended(Ended),
    Panicked(Box<dyn std::any::Any + Send>),
    Aborted,
}

impl<K: Send + Sync + 'static> Future for Flight<K> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.future.is_none() {
            return Poll::Ready(());
        }
        if self.flag.watch(context.waker()) {
            self.land(Landed::Aborted);
            return Poll::Ready(());
        }
        let landed = match self.poll_run(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(ended)) => Landed::Ended(ended),
            Poll::Ready(Err(panic)) => Landed::Panicked(panic),
        };
        self.land(landed);
        Poll::Ready(())
    }
}

impl<K: Send + Sync + 'static> Drop for Flight<K> {
    fn drop(&mut self) {
        if self.future.is_some() {
            self.land(Landed::Aborted);
        }
    }
}

/// Hands a run to the scheduler's own threads.
pub(super) fn spawn<K: Send + Sync + 'static>(flight: Flight<K>, shared: &Arc<Shared<K>>) {
    let shared = Arc::clone(shared);
    let (runnable, task) = async_task::spawn(flight, move |runnable| shared.push_task(runnable));
    task.detach();
    runnable.schedule();
}
