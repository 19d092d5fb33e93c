//! A thread of the user's that works for the runtime until its future is ready.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use super::guests::Sitting;
use super::nesting::Interrupted;
use super::seat::Seat;
use super::shared::{HeldTime, Shared};
use super::virtual_time::Call;
use super::worker::{Role, Worker};
use super::{Handle, budget, context};
use crate::sync::thread::{self, Thread};
use crate::sync::{AtomicBool, Mutex, Ordering, lock};

/// Wakes a future that is run on a seat.
///
/// Several may share one seat, those of nested loops. The innermost loop consumes the calls of all of them, so each has a flag of its
/// own, and a nested loop calls the seat once more when it ends: see [`Interrupted`].
pub(super) struct OnSeat {
    is_woken: AtomicBool,
    seat: Arc<Seat>,
}

/// Wakes a future whose thread has nothing else to do.
struct Parked {
    is_woken: AtomicBool,
    thread: Thread,
    /// The runtime, if its time can be virtual: the thread has no seat that would tell whether it is parked.
    shared: Option<Arc<Shared>>,
    /// Holds virtual time still between a wake-up and the poll that follows it.
    held: Mutex<Option<HeldTime>>,
}

/// A nested call that goes on for so many turns without waiting leaves its thread's tasks to others, too.
const TURNS: u32 = 16;

pub(super) fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    let shared = handle.shared();
    let interrupted = Interrupted::new();
    let seat = context::seat_of(shared);
    // The call ends before the thread stands up: the threads that look then whether time moves are not to count it.
    let call = seat.is_none().then(|| shared.virtual_time.call());
    if let Some(worker) = seat {
        if let Some(_nested) = worker.nest() {
            let _guard = context::enter_seat(&worker);
            let _engine = shared.engine.enter();
            return on_a_seat(&worker, future, &interrupted);
        }
        // It does not get to its timers before this has ended.
        worker.seat().leave_timers();
    }
    let role = if shared.has_workers() { Role::Local } else { Role::Worker };
    match Sitting::new(shared, role) {
        Some(sitting) => {
            let _runner = (role == Role::Worker).then(|| shared.substitutes.runner());
            let _call = call;
            on_a_seat(sitting.worker(), future, &interrupted)
        }
        None => parked(handle, future, &interrupted, call),
    }
}

fn on_a_seat<F: Future>(worker: &Worker, future: F, interrupted: &Interrupted) -> F::Output {
    let mut future = pin!(future);
    let woken = OnSeat::new(worker.seat());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let (mut output, mut turns) = (None, 0_u32);
    worker.run(|| {
        if woken.is_taken() {
            budget::refill();
            let _step = worker.seat().step();
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                output = Some(value);
                return true;
            }
        }
        turns = turns.saturating_add(1);
        if turns > TURNS || !woken.is_woken() {
            interrupted.suspend(Some(worker));
            interrupted.help_if_needed(worker);
        }
        false
    });
    output.expect("the loop ends with it")
}

/// Without a reactor: with no descriptors left, or inside of a waker, where the seat's own is in use.
fn parked<F: Future>(handle: &Handle, future: F, interrupted: &Interrupted, call: Option<Call>) -> F::Output {
    let _guard = context::enter_without_seat(handle);
    let _engine = handle.shared().engine.enter();
    let mut future = pin!(future);
    let shared = handle.shared();
    let woken = Arc::new(Parked {
        is_woken: AtomicBool::new(true),
        thread: thread::current(),
        shared: shared.virtual_time.is_pausable().then(|| Arc::clone(shared)),
        held: Mutex::new(None),
    });
    let mut held = shared.hold_time();
    let _call = call;
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let (mut turns, mut has_parked) = (0_u32, false);
    let output = loop {
        while !woken.is_woken.swap(false, Ordering::SeqCst) {
            interrupted.suspend(None);
            has_parked = true;
            held = None;
            thread::park();
        }
        if shared.virtual_time.is_pausable() {
            // (A wake-up that is being made may have left its own already: then this thread still has the one before.)
            held = lock(&woken.held).take().or(held);
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break output;
        }
        turns = turns.saturating_add(1);
        if turns > TURNS {
            interrupted.suspend(None);
        }
    };
    if has_parked {
        // An executor outside of this call may park the thread as well: it is to look again.
        woken.thread.unpark();
    }
    output
}

impl OnSeat {
    /// One that is woken.
    pub(super) fn new(seat: &Arc<Seat>) -> Arc<OnSeat> {
        Arc::new(OnSeat { is_woken: AtomicBool::new(true), seat: Arc::clone(seat) })
    }

    /// Whether it was woken; from now on it is not.
    pub(super) fn is_taken(&self) -> bool {
        self.is_woken.swap(false, Ordering::SeqCst)
    }

    fn is_woken(&self) -> bool {
        self.is_woken.load(Ordering::SeqCst)
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
        self.seat.virtual_time.wait_for_move();
    }
}

impl Wake for Parked {
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
