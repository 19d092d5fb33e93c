//! The loop of a thread that runs tasks.
//!
//! # One iteration of the loop
//!
//! 1. *Tasks*, up to [`TASKS`], or as many as the timers have woken: from its own queue, its inbox, and now and then (and when there is
//!    nothing else) the global queue. With some left after [`ENOUGH`], it unparks another worker to help.
//! 2. *Timers*: it fires those that are due in its own shard; the tasks that they wake go to its own queue.
//! 3. *Events* of its sockets. With tasks to run it does not wait for them.
//! 4. *Stealing*, if it has no tasks: half of those of another worker.
//! 5. *Parking*, if there are none: on its reactor, until the first of an event, an `unpark`, and the nearest deadline of its shard (F4).
//!
//! All five are on one thread, so a task that waits for its socket or its timer is resumed without waking another thread, and its timers
//! are armed and cancelled without a lock that another thread takes (F3).
//!
//! # When a task blocks the thread
//!
//! Other workers steal its tasks; the [monitor](super::monitor) serves its timers and its sockets. A task that blocks it by `block_on`
//! runs the loop inside of itself, without other threads' tasks: see [substitutes](super::substitutes).

use std::cell::{Cell, RefCell};
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use async_task::Runnable;
use crossbeam_deque::Steal;
use tourbillon::{Span, Time};

use super::context;
use super::idle::WakeReason;
use super::shared::RuntimeShared;
use super::substitutes::DEPTH;
use super::virtual_time::{self, Mover, VirtualTime};
use super::worker_shared::{ParkAttempt, WorkerShared};
use crate::clock;
use crate::reactor::{EventBatch, Reactor};
use crate::sync::{TaskQueue, catch_panic, dispose, thread};
use crate::task::catch;

/// The number of tasks that run before the worker looks at its timers and sockets.
const TASKS: u32 = 64;

/// The number of tasks after which a worker that has more unparks another.
const ENOUGH: u32 = 16;

/// Once in this number of tasks a worker looks first at the global queue, and once first at its inbox, so that neither starves.
const FAIRNESS: u32 = 61;

/// The part of a worker's state that only its own thread uses.
pub(crate) struct WorkerLocal {
    runtime: Arc<RuntimeShared>,
    worker_shared: Arc<WorkerShared>,
    queue: TaskQueue<Runnable>,
    role: Cell<Role>,
    /// The role outside nested calls.
    base_role: Role,
    /// The thread is a runner outside nested calls, and has left its tasks to other threads.
    is_suspended: Cell<bool>,
    /// The thread waits in a nested call that does not serve this worker's timers and sockets.
    is_left: Cell<bool>,
    /// The number of nested calls that drive this worker, one inside of the other.
    depth: Cell<u32>,
    ticks: Cell<u32>,
    /// The index of the worker that it tries to steal from first.
    first_victim: Cell<usize>,
    loop_state: RefCell<LoopState>,
    /// Makes the timers of its tasks the runtime's. (Dropped after the shard is given back.)
    _engine: tourbillon::Entered,
}

/// Which tasks a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// All tasks, by way of a queue of its own.
    Worker,
    /// All tasks, one by one from the global queue, since the thread may leave at any time. A panic of a handler leaves the loop.
    External,
    /// Only local tasks, which run on no other thread.
    Local,
}

/// The state that an iteration of the loop borrows while it fires timers, reaps events and wakes.
struct LoopState {
    /// `None` if the engine had no shard left, or if the role needs none: then the engine's driver fires the thread's timers. Also if all
    /// threads of the runtime turn the same timers, because its time can be virtual.
    timers: Option<tourbillon::Worker>,
    batch: EventBatch,
    mover: Mover,
}

/// The result of a turn of the timers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerTurn {
    count: u32,
    /// More timers are due now.
    pub(crate) more: bool,
}

/// The state of a worker that no thread uses.
pub(crate) struct IdleSlot {
    pub(crate) worker: Arc<WorkerShared>,
    pub(crate) queue: TaskQueue<Runnable>,
}

