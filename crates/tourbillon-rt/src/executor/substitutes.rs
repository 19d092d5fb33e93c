//! Substitute threads run the runtime's tasks while every thread that would run them waits inside a nested `block_on` (D66, D67).
//!
//! A *runner* is a thread that takes tasks from the queues: a worker, or, in a runtime without workers, a thread inside `block_on`. A
//! nested `block_on` does not run other tasks on its own stack: the stack would be as deep as there are tasks that nest, and a task on
//! top could wait for the one below. Instead the runner is *suspended* when its nested call first has to wait:
//!
//! ```text
//!     runner ---- a nested call has to wait ----> suspended ---- the call returns ----> runner
//!                                                    |
//!                    no runner is left, and a task is queued: one substitute is requested
//!                                                    |
//!                      refused: there are MOST of them, or the system refuses a thread
//!                                                    v
//!               a suspended thread runs tasks on its own stack after all, at most DEPTH nested calls deep
//! ```
//!
//! A substitute is a runner like any other and can be suspended itself. It retires when another thread runs tasks again, and waits for
//! [`KEPT`] for the next request before it ends.
//!
//! # No task is left without a runner
//!
//! A thread that queues a task pushes it and then checks whether the runtime lacks a runner (a thread is suspended, and none runs tasks).
//! The last runner notes that it is suspended and then looks at the queue. Both have a sequentially consistent fence between the two
//! steps, so one of the two sees the other and requests a substitute.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use super::external_threads::WorkerGuard;
use super::shared::RuntimeShared;
use super::worker::{Role, WorkerLocal};
use super::worker_shared::WorkerShared;
use crate::clock;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, fence, lock};
use crate::task::catch;

/// The most substitutes that a runtime has.
#[cfg(not(shuttle))]
pub(crate) const MOST: usize = 64;
#[cfg(shuttle)]
pub(crate) use crate::sync::under_shuttle::SUBSTITUTES as MOST;

/// The most nested calls of one thread that run tasks on its stack: local tasks, and tasks for which a substitute is refused.
pub(crate) const DEPTH: u32 = 16;

/// How long a retired substitute waits for the next request.
const KEPT: Duration = Duration::from_secs(1);

pub(crate) struct Substitutes {
    /// A thread is suspended, and none runs tasks.
    lacks_runner: AtomicBool,
    /// A substitute could retire: see [`SubstituteState::has_surplus`].
    has_surplus: AtomicBool,
    /// The last request was refused.
    is_refused: AtomicBool,
    /// There is a substitute whose tasks could be stolen.
    has_substitutes: AtomicBool,
    state: Mutex<SubstituteState>,
    wakeup: Condvar,
    /// The name of the threads.
    name: String,
}

#[derive(Default)]
struct SubstituteState {
    /// Threads that run tasks, including substitutes that have been requested.
    runners: usize,
    suspended: usize,
    /// Suspended threads whose nested call could run tasks.
    helpers: Vec<Arc<WorkerShared>>,
    /// Substitutes that wait for a request.
    idle: usize,
    /// Idle substitutes that have been requested and have not woken up yet. They count as runners.
    requested: usize,
    /// Threads of substitutes that have not ended.
    alive: usize,
    /// The substitutes that run tasks, or are suspended.
    workers: Vec<Arc<WorkerShared>>,
    threads: Vec<JoinHandle<()>>,
    is_ended: bool,
}

/// The result of [`Substitutes::try_request`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum SubstituteRequest {
    /// A thread runs tasks already, or an idle substitute does now.
    Served,
    /// The caller has to start a thread, which counts as a runner already.
    Start,
    /// There are [`MOST`] substitutes: the suspended threads have been unparked to run tasks themselves.
    Refused,
}

/// Makes a thread a runner until it is dropped.
pub(crate) struct RunnerGuard<'a>(&'a Substitutes);

impl SubstituteState {
    fn lacks_runner(&self) -> bool {
        self.suspended > 0 && self.runners == 0
    }

    /// Returns whether one of the runners could retire, if it is a substitute.
    fn has_surplus(&self) -> bool {
        self.suspended == 0 || self.runners > 1 || self.is_ended
    }
}

impl Substitutes {
    /// Returns the substitutes of a runtime with `workers` workers.
    pub(crate) fn new(name: &str, workers: usize) -> Substitutes {
        Substitutes {
            lacks_runner: AtomicBool::new(false),
            has_surplus: AtomicBool::new(true),
            is_refused: AtomicBool::new(false),
            has_substitutes: AtomicBool::new(false),
            state: Mutex::new(SubstituteState { runners: workers, ..SubstituteState::default() }),
            wakeup: Condvar::new(),
            name: format!("{name}-nested"),
        }
    }

