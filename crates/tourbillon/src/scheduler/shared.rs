//! What the handles, the threads and the bell of a scheduler share, and what each of them does with it.
//!
//! One thread at a time looks at the [`Book`]; it takes what it finds, lets go, and does it. So a run goes from the
//! wheel to the thread that makes it, with no thread in between.
//!
//! # Nobody sleeps while there is work
//!
//! Whoever changes the book so that there may be something to do counts an alert under the lock, and wakes a thread if one
//! waits. A thread that has found nothing waits only if no alert was counted since it looked. For what is not due yet,
//! whoever looked last has set the bell.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::{Arc, OnceLock, Weak};

use tourbillon_queue::Time;

use super::book::{Begin, Book, End, Next, Phase};
use super::error::{Cause, Failure};
use super::flight::{self, Flight, Landed};
use super::job::Job;
use super::table::Hint;
use super::times::{Due, Times};
use super::work::{Begun, BoxedRun, Run};
use super::{JobId, Owner, Rules, Shutdown};
use crate::clock::WallShift;
use crate::core::CoreRef;
use crate::core::callbacks::PostedCallback;
use crate::core::jumps::OnClockSet;
use crate::core::trace;
use crate::instant::Instant;
use crate::multi::deadline_map::{DeadlineMap, Key};
use crate::multi::waiter::Answer;
use crate::multi::wakeup_timer::WakeupTimer;
use crate::sync::aside::thread_local;
use crate::sync::catch_panic::catch_panic;
use crate::sync::{Condvar, Mutex, MutexGuard, lock};
use crate::{Engine, Outcome};

pub(super) struct Shared<K> {
    /// How many threads of its own it has. With none, the engine calls it.
    threads: usize,
    book: Mutex<Book<K>>,
    /// Threads wait here for work.
    work: Condvar,
    /// Those who wait for the end, here.
    pub(super) over: Condvar,
    bell: WakeupTimer,
    /// The engine. It is kept from ending by the handles and the threads, not by this: calls that wait in its line keep what is
    /// here, and somebody has to end it so that they are made.
    pub(super) core: CoreRef,
    /// For jobs that follow the wall clock.
    wall: OnceLock<WallClock>,
    users: Users<K>,
    pub(super) hint: Hint,
    pub(super) owner: OnceLock<Weak<Owner<K>>>,
    this: Weak<Shared<K>>,
}

/// The wall clock that a scheduler follows: that of an engine, or one that moves with the virtual time of an engine.
pub(super) struct WallClock {
    core: CoreRef,
    bell: WakeupTimer,
    shift: Option<WallShift>,
}

/// What the user gave.
pub(super) struct Users<K> {
    pub(super) on_failure: Option<Box<OnFailure<K>>>,
    pub(super) spawn: Option<Box<SpawnWith>>,
}

pub(super) type OnFailure<K> = dyn Fn(&Failure<'_, K>) + Send + Sync;
pub(super) type SpawnWith = dyn Fn(BoxedTask) + Send + Sync;
pub(super) type BoxedTask = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// What came of looking at the book.
#[must_use]
enum Step {
    /// Something was done. If a run has ended by it, that is still to be written down.
    Done(Option<End>),
    /// There is nothing to do, as long as no more than these alerts are counted.
    Nothing { alerts: u64 },
    /// There will never be anything to do.
    Over,
}

/// So much is done before others of the engine's callbacks get their turn.
const TURN: usize = if cfg!(shuttle) { 2 } else { 256 };

thread_local! {
    /// The scheduler whose run this thread is making, by its address.
    static MAKING: Cell<*const ()> = const { Cell::new(null()) };
}

impl<K> Shared<K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, Book<K>> {
        lock(&self.book)
    }

    /// Whether this thread is making a run of this scheduler.
    pub(super) fn is_inside(&self) -> bool {
        MAKING.with(Cell::get) == std::ptr::from_ref(self).cast()
    }

    /// What time it is.
    pub(super) fn now(&self, has_wall: bool) -> Times {
        let wall = self.wall.get().filter(|_| has_wall);
        Times { engine: self.core.clock.now(), wall: wall.map_or(Time::ZERO, WallClock::now) }
    }

    /// Begins the end.
    pub(super) fn shut_down(&self, how: Shutdown) {
        let mut book = self.lock();
        let now = self.now(book.has_wall());
        let gone = book.shut_down(how, now);
        let aborted: Vec<_> = match book.phase {
            Phase::Ending(Shutdown::Abort) => {
                book.flights.keys().filter_map(|key| book.flights.get(key).cloned()).collect()
            }
            _ => Vec::new(),
        };
        drop(book);
        self.work.notify_all();
        aborted.iter().for_each(|abort| abort.give(&self.core, Outcome::Cancelled));
        self.let_go(gone);
        self.try_end();
    }

    /// The end, if it has come.
    fn try_end(&self) {
        let mut book = self.lock();
        let gone = book.try_end();
        let is_over = book.phase == Phase::Over;
        let watchers = if is_over { std::mem::take(&mut book.watchers) } else { BTreeMap::new() };
        drop(book);
        if gone.is_some() {
            self.work.notify_all();
            self.over.notify_all();
        }
        self.let_go(gone);
        for watcher in watchers.into_values() {
            let _ignored = catch_panic(|| watcher.wake());
        }
    }

    /// Does something of the user's.
    pub(super) fn inside<R>(&self, users: impl FnOnce() -> R) -> std::thread::Result<R> {
        let before = MAKING.with(|making| making.replace(std::ptr::from_ref(self).cast()));
        let result = catch_unwind(AssertUnwindSafe(|| self.core.at_work(users)));
        MAKING.with(|making| making.set(before));
        result
    }

    /// The same for something that may do as little harm as a run, and of which nobody wants to know how it ended.
    fn contain_inside(&self, users: impl FnOnce()) {
        let _ignored = catch_panic(|| drop(self.inside(users)));
    }

    /// Drops something of the user's: who waits for the end in there would wait for itself.
    pub(super) fn drop_inside<T>(&self, users: T) {
        self.contain_inside(|| drop(users));
    }

    /// Drops jobs, outside the lock. Each on its own: of two destructors that panic in one go the second would end the process.
    fn let_go(&self, jobs: Option<DeadlineMap<Job<K>>>) {
        jobs.into_iter().flat_map(DeadlineMap::into_values).for_each(|job| self.drop_inside(job));
    }
}

