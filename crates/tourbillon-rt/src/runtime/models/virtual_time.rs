//! Virtual time: it moves when all threads are parked, and not while a wake-up is on its way (B6).
//!
//! The loops are those of `Worker::run` and `Mover::finds_work`, without sockets: over the real [`Seat`], [`Sleepers`], [`OnSeat`] and
//! [`VirtualTime`]. The clock is a number, and one timer is pending, at time 1.

use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use loom::thread;

use super::calls::task;
use crate::models::explore_up_to;
use crate::reactor::Batch;
use crate::reactor::models::deaf_reactor;
use crate::runtime::block_on::OnSeat;
use crate::runtime::seat::{FallingAsleep, Seat};
use crate::runtime::sleepers::{Sleepers, Woken};
use crate::runtime::virtual_time::{VirtualTime, WorkEnd};
use crate::runtime::worker::{Role, Spare};
use crate::sync::{AtomicBool, AtomicUsize, Injector, Ordering};

/// A runtime with virtual time.
struct Crew {
    injector: Injector<Runnable>,
    sleepers: Sleepers,
    virtual_time: VirtualTime,
    seats: Vec<Arc<Seat>>,
    clock: AtomicUsize,
    /// A socket that a task waits for is ready.
    is_ready: AtomicBool,
    is_done: AtomicBool,
}

impl Crew {
    /// With so many threads that run tasks, and a thread inside `block_on`.
    fn new(threads: usize) -> Arc<Crew> {
        let virtual_time = VirtualTime::pausable();
        // It stays inside.
        std::mem::forget(virtual_time.call());
        Arc::new(Crew {
            injector: Injector::new(),
            sleepers: Sleepers::default(),
            seats: (0..threads).map(|_| Spare::new(deaf_reactor(), &virtual_time).seat).collect(),
            virtual_time,
            clock: AtomicUsize::new(0),
            is_ready: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        })
    }

    fn now(&self) -> usize {
        self.clock.load(Ordering::SeqCst)
    }

    /// As `Shared::schedule` does from outside.
    fn schedule(&self, runnable: Runnable) {
        self.injector.push(runnable);
        self.sleepers.call_one();
        self.virtual_time.wait_for_move();
    }

    /// As `Shared::is_idle` does.
    fn is_idle(&self) -> bool {
        self.virtual_time.may_move() && self.injector.is_empty() && self.seats.iter().all(|seat| seat.is_idle())
    }

    /// As `Mover::finds_work` does; but a socket that is ready is left to its own thread.
    fn finds_work(&self, seat: &Seat) -> bool {
        self.virtual_time.try_move(|| {
            let moves = self.is_idle() && !self.is_ready.load(Ordering::SeqCst) && self.now() == 0;
            if moves {
                self.clock.store(1, Ordering::SeqCst);
                seat.wake_up();
            }
            moves
        })
    }

    /// As `Worker::sleep` does.
    fn sleep(&self, seat: &Arc<Seat>, role: Role) {
        if seat.fall_asleep() == FallingAsleep::Called {
            return;
        }
        if role == Role::Worker {
            self.sleepers.add(seat);
        }
        let has_task = role == Role::Worker && !self.injector.is_empty();
        let has_work = has_task || self.is_done.load(Ordering::SeqCst);
        if !has_work && !self.finds_work(seat) {
            seat.reactor.wait(None, &mut Batch::default()).unwrap();
        }
        seat.wake_up();
        self.virtual_time.wait_for_move();
        if role == Role::Worker && self.sleepers.remove(seat) == Woken::ToSearch {
            self.sleepers.has_searched();
        }
    }

    /// As `Worker::run` does, until `is_done`.
    fn work(&self, seat: usize, role: Role) {
        let seat = &self.seats[seat];
        while !self.is_done.load(Ordering::SeqCst) {
            let task = if role == Role::Worker { self.injector.steal().success() } else { None };
            match task {
                Some(runnable) => _ = runnable.run(),
                None => self.sleep(seat, role),
            }
        }
    }

    /// Makes all threads return from [`work`](Crew::work).
    fn end(&self) {
        self.is_done.store(true, Ordering::SeqCst);
        self.seats.iter().for_each(|seat| seat.call());
    }

    /// A task that notes the time and ends the model.
    fn noting(self: &Arc<Crew>, seen: &Arc<AtomicUsize>) -> Runnable {
        let (crew, seen) = (Arc::clone(self), Arc::clone(seen));
        task(move || {
            seen.store(crew.now(), Ordering::SeqCst);
            crew.end();
        })
    }
}

/// Fails if `schedule` does not wait for a move.
#[test]
fn b6_time_does_not_move_between_a_wake_up_from_outside_and_its_task() {
    explore_up_to(3, || {
        let (crew, seen) = (Crew::new(1), Arc::new(AtomicUsize::new(usize::MAX)));
        let (theirs, notes) = (Arc::clone(&crew), Arc::clone(&seen));
        let wakes = thread::spawn(move || {
            theirs.schedule(theirs.noting(&notes));
            theirs.now()
        });
        crew.work(0, Role::Worker);
        let after = wakes.join().unwrap();
        let seen = seen.load(Ordering::SeqCst);
        assert!(seen <= after, "the task was woken at {after} and ran at {seen}");
    });
}

