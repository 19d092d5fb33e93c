//! The part of a scheduler that its handles, its threads and its wake-up timers share.
//!
//! One thread at a time locks the [`SchedulerState`], takes the next thing to do, unlocks, and does it. So a run goes from the wheel
//! to the thread that makes it, with no thread in between.
//!
//! # No thread sleeps while there is work
//!
//! A thread that changes the state such that there may be work counts an alert under the lock, and notifies an idle thread if there is
//! one. A thread that has found no work waits only if no alert was counted since it looked. For jobs that are not due yet, the thread
//! that looked last has set the wake-up timers.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null;
use std::sync::{Arc, OnceLock, Weak};

use tourbillon_queue::Time;

use super::async_run::{self, AsyncRun, RunOutcome, SpawnedRun};
use super::builder::SchedulerRules;
use super::clock_pair::{ClockId, ClockPair, DueTime, JobClock};
use super::ending::Shutdown;
use super::job::ScheduledJob;
use super::job_body::{BegunRun, Run};
use super::key_index::KeyTableAddress;
use super::limit_watch::LimitWatch;
use super::random::Random;
use super::state::{NextAction, RunEnd, RunStart, SchedulerPhase, SchedulerState};
use super::stats::SchedulerStats;
use super::user_hooks::UserHooks;
use super::{JobId, SchedulerOwner};
use crate::clock::WallShift;
use crate::core::CoreRef;
use crate::core::callbacks::PostedCallback;
use crate::core::jumps::OnClockSet;
use crate::engine::Engine;
use crate::instant::Instant;
use crate::multi::deadline_map::{DeadlineKey, DeadlineMap};
use crate::multi::waiter::OutcomeCell;
use crate::multi::wakeup_timer::WakeupTimer;
use crate::outcome::Outcome;
use crate::slack::Slack;
use crate::sync::catch_panic::catch_panic;
use crate::sync::unmodelled::thread_local;
use crate::sync::{Condvar, Mutex, MutexGuard, ignore_poison, lock};

pub(super) struct SchedulerShared<K> {
    /// How many threads the scheduler has. Without any, its work is done in callbacks of the engine.
    threads: usize,
    state: Mutex<SchedulerState<K>>,
    pub(super) key_table_address: KeyTableAddress,
    /// Idle threads wait here for work.
    work: Condvar,
    /// Threads that wait for the scheduler's end wait here.
    pub(super) over: Condvar,
    /// The clock of the scheduler's engine. The handles and the threads keep the engine running, this does not: callbacks that wait in
    /// the engine's queue hold a reference to this struct, and would keep the engine running for ever.
    pub(super) engine_clock: JobClock,
    /// The wall clock, once a job follows it: that of another engine, or one that moves with the virtual time of the scheduler's.
    wall_clock: OnceLock<JobClock>,
    /// How late jobs may be due, on both clocks, if not by the slack of their engines.
    slack: Option<Slack>,
    pub(super) hooks: UserHooks<K>,
    pub(super) owner: OnceLock<Weak<SchedulerOwner<K>>>,
    this: Weak<SchedulerShared<K>>,
}

/// The result of [`SchedulerShared::step`].
#[must_use]
enum StepResult {
    /// Something was done. If that ended a run, the caller passes the end to the next step.
    Done(Option<RunEnd>),
    /// There is nothing to do, as long as no more than these alerts are counted.
    Nothing { alerts: u64 },
    /// There will never be anything to do.
    Over,
}

/// How many steps one callback does before other callbacks of the engine run.
const STEPS_A_CALLBACK: usize = if cfg!(shuttle) { 2 } else { 256 };

thread_local! {
    /// The address of the scheduler whose user code this thread runs.
    static RUNNING: Cell<*const ()> = const { Cell::new(null()) };
}