impl IdleSlot {
    pub(crate) fn new(reactor: Reactor, virtual_time: &VirtualTime) -> IdleSlot {
        let reactor = virtual_time::prepare(reactor, virtual_time);
        let queue = TaskQueue::new_fifo();
        let worker = Arc::new(WorkerShared::new(Arc::new(reactor), queue.stealer(), virtual_time.clone()));
        IdleSlot { worker, queue }
    }
}

impl WorkerLocal {
    /// Makes this thread a worker, with the state from the slot.
    pub(crate) fn attach(shared: &Arc<RuntimeShared>, slot: IdleSlot, role: Role) -> Rc<WorkerLocal> {
        let IdleSlot { worker: worker_shared, queue } = slot;
        worker_shared.reactor.adopt();
        let caller = Arc::downgrade(&worker_shared);
        let engine = shared.engine.enter();
        let timers = match role {
            // The thread comes and goes, and handlers may block it: the driver fires its timers.
            Role::External => None,
            // All threads share one shard: see `virtual_time`.
            _ if shared.virtual_time.is_pausable() => None,
            _ => shared.engine.worker(move || _ = caller.upgrade().inspect(|worker_shared| worker_shared.unpark())),
        };
        worker_shared.set_takeover(timers.as_ref().map(tourbillon::Worker::takeover));
        let loop_state = RefCell::new(LoopState { timers, batch: EventBatch::default(), mover: Mover::default() });
        let runtime = Arc::clone(shared);
        let (base_role, role) = (role, Cell::new(role));
        let (is_suspended, is_left, depth) = (Cell::new(false), Cell::new(false), Cell::new(0));
        let (ticks, first_victim) = (Cell::new(0), Cell::new(0));
        Rc::new(WorkerLocal {
            runtime,
            worker_shared,
            queue,
            role,
            base_role,
            is_suspended,
            is_left,
            depth,
            ticks,
            first_victim,
            loop_state,
            _engine: engine,
        })
    }

    pub(crate) fn role(&self) -> Role {
        self.role.get()
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// Returns whether the thread runs all tasks when it is in no nested call.
    pub(crate) fn is_base_runner(&self) -> bool {
        self.base_role == Role::Worker
    }

    /// Returns whether the thread has left the tasks that it would run to other threads.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended.get()
    }

