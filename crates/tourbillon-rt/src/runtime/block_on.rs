//! A thread of the user's that works for the runtime until its future is ready.

use std::future::Future;
use std::num::NonZeroU64;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::seat::Seat;
use super::shared::Shared;
use super::worker::{Role, Spare, Worker};
use super::{Handle, budget, context};
use crate::sync::lock;

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
    let role = if handle.shared().has_workers() { Role::Local } else { Role::Worker };
    match Sitting::new(handle.shared(), role) {
        Some(sitting) => on_a_seat(&sitting, future),
        None => parked(handle, future),
    }
}

/// A thread of the user's on a seat. It stands up also if what it runs panics.
pub(super) struct Sitting {
    worker: Option<Rc<Worker>>,
    guard: Option<context::Guard>,
    /// What its timer slack was.
    slack: Option<NonZeroU64>,
}

impl Sitting {
    /// `None`: it has a seat already, or there are no descriptors for a new one.
    pub(super) fn new(shared: &Arc<Shared>, role: Role) -> Option<Sitting> {
        // A thread has one seat at a time.
        if context::has_seat() {
            return None;
        }
        let spare = lock(&shared.spare).pop();
        let spare = spare.or_else(|| shared.backend.reactor().ok().map(Spare::new))?;
        let slack = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
        // The kernel would be 50 us late otherwise.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let worker = Worker::sit_down(shared, spare, role);
        shared.add_guest(worker.seat());
        let guard = Some(context::enter_seat(&worker));
        Some(Sitting { worker: Some(worker), guard, slack })
    }

    pub(super) fn worker(&self) -> &Worker {
        self.worker.as_deref().expect("it stands up when this is dropped")
    }
}

impl Drop for Sitting {
    fn drop(&mut self) {
        let Some(worker) = self.worker.take() else { return };
        let shared = Arc::clone(worker.shared());
        shared.remove_guest(worker.seat());
        worker.leave();
        drop(self.guard.take());
        let spare = worker.stand_up();
        let _ = rustix::thread::set_current_timer_slack(self.slack);
        lock(&shared.spare).extend(spare);
    }
}

fn on_a_seat<F: Future>(sitting: &Sitting, future: F) -> F::Output {
    let worker = sitting.worker();
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

/// Without a reactor: inside of another `block_on` or of a task, or with no descriptors left.
fn parked<F: Future>(handle: &Handle, future: F) -> F::Output {
    let _entered = handle.enter();
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