impl<K: Send + Sync + 'static> Shared<K> {
    pub(super) fn new(core: CoreRef, threads: usize, rules: Rules, users: Users<K>) -> Arc<Shared<K>> {
        Arc::new_cyclic(|this: &Weak<Shared<K>>| Shared {
            threads,
            book: Mutex::new(Book::new(rules, threads)),
            work: Condvar::new(),
            over: Condvar::new(),
            bell: WakeupTimer::of(this, &core, Shared::ring),
            core,
            wall: OnceLock::new(),
            users,
            hint: Hint::default(),
            owner: OnceLock::new(),
            this: this.clone(),
        })
    }

    /// The wall clock. The first caller says on which engine it is, and how far it is ahead of that one's clock. `None` if that was shut
    /// down before it was of any use: the scheduler goes on without it.
    pub(super) fn wall(&self, on: impl FnOnce() -> (CoreRef, Option<WallShift>)) -> Option<&WallClock> {
        if let Some(wall) = self.wall.get() {
            return Some(wall);
        }
        // Making the engine may send an event to a subscriber of the user's, which may come back here. So it is made outside the
        // cell (D81).
        let (core, shift) = on();
        if core.is_closed() {
            return None;
        }
        Some(self.wall.get_or_init(|| {
            let bell = WakeupTimer::of(&self.this, &core, Shared::ring);
            let this: Weak<dyn OnClockSet> = self.this.clone();
            core.on_clock_set(this);
            WallClock { core, bell, shift }
        }))
    }

    pub(super) fn instant(&self, due: Due) -> Instant {
        let wall = self.wall.get().filter(|_| due.is_wall);
        let std = wall
            .map_or_else(|| self.core.clock.std_of(due.time), |wall| wall.core.clock.std_of(wall.on_engine(due.time)));
        Instant::from_std(std)
    }

    /// After a change of the book: sees to it that somebody looks in time, and lets go.
    pub(super) fn changed(&self, mut book: MutexGuard<'_, Book<K>>) {
        let rings = book.plan();
        drop(book);
        self.set_bells(rings);
        self.postpone_wakeups();
    }

    /// After a change that gives a thread something to do.
    pub(super) fn alert(&self, mut book: MutexGuard<'_, Book<K>>) {
        book.alerts += 1;
        self.begin_work(&mut book);
        let is_called_up = book.call();
        let is_to_be_called = self.threads == 0 && !std::mem::replace(&mut book.is_called, true);
        drop(book);
        if is_called_up {
            self.work.notify_one();
        }
        if is_to_be_called && let Some(shared) = self.this.upgrade() {
            let callback = Box::new(move |_| shared.turn());
            self.core.post(std::iter::once(PostedCallback { callback, outcome: Outcome::Fired }));
        }
    }

    /// What is done without threads, as a callback of the engine: all there is, but after a while others get their turn.
    fn turn(self: Arc<Self>) {
        self.lock().is_called = false;
        let mut ended = None;
        for _ in 0..TURN {
            match self.step(ended.take()) {
                Step::Done(end) => ended = end,
                Step::Nothing { .. } | Step::Over => return,
            }
        }
        let mut book = self.lock();
        let gone = ended.and_then(|end| book.end(end));
        self.alert(book);
        self.drop_inside(gone);
    }

    /// Begins the end, and sees to it that it is reached.
    pub(super) fn end(&self, how: Shutdown) {
        self.shut_down(how);
        self.alert(self.lock());
    }

    pub(super) fn set_bells(&self, rings: Option<Times>) {
        let Some(rings) = rings else { return };
        self.bell.set(rings.engine);
        if let Some(wall) = self.wall.get() {
            wall.bell.set(wall.on_engine(rings.wall));
        }
    }

    /// In an engine whose time may move by itself, after a job was removed or put off: the bells wait for what is left.
    pub(super) fn postpone_wakeups(&self) {
        if !self.core.is_virtual {
            return;
        }
        loop {
            let next = self.lock().look_from_now_on();
            self.bell.put_off(next.engine);
            if let Some(wall) = self.wall.get() {
                wall.bell.put_off(wall.on_engine(next.wall));
            }
            // A job that was added meanwhile has set the bell, which this may have put off again.
            let now = self.lock().look_from_now_on();
            if now.engine >= next.engine && now.wall >= next.wall {
                return;
            }
            self.set_bells(Some(now));
        }
    }

    /// The bell has rung: something may be due.
    fn ring(&self) {
        let stopped = Some(Outcome::Stopped);
        let is_stopped = self.bell.rang() == stopped || self.wall.get().is_some_and(|wall| wall.bell.rang() == stopped);
        if is_stopped {
            return self.end(Shutdown::Drain);
        }
        let mut book = self.lock();
        book.bell = None;
        self.alert(book);
    }

    pub(super) fn push_task(&self, task: async_task::Runnable) {
        let mut book = self.lock();
        book.push_task(task);
        self.alert(book);
    }

    /// What each of the scheduler's threads does.
    pub(super) fn work(self: Arc<Self>, engine: &Engine) {
        // The threads of a model are one thread of the system, and would share a home.
        #[cfg(not(loom))]
        let _entered = engine.enter();
        #[cfg(loom)]
        let _ = engine;
        let mut ended = None;
        loop {
            match self.step(ended.take()) {
                Step::Done(end) => ended = end,
                Step::Nothing { alerts } => self.wait(alerts),
                Step::Over => return self.leave(1),
            }
        }
    }

    /// So many threads have ended, or were not to be had.
    pub(super) fn leave(&self, threads: usize) {
        let mut book = self.lock();
        book.alive -= threads;
        if book.idle >= book.alive {
            self.rest(book);
        }
    }

    /// Writes down what was done last, looks what there is to do, and does that.
    fn step(self: &Arc<Self>, ended: Option<End>) -> Step {
        let (next, alerts) = self.look(ended);
        match next {
            Next::Run(begin) => return Step::Done(self.make(begin)),
            Next::Task(task) => _ = self.inside(|| task.run()),
            Next::Again => {}
            Next::Wait => return Step::Nothing { alerts },
            Next::Over => {
                self.try_end();
                return Step::Over;
            }
        }
        Step::Done(None)
    }

    /// Looks what there is to do; before that, writes down what was done.
    fn look(&self, ended: Option<End>) -> (Next<K>, u64) {
        let mut book = self.lock();
        let gone = ended.and_then(|end| book.end(end));
        let now = self.now(book.has_wall());
        let next = book.next(now);
        let (rings, alerts, is_called) = (book.plan(), book.alerts, book.call_for_help());
        drop(book);
        self.set_bells(rings);
        if is_called {
            self.work.notify_one();
        }
        self.drop_inside(gone);
        (next, alerts)
    }

    fn wait(&self, alerts: u64) {
        let mut book = self.lock();
        if book.is_at_work && book.alerts == alerts && book.idle + 1 == book.alive {
            // It is the last thread that had anything to do.
            self.rest(book);
            book = self.lock();
        }
        if book.alerts == alerts {
            book.idle += 1;
            book = self.work.wait(book).unwrap_or_else(|poisoned| poisoned.into_inner());
            book.idle -= 1;
            book.called = book.called.saturating_sub(1);
        }
    }

    /// Tells the engine that a thread has something to do, under the lock: so before a thread finds that nothing is left.
    pub(super) fn begin_work(&self, book: &mut Book<K>) {
        if book.alive > 0 && self.core.is_virtual && !std::mem::replace(&mut book.is_at_work, true) {
            self.core.begin_work(1);
        }
    }

    /// Tells the engine that no thread does anything.
    fn rest(&self, mut book: MutexGuard<'_, Book<K>>) {
        let was_at_work = std::mem::replace(&mut book.is_at_work, false);
        drop(book);
        if was_at_work {
            self.core.end_work(1);
        }
    }

    /// Makes a run; or begins it, and gives nothing.
    fn make(self: &Arc<Self>, begin: Begin<K>) -> Option<End> {
        let Begin { job, work, number, due } = begin;
        let run = Run { shared: Arc::clone(self), work, id: JobId(job), number, due: self.instant(due) };
        let failure = match self.inside(|| run.work.begin(&run)) {
            Ok(Begun::Future(future)) => {
                self.fly(future, run);
                return None;
            }
            Ok(Begun::Ended(ended)) => self.failure(&run, Landed::Ended(ended)),
            Err(payload) => self.failure(&run, Landed::Panicked(payload)),
        };
        // It may be the last that has the job's closure.
        self.drop_inside(run);
        Some(End { job, failure })
    }

    /// Sends a run on its way.
    fn fly(self: &Arc<Self>, future: BoxedRun, run: Run<K>) {
        let abort = Answer::new();
        let mut book = self.lock();
        // There is room for a billion, and each has a future somewhere.
        let key = book.flights.insert(Time::NEVER, Arc::clone(&abort));
        let is_aborted = matches!(book.phase, Phase::Ending(Shutdown::Abort) | Phase::Over);
        drop(book);
        if is_aborted {
            abort.give(&self.core, Outcome::Cancelled);
        }
        let flight = Flight::new(future, abort, key, run);
        match &self.users.spawn {
            Some(spawn) => _ = catch_panic(|| spawn(Box::pin(flight))),
            None => flight::spawn(flight, self),
        }
    }

    /// A run that was on its way has ended.
    pub(super) fn land(&self, key: Key, run: &Run<K>, landed: Landed) {
        let is_aborted = matches!(landed, Landed::Aborted);
        let failure = self.failure(run, landed);
        let mut book = self.lock();
        book.stats.aborted += u64::from(is_aborted);
        let abort = book.flights.remove(key);
        let gone = book.end(End { job: run.id.0, failure });
        self.alert(book);
        self.drop_inside((abort, gone));
        self.try_end();
    }

    /// Reports a failure, and gives it in words.
    fn failure(&self, run: &Run<K>, landed: Landed) -> Option<String> {
        match landed {
            Landed::Ended(Ok(())) | Landed::Aborted => None,
            Landed::Ended(Err(error)) => {
                let text = self.report(run, Cause::Error(&*error));
                self.drop_inside(error);
                Some(text)
            }
            Landed::Panicked(payload) => Some(self.report(run, Cause::Panic(&message_of(payload)))),
        }
    }

    fn report(&self, run: &Run<K>, cause: Cause<'_>) -> String {
        // An error is the user's, also in how it shows itself.
        let mut text = "failed with an error that could not be shown".to_owned();
        self.contain_inside(|| text = cause.to_string());
        trace::job_failed(&self.core, run.number, &text);
        if let Some(on_failure) = &self.users.on_failure {
            let failure = Failure { key: run.key(), run: run.number, cause };
            self.contain_inside(|| on_failure(&failure));
        }
        text
    }
}