    /// Returns whether the thread waits in a nested call that does not serve this worker's timers and sockets.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left.get()
    }

    pub(crate) fn set_left(&self, is_left: bool) {
        self.is_left.set(is_left);
    }

    /// Called before the thread waits without serving this worker. Until it comes back, the driver fires the timers, and the monitor serves
    /// the sockets; without a monitor the sockets are evicted.
    pub(crate) fn leave_timers_and_sockets(&self) {
        self.worker_shared.leave_timers_to_driver();
        // (Inside of a waker the sockets stay: an eviction would call the next waker inside of this one.)
        if !self.runtime.has_monitor && !self.is_inside_waker() {
            self.worker_shared.reactor.evict();
        }
    }

    /// Leaves the tasks that the thread would run to other threads, and unparks one if there are any.
    pub(crate) fn suspend(&self) {
        self.role.set(Role::Local);
        self.is_suspended.set(true);
        self.give_away_tasks();
        self.runtime.substitutes.suspend();
        self.runtime.unpark_if_tasks();
    }

    /// Makes the thread a runner again, with the given role.
    pub(crate) fn resume(&self, role: Role) {
        self.is_suspended.set(false);
        self.role.set(role);
    }

    /// Returns whether a nested call may run tasks on top of this thread's stack (D67).
    pub(crate) fn may_run_tasks_nested(&self) -> bool {
        self.depth.get() <= DEPTH
    }

    pub(crate) fn runtime(&self) -> &Arc<RuntimeShared> {
        &self.runtime
    }

    pub(crate) fn worker_shared(&self) -> &Arc<WorkerShared> {
        &self.worker_shared
    }

    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.worker_shared.reactor
    }

    /// Returns whether tasks that are woken on this thread go to its own queue.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.role.get() == Role::Worker
    }

    fn runs_all_tasks(&self) -> bool {
        self.role.get() != Role::Local
    }

    /// Queues a task for this thread. Another may steal it.
    pub(crate) fn push(&self, runnable: Runnable) {
        self.queue.push(runnable);
    }

    /// Runs the loop until `is_done`, which is called before each iteration, returns true.
    pub(crate) fn run(&self, mut is_done: impl FnMut() -> bool) {
        let mut most = TASKS;
        while !is_done() {
            let ran = self.run_tasks(most);
            let fired = self.turn_timers();
            let is_busy = ran == most || fired.more || self.has_task();
            // The tasks that the timers have woken run before more timers fire: no burst of timers delays the sockets (D26).
            most = TASKS.max(fired.count);
            if is_busy {
                self.reap();
            } else if !self.steal() {
                self.park(None);
            }
        }
    }

    /// Runs up to `most` tasks and returns how many it has run.
    pub(crate) fn run_tasks(&self, most: u32) -> u32 {
        for ran in 0..most {
            let Some(runnable) = self.next_task() else { return ran };
            if ran == ENOUGH && !self.queue.is_empty() {
                self.runtime.idle.unpark_searcher();
            }
            let polling = self.worker_shared.begin_poll();
            // A task catches its own panics; this catches those of an event loop's handlers.
            let ran = catch_unwind(AssertUnwindSafe(|| runnable.run()));
            drop(polling);
            match ran {
                Ok(_) => {}
                Err(payload) if self.role.get() == Role::External => resume_unwind(payload),
                Err(payload) => dispose(payload),
            }
        }
        most
    }

    fn next_task(&self) -> Option<Runnable> {
        let tick = self.ticks.get().wrapping_add(1);
        self.ticks.set(tick);
        if !self.may_run_tasks_nested() {
            return None;
        }
        if !self.runs_all_tasks() {
            return self.worker_shared.pop_local();
        }
        let (inbox, queue) = (|| self.worker_shared.pop_local(), || self.queue.pop());
        match tick % FAIRNESS {
            0 => self.global_task().or_else(queue).or_else(inbox),
            1 => inbox().or_else(|| self.global_task()).or_else(queue),
            _ => queue().or_else(inbox).or_else(|| self.global_task()),
        }
    }

    fn global_task(&self) -> Option<Runnable> {
        match self.role.get() {
            Role::Worker => until_decided(|| self.runtime.injector.steal_batch_and_pop(&self.queue)),
            _ => until_decided(|| self.runtime.injector.steal()),
        }
    }

    /// Returns whether there is a task that this thread could run.
    pub(crate) fn has_task(&self) -> bool {
        let has_any = self.worker_shared.has_local_task()
            || (self.runs_all_tasks() && (!self.queue.is_empty() || !self.runtime.injector.is_empty()));
        has_any && self.may_run_tasks_nested()
    }

    /// Takes tasks from another worker.
    #[must_use]
    fn steal(&self) -> bool {
        if !self.runs_all_tasks() {
            return false;
        }
        let workers = &self.runtime.workers;
        let first = self.first_victim.get();
        let stolen = (0..workers.len())
            .map(|offset| &workers[(first + offset) % workers.len()])
            .filter(|worker_shared| {
                !Arc::ptr_eq(worker_shared, &self.worker_shared) && !worker_shared.stealer.is_empty()
            })
            .find_map(|worker_shared| until_decided(|| worker_shared.stealer.steal_batch_and_pop(&self.queue)));
        self.first_victim.set(first.wrapping_add(1));
        let stolen = stolen.or_else(|| self.steal_from_substitutes());
        stolen.map(|runnable| self.queue.push(runnable)).is_some()
    }

    /// Steals from a substitute. They are among the external threads, and their tasks may block them as workers' do.
    fn steal_from_substitutes(&self) -> Option<Runnable> {
        if !self.runtime.substitutes.has_substitutes() {
            return None;
        }
        self.runtime.external_threads.with(|workers| {
            let others = workers.iter().filter(|worker_shared| {
                !Arc::ptr_eq(worker_shared, &self.worker_shared) && !worker_shared.stealer.is_empty()
            });
            others
                .into_iter()
                .find_map(|worker_shared| until_decided(|| worker_shared.stealer.steal_batch_and_pop(&self.queue)))
        })
    }

    /// Fires the timers that are due, up to a batch.
    pub(crate) fn turn_timers(&self) -> TimerTurn {
        let _poll = self.worker_shared.begin_poll();
        let loop_state = &mut *self.loop_state.borrow_mut();
        let turn = match &mut loop_state.timers {
            Some(timers) => Some(timers.turn()),
            None => virtual_time::turn(&self.runtime, self.fires_shared_timers()),
        };
        turn.map_or(TimerTurn { count: 0, more: false }, |turn| TimerTurn { count: turn.fired as u32, more: turn.more })
    }

    /// Returns whether this thread moves virtual time: it runs tasks, or no other thread does. So the tasks that a timer wakes are queued
    /// where they run, and with one worker always in the same order.
    fn fires_shared_timers(&self) -> bool {
        self.is_base_runner() || !self.runtime.has_workers()
    }

    pub(crate) fn reap(&self) {
        self.reap_into(&mut self.loop_state.borrow_mut().batch);
    }

    fn reap_into(&self, batch: &mut EventBatch) {
        let _ = self.worker_shared.reactor.reap(batch);
        self.dispatch(batch);
    }

    /// Wakes tasks. A waker is the user's code: if it blocks, the monitor finds the thread blocked, as it does in a poll.
    fn dispatch(&self, batch: &mut EventBatch) {
        let _poll = self.worker_shared.begin_poll();
        self.worker_shared.reactor.dispatch(batch);
    }

    /// Parks until there is something to do, but not beyond `most`.
    pub(crate) fn park(&self, most: Option<Time>) {
        let loop_state = &mut *self.loop_state.borrow_mut();
        let next = match &loop_state.timers {
            Some(timers) => timers.next_turn(),
            None => virtual_time::next_turn(&self.runtime),
        };
        let too_short = loop_state.timers.as_ref().map_or(Duration::ZERO, tourbillon::Worker::too_short_to_sleep);
        let until = [next, most].into_iter().flatten().min();
        if until.is_some_and(|until| until - clock::now() <= Span::from(too_short)) {
            return self.reap_into(&mut loop_state.batch);
        }
        if virtual_time::finish_removals(&self.worker_shared, &mut loop_state.batch) {
            return self.dispatch(&mut loop_state.batch);
        }
        if self.worker_shared.try_park() == ParkAttempt::Notified {
            // A worker that unparks itself again and again still has to see events of its sockets.
            return self.reap_into(&mut loop_state.batch);
        }
        if self.runs_all_tasks() {
            self.runtime.idle.add(&self.worker_shared);
        }
        let has_work = self.has_task() || self.is_about_to_end();
        if has_work || loop_state.mover.find_work(&self.runtime, &self.worker_shared, self.fires_shared_timers()) {
            let _ = self.worker_shared.reactor.reap(&mut loop_state.batch);
        } else if self.worker_shared.reactor.wait(until, &mut loop_state.batch).is_err() {
            // No error is expected here; the pause keeps the thread from taking a whole processor.
            thread::sleep(Duration::from_millis(1));
        }
        self.worker_shared.set_awake();
        self.runtime.virtual_time.wait_for_move();
        if self.runs_all_tasks() && self.runtime.idle.remove(&self.worker_shared) == WakeReason::ToSearch {
            let found = self.has_task() || self.steal();
            self.runtime.idle.search_done();
            if found && !self.runtime.injector.is_empty() {
                self.runtime.idle.unpark_searcher();
            }
        }
        if self.runtime.has_monitor {
            self.runtime.monitor.watch();
        }
        // While awake: a waker may block, and no thread may take this one for a parked worker then.
        self.dispatch(&mut loop_state.batch);
        loop_state.mover.wake(&self.runtime, &self.worker_shared);
    }

    /// Returns, at the runtime's end, whether the thread goes through another iteration instead of parking, because no thread would unpark it. A
    /// worker ends when no task is left, and another thread may just have taken the last; local tasks that have come meanwhile have to be
    /// aborted. Other threads park: a substitute is unparked when it can end, and that may be long after.
    fn is_about_to_end(&self) -> bool {
        let is_worker =
            || self.runtime.workers.iter().any(|worker_shared| Arc::ptr_eq(worker_shared, &self.worker_shared));
        self.runs_all_tasks() && self.runtime.is_stopping() && (is_worker() || self.worker_shared.locals.len() > 0)
    }

    /// Returns, at the runtime's end, whether there is nothing left to run. Aborts the local tasks.
    fn is_done(&self) -> bool {
        self.worker_shared.locals.abort_all();
        !self.has_task()
    }

    /// Ends the local tasks. One that is not in the inbox is just being woken by another thread. The thread waits for it, since no other
    /// thread could run it, nor even drop it.
    fn end_locals(&self) {
        while self.worker_shared.locals.len() > 0 {
            self.worker_shared.locals.abort_all();
            match self.worker_shared.pop_local() {
                Some(runnable) => catch_panic(|| _ = runnable.run()),
                None => thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Returns whether the thread is in the middle of an iteration, inside of a waker.
    pub(crate) fn is_inside_waker(&self) -> bool {
        self.loop_state.try_borrow_mut().is_err()
    }

    /// Called by a `block_on` inside of a task, or of another `block_on`: lets the call turn the thread's timers and its reactor until
    /// the returned guard is dropped. Returns `None` if the thread is in the middle of an iteration, inside of a waker.
    pub(crate) fn nest(&self) -> Option<impl Drop + use<'_>> {
        struct Nested<'a>(&'a WorkerLocal);

        impl Drop for Nested<'_> {
            fn drop(&mut self) {
                self.0.depth.set(self.0.depth.get() - 1);
            }
        }

        if self.is_inside_waker() {
            return None;
        }
        self.depth.set(self.depth.get() + 1);
        Some(Nested(self))
    }

    fn give_away_tasks(&self) {
        while let Some(runnable) = self.queue.pop() {
            self.runtime.injector.push(runnable);
        }
    }

    /// Called when the thread has done its work: ends its local tasks, and leaves the others to other threads.
    pub(crate) fn leave(&self) {
        self.end_locals();
        self.give_away_tasks();
        self.worker_shared.set_takeover(None);
    }

    /// Gives the slot back, for the next thread.
    pub(crate) fn detach(self: Rc<WorkerLocal>) -> Option<IdleSlot> {
        let worker = Rc::into_inner(self)?;
        Some(IdleSlot { worker: worker.worker_shared, queue: worker.queue })
    }
}

/// A worker's thread, from beginning to end.
pub(crate) fn work(shared: &Arc<RuntimeShared>, slot: IdleSlot) {
    let worker = WorkerLocal::attach(shared, slot, Role::Worker);
    let _guard = context::enter_worker(&worker);
    // It may be blocked also before it parks for the first time.
    shared.monitor.watch();
    // With the default slack the kernel wakes a thread up to 50 us late.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Our own code does not panic. Should it, the thread goes on: other threads rely on it.
    while catch(|| worker.run(|| shared.is_stopping() && worker.is_done())).is_err() {}
    worker.leave();
    shared.substitutes.end_runner();
    // A thread that waits in another runtime may wait for a task that this worker has left.
    shared.unpark_if_tasks();
    worker.worker_shared.reactor.evict();
}

/// Repeats a steal that has met another.
fn until_decided<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(value) => return Some(value),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}
