//! A thread that runs tasks: its loop.
//!
//! # One turn of the loop
//!
//! 1. *Tasks*, up to [`TASKS`], or as many as the timers have woken: its own queue, its inbox, now and then (and when there is
//!    nothing else) the global queue. With some left after [`ENOUGH`], somebody who sleeps is called to help.
//! 2. *Timers*: what is due in its own shard fires; the tasks that this wakes go to its own queue.
//! 3. *Events*: what has happened to its sockets. With tasks to run it does not wait for that.
//! 4. *Others' tasks*, if it has none: half of what another worker has.
//! 5. *Sleep*, if nobody has any: on its reactor, until the first of an event, a call, and the nearest deadline of its shard (F4).
//!
//! All five are on one thread, so a task that waits for its socket or its timer is resumed without any other thread being
//! woken, and its timers are armed and cancelled without a lock that anybody else takes (F3).
//!
//! # When a task blocks it
//!
//! Its tasks are stolen by others; its timers and its sockets are seen to by the [monitor](super::monitor). A task that blocks it by
//! `block_on` has the loop run inside of itself, without other threads' tasks: see [substitutes](super::substitutes).

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
use crate::reactor::{Batch, Reactor};
use crate::sync::{TaskQueue, catch_panic, dispose, thread};
use crate::task::catch;

/// So many tasks are run before timers and sockets get their turn.
const TASKS: u32 = 64;

/// Who has run so many and has more calls for help.
const ENOUGH: u32 = 16;

/// Each so many tasks the global queue comes first, and then the inbox, so that neither starves.
const FAIRNESS: u32 = 61;

/// A thread at work for a runtime.
pub(crate) struct WorkerLocal {
    shared: Arc<RuntimeShared>,
    worker_shared: Arc<WorkerShared>,
    queue: TaskQueue<Runnable>,
    role: Cell<Role>,
    /// Its role outside nested calls.
    nature: Role,
    /// It would run everybody's tasks, and has left them to other threads.
    is_suspended: Cell<bool>,
    /// How many nested calls turn it, one inside of the other.
    depth: Cell<u32>,
    ticks: Cell<u32>,
    /// Where it looks first for tasks to steal.
    first_victim: Cell<usize>,
    turning: RefCell<Turning>,
    /// Timers of its tasks are the runtime's, whoever turns them. (PendingRemovals after the shard is given back.)
    _engine: tourbillon::Entered,
}

/// Which tasks a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Everybody's, by way of a queue of its own.
    Worker,
    /// Everybody's, one by one from the global queue: it may leave at any time. What they throw comes out.
    External,
    /// Those alone that run nowhere else.
    Local,
}

/// What a turn of the loop needs.
struct Turning {
    /// `None` if the engine had no shard left, or the role needs none: then its driver fires our timers. Nor if all threads of the
    /// runtime turn the same timers, because its time can be virtual.
    timers: Option<tourbillon::Worker>,
    batch: Batch,
    mover: Mover,
}

/// What a turn of the timers has done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerTurn {
    count: u32,
    /// There is more to fire at the same time.
    pub(crate) more: bool,
}

