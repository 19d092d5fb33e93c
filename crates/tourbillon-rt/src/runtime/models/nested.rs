//! Nested loops on one seat, and substitutes that run tasks meanwhile (D66, D67).
//!
//! The loops are those of `Worker::run` and `block_on`, without timers and sockets: over the real [`Seat`], [`OnSeat`], [`Sleepers`] and
//! [`Substitutes`].

use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use loom::thread;

use super::calls::task;
use super::{seat, sleep};
use crate::models::explore;
use crate::reactor::Batch;
use crate::runtime::block_on::OnSeat;
use crate::runtime::seat::{FallingAsleep, Seat};
use crate::runtime::sleepers::{Sleepers, Woken};
use crate::runtime::substitutes::{Answer, Substitutes};
use crate::sync::{AtomicBool, Injector, Ordering};

/// As `on_a_seat` does with `Worker::run`: until a poll that follows a wake-up finds the flag raised. `within` is what the thread runs
/// in between, possibly another such loop.
fn run(seat: &Arc<Seat>, woken: &OnSeat, is_raised: &AtomicBool, mut within: impl FnMut()) {
    loop {
        if woken.is_taken() && is_raised.load(Ordering::SeqCst) {
            return;
        }
        within();
        sleep(seat, || false);
    }
}

/// Raises the flag of a loop and wakes it, as other threads do.
fn wake(woken: &Arc<OnSeat>, is_raised: &AtomicBool) {
    is_raised.store(true, Ordering::SeqCst);
    Waker::from(Arc::clone(woken)).wake();
}

/// Fails if a nested loop that ends does not say so to its seat: then the outer loop, whose wake-up it has consumed, sleeps for ever.
#[test]
fn d66_an_outer_loop_hears_of_the_wake_up_that_a_nested_one_has_consumed() {
    explore(|| {
        let seat = seat();
        let (outer, inner) = (OnSeat::new(&seat), OnSeat::new(&seat));
        let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let (theirs, wakers) = (Arc::clone(&flags), [Arc::clone(&outer), Arc::clone(&inner)]);
        // First the outer one, while the thread is in the inner one, or before, or after.
        let wakes = thread::spawn(move || {
            wakers.iter().zip(&*theirs).for_each(|(woken, flag)| wake(woken, flag));
        });
        let mut is_first = true;
        run(&seat, &outer, &flags[0], || {
            if std::mem::take(&mut is_first) {
                run(&seat, &inner, &flags[1], || ());
                seat.nested_loop_has_ended();
            }
        });
        wakes.join().unwrap();
    });
}

/// The same for three loops, woken by two threads. Fails as well if `wake_up` stores instead of swapping: then what was done before the
/// second of two calls is not seen.
#[test]
fn d66_each_of_three_nested_loops_ends_with_its_own_wake_up() {
    explore(|| {
        let seat = seat();
        let woken = [OnSeat::new(&seat), OnSeat::new(&seat), OnSeat::new(&seat)];
        let flags = Arc::new([AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false)]);
        let wakes = |indices: [usize; 2]| {
            let (theirs, woken) = (Arc::clone(&flags), woken.clone());
            move || indices.iter().for_each(|index| wake(&woken[*index], &theirs[*index]))
        };
        // The middle one from another thread than its neighbours.
        let first = thread::spawn(wakes([0, 2]));
        let second = thread::spawn(wakes([1, 1]));
        let (mut is_first, mut is_second) = (true, true);
        run(&seat, &woken[0], &flags[0], || {
            if std::mem::take(&mut is_first) {
                run(&seat, &woken[1], &flags[1], || {
                    if std::mem::take(&mut is_second) {
                        run(&seat, &woken[2], &flags[2], || ());
                        seat.nested_loop_has_ended();
                    }
                });
                seat.nested_loop_has_ended();
            }
        });
        first.join().unwrap();
        second.join().unwrap();
    });
}

/// The queues and the threads of a runtime.
struct Crew {
    injector: Injector<Runnable>,
    sleepers: Sleepers,
    substitutes: Substitutes,
}

