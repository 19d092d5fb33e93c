//! A runtime in a schedule, flags that futures wait for, and threads outside of the runtime that raise them.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use shuttle::sync::mpsc::{Sender, channel};
use shuttle::thread;

use crate::Runtime;
use crate::sync::scheduled::time::{self, Moving};

/// What the futures of a schedule share. It does not keep the runtime: its tasks have clones of it.
#[derive(Clone)]
pub(super) struct World {
    runtime: Weak<Runtime>,
    raisers: Vec<Sender<Flag>>,
    books: Arc<Books>,
    /// Time moves as long as there is a program.
    _time: Arc<Moving>,
}

/// What has begun and what has ended. (Counted by what shuttle does not see.)
#[derive(Default)]
struct Books {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A program that has not ended.
pub(super) struct Running(Arc<Books>);

/// A future that is ready as soon as some thread has raised the flag.
#[derive(Clone, Default)]
pub(super) struct Flag(Arc<Mutex<Raised>>);

#[derive(Default)]
struct Raised {
    is_raised: bool,
    waiters: Vec<Waker>,
}

impl World {
    /// Returns a runtime with so many workers, and a world with so many threads that raise flags, each in the order that they were
    /// [given](World::raise_later) to it. Those end with the last clone of the world.
    pub(super) fn new(workers: usize, raisers: usize) -> (Arc<Runtime>, World) {
        let time = Arc::new(time::begin());
        let runtime = Arc::new(Runtime::builder().workers(workers).build().expect("shuttle refuses no threads"));
        time.drive(runtime.engine());
        let raisers = (0..raisers).map(|_| {
            let (sender, flags) = channel::<Flag>();
            thread::spawn(move || flags.iter().for_each(|flag| flag.raise()));
            sender
        });
        let raisers = raisers.collect();
        let world = World { runtime: Arc::downgrade(&runtime), raisers, books: Arc::default(), _time: time };
        (runtime, world)
    }

    /// Returns the runtime unless it has been dropped.
    pub(super) fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtime.upgrade()
    }

    /// Has one of the threads outside of the runtime raise the flag, some time.
    pub(super) fn raise_later(&self, flag: &Flag) {
        let raiser = &self.raisers[one_of(self.raisers.len())];
        raiser.send(flag.clone()).expect("it raises flags until the world has gone");
    }

    /// Counts a program, which has ended when the guard is dropped.
    pub(super) fn begin(&self) -> Running {
        self.books.begun.fetch_add(1, Ordering::Relaxed);
        Running(Arc::clone(&self.books))
    }

    /// Checks that everything has ended that has begun.
    #[track_caller]
    pub(super) fn check(&self) {
        let Books { begun, ended } = &*self.books;
        assert_eq!(ended.load(Ordering::Relaxed), begun.load(Ordering::Relaxed), "programs that have ended");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl Flag {
    pub(super) fn raise(&self) {
        let waiters = {
            let mut raised = self.0.lock().unwrap();
            raised.is_raised = true;
            std::mem::take(&mut raised.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }
}

impl Future for Flag {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut raised = self.0.lock().unwrap();
        if raised.is_raised {
            return Poll::Ready(());
        }
        raised.waiters.push(context.waker().clone());
        Poll::Pending
    }
}

/// Returns one of so many numbers, at random.
pub(super) fn one_of(many: usize) -> usize {
    thread_rng().gen_range(0..many)
}
