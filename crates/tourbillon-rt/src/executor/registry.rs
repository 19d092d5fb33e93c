//! All tasks that have not ended, so that shutdown can end them.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::clock;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, catch_panic, lock};
use crate::task::{JoinError, Returned, TaskControl, catch};
use tourbillon::coop as budget;

/// Tasks, in several shards, so that threads that spawn seldom contend.
#[derive(Default)]
pub(crate) struct Registry {
    shards: [Mutex<RegistryShard>; SHARDS],
    count: AtomicUsize,
    next: AtomicUsize,
    /// Notified when the last task has ended.
    none_left: (Mutex<()>, Condvar),
    is_awaited: AtomicBool,
}

const SHARDS: usize = 8;

#[derive(Default)]
struct RegistryShard {
    controls: Vec<Option<Arc<TaskControl>>>,
    free: Vec<usize>,
}

/// An entry of the registry, removed when it is dropped.
struct RegistryEntry {
    registry: Arc<Registry>,
    control: Arc<TaskControl>,
    shard: usize,
    index: usize,
}

pin_project! {
    /// A task's future: it catches panics, and ends when the task is aborted.
    pub(crate) struct TaskFuture<F> {
        // The future is dropped before the entry is removed.
        #[pin]
        future: Option<F>,
        entry: RegistryEntry,
    }

    impl<F> PinnedDrop for TaskFuture<F> {
        fn drop(this: Pin<&mut Self>) {
            this.end();
        }
    }
}

impl Registry {
    /// Enters a task.
    pub(crate) fn register<F: Future>(self: &Arc<Self>, future: F) -> (TaskFuture<F>, Arc<TaskControl>) {
        let control = Arc::<TaskControl>::default();
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let index = lock(&self.shards[shard]).insert(Arc::clone(&control));
        self.count.fetch_add(1, Ordering::SeqCst);
        let entry = RegistryEntry { registry: Arc::clone(self), control: Arc::clone(&control), shard, index };
        (TaskFuture { future: Some(future), entry }, control)
    }

    /// Returns the number of tasks.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Ends all tasks at their next poll, which is soon.
    pub(crate) fn abort_all(&self) {
        for shard in &self.shards {
            let controls: Vec<_> = lock(shard).controls.iter().flatten().cloned().collect();
            controls.iter().for_each(|control| catch_panic(|| control.abort()));
        }
    }

    /// Waits until there are no tasks, but not beyond `until`, and returns whether there are none.
    #[must_use]
    pub(crate) fn wait_until_empty(&self, until: Option<Instant>) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        let (mutex, condvar) = &self.none_left;
        let mut guard = lock(mutex);
        while self.len() > 0 {
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(clock::system_now()));
            if left.is_zero() {
                return false;
            }
            guard = condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl RegistryShard {
    fn insert(&mut self, control: Arc<TaskControl>) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.controls[index] = Some(control);
                index
            }
            None => {
                self.controls.push(Some(control));
                self.controls.len() - 1
            }
        }
    }

    fn remove(&mut self, index: usize) -> Option<Arc<TaskControl>> {
        self.free.push(index);
        self.controls[index].take()
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        let waker = self.control.take_waker();
        let control = lock(&self.registry.shards[self.shard]).remove(self.index);
        drop((waker, control));
        let before = self.registry.count.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.registry.is_awaited.load(Ordering::SeqCst) {
            let _guard = lock(&self.registry.none_left.0);
            self.registry.none_left.1.notify_all();
        }
    }
}

impl<F: Future> Future for TaskFuture<F> {
    type Output = Returned<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        budget::refill();
        let this = self.as_mut().project();
        let result = match this.future.as_pin_mut() {
            Some(future) if !this.entry.control.is_aborted() => match catch(|| future.poll(context)) {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(value)) => Ok(value),
                Err(panic) => Err(JoinError::Panicked(panic)),
            },
            _ => Err(JoinError::Cancelled),
        };
        self.end();
        Poll::Ready(Returned::new(result))
    }
}

impl<F> TaskFuture<F> {
    fn end(self: Pin<&mut Self>) {
        let mut future = self.project().future;
        catch_panic(|| future.set(None));
    }
}
