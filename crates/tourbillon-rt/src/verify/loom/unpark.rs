//! Unparking: of one worker, and of any idle worker.

use std::sync::Arc;

use async_task::Runnable;
use loom::thread;

use super::{new_worker, park};
use crate::executor::idle::{IdleWorkers, WakeReason};
use crate::executor::worker_shared::{ParkAttempt, WorkerShared};
use crate::reactor::EventBatch;
use crate::sync::{AtomicBool, Injector, Ordering};
use crate::verify::loom::{explore, explore_up_to};

/// Returns a task that calls a function once.
pub(crate) fn task(does: impl FnOnce() + Send + 'static) -> Runnable {
    let (runnable, task) = async_task::spawn(async move { does() }, |_| ());
    task.detach();
    runnable
}

/// Fails if `unpark` wakes the reactor only if a load before its store finds the worker parked, if `try_park` overwrites a notification,
/// or if either is relaxed: the worker has to see what the thread did before `unpark`.
#[test]
fn an_unpark_reaches_a_worker_that_is_about_to_park_and_one_that_is_parked() {
    explore(|| {
        let (worker, is_done) = (new_worker(), Arc::new(AtomicBool::new(false)));
        let (theirs, does) = (Arc::clone(&worker), Arc::clone(&is_done));
        let calls = thread::spawn(move || {
            does.store(true, Ordering::Relaxed);
            theirs.unpark();
        });
        while !is_done.load(Ordering::Relaxed) {
            park(&worker, || false);
        }
        calls.join().unwrap();
    });
}

/// Fails if `push_local` unparks the worker before it has put the task into the inbox.
#[test]
fn tasks_that_are_sent_to_a_worker_by_two_threads_are_both_received() {
    explore_up_to(2, || {
        let worker = new_worker();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&worker);
                thread::spawn(move || theirs.push_local(task(|| ())))
            })
            .collect();
        let mut received = 0;
        while received < 2 {
            match worker.pop_local() {
                Some(task) => {
                    let _ = task.run();
                    received += 1;
                }
                None => park(&worker, || worker.has_local_task()),
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(!worker.has_local_task());
    });
}

/// Workers and the global queue.
#[derive(Default)]
struct UnparkModel {
    injector: Option<Injector<Runnable>>,
    idle: IdleWorkers,
    is_done: AtomicBool,
}

impl UnparkModel {
    fn new() -> Arc<UnparkModel> {
        Arc::new(UnparkModel { injector: Some(Injector::new()), ..UnparkModel::default() })
    }

    fn injector(&self) -> &Injector<Runnable> {
        self.injector.as_ref().unwrap()
    }

    /// As `RuntimeShared::schedule` does from outside.
    fn schedule(&self, runnable: Runnable) {
        self.injector().push(runnable);
        self.idle.unpark_one();
    }

    /// As a worker does, until `is_done`.
    fn work(&self, worker: &Arc<WorkerShared>) {
        while !self.is_done.load(Ordering::SeqCst) {
            match self.injector().steal().success() {
                Some(runnable) => _ = runnable.run(),
                None => self.park(worker),
            }
        }
    }

    /// As `WorkerLocal::park` does.
    fn park(&self, worker: &Arc<WorkerShared>) {
        if worker.try_park() == ParkAttempt::Notified {
            return;
        }
        self.idle.add(worker);
        if self.injector().is_empty() && !self.is_done.load(Ordering::SeqCst) {
            worker.reactor.wait(None, &mut EventBatch::default()).unwrap();
        }
        worker.set_awake();
        if self.idle.remove(worker) == WakeReason::ToSearch {
            let found = !self.injector().is_empty();
            self.idle.search_done();
            if found {
                self.idle.unpark_searcher();
            }
        }
    }
}

/// Fails without either of the two fences, if `add` comes after the look at the queue, or if `unpark_one` looks before the push.
#[test]
fn f10_a_task_from_outside_is_run_by_a_worker_that_is_about_to_sleep() {
    explore(|| {
        let (runtime, worker) = (UnparkModel::new(), new_worker());
        let theirs = Arc::clone(&runtime);
        let sends = thread::spawn(move || {
            let ends = Arc::clone(&theirs);
            theirs.schedule(task(move || ends.is_done.store(true, Ordering::SeqCst)));
        });
        runtime.work(&worker);
        sends.join().unwrap();
    });
}

/// Fails like the one before; and if a worker that was unparked and finds the task gone does not call `search_done`: then no worker would
/// ever be unparked to help.
#[test]
fn f10_a_task_from_outside_is_run_by_one_of_two_and_no_worker_is_left_searching() {
    explore_up_to(2, || {
        let (runtime, workers) = (UnparkModel::new(), [new_worker(), new_worker()]);
        let threads = workers.clone().map(|worker| {
            let theirs = Arc::clone(&runtime);
            thread::spawn(move || theirs.work(&worker))
        });
        let (ends, called) = (Arc::clone(&runtime), workers.clone());
        runtime.schedule(task(move || {
            ends.is_done.store(true, Ordering::SeqCst);
            called.iter().for_each(|worker| worker.unpark());
        }));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // An idle worker can still be unparked to help.
        let [worker, _] = workers;
        worker.set_awake();
        assert_eq!(worker.try_park(), ParkAttempt::Parked);
        runtime.idle.add(&worker);
        runtime.idle.unpark_searcher();
        assert!(!worker.is_parked());
    });
}

/// Fails without either of the two fences.
#[test]
fn f10_two_tasks_from_outside_are_both_run() {
    explore_up_to(2, || {
        let (runtime, worker) = (UnparkModel::new(), new_worker());
        let theirs = Arc::clone(&runtime);
        let sends = thread::spawn(move || {
            let ends = Arc::clone(&theirs);
            theirs.injector().push(task(|| ()));
            theirs.idle.unpark_searcher();
            theirs.injector().push(task(move || ends.is_done.store(true, Ordering::SeqCst)));
            theirs.idle.unpark_one();
        });
        runtime.work(&worker);
        sends.join().unwrap();
        assert!(runtime.injector().is_empty());
    });
}
