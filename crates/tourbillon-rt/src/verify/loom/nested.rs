//! Nested loops on one worker, and substitutes that run tasks meanwhile (D66, D67).
//!
//! The loops are those of `WorkerLocal::run` and `block_on`, without timers and sockets, over the real [`WorkerShared`], [`WorkerWaker`],
//! [`IdleWorkers`] and [`Substitutes`].

use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use loom::thread;

use super::unpark::task;
use super::{new_worker, park};
use crate::executor::idle::{IdleWorkers, WakeReason};
use crate::executor::substitutes::{SubstituteRequest, Substitutes};
use crate::executor::worker_shared::{ParkAttempt, WorkerShared};
use crate::external::block_on::WorkerWaker;
use crate::reactor::EventBatch;
use crate::sync::{AtomicBool, Injector, Ordering};
use crate::verify::loom::explore;

/// Does as `run_on_worker` with `WorkerLocal::run`: loops until a poll that follows a wake-up finds the flag raised. The thread runs
/// `within` in between, possibly another such loop.
fn run(worker: &Arc<WorkerShared>, woken: &WorkerWaker, is_raised: &AtomicBool, mut within: impl FnMut()) {
    loop {
        if woken.take_wakeup() && is_raised.load(Ordering::SeqCst) {
            return;
        }
        within();
        park(worker, || false);
    }
}

/// Raises the flag of a loop and wakes it, as other threads do.
fn wake(woken: &Arc<WorkerWaker>, is_raised: &AtomicBool) {
    is_raised.store(true, Ordering::SeqCst);
    Waker::from(Arc::clone(woken)).wake();
}

/// Fails if a nested loop that ends does not unpark its worker: then the outer loop, whose wake-up it has consumed, is parked for ever.
#[test]
fn d66_an_outer_loop_sees_the_wake_up_that_a_nested_one_has_consumed() {
    explore(|| {
        let worker = new_worker();
        let (outer, inner) = (WorkerWaker::new(&worker), WorkerWaker::new(&worker));
        let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let (theirs, wakers) = (Arc::clone(&flags), [Arc::clone(&outer), Arc::clone(&inner)]);
        // The outer loop first: while the thread is in the inner one, or before, or after.
        let wakes = thread::spawn(move || {
            wakers.iter().zip(&*theirs).for_each(|(woken, flag)| wake(woken, flag));
        });
        let mut is_first = true;
        run(&worker, &outer, &flags[0], || {
            if std::mem::take(&mut is_first) {
                run(&worker, &inner, &flags[1], || ());
                worker.nested_loop_has_ended();
            }
        });
        wakes.join().unwrap();
    });
}

/// The same for three loops, woken by two threads. Fails as well if `set_awake` stores instead of swapping: then the loop does not see
/// what a thread did before the second of two wake-ups.
#[test]
fn d66_each_of_three_nested_loops_ends_with_its_own_wake_up() {
    explore(|| {
        let worker = new_worker();
        let woken = [WorkerWaker::new(&worker), WorkerWaker::new(&worker), WorkerWaker::new(&worker)];
        let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false)]);
        let wakes = |indices: [usize; 2]| {
            let (theirs, woken) = (Arc::clone(&flags), woken.clone());
            move || indices.iter().for_each(|index| wake(&woken[*index], &theirs[*index]))
        };
        // Another thread wakes the middle loop than its neighbours.
        let first = thread::spawn(wakes([0, 2]));
        let second = thread::spawn(wakes([1, 1]));
        let (mut is_first, mut is_second) = (true, true);
        run(&worker, &woken[0], &flags[0], || {
            if std::mem::take(&mut is_first) {
                run(&worker, &woken[1], &flags[1], || {
                    if std::mem::take(&mut is_second) {
                        run(&worker, &woken[2], &flags[2], || ());
                        worker.nested_loop_has_ended();
                    }
                });
                worker.nested_loop_has_ended();
            }
        });
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// The queues and the threads of a runtime.
struct NestedCallModel {
    injector: Injector<Runnable>,
    idle: IdleWorkers,
    substitutes: Substitutes,
}

impl NestedCallModel {
    /// Returns a runtime with `workers` workers.
    fn new(workers: usize) -> Arc<NestedCallModel> {
        let substitutes = Substitutes::new("model", workers);
        Arc::new(NestedCallModel { injector: Injector::new(), idle: IdleWorkers::default(), substitutes })
    }