impl WallClock {
    /// What it shows.
    pub(super) fn now(&self) -> Time {
        self.of_engine(self.core.clock.now())
    }

    /// What it shows at an instant.
    pub(super) fn time_of(&self, instant: Instant) -> Time {
        self.of_engine(self.core.clock.time_of(instant.into_std()))
    }

    /// What it shows when the engine's clock shows `time`.
    fn of_engine(&self, time: Time) -> Time {
        self.shift.map_or(time, |shift| shift.to_wall(time))
    }

    /// What the engine's clock shows when it shows `time`.
    fn on_engine(&self, time: Time) -> Time {
        self.shift.map_or(time, |shift| shift.to_engine(time))
    }
}

impl<K: Send + Sync + 'static> OnClockSet for Shared<K> {
    fn clock_was_set(&self) {
        let mut book = self.lock();
        let now = self.now(book.has_wall());
        book.see(now);
        book.bell = None;
        self.alert(book);
    }
}

/// The last that keeps a scheduler may be the waker of a run, and when that is dropped a panic would end the process.
impl<K> Drop for Users<K> {
    fn drop(&mut self) {
        let _ignored = catch_panic(|| drop(self.on_failure.take()));
        let _ignored = catch_panic(|| drop(self.spawn.take()));
    }
}

/// What a panic says.
fn message_of(payload: Box<dyn std::any::Any + Send>) -> String {
    let text = match payload.downcast::<String>() {
        Ok(text) => return *text,
        Err(other) => other.downcast_ref::<&str>().map(|text| (*text).to_owned()).ok_or(other),
    };
    text.unwrap_or_else(|other| {
        // Its destructor is the user's, and may panic as well.
        let _ignored = catch_panic(|| drop(other));
        "something that is not text".to_owned()
    })
}