    /// Makes the calling thread a runner.
    pub(crate) fn runner(&self) -> RunnerGuard<'_> {
        self.change(|state| state.runners += 1);
        RunnerGuard(self)
    }

    /// Called when a worker has ended.
    pub(crate) fn end_runner(&self) {
        self.change(|state| state.runners -= 1);
    }

    /// Called when a runner is suspended.
    pub(crate) fn suspend(&self) {
        self.change(|state| {
            state.runners -= 1;
            state.suspended += 1;
        });
        // Before the caller looks at the queue.
        fence(Ordering::SeqCst);
    }

    /// Called when a suspended thread runs tasks again.
    pub(crate) fn resume(&self) {
        self.change(|state| {
            state.runners += 1;
            state.suspended -= 1;
        });
    }

    /// Offers that a suspended thread runs tasks inside its nested call if a substitute is refused, until it
    /// [withdraws](Substitutes::withdraw) the offer.
    pub(crate) fn offer(&self, worker: &Arc<WorkerShared>) {
        lock(&self.state).helpers.push(Arc::clone(worker));
    }

    pub(crate) fn withdraw(&self, worker: &Arc<WorkerShared>) {
        let mut state = lock(&self.state);
        let index = state.helpers.iter().rposition(|helper| Arc::ptr_eq(helper, worker));
        index.map(|index| state.helpers.swap_remove(index));
    }

    /// Called by a suspended thread that has made an offer: makes it a runner if it is needed, and returns whether it is.
    #[must_use]
    pub(crate) fn take_offer(&self) -> bool {
        self.is_refused.load(Ordering::SeqCst) && {
            let mut state = lock(&self.state);
            let is_needed = state.lacks_runner();
            if is_needed {
                state.runners += 1;
                state.suspended -= 1;
                self.update(&state);
            }
            is_needed
        }
    }

    pub(crate) fn lacks_runner(&self) -> bool {
        self.lacks_runner.load(Ordering::SeqCst)
    }

    /// Returns whether there is a substitute whose tasks could be stolen.
    pub(crate) fn has_substitutes(&self) -> bool {
        self.has_substitutes.load(Ordering::Relaxed)
    }

    /// Called at the end of the runtime: each substitute ends, too, when the task that it runs returns.
    pub(crate) fn end(&self) {
        self.change(|state| state.is_ended = true);
        self.wakeup.notify_all();
    }

    /// Waits until the threads of substitutes have ended, but not beyond `until`, and returns how many have not.
    pub(crate) fn join(&self, until: Option<Instant>) -> usize {
        loop {
            let threads = std::mem::take(&mut lock(&self.state).threads);
            if threads.is_empty() {
                return 0;
            }
            let mut pause = Duration::from_micros(50);
            while let Some(until) = until.filter(|_| !threads.iter().all(JoinHandle::is_finished)) {
                if clock::system_now() >= until {
                    return threads.iter().filter(|thread| !thread.is_finished()).count();
                }
                thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
            }
            let this = thread::current().id();
            for thread in threads.into_iter().filter(|thread| thread.thread().id() != this) {
                // A substitute does not panic.
                let _ = thread.join();
            }
        }
    }

    /// Requests a substitute, unless a thread runs tasks.
    pub(crate) fn try_request(&self) -> SubstituteRequest {
        let mut state = lock(&self.state);
        if !state.lacks_runner() || state.is_ended {
            return SubstituteRequest::Served;
        }
        if state.idle == 0 && state.alive >= MOST {
            self.refuse(state);
            return SubstituteRequest::Refused;
        }
        state.runners += 1;
        self.update(&state);
        if state.idle == 0 {
            state.alive += 1;
            return SubstituteRequest::Start;
        }
        state.idle -= 1;
        state.requested += 1;
        drop(state);
        self.wakeup.notify_one();
        SubstituteRequest::Served
    }

    /// Called if the requested substitute cannot run tasks: the system refuses a thread, or descriptors.
    fn fail_request(&self) {
        let mut state = lock(&self.state);
        state.runners -= 1;
        self.update(&state);
        self.refuse(state);
    }

    /// Called by a substitute that acts as a worker now.
    pub(crate) fn enter(&self, worker: &Arc<WorkerShared>) {
        self.change(|state| state.workers.push(Arc::clone(worker)));
    }

    /// Called by a retired substitute that is about to act as a worker no longer.
    pub(crate) fn leave(&self, worker: &Arc<WorkerShared>) {
        self.change(|state| state.workers.retain(|other| !Arc::ptr_eq(other, worker)));
    }

    /// Called when the thread of a substitute ends.
    pub(crate) fn end_substitute(&self) {
        lock(&self.state).alive -= 1;
    }

    fn change(&self, change: impl FnOnce(&mut SubstituteState)) {
        let mut state = lock(&self.state);
        change(&mut state);
        self.update(&state);
    }

    /// Publishes the state, under its lock.
    fn update(&self, state: &SubstituteState) {
        self.has_substitutes.store(!state.workers.is_empty(), Ordering::Relaxed);
        self.lacks_runner.store(state.lacks_runner(), Ordering::SeqCst);
        if !state.lacks_runner() {
            self.is_refused.store(false, Ordering::SeqCst);
        }
        let had_surplus = self.has_surplus.swap(state.has_surplus(), Ordering::SeqCst);
        if state.has_surplus() && (!had_surplus || state.is_ended) {
            state.workers.iter().for_each(|worker| worker.unpark());
        }
    }

    /// Refuses a request: the suspended threads run tasks themselves.
    fn refuse(&self, state: MutexGuard<'_, SubstituteState>) {
        self.is_refused.store(true, Ordering::SeqCst);
        state.helpers.iter().for_each(|worker| worker.unpark());
    }

    /// Called by a substitute, a runner: retires it if it is not needed, and returns whether it has.
    #[must_use]
    pub(crate) fn try_retire(&self) -> bool {
        if !self.has_surplus.load(Ordering::SeqCst) {
            return false;
        }
        let mut state = lock(&self.state);
        let retires = state.has_surplus();
        if retires {
            state.runners -= 1;
            self.update(&state);
        }
        retires
    }

    /// Called by a retired substitute: waits for a request and returns whether one has come. Then it is a runner.
    #[must_use]
    fn wait_for_request(&self) -> bool {
        let mut state = lock(&self.state);
        state.idle += 1;
        let until = clock::system_now() + KEPT;
        let mut is_over = false;
        loop {
            if state.requested > 0 {
                state.requested -= 1;
                return true;
            }
            if is_over || state.is_ended {
                state.idle -= 1;
                return false;
            }
            let left = until.saturating_duration_since(clock::system_now());
            let (locked, timeout) = self.wakeup.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            (state, is_over) = (locked, timeout.timed_out());
        }
    }
}