/// A worker_shared that nobody sits on.
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
    /// This thread takes the worker_shared.
    pub(crate) fn attach(shared: &Arc<RuntimeShared>, slot: IdleSlot, role: Role) -> Rc<WorkerLocal> {
        let IdleSlot { worker: worker_shared, queue } = slot;
        worker_shared.reactor.adopt();
        let caller = Arc::downgrade(&worker_shared);
        let engine = shared.engine.enter();
        let timers = match role {
            // It comes and goes, and is blocked as its users please: its timers are the driver's.
            Role::External => None,
            // All threads share one shard: see `virtual_time`.
            _ if shared.virtual_time.is_pausable() => None,
            _ => shared.engine.worker(move || _ = caller.upgrade().inspect(|worker_shared| worker_shared.unpark())),
        };
        worker_shared.set_takeover(timers.as_ref().map(tourbillon::Worker::takeover));
        let turning = RefCell::new(Turning { timers, batch: Batch::default(), mover: Mover::default() });
        let shared = Arc::clone(shared);
        let (nature, role) = (role, Cell::new(role));
        let (is_suspended, depth) = (Cell::new(false), Cell::new(0));
        let (ticks, first_victim) = (Cell::new(0), Cell::new(0));
        Rc::new(WorkerLocal {
            shared,
            worker_shared,
            queue,
            role,
            nature,
            is_suspended,
            depth,
            ticks,
            first_victim,
            turning,
            _engine: engine,
        })
    }

    pub(crate) fn role(&self) -> Role {
        self.role.get()
    }

    pub(crate) fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// Whether it runs everybody's tasks when it is in no nested call.
    pub(crate) fn is_runner_by_nature(&self) -> bool {
        self.nature == Role::Worker
    }

    /// Whether it has left the tasks that it would run to other threads.
    pub(crate) fn is_suspended(&self) -> bool {
        self.is_suspended.get()
    }

    /// Leaves the tasks that it would run to other threads, which are called if there are any.
    pub(crate) fn suspend(&self) {
        self.role.set(Role::Local);
        self.is_suspended.set(true);
        self.give_away_tasks();
        self.shared.substitutes.suspend();
        self.shared.unpark_if_tasks();
    }

    /// It is among the threads that run tasks again, whatever its role is now.
    pub(crate) fn resume(&self, role: Role) {
        self.is_suspended.set(false);
        self.role.set(role);
    }

    /// Whether a nested call may run tasks on top of this thread's stack (D67).
    pub(crate) fn may_run_tasks_nested(&self) -> bool {
        self.depth.get() <= DEPTH
    }

    pub(crate) fn shared(&self) -> &Arc<RuntimeShared> {
        &self.shared
    }

    pub(crate) fn worker_shared(&self) -> &Arc<WorkerShared> {
        &self.worker_shared
    }

    pub(crate) fn reactor(&self) -> &Arc<Reactor> {
        &self.worker_shared.reactor
    }

    /// Whether tasks that are woken here go to its own queue.
    pub(crate) fn keeps_tasks(&self) -> bool {
        self.role.get() == Role::Worker
    }

    fn runs_all_tasks(&self) -> bool {
        self.role.get() != Role::Local
    }

    /// A task for this thread, or who steals it.
    pub(crate) fn push(&self, runnable: Runnable) {
        self.queue.push(runnable);
    }

    /// The loop, until `is_done` says so, which is asked before each turn.
    pub(crate) fn run(&self, mut is_done: impl FnMut() -> bool) {
        let mut most = TASKS;
        while !is_done() {
            let ran = self.run_tasks(most);
            let fired = self.turn_timers();
            let is_busy = ran == most || fired.more || self.has_task();
            // Whom they have woken runs before more are fired: no burst of timers queues up before the sockets (D26).
            most = TASKS.max(fired.count);
            if is_busy {
                self.reap();
            } else if !self.steal() {
                self.park(None);
            }
        }
    }

    /// Runs tasks, so many at most. How many there were.
    pub(crate) fn run_tasks(&self, most: u32) -> u32 {
        for ran in 0..most {
            let Some(runnable) = self.next_task() else { return ran };
            if ran == ENOUGH && !self.queue.is_empty() {
                self.shared.idle.unpark_searcher();
            }
            let begin_poll = self.worker_shared.begin_poll();
            // What a task throws it has caught itself; this is for what a handler of an event loop throws.
            let ran = catch_unwind(AssertUnwindSafe(|| runnable.run()));
            drop(begin_poll);
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
            return self.worker_shared.receive();
        }
        let (inbox, queue) = (|| self.worker_shared.receive(), || self.queue.pop());
        match tick % FAIRNESS {
            0 => self.global_task().or_else(queue).or_else(inbox),
            1 => inbox().or_else(|| self.global_task()).or_else(queue),
            _ => queue().or_else(inbox).or_else(|| self.global_task()),
        }
    }

    fn global_task(&self) -> Option<Runnable> {
        match self.role.get() {
            Role::Worker => until_decided(|| self.shared.injector.steal_batch_and_pop(&self.queue)),
            _ => until_decided(|| self.shared.injector.steal()),
        }
    }

    /// Whether there is one that this thread could run.
    pub(crate) fn has_task(&self) -> bool {
        let has_any = self.worker_shared.has_mail()
            || (self.runs_all_tasks() && (!self.queue.is_empty() || !self.shared.injector.is_empty()));
        has_any && self.may_run_tasks_nested()
    }

    /// Takes tasks from another worker.
    fn steal(&self) -> bool {
        if !self.runs_all_tasks() {
            return false;
        }
        let workers = &self.shared.workers;
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

    /// They are among the external_threads, and blocked by their tasks as workers are.
    fn steal_from_substitutes(&self) -> Option<Runnable> {
        if !self.shared.substitutes.has_substitutes() {
            return None;
        }
        self.shared.external_threads.with(|workers| {
            let others = workers.iter().filter(|worker_shared| {
                !Arc::ptr_eq(worker_shared, &self.worker_shared) && !worker_shared.stealer.is_empty()
            });
            others
                .into_iter()
                .find_map(|worker_shared| until_decided(|| worker_shared.stealer.steal_batch_and_pop(&self.queue)))
        })
    }

    /// Fires what is due, up to a batch.
    pub(crate) fn turn_timers(&self) -> TimerTurn {
        let _poll = self.worker_shared.begin_poll();
        let turning = &mut *self.turning.borrow_mut();
        let turn = match &mut turning.timers {
            Some(timers) => Some(timers.turn()),
            None => virtual_time::turn(&self.shared, self.fires_shared_timers()),
        };
        turn.map_or(TimerTurn { count: 0, more: false }, |turn| TimerTurn { count: turn.fired as u32, more: turn.more })
    }

    /// Whether it is for this thread to move virtual time: it runs tasks, or no other thread does. So the tasks that a timer wakes are queued
    /// where they run, and with one worker always in the same order.
    fn fires_shared_timers(&self) -> bool {
        self.is_runner_by_nature() || !self.shared.has_workers()
    }

    pub(crate) fn reap(&self) {
        self.reap_into(&mut self.turning.borrow_mut().batch);
    }

    fn reap_into(&self, batch: &mut Batch) {
        let _ = self.worker_shared.reactor.reap(batch);
        self.dispatch(batch);
    }

    /// Wakers are the user's. One that blocks is stood in for as a task is that does.
    fn dispatch(&self, batch: &mut Batch) {
        let _poll = self.worker_shared.begin_poll();
        self.worker_shared.reactor.dispatch(batch);
    }

    /// Sleeps until there is something to do, or that time at most.
    pub(crate) fn park(&self, most: Option<Time>) {
        let turning = &mut *self.turning.borrow_mut();
        let next = match &turning.timers {
            Some(timers) => timers.next_turn(),
            None => virtual_time::next_turn(&self.shared),
        };
        let too_short = turning.timers.as_ref().map_or(Duration::ZERO, tourbillon::Worker::too_short_to_sleep);
        let until = [next, most].into_iter().flatten().min();
        if until.is_some_and(|until| until - clock::now() <= Span::from(too_short)) {
            return self.reap_into(&mut turning.batch);
        }
        if virtual_time::finish_removals(&self.worker_shared, &mut turning.batch) {
            return self.dispatch(&mut turning.batch);
        }
        if self.worker_shared.try_park() == ParkAttempt::Notified {
            // Also who calls itself all the time hears of its sockets.
            return self.reap_into(&mut turning.batch);
        }
        if self.runs_all_tasks() {
            self.shared.idle.add(&self.worker_shared);
        }
        let has_work = self.has_task() || self.is_about_to_end();
        if has_work || turning.mover.find_work(&self.shared, &self.worker_shared, self.fires_shared_timers()) {
            let _ = self.worker_shared.reactor.reap(&mut turning.batch);
        } else if self.worker_shared.reactor.wait(until, &mut turning.batch).is_err() {
            // Nothing that can happen to a healthy process; at least it is not to take all of the processor.
            thread::sleep(Duration::from_millis(1));
        }
        self.worker_shared.set_awake();
        self.shared.virtual_time.wait_for_move();
        if self.runs_all_tasks() && self.shared.idle.remove(&self.worker_shared) == WakeReason::ToSearch {
            let found = self.has_task() || self.steal();
            self.shared.idle.search_done();
            if found && !self.shared.injector.is_empty() {
                self.shared.idle.unpark_searcher();
            }
        }
        if self.shared.is_watched {
            self.shared.monitor.watch();
        }
        // By who is awake: nobody is to call somebody who is inside of a waker for a sleeper.
        self.dispatch(&mut turning.batch);
        turning.mover.wake(&self.shared, &self.worker_shared);
    }

    /// At the runtime's end: whether the thread looks around once more instead of sleeping, because no call would tell it to. A worker
    /// ends when no task is left, which another thread may just have taken; local tasks that have come meanwhile are to be aborted.
    /// Others sleep: a substitute is called when it can end, and that may be long after.
    fn is_about_to_end(&self) -> bool {
        let is_worker =
            || self.shared.workers.iter().any(|worker_shared| Arc::ptr_eq(worker_shared, &self.worker_shared));
        self.runs_all_tasks() && self.shared.is_stopping() && (is_worker() || self.worker_shared.locals.len() > 0)
    }

    /// At the runtime's end: whether there is nothing left to run. Tasks that run only here are to end, too.
    fn is_done(&self) -> bool {
        self.worker_shared.locals.abort_all();
        !self.has_task()
    }

    /// Ends the tasks that run only here. One that is not in the inbox is on its way: somebody is just waking it. It is waited for, since
    /// no other thread could run it, nor even drop it.
    fn end_locals(&self) {
        while self.worker_shared.locals.len() > 0 {
            self.worker_shared.locals.abort_all();
            match self.worker_shared.receive() {
                Some(runnable) => catch_panic(|| _ = runnable.run()),
                None => thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Whether the thread is in the middle of a turn, inside of a waker.
    pub(crate) fn is_in_a_turn(&self) -> bool {
        self.turning.try_borrow_mut().is_err()
    }

    /// For a `block_on` inside of a task, or of another `block_on`: until what this gives is dropped, the call turns the thread's timers
    /// and its reactor. `None` if the thread is in the middle of a turn, inside of a waker.
    pub(crate) fn nest(&self) -> Option<impl Drop + use<'_>> {
        struct Nested<'a>(&'a WorkerLocal);

        impl Drop for Nested<'_> {
            fn drop(&mut self) {
                self.0.depth.set(self.0.depth.get() - 1);
            }
        }

        if self.is_in_a_turn() {
            return None;
        }
        self.depth.set(self.depth.get() + 1);
        Some(Nested(self))
    }

    fn give_away_tasks(&self) {
        while let Some(runnable) = self.queue.pop() {
            self.shared.injector.push(runnable);
        }
    }

    /// The thread has done its work. Tasks that run only here end, others are left to others.
    pub(crate) fn leave(&self) {
        self.end_locals();
        self.give_away_tasks();
        self.worker_shared.set_takeover(None);
    }

    /// The worker_shared, for the next.
    pub(crate) fn detach(self: Rc<WorkerLocal>) -> Option<IdleSlot> {
        let worker = Rc::into_inner(self)?;
        Some(IdleSlot { worker: worker.worker_shared, queue: worker.queue })
    }
}

/// A worker's thread, from beginning to end.
pub(crate) fn work(shared: &Arc<RuntimeShared>, slot: IdleSlot) {
    let worker = WorkerLocal::attach(shared, slot, Role::Worker);
    let _guard = context::enter_worker(&worker);
    // Before it sleeps for the first time it may be blocked, too.
    shared.monitor.watch();
    // The kernel would be 50 us late otherwise.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Our own code does not panic. Should it, the thread does not end: others rely on it.
    while catch(|| worker.run(|| shared.is_stopping() && worker.is_done())).is_err() {}
    worker.leave();
    shared.substitutes.end_runner();
    // A thread that waits in another runtime may still wait for a task that this one has left.
    shared.unpark_if_tasks();
    worker.worker_shared.reactor.evict();
}

/// Who steals may have to try again.
fn until_decided<T>(mut steal: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match steal() {
            Steal::Success(value) => return Some(value),
            Steal::Empty => return None,
            Steal::Retry => {}
        }
    }
}
