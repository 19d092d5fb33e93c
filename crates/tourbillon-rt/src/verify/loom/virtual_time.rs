//! Virtual time: it moves when all threads are parked, and not while a wake-up is on its way (B6).
//!
//! The loops are those of `WorkerLocal::run` and `Mover::find_work`, without sockets, over the real [`WorkerShared`], [`IdleWorkers`],
//! [`WorkerWaker`] and [`VirtualTime`]. The clock is a number, and one timer is pending, at time 1.

use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use loom::thread;

use super::unpark::task;
use crate::executor::idle::{IdleWorkers, WakeReason};
use crate::executor::virtual_time::{VirtualTime, WorkEnd};
use crate::executor::worker::{IdleSlot, Role};
use crate::executor::worker_shared::{ParkAttempt, WorkerShared};
use crate::external::block_on::WorkerWaker;
use crate::reactor::EventBatch;
use crate::sync::{AtomicBool, AtomicUsize, Injector, Ordering};
use crate::verify::loom::explore_up_to;
use crate::verify::loom::reactor::silent_reactor;

/// A runtime with virtual time.
struct VirtualTimeModel {
    injector: Injector<Runnable>,
    idle: IdleWorkers,
    virtual_time: VirtualTime,
    workers: Vec<Arc<WorkerShared>>,
    clock: AtomicUsize,
    /// A socket that a task waits for is ready.
    is_ready: AtomicBool,
    is_done: AtomicBool,
}

impl VirtualTimeModel {
    /// Returns a runtime with `threads` threads that run tasks, and a thread inside `block_on`.
    fn new(threads: usize) -> Arc<VirtualTimeModel> {
        let virtual_time = VirtualTime::pausable();
        // The call never returns.
        std::mem::forget(virtual_time.enter_block_on());
        Arc::new(VirtualTimeModel {
            injector: Injector::new(),
            idle: IdleWorkers::default(),
            workers: (0..threads).map(|_| IdleSlot::new(silent_reactor(), &virtual_time).worker).collect(),
            virtual_time,
            clock: AtomicUsize::new(0),
            is_ready: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        })
    }

    fn now(&self) -> usize {
        self.clock.load(Ordering::SeqCst)
    }

    /// As `RuntimeShared::schedule` does from outside.
    fn schedule(&self, runnable: Runnable) {
        self.injector.push(runnable);
        self.idle.unpark_one();
        self.virtual_time.wait_for_move();
    }

    /// As `RuntimeShared::is_idle` does.
    fn is_idle(&self) -> bool {
        self.virtual_time.may_move() && self.injector.is_empty() && self.workers.iter().all(|worker| worker.is_idle())
    }

    /// As `Mover::find_work` does; but a ready socket is left to its own thread.
    fn find_work(&self, worker: &WorkerShared) -> bool {
        self.virtual_time.try_move(|| {
            let moves = self.is_idle() && !self.is_ready.load(Ordering::SeqCst) && self.now() == 0;
            if moves {
                self.clock.store(1, Ordering::SeqCst);
                worker.set_awake();
            }
            moves
        })
    }

    /// As `WorkerLocal::park` does.
    fn park(&self, worker: &Arc<WorkerShared>, role: Role) {
        if worker.try_park() == ParkAttempt::Notified {
            return;
        }
        if role == Role::Worker {
            self.idle.add(worker);
        }
        let has_task = role == Role::Worker && !self.injector.is_empty();
        let has_work = has_task || self.is_done.load(Ordering::SeqCst);
        if !has_work && !self.find_work(worker) {
            worker.reactor.wait(None, &mut EventBatch::default()).unwrap();
        }
        worker.set_awake();
        self.virtual_time.wait_for_move();
        if role == Role::Worker && self.idle.remove(worker) == WakeReason::ToSearch {
            self.idle.search_done();
        }
    }

    /// As `WorkerLocal::run` does, until `is_done`.
    fn work(&self, worker: usize, role: Role) {
        let worker = &self.workers[worker];
        while !self.is_done.load(Ordering::SeqCst) {
            let task = if role == Role::Worker { self.injector.steal().success() } else { None };
            match task {
                Some(runnable) => _ = runnable.run(),
                None => self.park(worker, role),
            }
        }
    }

    /// Makes all threads return from [`work`](VirtualTimeModel::work).
    fn end(&self) {
        self.is_done.store(true, Ordering::SeqCst);
        self.workers.iter().for_each(|worker| worker.unpark());
    }

    /// Returns a task that notes the time and ends the model.
    fn noting(self: &Arc<VirtualTimeModel>, seen: &Arc<AtomicUsize>) -> Runnable {
        let (runtime, seen) = (Arc::clone(self), Arc::clone(seen));
        task(move || {
            seen.store(runtime.now(), Ordering::SeqCst);
            runtime.end();
        })
    }
}

/// Fails if `schedule` does not wait for a move.
#[test]
fn b6_time_does_not_move_between_a_wake_up_from_outside_and_its_task() {
    explore_up_to(3, || {
        let (runtime, seen) = (VirtualTimeModel::new(1), Arc::new(AtomicUsize::new(usize::MAX)));
        let (theirs, notes) = (Arc::clone(&runtime), Arc::clone(&seen));
        let wakes = thread::spawn(move || {
            theirs.schedule(theirs.noting(&notes));
            theirs.now()
        });
        runtime.work(0, Role::Worker);
        let after = wakes.join().unwrap();
        let seen = seen.load(Ordering::SeqCst);
        assert!(seen <= after, "the task was woken at {after} and ran at {seen}");
    });
}

