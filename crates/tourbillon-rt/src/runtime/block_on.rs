//! A thread of the user's that works for the runtime until its future is ready.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::guests::Sitting;
use super::seat::Seat;
use super::worker::{Role, Worker};
use super::{Handle, budget, context};
use crate::sync::{AtomicBool, Ordering};

/// Wakes a future that is run on a seat.
struct OnSeat {
    is_woken: AtomicBool,
    seat: Arc<Seat>,
}

/// Wakes a future whose thread has nothing else to do.
struct Parked {
    is_woken: AtomicBool,
    thread: Thread,
}

pub(super) fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    let shared = handle.shared();
    if let Some(worker) = context::seat_of(shared) {
        if let Some(_lent) = worker.lend() {
            let _guard = context::enter_seat(&worker);
            let _engine = shared.engine.enter();
            return on_a_seat(&worker, future);
        }
        // It does not get to its timers before this has ended.
        worker.seat().leave_timers();
    }
    let role = if shared.has_workers() { Role::Local } else { Role::Worker };
    match Sitting::new(shared, role) {
        Some(sitting) => on_a_seat(sitting.worker(), future),
        None => parked(handle, future),
    }
}

fn on_a_seat<F: Future>(worker: &Worker, future: F) -> F::Output {
    let mut future = pin!(future);
    let woken = Arc::new(OnSeat { is_woken: AtomicBool::new(true), seat: Arc::clone(worker.seat()) });
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut output = None;
    worker.run(|| {
        if woken.is_woken.swap(false, Ordering::SeqCst) {
            budget::refill();
            let _step = worker.seat().step();
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                output = Some(value);
            }
        }
        output.is_some()
    });
    output.expect("the loop ends with it")
}

/// Without a reactor: with no descriptors left, or inside of a waker, where the seat's own is in use.
fn parked<F: Future>(handle: &Handle, future: F) -> F::Output {
    let _guard = context::enter_without_seat(handle);
    let _engine = handle.shared().engine.enter();
    let mut future = pin!(future);
    let woken = Arc::new(Parked { is_woken: AtomicBool::new(true), thread: thread::current() });
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    loop {
        while !woken.is_woken.swap(false, Ordering::SeqCst) {
            thread::park();
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

impl Wake for OnSeat {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::SeqCst) {
            self.seat.call();
        }
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}
