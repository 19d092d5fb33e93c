//! A thread of the user works for the runtime until its future is ready.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tourbillon::coop as budget;

use crate::executor::context;
use crate::executor::external_threads::WorkerGuard;
use crate::executor::nesting::InterruptedWork;
use crate::executor::shared::{HeldTime, RuntimeShared};
use crate::executor::virtual_time::BlockOnCall;
use crate::executor::worker::{Role, WorkerLocal};
use crate::executor::worker_shared::WorkerShared;
use crate::executor::{Handle, Runtime};
use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Wakes a future that a worker runs in `block_on`.
///
/// The futures of nested loops share one worker. The innermost loop consumes every `unpark`, so each future has a flag of its own, and a
/// nested loop unparks the worker once more when it ends: see [`InterruptedWork`].
pub(crate) struct WorkerWaker {
    is_woken: AtomicBool,
    worker: Arc<WorkerShared>,
}

/// Wakes a future whose thread does not act as a worker.
struct ParkedThreadWaker {
    is_woken: AtomicBool,
    thread: Thread,
    /// The runtime, if its time can be virtual: no worker tells whether this thread is parked.
    shared: Option<Arc<RuntimeShared>>,
    /// Holds virtual time still between a wake-up and the poll that follows it.
    held: Mutex<Option<HeldTime>>,
}

/// The number of iterations without waiting after which a nested call leaves its thread's tasks to other threads, too.
const ITERATIONS: u32 = 16;

impl Runtime {
    /// Runs a future to its end on this thread, which has a reactor and turns timers meanwhile. The future need not be `Send`, and can
    /// use [`spawn_local`](crate::spawn_local); local tasks that have not ended with it are dropped.
    ///
    /// Without workers ([`Builder::workers`](crate::Builder::workers) of zero) it runs all tasks of the runtime, too.
    ///
    /// # Within another `block_on`, or a task
    /// A nested call blocks the task that makes it, of this runtime or another, and serves the thread's timers and sockets meanwhile. It
    /// runs no other tasks on its stack except [local](crate::spawn_local) ones, which have no other thread. The other workers run all
    /// others. If every thread that would run tasks waits in a nested call, a substitute thread runs them until one of those calls
    /// returns: so a nested call can wait for any task, also with one worker and with none. A call that need not wait starts no thread.
    ///
    /// Both the stack and the threads are bounded. A runtime has at most 64 substitutes. When there are as many, or the system refuses a
    /// thread, the nested calls run the waiting tasks themselves. At most 16 nested calls of a thread run tasks, local ones included;
    /// deeper ones run only their own future. So two kinds of nested calls wait for ever: one that waits for a local task from more than
    /// 16 calls deep, and one that waits for a task that more than a thousand nested calls keep from running.
    ///
    /// Only threads that run an [`EventLoop`](crate::EventLoop) run its handlers: in a handler, a `block_on` that waits for a task of the
    /// same loop waits until another thread runs the loop.
    ///
    /// Within a waker that a thread of the runtime calls, a nested call has timers and tasks; I/O that has to wait returns
    /// [`NoRuntime`](crate::NoRuntime).
    ///
    /// # Panics
    /// If the future panics.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on(self.handle(), future)
    }
}

fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    let shared = handle.shared();
    let interrupted = InterruptedWork::new();
    let worker = context::worker_of(shared);
    // The call ends before the thread leaves its slot: threads that check then whether time moves must not count it.
    let call = worker.is_none().then(|| shared.virtual_time.enter_block_on());
    if let Some(worker) = worker {
        if let Some(_nested) = worker.nest() {
            let _guard = context::enter_worker(&worker);
            let _engine = shared.engine.enter();
            return run_on_worker(&worker, future, &interrupted);
        }
        // The worker does not get to its timers before this call has ended.
        worker.worker_shared().leave_timers_to_driver();
    }
    let role = if shared.has_workers() { Role::Local } else { Role::Worker };
    match WorkerGuard::new(shared, role) {
        Some(guard) => {
            let _runner = (role == Role::Worker).then(|| shared.substitutes.runner());
            let _call = call;
            run_on_worker(guard.worker(), future, &interrupted)
        }
        None => run_parked(handle, future, &interrupted, call),
    }
}

fn run_on_worker<F: Future>(worker: &WorkerLocal, future: F, interrupted: &InterruptedWork) -> F::Output {
    let mut future = pin!(future);
    let woken = WorkerWaker::new(worker.worker_shared());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let (mut output, mut iterations) = (None, 0_u32);
    worker.run(|| {
        if woken.take_wakeup() {
            budget::refill();
            let _poll = worker.worker_shared().begin_poll();
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                output = Some(value);
                return true;
            }
        }
        iterations = iterations.saturating_add(1);
        if iterations > ITERATIONS || !woken.is_woken() {
            interrupted.suspend(Some(worker));
            interrupted.help_if_needed(worker);
        }
        false
    });
    output.expect("the loop ends with it")
}

/// Runs a future without a reactor: if there are no descriptors left, or inside of a waker, where the worker's reactor is in use.
fn run_parked<F: Future>(
    handle: &Handle,
    future: F,
    interrupted: &InterruptedWork,
    call: Option<BlockOnCall>,
) -> F::Output {
    let _guard = context::enter_without_worker(handle);
    let _engine = handle.shared().engine.enter();
    let mut future = pin!(future);
    let shared = handle.shared();
    let woken = Arc::new(ParkedThreadWaker {
        is_woken: AtomicBool::new(true),
        thread: thread::current(),
        shared: shared.virtual_time.is_pausable().then(|| Arc::clone(shared)),
        held: Mutex::new(None),
    });
    let mut held = shared.hold_time();
    let _call = call;
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let (mut iterations, mut has_parked) = (0_u32, false);
    let output = loop {
        while !woken.is_woken.swap(false, Ordering::SeqCst) {
            interrupted.suspend(None);
            has_parked = true;
            held = None;
            thread::park();
        }
        if shared.virtual_time.is_pausable() {
            // (This thread may have taken the hold of this wake-up with the one before: then it still has it.)
            held = lock(&woken.held).take().or(held);
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break output;
        }
        iterations = iterations.saturating_add(1);
        if iterations > ITERATIONS {
            interrupted.suspend(None);
        }
    };
    if has_parked {
        // An executor outside of this call may park the thread as well: it has to look again.
        woken.thread.unpark();
    }
    output
}

impl WorkerWaker {
    /// Returns a waker whose flag is set.
    pub(crate) fn new(worker: &Arc<WorkerShared>) -> Arc<WorkerWaker> {
        Arc::new(WorkerWaker { is_woken: AtomicBool::new(true), worker: Arc::clone(worker) })
    }

    /// Clears the flag and returns whether it was set.
    #[must_use]
    pub(crate) fn take_wakeup(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }

    fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
    }
}

impl Wake for WorkerWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.worker.unpark();
        }
        self.worker.virtual_time.wait_for_move();
    }
}

impl Wake for ParkedThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(shared) = &self.shared {
            // Before the thread can see the wake-up.
            let before = std::mem::replace(&mut *lock(&self.held), shared.hold_time());
            drop(before);
        }
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