/// The last worker parks while another thread wakes a task, and a thread inside `block_on`, which runs no tasks, checks whether time
/// moves. Fails as the one before; if the mover does not look at the queue; and without the fence of `try_move`.
#[test]
fn b6_the_last_worker_goes_idle_while_another_thread_wakes_a_task() {
    explore_up_to(2, || {
        let (runtime, seen) = (VirtualTimeModel::new(2), Arc::new(AtomicUsize::new(usize::MAX)));
        let theirs = Arc::clone(&runtime);
        let other = thread::spawn(move || theirs.work(1, Role::Local));
        let (theirs, notes) = (Arc::clone(&runtime), Arc::clone(&seen));
        let wakes = thread::spawn(move || {
            theirs.schedule(theirs.noting(&notes));
            theirs.now()
        });
        runtime.work(0, Role::Worker);
        other.join().unwrap();
        let after = wakes.join().unwrap();
        let seen = seen.load(Ordering::SeqCst);
        assert!(seen <= after, "the task was woken at {after} and ran at {seen}");
    });
}

/// Fails if a thread that finds the mover's lock taken does not wait for it: then neither of two that park at the same time moves the
/// clock.
#[test]
fn b6_one_of_two_threads_that_go_idle_at_the_same_time_moves_the_clock() {
    explore_up_to(3, || {
        let runtime = VirtualTimeModel::new(2);
        let runs = |runtime: Arc<VirtualTimeModel>, worker: usize| {
            move || {
                while !runtime.is_done.load(Ordering::SeqCst) {
                    runtime.park(&runtime.workers[worker], Role::Worker);
                    // The timer's task: it ends the model.
                    if runtime.now() == 1 {
                        runtime.end();
                    }
                }
            }
        };
        let other = thread::spawn(runs(Arc::clone(&runtime), 1));
        runs(Arc::clone(&runtime), 0)();
        other.join().unwrap();
        assert_eq!(runtime.now(), 1);
    });
}

/// The future of a `block_on`. Fails if its waker does not wait for a move.
#[test]
fn b6_time_does_not_move_between_a_wake_up_and_the_future_of_block_on() {
    explore_up_to(3, || {
        let runtime = VirtualTimeModel::new(1);
        let (woken, is_raised) = (WorkerWaker::new(&runtime.workers[0]), Arc::new(AtomicBool::new(false)));
        let (theirs, wakes, raises) = (Arc::clone(&runtime), Arc::clone(&woken), Arc::clone(&is_raised));
        let other = thread::spawn(move || {
            raises.store(true, Ordering::SeqCst);
            Waker::from(wakes).wake();
            theirs.now()
        });
        let mut seen = None;
        while seen.is_none() {
            if woken.take_wakeup() && is_raised.load(Ordering::SeqCst) {
                seen = Some(runtime.now());
            } else {
                runtime.park(&runtime.workers[0], Role::Local);
            }
        }
        let after = other.join().unwrap();
        assert!(seen.is_some_and(|seen| seen <= after), "it was woken at {after} and polled at {seen:?}");
    });
}

/// The kernel wakes a worker for a socket, which its task reads, while a thread inside `block_on` checks whether time moves. Fails if a
/// thread that wakes up does not wait for a move: then the mover, which has found the worker parked, finds the socket read.
#[test]
fn b6_time_does_not_move_while_a_thread_that_the_kernel_has_woken_runs_its_task() {
    explore_up_to(2, || {
        let runtime = VirtualTimeModel::new(2);
        let theirs = Arc::clone(&runtime);
        let other = thread::spawn(move || theirs.work(1, Role::Local));
        let theirs = Arc::clone(&runtime);
        let kernel = thread::spawn(move || {
            // Not a store: loom may order that before a swap that has not seen it.
            theirs.is_ready.swap(true, Ordering::SeqCst);
            theirs.workers[0].reactor.wake();
        });
        while !runtime.is_ready.swap(false, Ordering::SeqCst) {
            runtime.park(&runtime.workers[0], Role::Worker);
        }
        let begun = runtime.now();
        thread::yield_now();
        assert_eq!(runtime.now(), begun, "time has moved while the task ran");
        runtime.end();
        other.join().unwrap();
        kernel.join().unwrap();
    });
}

/// Fails if the end of the last work does not unpark the workers, if the work is counted down before its task is woken, and if the mover
/// does not look at the count.
#[test]
fn d74_time_stands_still_until_counted_work_has_woken_its_task_and_moves_then() {
    explore_up_to(3, || {
        let (runtime, seen) = (VirtualTimeModel::new(1), Arc::new(AtomicUsize::new(usize::MAX)));
        runtime.virtual_time.begin_work();
        let (theirs, notes) = (Arc::clone(&runtime), Arc::clone(&seen));
        // As the closure that `spawn_blocking` gives to its pool.
        let works = thread::spawn(move || {
            assert_eq!(theirs.now(), 0);
            let runtime = Arc::clone(&theirs);
            theirs.schedule(task(move || notes.store(runtime.now(), Ordering::SeqCst)));
            if theirs.virtual_time.end_work() == WorkEnd::Last {
                theirs.workers.iter().for_each(|worker| worker.unpark());
            }
        });
        while runtime.now() == 0 {
            match runtime.injector.steal().success() {
                Some(runnable) => _ = runnable.run(),
                None => runtime.park(&runtime.workers[0], Role::Worker),
            }
        }
        works.join().unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 0, "time has moved before the task ran");
    });
}
