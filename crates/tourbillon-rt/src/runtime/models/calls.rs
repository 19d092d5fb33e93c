//! Calls: of one seat, and of whoever sleeps.

use std::sync::Arc;

use async_task::Runnable;
use loom::thread;

use super::{seat, sleep};
use crate::models::{explore, explore_up_to};
use crate::reactor::Batch;
use crate::runtime::seat::{FallingAsleep, Seat};
use crate::runtime::sleepers::{Sleepers, Woken};
use crate::sync::{AtomicBool, Injector, Ordering};

/// A task that does something once.
pub(super) fn task(does: impl FnOnce() + Send + 'static) -> Runnable {
    let (runnable, task) = async_task::spawn(async move { does() }, |_| ());
    task.detach();
    runnable
}

/// Fails if `call` rings only if it finds the seat asleep by a load before its store, if `fall_asleep` overwrites a call, or if
/// either is relaxed: what was done before the call is to be seen.
#[test]
fn a_call_is_heard_by_who_is_about_to_sleep_and_by_who_sleeps() {
    explore(|| {
        let (seat, is_done) = (seat(), Arc::new(AtomicBool::new(false)));
        let (theirs, does) = (Arc::clone(&seat), Arc::clone(&is_done));
        let calls = thread::spawn(move || {
            does.store(true, Ordering::Relaxed);
            theirs.call();
        });
        while !is_done.load(Ordering::Relaxed) {
            sleep(&seat, || false);
        }
        calls.join().unwrap();
    });
}

/// Fails if `send` calls before it has put the task into the inbox.
#[test]
fn tasks_that_are_sent_to_a_seat_by_two_threads_are_both_received() {
    explore_up_to(2, || {
        let seat = seat();
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let theirs = Arc::clone(&seat);
                thread::spawn(move || theirs.send(task(|| ())))
            })
            .collect();
        let mut received = 0;
        while received < 2 {
            match seat.receive() {
                Some(task) => {
                    let _ = task.run();
                    received += 1;
                }
                None => sleep(&seat, || seat.has_mail()),
            }
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        assert!(!seat.has_mail());
    });
}

/// Workers and the global queue.
#[derive(Default)]
struct Crew {
    injector: Option<Injector<Runnable>>,
    sleepers: Sleepers,
    is_done: AtomicBool,
}

impl Crew {
    fn new() -> Arc<Crew> {
        Arc::new(Crew { injector: Some(Injector::new()), ..Crew::default() })
    }

    fn injector(&self) -> &Injector<Runnable> {
        self.injector.as_ref().unwrap()
    }

    /// As `Shared::schedule` does from outside.
    fn schedule(&self, runnable: Runnable) {
        self.injector().push(runnable);
        self.sleepers.call_one();
    }

    /// As a worker does, until `is_done`.
    fn work(&self, seat: &Arc<Seat>) {
        while !self.is_done.load(Ordering::SeqCst) {
            match self.injector().steal().success() {
                Some(runnable) => _ = runnable.run(),
                None => self.sleep(seat),
            }
        }
    }

    /// As `Worker::sleep` does.
    fn sleep(&self, seat: &Arc<Seat>) {
        if seat.fall_asleep() == FallingAsleep::Called {
            return;
        }
        self.sleepers.add(seat);
        if self.injector().is_empty() && !self.is_done.load(Ordering::SeqCst) {
            seat.reactor.wait(None, &mut Batch::default()).unwrap();
        }
        seat.wake_up();
        if self.sleepers.remove(seat) == Woken::ToSearch {
            let found = !self.injector().is_empty();
            self.sleepers.has_searched();
            if found {
                self.sleepers.call_for_help();
            }
        }
    }
}

/// Fails without either of the two fences, if `add` comes after the look at the queue, or if `call_one` looks before the push.
#[test]
fn f10_a_task_from_outside_is_run_by_a_worker_that_is_about_to_sleep() {
    explore(|| {
        let (crew, seat) = (Crew::new(), seat());
        let theirs = Arc::clone(&crew);
        let sends = thread::spawn(move || {
            let ends = Arc::clone(&theirs);
            theirs.schedule(task(move || ends.is_done.store(true, Ordering::SeqCst)));
        });
        crew.work(&seat);
        sends.join().unwrap();
    });
}

/// Fails like the one before; and if who was called and finds the task gone does not say that it has searched: then nobody would be
/// called for help ever after.
#[test]
fn f10_a_task_from_outside_is_run_by_one_of_two_and_nobody_is_left_searching() {
    explore_up_to(2, || {
        let (crew, seats) = (Crew::new(), [seat(), seat()]);
        let workers = seats.clone().map(|seat| {
            let theirs = Arc::clone(&crew);
            thread::spawn(move || theirs.work(&seat))
        });
        let (ends, called) = (Arc::clone(&crew), seats.clone());
        crew.schedule(task(move || {
            ends.is_done.store(true, Ordering::SeqCst);
            called.iter().for_each(|seat| seat.call());
        }));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        // Somebody who sleeps now is called for help.
        let [seat, _] = seats;
        seat.wake_up();
        assert_eq!(seat.fall_asleep(), FallingAsleep::Asleep);
        crew.sleepers.add(&seat);
        crew.sleepers.call_for_help();
        assert!(!seat.is_asleep());
    });
}

/// Fails without either of the two fences.
#[test]
fn f10_two_tasks_from_outside_are_both_run() {
    explore_up_to(2, || {
        let (crew, seat) = (Crew::new(), seat());
        let theirs = Arc::clone(&crew);
        let sends = thread::spawn(move || {
            let ends = Arc::clone(&theirs);
            theirs.injector().push(task(|| ()));
            theirs.sleepers.call_for_help();
            theirs.injector().push(task(move || ends.is_done.store(true, Ordering::SeqCst)));
            theirs.sleepers.call_one();
        });
        crew.work(&seat);
        sends.join().unwrap();
        assert!(crew.injector().is_empty());
    });
}
