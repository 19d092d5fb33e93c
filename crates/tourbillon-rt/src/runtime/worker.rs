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
use super::registry::catch;
use super::seat::{FallingAsleep, Seat};
use super::shared::Shared;
use super::sleepers::Woken;
use super::substitutes::DEPTH;
use super::virtual_time::{self, Mover, VirtualTime};
use crate::clock;
use crate::reactor::{Batch, Reactor};
use crate::sync::{Queue, contain, dispose, thread};

/// So many tasks are run before timers and sockets get their turn.
const TASKS: u32 = 64;

/// Who has run so many and has more calls for help.
const ENOUGH: u32 = 16;

/// Each so many tasks the global queue comes first, and then the inbox, so that neither starves.
const FAIRNESS: u32 = 61;

/// A thread at work for a runtime.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    seat: Arc<Seat>,
    queue: Queue<Runnable>,
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
    /// Timers of its tasks are the runtime's, whoever turns them. (Left after the shard is given back.)
    _engine: tourbillon::Entered,
}

/// Which tasks a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// Everybody's, by way of a queue of its own.
    Worker,
    /// Everybody's, one by one from the global queue: it may leave at any time. What they throw comes out.
    Passer,
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
pub(super) struct Fired {
    count: u32,
    /// There is more to fire at the same time.
    pub(super) more: bool,
}

/// A seat that nobody sits on.
pub(crate) struct Spare {
    pub(super) seat: Arc<Seat>,
    pub(super) queue: Queue<Runnable>,
}

impl Spare {
    pub(super) fn new(reactor: Reactor, virtual_time: &VirtualTime) -> Spare {
        let reactor = virtual_time::prepare(reactor, virtual_time);
        let queue = Queue::new_fifo();
        let seat = Arc::new(Seat::new(Arc::new(reactor), queue.stealer(), virtual_time.clone()));
        Spare { seat, queue }
    }
}