/// Requests a substitute, because a task is queued and no thread runs tasks.
pub(crate) fn request(shared: &Arc<RuntimeShared>) {
    let this = &shared.substitutes;
    if this.try_request() == SubstituteRequest::Start {
        match start(shared) {
            Ok(thread) => {
                let mut state = lock(&this.state);
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
            }
            Err(_) => {
                this.end_substitute();
                this.fail_request();
            }
        }
    }
}

fn start(shared: &Arc<RuntimeShared>) -> io::Result<JoinHandle<()>> {
    let theirs = Arc::clone(shared);
    thread::Builder::new().name(shared.substitutes.name.clone()).spawn(move || {
        theirs.substitute_has_begun();
        while work(&theirs) && theirs.substitutes.wait_for_request() {}
        theirs.substitutes.end_substitute();
        theirs.substitute_has_ended();
    })
}

/// Runs tasks until another thread does. Returns `false` if it could not.
#[must_use]
fn work(shared: &Arc<RuntimeShared>) -> bool {
    let this = &shared.substitutes;
    let Some(guard) = WorkerGuard::new(shared, Role::Worker) else {
        // There are no descriptors for a reactor.
        this.fail_request();
        return false;
    };
    let worker_shared = Arc::clone(guard.worker().worker_shared());
    this.enter(&worker_shared);
    if shared.has_monitor {
        shared.monitor.watch();
    }
    // As a worker: our own code does not panic, and should it, the thread goes on.
    while catch(|| guard.worker().run(|| is_done(shared, guard.worker()))).is_err() {}
    this.leave(&worker_shared);
    true
}

fn is_done(shared: &RuntimeShared, worker: &WorkerLocal) -> bool {
    if shared.is_stopping() {
        worker.worker_shared().locals.abort_all();
    }
    // Local tasks run on this thread and no other: it stays for them.
    let has_locals = worker.worker_shared().locals.len() > 0 && !shared.is_stopped();
    !has_locals && shared.substitutes.try_retire()
}

impl Drop for RunnerGuard<'_> {
    fn drop(&mut self) {
        self.0.end_runner();
    }
}