impl<K> SchedulerShared<K> {
    pub(super) fn lock(&self) -> MutexGuard<'_, SchedulerState<K>> {
        lock(&self.state)
    }

    /// Returns whether the calling thread is inside a run of this scheduler.
    pub(super) fn is_inside_run(&self) -> bool {
        RUNNING.with(Cell::get) == std::ptr::from_ref(self).cast()
    }

    /// Reads the clocks.
    pub(super) fn now(&self, with_wall: bool) -> ClockPair {
        let wall = self.wall_clock.get().filter(|_| with_wall);
        ClockPair { engine: self.engine_clock.now(), wall: wall.map_or(Time::ZERO, JobClock::now) }
    }

    pub(super) fn stats(&self) -> SchedulerStats {
        let state = self.lock();
        let jobs = if state.is_open() { state.jobs.len() } else { 0 };
        SchedulerStats { jobs, waiting: state.queued(), running: state.running, ..state.stats }
    }

    /// Returns the engine of the wall clock, once a job follows it.
    #[cfg(feature = "metrics")]
    pub(super) fn wall_core(&self) -> Option<&CoreRef> {
        self.wall_clock.get().map(|clock| &clock.core)
    }

    /// Begins a shutdown.
    pub(super) fn shut_down(&self, how: Shutdown) {
        let mut state = self.lock();
        let now = self.now(state.has_wall_jobs());
        let removed = state.shut_down(how, now);
        let aborted: Vec<_> = match state.phase {
            SchedulerPhase::Ending(Shutdown::Abort) => {
                let runs = &state.async_runs;
                runs.keys().filter_map(|key| runs.get(key).cloned()).collect()
            }
            _ => Vec::new(),
        };
        drop(state);
        self.work.notify_all();
        aborted.iter().for_each(|abort| abort.set(&self.engine_clock.core, Outcome::Cancelled));
        self.drop_jobs(removed);
        self.try_end();
    }

    /// Completes the shutdown, if nothing is left to do.
    fn try_end(&self) {
        let mut state = self.lock();
        let removed = state.try_end();
        let is_over = state.phase == SchedulerPhase::Over;
        let wakers = if is_over { std::mem::take(&mut state.ending_wakers) } else { BTreeMap::new() };
        drop(state);
        if removed.is_some() {
            self.work.notify_all();
            self.over.notify_all();
        }
        self.drop_jobs(removed);
        for waker in wakers.into_values() {
            let _ignored = catch_panic(|| waker.wake());
        }
    }

    /// Runs code of the user's as part of this scheduler, and catches its panic.
    pub(super) fn run_user_code<R>(&self, code: impl FnOnce() -> R) -> std::thread::Result<R> {
        let before = RUNNING.with(|running| running.replace(std::ptr::from_ref(self).cast()));
        let result = catch_unwind(AssertUnwindSafe(|| self.engine_clock.core.at_work(code)));
        RUNNING.with(|running| running.set(before));
        result
    }

    /// Runs code of the user's, and ignores a panic.
    pub(super) fn run_user_code_ignored(&self, code: impl FnOnce()) {
        let _ignored = catch_panic(|| drop(self.run_user_code(code)));
    }

    /// Drops a value of the user's. Its destructor counts as inside a run, since one that waited for the scheduler's end would wait for
    /// itself.
    pub(super) fn drop_user_value<T>(&self, value: T) {
        self.run_user_code_ignored(|| drop(value));
    }

    /// Drops jobs, outside the lock. One by one, because a second panic among destructors that run together would abort the process.
    fn drop_jobs(&self, jobs: Option<DeadlineMap<ScheduledJob<K>>>) {
        jobs.into_iter().flat_map(DeadlineMap::into_values).for_each(|job| self.drop_user_value(job));
    }
}