/// The last worker goes to sleep while another thread wakes a task, and a thread inside `block_on`, which runs no tasks, looks whether
/// time moves. Fails as the one before; if the mover does not look at the queue; and without the fence of `try_move`.
#[test]
fn b6_the_last_worker_goes_idle_while_another_thread_wakes_a_task() {
    explore_up_to(2, || {
        let (crew, seen) = (Crew::new(2), Arc::new(AtomicUsize::new(usize::MAX)));
        let theirs = Arc::clone(&crew);
        let other = thread::spawn(move || theirs.work(1, Role::Local));
        let (theirs, notes) = (Arc::clone(&crew), Arc::clone(&seen));
        let wakes = thread::spawn(move || {
            theirs.schedule(theirs.noting(&notes));
            theirs.now()
        });
        crew.work(0, Role::Worker);
        other.join().unwrap();
        let after = wakes.join().unwrap();
        let seen = seen.load(Ordering::SeqCst);
        assert!(seen <= after, "the task was woken at {after} and ran at {seen}");
    });
}

/// Fails if a thread that finds the mover's lock taken does not wait for it: then neither of two that go to sleep at the same time moves
/// the clock.
#[test]
fn b6_one_of_two_threads_that_go_idle_at_the_same_time_moves_the_clock() {
    explore_up_to(3, || {
        let crew = Crew::new(2);
        let runs = |crew: Arc<Crew>, seat: usize| {
            move || {
                while !crew.is_done.load(Ordering::SeqCst) {
                    crew.sleep(&crew.seats[seat], Role::Worker);
                    // The timer's task: it ends the model.
                    if crew.now() == 1 {
                        crew.end();
                    }
                }
            }
        };
        let other = thread::spawn(runs(Arc::clone(&crew), 1));
        runs(Arc::clone(&crew), 0)();
        other.join().unwrap();
        assert_eq!(crew.now(), 1);
    });
}

/// The future of a `block_on`. Fails if its waker does not wait for a move.
#[test]
fn b6_time_does_not_move_between_a_wake_up_and_the_future_of_block_on() {
    explore_up_to(3, || {
        let crew = Crew::new(1);
        let (woken, is_raised) = (OnSeat::new(&crew.seats[0]), Arc::new(AtomicBool::new(false)));
        let (theirs, wakes, raises) = (Arc::clone(&crew), Arc::clone(&woken), Arc::clone(&is_raised));
        let other = thread::spawn(move || {
            raises.store(true, Ordering::SeqCst);
            Waker::from(wakes).wake();
            theirs.now()
        });
        let mut seen = None;
        while seen.is_none() {
            if woken.is_taken() && is_raised.load(Ordering::SeqCst) {
                seen = Some(crew.now());
            } else {
                crew.sleep(&crew.seats[0], Role::Local);
            }
        }
        let after = other.join().unwrap();
        assert!(seen.is_some_and(|seen| seen <= after), "it was woken at {after} and polled at {seen:?}");
    });
}

/// The kernel wakes a worker for a socket, which its task reads, while a thread inside `block_on` looks whether time moves. Fails if a
/// thread that wakes up does not wait for a move: then the mover, which has found the worker asleep, finds the socket read.
#[test]
fn b6_time_does_not_move_while_a_thread_that_the_kernel_has_woken_runs_its_task() {
    explore_up_to(2, || {
        let crew = Crew::new(2);
        let theirs = Arc::clone(&crew);
        let other = thread::spawn(move || theirs.work(1, Role::Local));
        let theirs = Arc::clone(&crew);
        let kernel = thread::spawn(move || {
            // Not a store: loom may order that before a swap that has not seen it.
            theirs.is_ready.swap(true, Ordering::SeqCst);
            theirs.seats[0].reactor.wake();
        });
        while !crew.is_ready.swap(false, Ordering::SeqCst) {
            crew.sleep(&crew.seats[0], Role::Worker);
        }
        let begun = crew.now();
        thread::yield_now();
        assert_eq!(crew.now(), begun, "time has moved while the task ran");
        crew.end();
        other.join().unwrap();
        kernel.join().unwrap();
    });
}

/// Fails if the end of the last work does not call the seats, if the work is counted down before its task is woken, and if the mover does
/// not look at the count.
#[test]
fn d74_time_stands_still_until_counted_work_has_woken_its_task_and_moves_then() {
    explore_up_to(3, || {
        let (crew, seen) = (Crew::new(1), Arc::new(AtomicUsize::new(usize::MAX)));
        crew.virtual_time.begin_work();
        let (theirs, notes) = (Arc::clone(&crew), Arc::clone(&seen));
        // As the closure that `spawn_blocking` gives to its pool.
        let works = thread::spawn(move || {
            assert_eq!(theirs.now(), 0);
            let crew = Arc::clone(&theirs);
            theirs.schedule(task(move || notes.store(crew.now(), Ordering::SeqCst)));
            if theirs.virtual_time.end_work() == WorkEnd::Last {
                theirs.seats.iter().for_each(|seat| seat.call());
            }
        });
        while crew.now() == 0 {
            match crew.injector.steal().success() {
                Some(runnable) => _ = runnable.run(),
                None => crew.sleep(&crew.seats[0], Role::Worker),
            }
        }
        works.join().unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 0, "time has moved before the task ran");
    });
}
