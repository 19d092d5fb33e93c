//! A run that is a future, on its way.
//!
//! It is polled by the scheduler's own threads, or by an executor of the user's. Either way it ends once: by its own
//! end, by a panic, or, if it is aborted or its executor drops it, without one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::shared::Shared;
use super::work::{BoxedRun, Ended, Run};
use crate::multi::deadline_map::Key;
use crate::multi::waiter::Answer;

pub(super) struct Flight<K: Send + Sync + 'static> {
    /// `None` once it has ended.
    going: Option<Going<K>>,
    /// Given when the run is to end: whoever polls it drops it.
    abort: Arc<Answer>,
    key: Key,
}

/// What is the user's of it. (The run may be the last that has the job's closure.)
struct Going<K> {
    future: BoxedRun,
    run: Run<K>,
}

impl<K: Send + Sync + 'static> Flight<K> {
    pub(super) fn new(future: BoxedRun, abort: Arc<Answer>, key: Key, run: Run<K>) -> Flight<K> {
        Flight { going: Some(Going { future, run }), abort, key }
    }

    fn poll_run(&mut self, context: &mut Context<'_>) -> Poll<Result<Ended, Box<dyn std::any::Any + Send>>> {
        let Some(Going { future, run }) = &mut self.going else { return Poll::Pending };
        match run.shared.inside(|| future.as_mut().poll(context)) {
            Ok(poll) => poll.map(Ok),
            Err(payload) => Poll::Ready(Err(payload)),
        }
    }

    /// Drops the future, and only then is the run over. Nothing of the user's is left: an executor may take a panic amiss when it
    /// drops what it was given.
    fn land(&mut self, ended: Landed) {
        let Some(Going { future, run }) = self.going.take() else { return };
        let shared = Arc::clone(&run.shared);
        shared.drop_inside(future);
        shared.land(self.key, &run, ended);
        shared.drop_inside(run);
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
        if self.going.is_none() {
            return Poll::Ready(());
        }
        if self.abort.poll(context).is_ready() {
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
        self.land(Landed::Aborted);
    }
}

/// Hands a run to the scheduler's own threads.
pub(super) fn spawn<K: Send + Sync + 'static>(flight: Flight<K>, shared: &Arc<Shared<K>>) {
    let shared = Arc::clone(shared);
    let (runnable, task) = async_task::spawn(flight, move |runnable| shared.push_task(runnable));
    task.detach();
    runnable.schedule();
}
