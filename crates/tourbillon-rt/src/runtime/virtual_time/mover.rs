//! What a thread of a runtime with virtual time does before it parks, and how it turns the timers that all threads share.

use std::sync::Arc;
use std::task::Waker;

use tourbillon::{AutoAdvance, Time, Turn};

use super::VirtualTime;
use crate::reactor::{Batch, Reactor};
use crate::runtime::seat::Seat;
use crate::runtime::shared::Shared;

/// What a thread has found to do when it was about to park.
#[derive(Default)]
pub(in crate::runtime) struct Mover {
    /// Of the timers that it has fired.
    fired: Vec<Waker>,
    /// Sockets that are ready, by the reactor that they are registered with.
    ready: Vec<(Arc<Reactor>, Batch)>,
}

impl Mover {
    /// By the thread of `seat`, which is `ASLEEP` and about to park: moves virtual time if the runtime is idle. Returns whether the thread
    /// has something to do instead of parking: to call [`wake`](Mover::wake), and to turn the timers. Then its seat is awake.
    ///
    /// A thread that does not fire the shared timers calls a worker for that, which looks itself before it parks again.
    pub(in crate::runtime) fn finds_work(&mut self, shared: &Shared, seat: &Seat, fires: bool) -> bool {
        shared.virtual_time.try_move(|| {
            let advances = |mover: &mut Mover| if fires { mover.advances(shared) } else { call_worker(shared) };
            let finds_work = shared.is_idle() && (self.finds_ready(shared) || advances(self));
            if finds_work {
                // Before another thread can look: this one has yet to wake what it has found.
                seat.wake_up();
            }
            finds_work
        })
    }

    /// Wakes what was found.
    pub(in crate::runtime) fn wake(&mut self, shared: &Shared, seat: &Seat) {
        if self.ready.is_empty() && self.fired.is_empty() {
            return;
        }
        let _step = seat.step();
        self.ready.drain(..).for_each(|(reactor, mut batch)| reactor.dispatch(&mut batch));
        shared.engine.wake_fired(&mut self.fired);
    }

    /// Asks all sockets that tasks of the runtime wait for.
    fn finds_ready(&mut self, shared: &Shared) -> bool {
        shared.all_seats(|seats| {
            for seat in seats {
                let mut batch = Batch::default();
                if seat.reactor.has_ready(&mut batch) {
                    self.ready.push((Arc::clone(&seat.reactor), batch));
                }
            }
        });
        !self.ready.is_empty()
    }

    fn advances(&mut self, shared: &Shared) -> bool {
        let engine = &shared.engine;
        engine.clock().is_paused() && engine.auto_advance(&mut self.fired) != AutoAdvance::Nothing
    }
}

/// Has a worker move the time, if a timer is pending or a callback is to be called. The calling thread has nothing to do.
fn call_worker(shared: &Shared) -> bool {
    let engine = &shared.engine;
    if engine.clock().is_paused() && engine.next_turn().is_some() {
        shared.seats.first().inspect(|seat| seat.call());
    }
    false
}

/// Fires the shared timers that are due, up to a batch. `None` if the runtime's time cannot be virtual, or if it is for other threads to
/// do so while time stands still.
pub(in crate::runtime) fn turn(shared: &Shared, fires: bool) -> Option<Turn> {
    let is_called_for = || fires || !shared.engine.clock().is_paused();
    (shared.virtual_time.is_pausable() && is_called_for()).then(|| shared.engine.turn())
}

/// By the monitor, for workers that are blocked: the same, unless time stands still.
pub(in crate::runtime) fn turn_if_running(shared: &Shared) {
    if shared.virtual_time.is_pausable() && !shared.engine.clock().is_paused() {
        let _turn = shared.engine.turn();
    }
}

/// Returns when the shared timers have to be turned, on the monotonic clock. `None`: no timer is pending, or time stands still, or it
/// cannot be virtual.
pub(in crate::runtime) fn next_turn(shared: &Shared) -> Option<Time> {
    let engine = &shared.engine;
    let next = if shared.virtual_time.is_pausable() { engine.next_turn() } else { None };
    next.and_then(|next| engine.clock().to_monotonic(next))
}

/// By the thread of `seat`, which is about to park: ends what other threads have left it to remove from its reactor, so that what they
/// closed is closed for its peers before time can move. Whether there was any.
pub(in crate::runtime) fn finds_removals(seat: &Seat, batch: &mut Batch) -> bool {
    seat.reactor.finish_removals(batch)
}

/// Makes a reactor count what [`finds_removals`] ends, if its runtime's time can be virtual.
pub(in crate::runtime) fn prepare(mut reactor: Reactor, virtual_time: &VirtualTime) -> Reactor {
    if virtual_time.is_pausable() {
        reactor.count_removals();
    }
    reactor
}