impl Worker {
    /// This thread takes the seat.
    pub(super) fn sit_down(shared: &Arc<Shared>, spare: Spare, role: Role) -> Rc<Worker> {
        let Spare { seat, queue } = spare;
        seat.reactor.adopt();
        let caller = Arc::downgrade(&seat);
        let engine = shared.engine.enter();
        let timers = match role {
            // It comes and goes, and is blocked as its users please: its timers are the driver's.
            Role::Passer => None,
            // All threads share one shard: see `virtual_time`.
            _ if shared.virtual_time.is_pausable() => None,
            _ => shared.engine.worker(move || _ = caller.upgrade().inspect(|seat| seat.call())),
        };
        seat.set_stand_in(timers.as_ref().map(tourbillon::Worker::takeover));
        let turning = RefCell::new(Turning { timers, batch: Batch::default(), mover: Mover::default() });
        let shared = Arc::clone(shared);
        let (nature, role) = (role, Cell::new(role));
        let (is_suspended, depth) = (Cell::new(false), Cell::new(0));
        let (ticks, first_victim) = (Cell::new(0), Cell::new(0));
        Rc::new(Worker {
            shared,
            seat,
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

    pub(super) fn role(&self) -> Role {
        self.role.get()
    }

    pub(super) fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// Whether it runs everybody's tasks when it is in no nested call.
    pub(super) fn is_runner_by_nature(&self) -> bool {
        self.nature == Role::Worker
    }

    /// Whether it has left the tasks that it would run to other threads.
    pub(super) fn is_suspended(&self) -> bool {
        self.is_suspended.get()
    }

    /// Leaves the tasks that it would run to other threads, which are called if there are any.
    pub(super) fn suspend(&self) {
        self.role.set(Role::Local);
        self.is_suspended.set(true);
        self.give_away_tasks();
        self.shared.substitutes.suspend();
        self.shared.call_if_tasks();
    }

    /// It is among the threads that run tasks again, whatever its role is now.
    pub(super) fn resume(&self, role: Role) {
        self.is_suspended.set(false);
        self.role.set(role);
    }

    /// Whether a nested call may run tasks on top of this thread's stack (D67).
    pub(super) fn may_run_tasks_nested(&self) -> bool {
        self.depth.get() <= DEPTH
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(super) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    pub(super) fn reactor(&self) -> &Arc<Reactor> {
        &self.seat.reactor
    }

    /// Whether tasks that are woken here go to its own queue.
    pub(super) fn keeps_tasks(&self) -> bool {
        self.role.get() == Role::Worker
    }

    fn runs_all_tasks(&self) -> bool {
        self.role.get() != Role::Local
    }

    /// A task for this thread, or who steals it.
    pub(super) fn push(&self, runnable: Runnable) {
        self.queue.push(runnable);
    }

    /// The loop, until `is_done` says so, which is asked before each turn.
    pub(super) fn run(&self, mut is_done: impl FnMut() -> bool) {
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
                self.sleep(None);
            }
        }
    }

    /// Runs tasks, so many at most. How many there were.
    pub(super) fn run_tasks(&self, most: u32) -> u32 {
        for ran in 0..most {
            let Some(runnable) = self.next_task() else { return ran };
            if ran == ENOUGH && !self.queue.is_empty() {
                self.shared.sleepers.call_for_help();
            }
            let step = self.seat.step();
            // What a task throws it has caught itself; this is for what a handler of an event loop throws.
            let ran = catch_unwind(AssertUnwindSafe(|| runnable.run()));
            drop(step);
            match ran {
                Ok(_) => {}
                Err(payload) if self.role.get() == Role::Passer => resume_unwind(payload),
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
            return self.seat.receive();
        }
        let (inbox, queue) = (|| self.seat.receive(), || self.queue.pop());
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
    pub(super) fn has_task(&self) -> bool {
        let has_any = self.seat.has_mail()
            || (self.runs_all_tasks() && (!self.queue.is_empty() || !self.shared.injector.is_empty()));
        has_any && self.may_run_tasks_nested()
    }

    /// Takes tasks from another worker.
    fn steal(&self) -> bool {
        if !self.runs_all_tasks() {
            return false;
        }
        let seats = &self.shared.seats;
        let first = self.first_victim.get();
        let stolen = (0..seats.len())
            .map(|offset| &seats[(first + offset) % seats.len()])
            .filter(|seat| !Arc::ptr_eq(seat, &self.seat) && !seat.stealer.is_empty())
            .find_map(|seat| until_decided(|| seat.stealer.steal_batch_and_pop(&self.queue)));
        self.first_victim.set(first.wrapping_add(1));
        let stolen = stolen.or_else(|| self.steal_from_substitutes());
        stolen.map(|runnable| self.queue.push(runnable)).is_some()
    }

    /// They are among the guests, and blocked by their tasks as workers are.
    fn steal_from_substitutes(&self) -> Option<Runnable> {
        if !self.shared.substitutes.has_seats() {
            return None;
        }
        self.shared.guests.with(|seats| {
            let others = seats.iter().filter(|seat| !Arc::ptr_eq(seat, &self.seat) && !seat.stealer.is_empty());
            others.into_iter().find_map(|seat| until_decided(|| seat.stealer.steal_batch_and_pop(&self.queue)))
        })
    }

    /// Fires what is due, up to a batch.
    pub(super) fn turn_timers(&self) -> Fired {
        let _step = self.seat.step();
        let turning = &mut *self.turning.borrow_mut();
        let turn = match &mut turning.timers {
            Some(timers) => Some(timers.turn()),
            None => virtual_time::turn(&self.shared, self.fires_shared_timers()),
        };
        turn.map_or(Fired { count: 0, more: false }, |turn| Fired { count: turn.fired as u32, more: turn.more })
    }

    /// Whether it is for this thread to move virtual time: it runs tasks, or no other thread does. So the tasks that a timer wakes are queued
    /// where they run, and with one worker always in the same order.
    fn fires_shared_timers(&self) -> bool {
        self.is_runner_by_nature() || !self.shared.has_workers()
    }

    pub(super) fn reap(&self) {
        self.reap_into(&mut self.turning.borrow_mut().batch);
    }

    fn reap_into(&self, batch: &mut Batch) {
        let _ = self.seat.reactor.reap(batch);
        self.dispatch(batch);
    }

    /// Wakers are the user's. One that blocks is stood in for as a task is that does.
    fn dispatch(&self, batch: &mut Batch) {
        let _step = self.seat.step();
        self.seat.reactor.dispatch(batch);
    }

    /// Sleeps until there is something to do, or that time at most.
    pub(super) fn sleep(&self, most: Option<Time>) {
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
        if virtual_time::finds_removals(&self.seat, &mut turning.batch) {
            return self.dispatch(&mut turning.batch);
        }
        if self.seat.fall_asleep() == FallingAsleep::Called {
            // Also who calls itself all the time hears of its sockets.
            return self.reap_into(&mut turning.batch);
        }
        if self.runs_all_tasks() {
            self.shared.sleepers.add(&self.seat);
        }
        let has_work = self.has_task() || self.is_about_to_end();
        if has_work || turning.mover.finds_work(&self.shared, &self.seat, self.fires_shared_timers()) {
            let _ = self.seat.reactor.reap(&mut turning.batch);
        } else if self.seat.reactor.wait(until, &mut turning.batch).is_err() {
            // Nothing that can happen to a healthy process; at least it is not to take all of the processor.
            thread::sleep(Duration::from_millis(1));
        }
        self.seat.wake_up();
        self.shared.virtual_time.wait_for_move();
        if self.runs_all_tasks() && self.shared.sleepers.remove(&self.seat) == Woken::ToSearch {
            let found = self.has_task() || self.steal();
            self.shared.sleepers.has_searched();
            if found && !self.shared.injector.is_empty() {
                self.shared.sleepers.call_for_help();
            }
        }
        if self.shared.is_watched {
            self.shared.monitor.watch();
        }
        // By who is awake: nobody is to call somebody who is inside of a waker for a sleeper.
        self.dispatch(&mut turning.batch);
        turning.mover.wake(&self.shared, &self.seat);
    }

    /// At the runtime's end: whether the thread looks around once more instead of sleeping, because no call would tell it to. A worker
    /// ends when no task is left, which another thread may just have taken; local tasks that have come meanwhile are to be aborted.
    /// Others sleep: a substitute is called when it can end, and that may be long after.
    fn is_about_to_end(&self) -> bool {
        let is_worker = || self.shared.seats.iter().any(|seat| Arc::ptr_eq(seat, &self.seat));
        self.runs_all_tasks() && self.shared.is_stopping() && (is_worker() || self.seat.locals.len() > 0)
    }

    /// At the runtime's end: whether there is nothing left to run. Tasks that run only here are to end, too.
    fn is_done(&self) -> bool {
        self.seat.locals.abort_all();
        !self.has_task()
    }

    /// Ends the tasks that run only here. One that is not in the inbox is on its way: somebody is just waking it. It is waited for, since
    /// no other thread could run it, nor even drop it.
    fn end_locals(&self) {
        while self.seat.locals.len() > 0 {
            self.seat.locals.abort_all();
            match self.seat.receive() {
                Some(runnable) => contain(|| _ = runnable.run()),
                None => thread::sleep(Duration::from_micros(50)),
            }
        }
    }

    /// Whether the thread is in the middle of a turn, inside of a waker.
    pub(super) fn is_in_a_turn(&self) -> bool {
        self.turning.try_borrow_mut().is_err()
    }

    /// For a `block_on` inside of a task, or of another `block_on`: until what this gives is dropped, the call turns the thread's timers
    /// and its reactor. `None` if the thread is in the middle of a turn, inside of a waker.
    pub(super) fn nest(&self) -> Option<impl Drop + use<'_>> {
        struct Nested<'a>(&'a Worker);

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
    pub(super) fn leave(&self) {
        self.end_locals();
        self.give_away_tasks();
        self.seat.set_stand_in(None);
    }

    /// The seat, for the next.
    pub(super) fn stand_up(self: Rc<Worker>) -> Option<Spare> {
        let worker = Rc::into_inner(self)?;
        Some(Spare { seat: worker.seat, queue: worker.queue })
    }
}

/// A worker's thread, from beginning to end.
pub(super) fn work(shared: &Arc<Shared>, spare: Spare) {
    let worker = Worker::sit_down(shared, spare, Role::Worker);
    let _guard = context::enter_seat(&worker);
    // Before it sleeps for the first time it may be blocked, too.
    shared.monitor.watch();
    // The kernel would be 50 us late otherwise.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Our own code does not panic. Should it, the thread does not end: others rely on it.
    while catch(|| worker.run(|| shared.is_stopping() && worker.is_done())).is_err() {}
    worker.leave();
    shared.substitutes.end_runner();
    // A thread that waits in another runtime may still wait for a task that this one has left.
    shared.call_if_tasks();
    worker.seat.reactor.evict();
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