    /// As `RuntimeShared::schedule` does from outside.
    fn schedule(self: &Arc<NestedCallModel>, runnable: Runnable) {
        self.injector.push(runnable);
        self.idle.unpark_one();
        self.request_substitute();
    }

    /// As `RuntimeShared::unpark_if_tasks` does.
    fn unpark_if_tasks(self: &Arc<NestedCallModel>) {
        if !self.injector.is_empty() {
            self.idle.unpark_one();
            self.request_substitute();
        }
    }

    /// As `RuntimeShared::request_substitute_if_needed` does, with `substitutes::request`.
    fn request_substitute(self: &Arc<NestedCallModel>) {
        let is_called = self.substitutes.lacks_runner() && !self.injector.is_empty();
        if is_called && self.substitutes.try_request() == SubstituteRequest::Start {
            let theirs = Arc::clone(self);
            thread::spawn(move || theirs.substitute());
        }
    }

    /// As a substitute does until it retires, and then what the end of its `WorkerGuard` does.
    fn substitute(self: &Arc<NestedCallModel>) {
        let (worker, mut own) = (new_worker(), None);
        self.substitutes.enter(&worker);
        while !self.substitutes.try_retire() {
            match own.take() {
                Some(runnable) => _ = Runnable::run(runnable),
                None => {
                    own = self.injector.steal().success();
                    if own.is_none() {
                        self.park(&worker);
                    }
                }
            }
        }
        self.substitutes.leave(&worker);
        own.into_iter().for_each(|runnable| self.injector.push(runnable));
        self.unpark_if_tasks();
        self.substitutes.end_substitute();
    }

    /// As `WorkerLocal::park` does.
    fn park(&self, worker: &Arc<WorkerShared>) {
        if worker.try_park() == ParkAttempt::Notified {
            return;
        }
        self.idle.add(worker);
        if self.injector.is_empty() {
            worker.reactor.wait(None, &mut EventBatch::default()).unwrap();
        }
        worker.set_awake();
        if self.idle.remove(worker) == WakeReason::ToSearch {
            self.idle.search_done();
        }
    }

    /// As a worker does in a task: a nested call that waits for the flag.
    fn nested(self: &Arc<NestedCallModel>, worker: &Arc<WorkerShared>, woken: &WorkerWaker, is_raised: &AtomicBool) {
        let mut is_suspended = false;
        run(worker, woken, is_raised, || {
            if !std::mem::replace(&mut is_suspended, true) {
                self.substitutes.suspend();
                self.unpark_if_tasks();
            }
        });
        if is_suspended {
            self.substitutes.resume();
        }
        worker.nested_loop_has_ended();
    }
}

/// Fails without the fence in `suspend`, if the last runner looks at the queue before it marks itself as suspended, or if the sender
/// looks before it pushes.
#[test]
fn d66_a_task_that_is_sent_while_the_only_worker_is_being_suspended_is_run() {
    explore(|| {
        let (runtime, worker) = (NestedCallModel::new(1), new_worker());
        let (woken, is_raised) = (WorkerWaker::new(&worker), Arc::new(AtomicBool::new(false)));
        let (theirs, wakes, flag) = (Arc::clone(&runtime), Arc::clone(&woken), Arc::clone(&is_raised));
        let sends = thread::spawn(move || theirs.schedule(task(move || wake(&wakes, &flag))));
        runtime.nested(&worker, &woken, &is_raised);
        sends.join().unwrap();
    });
}

/// Fails if a substitute that retires gives its tasks back and does not check whether a thread runs them, or if the last runner looks at
/// the queue before it marks itself as suspended.
#[test]
fn d66_a_second_nested_call_is_served_though_the_substitute_of_the_first_is_retiring() {
    explore(|| {
        let (runtime, worker) = (NestedCallModel::new(1), new_worker());
        for _ in 0..2 {
            let (woken, is_raised) = (WorkerWaker::new(&worker), Arc::new(AtomicBool::new(false)));
            let (wakes, flag) = (Arc::clone(&woken), Arc::clone(&is_raised));
            runtime.schedule(task(move || wake(&wakes, &flag)));
            runtime.nested(&worker, &woken, &is_raised);
        }
    });
}
