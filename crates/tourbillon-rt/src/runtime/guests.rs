//! Threads of the user's that work for a runtime for a while: inside of `block_on`, or running an event loop.
//!
//! A guest takes a seat that another has left, if there is one. Sockets stay registered where they are if nobody else works
//! there: the next guest goes on with them, and one that comes and goes all the time, as who polls an event loop does, finds them as it
//! left them. But no socket may be left on a seat that nobody sits on while somebody else could look after it. So:
//!
//! - who leaves while others work lets go of its sockets;
//! - who comes makes all empty seats but its own let go of theirs;
//! - the last to leave sends those away who are none of this runtime's: they register elsewhere (see `Reactor::serves`);
//! - a seat that changes hands lets go of its sockets: with io_uring they are the former thread's (see `Reactor::adopt`).
//!
//! The first two are decided under one lock, so one of two who come and go at the same time sees the other.

use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use super::context;
use super::seat::Seat;
use super::shared::Shared;
use super::worker::{Role, Spare, Worker};
use crate::reactor::Reactor;
use crate::sync::{Mutex, lock};

/// Who sits where.
#[derive(Default)]
pub(super) struct Guests(Mutex<Seats>);

#[derive(Default)]
struct Seats {
    taken: Vec<Arc<Seat>>,
    empty: Vec<Spare>,
}

/// A thread of the user's on a seat. It stands up also if what it runs panics.
pub(super) struct Sitting {
    worker: Option<Rc<Worker>>,
    guard: Option<context::Guard>,
    /// What its timer slack was.
    slack: Option<NonZeroU64>,
}

impl Guests {
    /// With those who sit. Nothing of the user's is to be done meanwhile.
    pub(super) fn with<R>(&self, f: impl FnOnce(&[Arc<Seat>]) -> R) -> R {
        f(&lock(&self.0).taken)
    }

    /// A seat for the next guest.
    pub(super) fn expect(&self, spare: Option<Spare>) {
        lock(&self.0).empty.extend(spare);
    }

    /// At the end of the runtime: nobody will come any more.
    pub(super) fn evict(&self) {
        let reactors = lock(&self.0).reactors_of_empty();
        reactors.iter().for_each(|reactor| reactor.evict());
    }

    /// An empty seat, if there is one: that which this thread had, if it had one.
    fn take(&self) -> Option<Spare> {
        let mut seats = lock(&self.0);
        let own = seats.empty.iter().position(|spare| spare.seat.reactor.is_adopted());
        let index = own.or(seats.empty.len().checked_sub(1))?;
        Some(seats.empty.remove(index))
    }

    pub(super) fn sit_down(&self, seat: &Arc<Seat>) {
        let reactors = {
            let mut seats = lock(&self.0);
            seats.taken.push(Arc::clone(seat));
            seats.reactors_of_empty()
        };
        reactors.iter().for_each(|reactor| reactor.evict());
    }

    /// Whether somebody else goes on working decides what becomes of the sockets.
    pub(super) fn stand_up(&self, seat: &Arc<Seat>, spare: Option<Spare>, has_workers: bool) {
        let others_work = {
            let mut seats = lock(&self.0);
            seats.taken.retain(|taken| !Arc::ptr_eq(taken, seat));
            // Before another can take it.
            seat.reactor.leave();
            seats.empty.extend(spare);
            has_workers || !seats.taken.is_empty()
        };
        if others_work {
            seat.reactor.evict();
        } else {
            seat.reactor.send_strangers_away();
        }
    }
}

impl Seats {
    fn reactors_of_empty(&self) -> Vec<Arc<Reactor>> {
        self.empty.iter().map(|spare| Arc::clone(&spare.seat.reactor)).collect()
    }
}

impl Sitting {
    /// `None`: it has one of this runtime already, or there are no descriptors for a new one.
    pub(super) fn new(shared: &Arc<Shared>, role: Role) -> Option<Sitting> {
        if context::seat_of(shared).is_some() {
            return None;
        }
        // A seat that changes hands lets go of its sockets: the tasks that wait for them are woken before time can move.
        let _held = shared.hold_time();
        let spare = shared.guests.take().or_else(|| shared.new_seat())?;
        let slack = rustix::thread::current_timer_slack().ok().and_then(NonZeroU64::new);
        // The kernel would be 50 us late otherwise.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let worker = Worker::sit_down(shared, spare, role);
        shared.guests.sit_down(worker.seat());
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
        let (shared, seat) = (Arc::clone(worker.shared()), Arc::clone(worker.seat()));
        // Until its tasks and sockets are left to others. Then those look whether time moves without this thread.
        let _held = shared.hold_time();
        worker.leave();
        drop(self.guard.take());
        let spare = worker.stand_up();
        let _ = rustix::thread::set_current_timer_slack(self.slack);
        shared.guests.stand_up(&seat, spare, shared.has_workers());
        // It may have been called for a task that it has not run.
        shared.call_if_tasks();
    }
}