impl Crew {
    /// With so many workers.
    fn new(workers: usize) -> Arc<Crew> {
        let substitutes = Substitutes::new("model", workers);
        Arc::new(Crew { injector: Injector::new(), sleepers: Sleepers::default(), substitutes })
    }

    /// As `Shared::schedule` does from outside.
    fn schedule(self: &Arc<Crew>, runnable: Runnable) {
        self.injector.push(runnable);
        self.sleepers.call_one();
        self.call();
    }

    /// As `Shared::call_if_tasks` does.
    fn call_if_tasks(self: &Arc<Crew>) {
        if !self.injector.is_empty() {
            self.sleepers.call_one();
            self.call();
        }
    }

    /// As `Shared::call_substitute_if_deserted` does, with `substitutes::call`.
    fn call(self: &Arc<Crew>) {
        let is_called = self.substitutes.is_deserted() && !self.injector.is_empty();
        if is_called && self.substitutes.answer() == Answer::Start {
            let theirs = Arc::clone(self);
            thread::spawn(move || theirs.substitute());
        }
    }

    /// As a substitute does until it retires, and then what the end of its `Sitting` does.
    fn substitute(self: &Arc<Crew>) {
        let (seat, mut own) = (seat(), None);
        self.substitutes.enter(&seat);
        while !self.substitutes.retires() {
            match own.take() {
                Some(runnable) => _ = Runnable::run(runnable),
                None => {
                    own = self.injector.steal().success();
                    if own.is_none() {
                        self.sleep(&seat);
                    }
                }
            }
        }
        self.substitutes.leave(&seat);
        own.into_iter().for_each(|runnable| self.injector.push(runnable));
        self.call_if_tasks();
        self.substitutes.end_substitute();
    }

    /// As `Worker::sleep` does.
    fn sleep(&self, seat: &Arc<Seat>) {
        if seat.fall_asleep() == FallingAsleep::Called {
            return;
        }
        self.sleepers.add(seat);
        if self.injector.is_empty() {
            seat.reactor.wait(None, &mut Batch::default()).unwrap();
        }
        seat.wake_up();
        if self.sleepers.remove(seat) == Woken::ToSearch {
            self.sleepers.has_searched();
        }
    }

    /// As a worker does in a task: a nested call that waits for the flag.
    fn nested(self: &Arc<Crew>, seat: &Arc<Seat>, woken: &OnSeat, is_raised: &AtomicBool) {
        let mut is_suspended = false;
        run(seat, woken, is_raised, || {
            if !std::mem::replace(&mut is_suspended, true) {
                self.substitutes.suspend();
                self.call_if_tasks();
            }
        });
        if is_suspended {
            self.substitutes.resume();
        }
        seat.nested_loop_has_ended();
    }
}

/// Fails without the fence in `suspend`, if the last runner looks at the queue before it says that it is suspended, or if the sender
/// looks before it pushes.
#[test]
fn d66_a_task_that_is_sent_while_the_only_worker_is_being_suspended_is_run() {
    explore(|| {
        let (crew, seat) = (Crew::new(1), seat());
        let (woken, is_raised) = (OnSeat::new(&seat), Arc::new(AtomicBool::new(false)));
        let (theirs, wakes, flag) = (Arc::clone(&crew), Arc::clone(&woken), Arc::clone(&is_raised));
        let sends = thread::spawn(move || theirs.schedule(task(move || wake(&wakes, &flag))));
        crew.nested(&seat, &woken, &is_raised);
        sends.join().unwrap();
    });
}

/// Fails if a substitute that retires gives its tasks back and does not look whether a thread runs them, or if the last runner looks
/// at the queue before it says that it is suspended.
#[test]
fn d66_a_second_nested_call_is_served_though_the_substitute_of_the_first_is_retiring() {
    explore(|| {
        let (crew, seat) = (Crew::new(1), seat());
        for _ in 0..2 {
            let (woken, is_raised) = (OnSeat::new(&seat), Arc::new(AtomicBool::new(false)));
            let (wakes, flag) = (Arc::clone(&woken), Arc::clone(&is_raised));
            crew.schedule(task(move || wake(&wakes, &flag)));
            crew.nested(&seat, &woken, &is_raised);
        }
    });
}
