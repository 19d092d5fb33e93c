//! How a thread of a runtime with virtual time moves the clock before it parks, and turns the timers that all threads share.

use std::sync::Arc;
use std::task::Waker;

use tourbillon::{AutoAdvance, Time, Turn};

use super::VirtualTime;
use crate::executor::shared::RuntimeShared;
use crate::executor::worker_shared::WorkerShared;
use crate::reactor::{EventBatch, Reactor};

/// The work that a thread has found when it was about to park.
#[derive(Default)]
pub(crate) struct Mover {
    /// The wakers of the timers that it has fired.
    fired: Vec<Waker>,
    /// The ready sockets, by the reactor that they are registered with.
    ready: Vec<(Arc<Reactor>, EventBatch)>,
}

impl Mover {
    /// Called by the thread of `worker`, which is `Parked` and about to wait: moves virtual time if the runtime is idle. Returns whether
    /// the thread has something to do instead of waiting: to call [`wake`](Mover::wake), and to turn the timers. Then its worker is
    /// awake.
    ///
    /// A thread that does not fire the shared timers unparks a worker for that, which looks itself before it parks again.
    #[must_use]
    pub(crate) fn find_work(&mut self, shared: &RuntimeShared, worker: &WorkerShared, fires: bool) -> bool {
        shared.virtual_time.try_move(|| {
            let advances = |mover: &mut Mover| if fires { mover.advances(shared) } else { call_worker(shared) };
            let find_work = shared.is_idle() && (self.find_ready(shared) || advances(self));
            if find_work {
                // Before another thread can look: this one has not woken the tasks yet.
                worker.set_awake();
            }
            find_work
        })
    }

    /// Wakes the tasks that were found.
    pub(crate) fn wake(&mut self, shared: &RuntimeShared, worker: &WorkerShared) {
        if self.ready.is_empty() && self.fired.is_empty() {
            return;
        }
        let _poll = worker.begin_poll();
        self.ready.drain(..).for_each(|(reactor, mut batch)| reactor.dispatch(&mut batch));
        shared.engine.wake_fired(&mut self.fired);
    }

    /// Polls all sockets that tasks of the runtime wait for.
    #[must_use]
    fn find_ready(&mut self, shared: &RuntimeShared) -> bool {
        shared.all_workers(|workers| {
            for worker in workers {
                let mut batch = EventBatch::default();
                if worker.reactor.collect_ready(&mut batch) {
                    self.ready.push((Arc::clone(&worker.reactor), batch));
                }
            }
        });
        !self.ready.is_empty()
    }

    #[must_use]
    fn advances(&mut self, shared: &RuntimeShared) -> bool {
        let engine = &shared.engine;
        engine.clock().is_paused() && engine.auto_advance(&mut self.fired) != AutoAdvance::Nothing
    }
}

/// Has a worker move the clock, if a timer or a callback is pending. The calling thread has nothing to do.
#[must_use]
fn call_worker(shared: &RuntimeShared) -> bool {
    let engine = &shared.engine;
    if engine.clock().is_paused() && engine.next_turn().is_some() {
        shared.workers.first().inspect(|worker| worker.unpark());
    }
    false
}

/// Fires the shared timers that are due, up to a batch. Returns `None` if the runtime's time cannot be virtual, or if time stands still
/// and other threads fire them.
pub(crate) fn turn(shared: &RuntimeShared, fires: bool) -> Option<Turn> {
    let is_called_for = || fires || !shared.engine.clock().is_paused();
    (shared.virtual_time.is_pausable() && is_called_for()).then(|| shared.engine.turn())
}

/// Called by the monitor for workers that are blocked: fires the shared timers, unless time stands still.
pub(crate) fn turn_if_running(shared: &RuntimeShared) {
    if shared.virtual_time.is_pausable() && !shared.engine.clock().is_paused() {
        let _turn = shared.engine.turn();
    }
}

/// Returns when the shared timers have to be driven, on the monotonic clock. `None`: no timer is pending, or time stands still, or it
/// cannot be virtual.
pub(crate) fn next_turn(shared: &RuntimeShared) -> Option<Time> {
    let engine = &shared.engine;
    let next = if shared.virtual_time.is_pausable() { engine.next_turn() } else { None };
    next.and_then(|next| engine.clock().to_monotonic(next))
}

/// Called by the thread of `worker`, which is about to park: finishes the removals that other threads have left for its reactor, so that
/// sockets which they closed are closed for their peers before time can move. Returns whether there were any.
#[must_use]
pub(crate) fn finish_removals(worker: &WorkerShared, batch: &mut EventBatch) -> bool {
    worker.reactor.finish_removals(batch)
}

/// Makes a reactor count the removals that [`finish_removals`] finishes, if its runtime's time can be virtual.
pub(crate) fn prepare(mut reactor: Reactor, virtual_time: &VirtualTime) -> Reactor {
    if virtual_time.is_pausable() {
        reactor.count_removals();
    }
    reactor
}