impl<K: Send + Sync + 'static> SchedulerShared<K> {
    pub(super) fn new(
        core: CoreRef,
        threads: usize,
        rules: SchedulerRules,
        hooks: UserHooks<K>,
        random: Random,
    ) -> Arc<SchedulerShared<K>> {
        Arc::new_cyclic(|this: &Weak<SchedulerShared<K>>| {
            let wakeup = WakeupTimer::of(this, &core, SchedulerShared::on_wakeup).slack(rules.slack);
            SchedulerShared {
                slack: rules.slack,
                threads,
                state: Mutex::new(SchedulerState::new(rules, threads, random)),
                key_table_address: KeyTableAddress::default(),
                work: Condvar::new(),
                over: Condvar::new(),
                engine_clock: JobClock::new(core, wakeup, None),
                wall_clock: OnceLock::new(),
                hooks,
                owner: OnceLock::new(),
                this: this.clone(),
            }
        })
    }

    /// Returns the wall clock. The first call creates it on the engine that `on` returns, ahead of that engine's clock by the shift.
    /// Returns `None` if that engine was shut down before: the scheduler goes on without a wall clock.
    pub(super) fn wall_clock(&self, on: impl FnOnce() -> (CoreRef, Option<WallShift>)) -> Option<&JobClock> {
        if let Some(wall) = self.wall_clock.get() {
            return Some(wall);
        }
        // Creating the engine may send an event to a subscriber of the user's, which may call this method. So the engine is created
        // before the cell is initialised (D81).
        let (core, shift) = on();
        if core.is_closed() {
            return None;
        }
        Some(self.wall_clock.get_or_init(|| {
            let wakeup = WakeupTimer::of(&self.this, &core, SchedulerShared::on_wakeup).slack(self.slack);
            let this: Weak<dyn OnClockSet> = self.this.clone();
            core.on_clock_set(this);
            JobClock::new(core, wakeup, shift)
        }))
    }

    pub(super) fn instant(&self, due: DueTime) -> Instant {
        let wall = self.wall_clock.get().filter(|_| due.clock == ClockId::Wall);
        wall.unwrap_or(&self.engine_clock).instant_of(due.time)
    }

    /// Unlocks after a change of when jobs are due, and makes the wake-ups earlier if need be; in virtual time also later. Wakes no thread:
    /// for a change that gives a thread something to do at once, use [`unlock_alerted`](SchedulerShared::unlock_alerted); for both see
    /// `Scheduler::start`. After a change that only removes or postpones jobs, drop the guard and call
    /// [`postpone_virtual_wakeups`](SchedulerShared::postpone_virtual_wakeups).
    #[inline]
    pub(super) fn unlock_changed(&self, mut state: MutexGuard<'_, SchedulerState<K>>) {
        let wakeups = state.take_new_wakeups();
        drop(state);
        self.set_wakeups(wakeups);
        self.postpone_virtual_wakeups();
    }

    /// Unlocks after a change that gives a thread something to do at once, and wakes an idle thread for it (or posts a
    /// callback, if the scheduler has no threads). Sets no wake-up: after a change of when jobs are due, use [`unlock_changed`](SchedulerShared::unlock_changed).
    pub(super) fn unlock_alerted(&self, mut state: MutexGuard<'_, SchedulerState<K>>) {
        state.alerts += 1;
        self.report_busy(&mut state);
        let notifies = state.claim_idle_thread();
        let posts_callback = self.threads == 0 && !std::mem::replace(&mut state.is_callback_posted, true);
        drop(state);
        if notifies {
            self.work.notify_one();
        }
        if posts_callback && let Some(shared) = self.this.upgrade() {
            let callback = Box::new(move |_| shared.run_in_callback());
            self.engine_clock.core.post(std::iter::once(PostedCallback { callback, outcome: Outcome::Fired }));
        }
    }

    /// Does the work of a scheduler without threads, in a callback of the engine. After some steps the rest goes to another callback, so
    /// that other callbacks run in between.
    fn run_in_callback(self: Arc<Self>) {
        self.lock().is_callback_posted = false;
        let mut ended = None;
        for _ in 0..STEPS_A_CALLBACK {
            match self.step(ended.take()) {
                StepResult::Done(end) => ended = end,
                StepResult::Nothing { .. } | StepResult::Over => return,
            }
        }
        let mut state = self.lock();
        let now = self.now(state.has_wall_jobs());
        let removed = ended.and_then(|end| state.record_end(end, now));
        self.unlock_alerted(state);
        self.drop_user_value(removed);
    }

    /// Begins a shutdown, and makes sure that a thread completes it.
    pub(super) fn shut_down_and_alert(&self, how: Shutdown) {
        self.shut_down(how);
        self.unlock_alerted(self.lock());
    }

    pub(super) fn set_wakeups(&self, wakeups: Option<ClockPair>) {
        let Some(wakeups) = wakeups else { return };
        self.engine_clock.set_wakeup(wakeups.engine);
        if let Some(wall) = self.wall_clock.get() {
            wall.set_wakeup(wakeups.wall);
        }
    }

    /// Postpones the wake-ups of a virtual engine to the deadlines that are left after a job was removed or postponed. Other engines keep
    /// theirs, and find nothing due then.
    pub(super) fn postpone_virtual_wakeups(&self) {
        if !self.engine_clock.core.is_virtual {
            return;
        }
        self.engine_clock.postpone_wakeup(|| self.lock().postponed_wakeups().engine);
        if let Some(wall) = self.wall_clock.get() {
            wall.postpone_wakeup(|| self.lock().postponed_wakeups().wall);
        }
    }

    /// Handles a wake-up: a job may be due, or an engine was shut down.
    fn on_wakeup(&self) {
        let is_stopped = |clock: &JobClock| clock.wakeup.take_outcome() == Some(Outcome::Stopped);
        if is_stopped(&self.engine_clock) || self.wall_clock.get().is_some_and(is_stopped) {
            return self.shut_down_and_alert(Shutdown::Drain);
        }
        let mut state = self.lock();
        state.wakeups = None;
        self.unlock_alerted(state);
    }

    pub(super) fn push_task(&self, task: async_task::Runnable) {
        let mut state = self.lock();
        state.push_task(task);
        self.unlock_alerted(state);
    }

    /// The main function of each of the scheduler's threads.
    pub(super) fn run_thread(self: Arc<Self>, engine: &Engine) {
        // The threads of a loom model are one thread of the system, and would share a shard.
        #[cfg(not(loom))]
        let _entered = engine.enter();
        #[cfg(loom)]
        let _ = engine;
        let mut ended = None;
        loop {
            match self.step(ended.take()) {
                StepResult::Done(end) => ended = end,
                StepResult::Nothing { alerts } => self.wait(alerts),
                StepResult::Over => return self.remove_threads(1),
            }
        }
    }

    /// Records that threads have ended, or could not be started.
    pub(super) fn remove_threads(&self, threads: usize) {
        let mut state = self.lock();
        state.threads -= threads;
        if state.idle >= state.threads {
            self.report_idle(state);
        }
    }

    /// Records the end of the run that the last step made, takes the next thing to do, and does it.
    fn step(self: &Arc<Self>, ended: Option<RunEnd>) -> StepResult {
        let (next, alerts) = self.next(ended);
        match next {
            NextAction::Run(start) => return StepResult::Done(self.make(start)),
            NextAction::Task(task) => _ = self.run_user_code(|| task.run()),
            NextAction::Again => {}
            NextAction::Wait => return StepResult::Nothing { alerts },
            NextAction::End => {
                self.try_end();
                return StepResult::Over;
            }
        }
        StepResult::Done(None)
    }

    /// Records the end of a run and returns the next thing to do, with the number of alerts counted so far.
    fn next(&self, ended: Option<RunEnd>) -> (NextAction<K>, u64) {
        let mut state = self.lock();
        let now = self.now(state.has_wall_jobs());
        let removed = ended.and_then(|end| state.record_end(end, now));
        let next = state.next(now);
        let ended_jobs = state.take_ended_jobs();
        let (wakeups, alerts, notifies) = (state.take_new_wakeups(), state.alerts, state.claim_helper());
        drop(state);
        self.set_wakeups(wakeups);
        if notifies {
            self.work.notify_one();
        }
        self.drop_user_value(removed);
        ended_jobs.into_iter().for_each(|job| self.drop_user_value(job));
        (next, alerts)
    }

    /// Waits for work, unless more than these alerts have been counted.
    fn wait(&self, alerts: u64) {
        let mut state = self.lock();
        if state.is_reported_busy && state.alerts == alerts && state.idle + 1 == state.threads {
            // This is the last thread that was busy.
            self.report_idle(state);
            state = self.lock();
        }
        if state.alerts == alerts {
            state.idle += 1;
            state = ignore_poison(self.work.wait(state));
            state.idle -= 1;
            state.notified = state.notified.saturating_sub(1);
        }
    }

    /// Tells an engine in virtual time that a thread has work. Under the lock, so before a thread can find that none is left.
    pub(super) fn report_busy(&self, state: &mut SchedulerState<K>) {
        let is_news = state.threads > 0
            && self.engine_clock.core.is_virtual
            && !std::mem::replace(&mut state.is_reported_busy, true);
        if is_news {
            self.engine_clock.core.begin_work(1);
        }
    }

    /// Tells the engine that no thread has work.
    fn report_idle(&self, mut state: MutexGuard<'_, SchedulerState<K>>) {
        let was_reported_busy = std::mem::replace(&mut state.is_reported_busy, false);
        drop(state);
        if was_reported_busy {
            self.engine_clock.core.end_work(1);
        }
    }

    /// Makes a run and returns its end; or begins an async run and returns `None`.
    fn make(self: &Arc<Self>, start: RunStart<K>) -> Option<RunEnd> {
        let RunStart { job, body, number, due, facts, time_limit } = start;
        let run = Run { shared: Arc::clone(self), body, id: JobId(job), number, due: self.instant(due), facts };
        let limit = time_limit.filter(|_| run.body.is_blocking());
        let watch = limit.map(|limit| LimitWatch::start(self, &run, limit));
        let outcome = match self.run_user_code(|| self.hooks.in_runtime(|| run.body.begin(&run))) {
            Ok(BegunRun::Future(future)) => {
                self.spawn_async(SpawnedRun { future, run, time_limit });
                return None;
            }
            Ok(BegunRun::Returned(result)) => RunOutcome::Returned(result),
            Err(payload) => RunOutcome::Panicked(payload),
        };
        if let Some(watch) = watch {
            watch.end(self.engine_clock.now() - facts.began);
        }
        let (status, failure) = self.report_outcome(&run, outcome);
        // This may drop the last reference to the job's closure.
        self.drop_user_value(run);
        Some(RunEnd::new(job, facts, status, failure))
    }

    /// Begins an async run, on the user's executor or on the scheduler's own threads.
    fn spawn_async(self: &Arc<Self>, run: SpawnedRun<K>) {
        let abort = OutcomeCell::new();
        let mut state = self.lock();
        // This cannot be full: there is room for a billion, and each has a future in memory.
        let key = state.async_runs.insert(Time::NEVER, Arc::clone(&abort));
        let is_aborted = matches!(state.phase, SchedulerPhase::Ending(Shutdown::Abort) | SchedulerPhase::Over);
        drop(state);
        if is_aborted {
            abort.set(&self.engine_clock.core, Outcome::Cancelled);
        }
        let run = AsyncRun::new(run, abort, key, &self.engine_clock.core);
        match &self.hooks.spawn {
            Some(spawn) => _ = catch_panic(|| spawn(Box::pin(run))),
            None => async_run::spawn(run, self),
        }
    }

    /// Records that an async run has ended.
    pub(super) fn finish_async(&self, run_key: DeadlineKey, run: &Run<K>, outcome: RunOutcome) {
        let is_aborted = matches!(outcome, RunOutcome::Aborted);
        let is_over_limit = matches!(outcome, RunOutcome::TimedOut(_));
        let (status, failure) = self.report_outcome(run, outcome);
        let end = RunEnd::new(run.id.0, run.facts, status, failure);
        let mut state = self.lock();
        state.stats.aborted += u64::from(is_aborted);
        if is_over_limit {
            state.count_over_limit(run.id.0);
        }
        let abort = state.async_runs.remove(run_key);
        let now = self.now(state.has_wall_jobs());
        let removed = state.record_end(end, now);
        self.unlock_alerted(state);
        self.drop_user_value((abort, removed));
        self.try_end();
    }
}

impl<K: Send + Sync + 'static> OnClockSet for SchedulerShared<K> {
    fn clock_was_set(&self) {
        let mut state = self.lock();
        let now = self.now(state.has_wall_jobs());
        state.observe_clocks(now);
        state.wakeups = None;
        self.unlock_alerted(state);
    }
}
