//! All tasks that have not ended, so that shutdown can end them.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use super::budget;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, contain, lock};
use crate::task::{JoinError, Panic, Returned};

/// What a handle and its task share.
#[derive(Default)]
pub(crate) struct Control {
    aborted: AtomicBool,
    /// The task. It is let go of when the task ends: the task holds us.
    waker: Mutex<Option<Waker>>,
    /// Who awaits the handle. Not left with the task itself: there a waker that panics ends the process.
    awaiter: Mutex<Option<Waker>>,
}

/// Tasks, in some shards, so that threads that spawn seldom meet.
#[derive(Default)]
pub(crate) struct Registry {
    shards: [Mutex<Shard>; SHARDS],
    count: AtomicUsize,
    next: AtomicUsize,
    /// For who waits until there are none.
    none_left: (Mutex<()>, Condvar),
    is_awaited: AtomicBool,
}

const SHARDS: usize = 8;

#[derive(Default)]
struct Shard {
    controls: Vec<Option<Arc<Control>>>,
    free: Vec<usize>,
}

/// A place in the registry, given back when it is dropped.
struct Place {
    registry: Arc<Registry>,
    control: Arc<Control>,
    shard: usize,
    index: usize,
}

pin_project! {
    /// A task's future: what it throws is caught, and it ends when it is aborted.
    pub(crate) struct Contained<F> {
        // It is dropped before the place is given back.
        #[pin]
        future: Option<F>,
        place: Place,
    }

    impl<F> PinnedDrop for Contained<F> {
        fn drop(this: Pin<&mut Self>) {
            this.end();
        }
    }
}

impl Control {
    /// Ends the task when it is next polled, which is soon.
    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Tells it its task.
    pub(crate) fn set_waker(&self, waker: Waker) {
        *lock(&self.waker) = Some(waker);
    }

    /// Who is to be woken when the task has ended. To be told before the task is asked whether it has.
    pub(crate) fn set_awaiter(&self, waker: &Waker) {
        if lock(&self.awaiter).as_ref().is_some_and(|awaiter| awaiter.will_wake(waker)) {
            return;
        }
        // Wakers are the user's: they are cloned and dropped outside the lock.
        let waker = Some(waker.clone());
        let before = std::mem::replace(&mut *lock(&self.awaiter), waker);
        drop(before);
    }

    /// Nobody awaits the handle any more.
    pub(crate) fn forget_awaiter(&self) {
        let awaiter = lock(&self.awaiter).take();
        contain(|| drop(awaiter));
    }
}

/// The task has ended.
impl Wake for Control {
    fn wake(self: Arc<Self>) {
        let awaiter = lock(&self.awaiter).take();
        contain(|| awaiter.into_iter().for_each(Waker::wake));
    }
}

impl Registry {
    /// Enters a task.
    pub(crate) fn contain<F: Future>(self: &Arc<Self>, future: F) -> (Contained<F>, Arc<Control>) {
        let control = Arc::<Control>::default();
        let shard = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let index = lock(&self.shards[shard]).insert(Arc::clone(&control));
        self.count.fetch_add(1, Ordering::SeqCst);
        let place = Place { registry: Arc::clone(self), control: Arc::clone(&control), shard, index };
        (Contained { future: Some(future), place }, control)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Ends all of them, soon.
    pub(crate) fn abort_all(&self) {
        for shard in &self.shards {
            let controls: Vec<_> = lock(shard).controls.iter().flatten().cloned().collect();
            controls.iter().for_each(|control| contain(|| control.abort()));
        }
    }

    /// Waits until there are none, until then at most. Whether there are none.
    pub(crate) fn wait_until_empty(&self, until: Option<Instant>) -> bool {
        self.is_awaited.store(true, Ordering::SeqCst);
        let (mutex, condvar) = &self.none_left;
        let mut guard = lock(mutex);
        while self.len() > 0 {
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            guard = condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Shard {
    fn insert(&mut self, control: Arc<Control>) -> usize {
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

    fn remove(&mut self, index: usize) -> Option<Arc<Control>> {
        self.free.push(index);
        self.controls[index].take()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let waker = lock(&self.control.waker).take();
        let control = lock(&self.registry.shards[self.shard]).remove(self.index);
        drop((waker, control));
        let before = self.registry.count.fetch_sub(1, Ordering::SeqCst);
        if before == 1 && self.registry.is_awaited.load(Ordering::SeqCst) {
            let _guard = lock(&self.registry.none_left.0);
            self.registry.none_left.1.notify_all();
        }
    }
}

impl<F: Future> Future for Contained<F> {
    type Output = Returned<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        budget::refill();
        let this = self.as_mut().project();
        let result = match this.future.as_pin_mut() {
            Some(future) if !this.place.control.aborted.load(Ordering::Acquire) => {
                match catch(|| future.poll(context)) {
                    Ok(Poll::Pending) => return Poll::Pending,
                    Ok(Poll::Ready(value)) => Ok(value),
                    Err(panic) => Err(JoinError::Panicked(panic)),
                }
            }
            _ => Err(JoinError::Cancelled),
        };
        self.end();
        Poll::Ready(Returned::new(result))
    }
}

impl<F> Contained<F> {
    fn end(self: Pin<&mut Self>) {
        let mut future = self.project().future;
        contain(|| future.set(None));
    }
}

/// Runs something of the user's; what it throws is given.
pub(crate) fn catch<R>(users: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(users)).map_err(Panic::new)
}
