//! Runtimes in a schedule, flags that futures wait for, and threads outside of the runtimes that raise them.

use std::cell::RefCell;
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
use crate::sync::under_shuttle::time::{self, ClockGuard};

/// The state that the programs of a schedule share. It does not keep the runtimes: their tasks have clones of it.
#[derive(Clone)]
pub(super) struct ProgramWorld {
    runtimes: Vec<Weak<Runtime>>,
    raisers: Vec<Sender<WaitFlag>>,
    pub(super) options: ProgramOptions,
    counts: Arc<ProgramCounts>,
    /// Time moves as long as there is a program.
    _time: Arc<ClockGuard>,
}

/// Actions of programs in some schedules only.
#[derive(Clone, Copy, Default)]
pub(super) struct ProgramOptions {
    /// Programs abort others, and a runtime may end before its tasks. A program that was begun by an aborted one goes on, and may keep the
    /// runtime.
    pub(super) aborts: bool,
    /// Programs have timers whose wakers block in a `block_on`. Only for runtimes with workers: in others the thread that moves the clock
    /// could fire such a timer, run tasks in that call, and so wait for itself.
    pub(super) blocking_wakers: bool,
}

/// How many programs have begun, and how many have ended. (Shuttle does not see these counts.)
#[derive(Default)]
struct ProgramCounts {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A program that has not ended.
pub(super) struct ProgramGuard(Arc<ProgramCounts>);

/// A future that is ready as soon as some thread has raised the flag.
#[derive(Clone, Default)]
pub(super) struct WaitFlag(Arc<Mutex<FlagState>>);

#[derive(Default)]
struct FlagState {
    is_raised: bool,
    waiters: Vec<Waker>,
}

std::thread_local! {
    /// The counts of the last schedule on this thread of the system. Every program keeps them until it has been dropped.
    static LAST: RefCell<Weak<ProgramCounts>> = const { RefCell::new(Weak::new()) };
}

impl ProgramWorld {
    /// Returns a runtime with `workers` workers, and its world.
    pub(super) fn new(workers: usize) -> (Arc<Runtime>, ProgramWorld) {
        let ([runtime], world) = ProgramWorld::of([workers], ProgramOptions::default());
        (runtime, world)
    }

    /// Returns a runtime for each number of workers, and a world with two threads that raise flags, each in the order that they were
    /// [given](ProgramWorld::raise_later) to it. Those end with the last clone of the world.
    pub(super) fn of<const N: usize>(
        workers: [usize; N],
        options: ProgramOptions,
    ) -> ([Arc<Runtime>; N], ProgramWorld) {
        assert_eq!(LAST.with_borrow(Weak::strong_count), 0, "the last schedule has left a program behind");
        let time = Arc::new(time::begin());
        let runtimes = workers.map(|workers| {
            let runtime = Runtime::builder().workers(workers).build().expect("shuttle refuses no threads");
            time.drive(runtime.engine());
            Arc::new(runtime)
        });
        let raiser = || {
            let (sender, flags) = channel::<WaitFlag>();
            thread::spawn(move || flags.iter().for_each(|flag| flag.raise()));
            sender
        };
        let counts = Arc::default();
        LAST.set(Arc::downgrade(&counts));
        let raisers = vec![raiser(), raiser()];
        let world = ProgramWorld {
            runtimes: runtimes.iter().map(Arc::downgrade).collect(),
            raisers,
            options,
            counts,
            _time: time,
        };
        (runtimes, world)
    }

    /// Returns one of the runtimes, unless that has been dropped.
    pub(super) fn runtime(&self) -> Option<Arc<Runtime>> {
        self.runtimes[one_of(self.runtimes.len())].upgrade()
    }

    /// Has one of the threads outside of the runtimes raise the flag, some time.
    pub(super) fn raise_later(&self, flag: &WaitFlag) {
        let raiser = &self.raisers[one_of(self.raisers.len())];
        raiser.send(flag.clone()).expect("it raises flags until the world has gone");
    }

    /// Counts a program, which has ended when the guard is dropped.
    pub(super) fn begin(&self) -> ProgramGuard {
        self.counts.begun.fetch_add(1, Ordering::Relaxed);
        ProgramGuard(Arc::clone(&self.counts))
    }

    /// Checks that all programs have ended, and that none keeps a runtime. The caller has dropped the runtimes.
    #[track_caller]
    pub(super) fn check(&self) {
        let ProgramCounts { begun, ended } = &*self.counts;
        assert_eq!(ended.load(Ordering::Relaxed), begun.load(Ordering::Relaxed), "programs that have ended");
        assert!(self.runtimes.iter().all(|runtime| runtime.strong_count() == 0), "a program keeps a runtime");
    }
}

impl Drop for ProgramGuard {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl WaitFlag {
    pub(super) fn raise(&self) {
        let waiters = {
            let mut raised = self.0.lock().unwrap();
            raised.is_raised = true;
            std::mem::take(&mut raised.waiters)
        };
        waiters.into_iter().for_each(Waker::wake);
    }
}

impl Future for WaitFlag {
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

/// Returns a random number below `many`.
pub(super) fn one_of(many: usize) -> usize {
    thread_rng().gen_range(0..many)
}
