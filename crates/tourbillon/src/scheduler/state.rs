//! Everything that a scheduler knows, behind its lock. This module reads no clock, starts no thread, and calls no code of the user except
//! the `Eq` and `Borrow` of keys.
//!
//! ```text
//!     keys: key -> job           jobs: by due time on the engine's clock    wall_deadlines: those that follow the wall clock
//!                                          |   due                           |
//!                                          v                                 v
//!                            queue: runs, in the order in which they were due         tasks: async runs to be polled
//!                                          |                                            |
//!                                          v     a thread takes one at a time           v
//! ```
//!
//! This file changes jobs, and holds the phases of the scheduler's life; [`runs`] turns a due job into a run.
//!
//! Values to be dropped are returned to the caller, which drops them outside the lock.

mod run_now;
mod runs;
mod wall_deadlines;

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use async_task::Runnable;
use tourbillon_queue::{Span, Time};

pub use self::run_now::{Requested, RunNowError};
use self::runs::QueuedRun;
pub(super) use self::runs::{NextAction, RunEnd, RunStart};
use self::wall_deadlines::WallDeadlines;
use super::builder::SchedulerRules;
use super::clock_pair::{ClockId, ClockPair, DueTime};
use super::ending::Shutdown;
use super::error::ScheduleErrorKind;
use super::job::{RemovedJob, ScheduledJob};
use super::job_body::{HeldBody, JobBody};
use super::key_index::KeyIndex;
use super::options::PlanOptions;
use super::plan::Plan;
use super::random::Random;
use super::stats::SchedulerStats;
use super::timing::JobTiming;
use super::timings::RunTimings;
use crate::multi::deadline_map::{DeadlineKey, DeadlineMap};
use crate::multi::waiter::OutcomeCell;

pub(super) struct SchedulerState<K> {
    pub(super) rules: SchedulerRules,
    /// All jobs. Those that follow the engine's clock have their due times here.
    pub(super) jobs: DeadlineMap<ScheduledJob<K>>,
    pub(super) keys: KeyIndex,
    wall_deadlines: Box<WallDeadlines>,
    /// Runs that wait for a thread.
    queue: VecDeque<QueuedRun>,
    /// How many of the queued runs are of jobs that have been removed or got another plan. They do not count against the limit.
    removed_in_queue: usize,
    /// Async runs that were woken and are to be polled.
    tasks: VecDeque<Runnable>,
    /// Whether a task was taken last, if there were queued runs too.
    tasks_first: bool,
    /// The clock whose due jobs were looked at first last time.
    clock_first: ClockId,
    pub(super) phase: SchedulerPhase,
    /// When the scheduler was last started. Times before it are passed over, because the scheduler was stopped then.
    started_at: ClockPair,
    /// Whether any job may have [`starts_in_past`](ScheduledJob::starts_in_past) set.
    may_start_in_past: bool,
    /// The times that the clocks showed in the last call of [`observe_clocks`](SchedulerState::observe_clocks).
    last_seen: ClockPair,
    /// While the scheduler drains: jobs that were due by this time are still to be queued.
    drain_until: Option<ClockPair>,
    /// How many runs have begun and not ended.
    pub(super) running: usize,
    /// The runs under way that are futures, each with the cell that tells it to abort.
    pub(super) async_runs: Box<DeadlineMap<Arc<OutcomeCell>>>,
    /// How many threads wait for work.
    pub(super) idle: usize,
    /// How many of the idle threads have been notified and not yet returned from their wait.
    pub(super) notified: usize,
    /// How many threads there are.
    pub(super) threads: usize,
    /// Whether the engine was last told that a thread has work to do, and not that none has.
    pub(super) is_reported_busy: bool,
    /// Counts changes that may give a thread work: a thread that found nothing waits only if this has not changed.
    pub(super) alerts: u64,
    /// In a scheduler without threads: whether the callback that does its work is in the engine's callback queue.
    pub(super) is_callback_posted: bool,
    /// The times for which the wake-up timers are set; `None` if they have to be set anew.
    pub(super) wakeups: Option<ClockPair>,
    /// The earliest due time that a job was given since `wakeups` was last updated.
    earliest_change: ClockPair,
    /// The wakers of the [`Ending`](super::Ending)s that wait, by their numbers.
    pub(super) ending_wakers: BTreeMap<u64, Waker>,
    /// How many endings have been given a number.
    pub(super) endings: u64,
    pub(super) stats: SchedulerStats,
    /// Draws the jitter of plans and of retries.
    pub(super) random: Random,
    /// The timings of all runs, once an exporter of metrics asked for them.
    pub(super) timings: Option<Box<RunTimings>>,
    /// Whether the timings of each job are recorded as well.
    pub(super) records_each_job: bool,
    /// Jobs whose plan ended without a further run, to be dropped outside the lock.
    ended_jobs: Vec<RemovedJob<K>>,
}

/// The parts of a job's old plan that have to be dropped outside the lock.
#[expect(dead_code, reason = "the fields are there to be dropped")]
pub(super) struct ReplacedPlan<K> {
    timing: JobTiming,
    options: Option<Box<PlanOptions>>,
    body: Option<HeldBody<K>>,
}

/// The phases of a scheduler's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SchedulerPhase {
    Running,
    /// No run begins until the scheduler is started again.
    Stopped,
    /// Shut down, with runs that have not ended.
    Ending(Shutdown),
    /// Nothing will ever run again.
    Over,
}

/// A wall clock that is set back by at most this much shows again times that have been; set back by more, it had been wrong before.
const SET_BACK: Span = Span::from_secs(3 * 60 * 60);

impl<K> SchedulerState<K> {
    pub(super) fn new(rules: SchedulerRules, threads: usize, random: Random) -> SchedulerState<K> {
        SchedulerState {
            rules,
            jobs: DeadlineMap::new(),
            keys: KeyIndex::new(),
            wall_deadlines: Box::default(),
            queue: VecDeque::new(),
            removed_in_queue: 0,
            tasks: VecDeque::new(),
            tasks_first: false,
            clock_first: ClockId::Engine,
            phase: SchedulerPhase::Running,
            started_at: ClockPair::ZERO,
            may_start_in_past: false,
            last_seen: ClockPair::ZERO,
            drain_until: None,
            running: 0,
            async_runs: Box::default(),
            idle: 0,
            notified: 0,
            threads,
            is_reported_busy: false,
            alerts: 0,
            is_callback_posted: false,
            wakeups: None,
            earliest_change: ClockPair::NEVER,
            ending_wakers: BTreeMap::new(),
            endings: 0,
            stats: SchedulerStats::default(),
            random,
            timings: None,
            records_each_job: false,
            ended_jobs: Vec::new(),
        }
    }

    /// Returns whether any job follows the wall clock.
    pub(super) fn has_wall_jobs(&self) -> bool {
        !self.wall_deadlines.is_empty()
    }

    #[inline]
    pub(super) fn find<Q>(&self, hash: u32, key: &Q) -> Option<DeadlineKey>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let index = self.keys.find(hash, |index| has_key(&self.jobs, index, key))?;
        self.jobs.key_at(index)
    }

    /// Checks that a job can be inserted under this key.
    #[inline(always)]
    pub(super) fn check_new(&self, hash: u32, key: &K) -> Result<(), ScheduleErrorKind>
    where
        K: Eq,
    {
        let capacity = self.rules.capacity;
        match () {
            () if !self.is_open() => Err(ScheduleErrorKind::ShutDown),
            () if self.find(hash, key).is_some() => Err(ScheduleErrorKind::Duplicate),
            () if self.jobs.len() >= capacity || self.jobs.is_full() => Err(ScheduleErrorKind::Full { capacity }),
            () => Ok(()),
        }
    }

    /// Inserts a job whose key [`check_new`](SchedulerState::check_new) has accepted.
    #[inline(always)]
    pub(super) fn insert(&mut self, body: Box<dyn JobBody<K>>, hash: u32, plan: Plan, due: Time) -> DeadlineKey {
        let clock = plan.timing.clock();
        let starts_in_past = self.starts_in_past(DueTime { time: due, clock });
        self.may_start_in_past |= starts_in_past;
        let (rules, mut next_deadline) = (&self.rules, Time::NEVER);
        let key = self.jobs.insert_with(|| {
            let job = ScheduledJob { starts_in_past, ..ScheduledJob::new(body, hash, plan, due, rules) };
            next_deadline = job.next_deadline();
            (if clock == ClockId::Engine { next_deadline } else { Time::NEVER }, job)
        });
        if clock == ClockId::Wall {
            self.wall_deadlines.set(key, next_deadline);
        }
        self.note_change(DueTime { time: next_deadline, clock });
        self.keys.insert(hash, key.index());
        key
    }

    /// Removes a job. Its queued runs are not made.
    pub(super) fn remove(&mut self, job_key: DeadlineKey) -> Option<RemovedJob<K>> {
        let hash = self.jobs.get(job_key)?.hash;
        self.keys.remove(hash, |index| index == job_key.index());
        self.remove_unlisted(job_key)
    }

    /// Removes the job under a key of the user's.
    #[inline]
    pub(super) fn remove_under<Q>(&mut self, hash: u32, key: &Q) -> Option<RemovedJob<K>>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let SchedulerState { keys, jobs, .. } = self;
        let index = keys.remove(hash, |index| has_key(jobs, index, key))?;
        self.remove_unlisted(self.jobs.key_at(index)?)
    }

    /// Removes a job that is no longer in `keys`.
    #[inline]
    fn remove_unlisted(&mut self, job_key: DeadlineKey) -> Option<RemovedJob<K>> {
        let job = self.jobs.get(job_key)?;
        self.removed_in_queue += job.queued as usize;
        if job.timing.clock() == ClockId::Wall {
            self.wall_deadlines.remove(job_key);
        }
        if self.has_many_withdrawn_runs() {
            return self.remove_and_drop_withdrawn_runs(job_key);
        }
        // Last, so that the parts are written where the caller reads them, and not copied.
        self.jobs.remove(job_key).map(ScheduledJob::into_removed)
    }

    #[cold]
    #[inline(never)]
    fn remove_and_drop_withdrawn_runs(&mut self, job_key: DeadlineKey) -> Option<RemovedJob<K>> {
        let removed = self.jobs.remove(job_key).map(ScheduledJob::into_removed);
        self.drop_withdrawn_runs();
        removed
    }

    /// Gives a job its [next deadline](ScheduledJob::next_deadline), on the clock that it follows.
    pub(super) fn update_deadline(&mut self, job_key: DeadlineKey) {
        let Some(job) = self.jobs.get(job_key) else { return };
        let (next, retry, clock) = (job.next_deadline(), job.retry_deadline(), job.timing.clock());
        let has_extras = job.extras.is_some();
        match clock {
            ClockId::Engine => self.jobs.set_deadline(job_key, next.min(retry)),
            ClockId::Wall => {
                self.wall_deadlines.set(job_key, next);
                // Retries are due on the engine's clock, for all jobs.
                if has_extras {
                    self.jobs.set_deadline(job_key, retry);
                }
            }
        }
        self.note_change(DueTime { time: next, clock });
        if !retry.is_never() {
            self.note_change(DueTime { time: retry, clock: ClockId::Engine });
        }
    }

    #[inline]
    fn note_change(&mut self, due: DueTime) {
        self.earliest_change = self.earliest_change.min(ClockPair::only(due));
    }

    /// Gives a job another plan, and another body if one is given. Returns the old ones. The queued runs of the old plan are not made.
    #[must_use]
    pub(super) fn change_plan(
        &mut self,
        job_key: DeadlineKey,
        plan: Plan,
        due: Time,
        body: Option<Box<dyn JobBody<K>>>,
    ) -> Option<ReplacedPlan<K>> {
        let rules = self.rules;
        let starts_in_past = self.starts_in_past(DueTime { time: due, clock: plan.timing.clock() });
        self.may_start_in_past |= starts_in_past;
        // The new plan may follow the other clock.
        self.clear_deadline(job_key);
        let job = self.jobs.get_mut(job_key)?;
        job.overlap = plan.overlap.unwrap_or(rules.overlap);
        job.missed = plan.missed.unwrap_or(rules.missed);
        job.forget_extra_runs();
        (job.due, job.starts_in_past, job.runs_left) = (due, starts_in_past, plan.times);
        job.plan_number = job.plan_number.wrapping_add(1);
        // They stay in the queue until a thread comes to them, so that this takes the same time however long the queue is.
        self.removed_in_queue += job.forget_queued_runs() as usize;
        let timing = std::mem::replace(&mut job.timing, plan.timing);
        let options = job.set_options(plan.options);
        let body = body.map(|body| std::mem::replace(&mut job.body, HeldBody::Unshared(body)));
        self.update_deadline(job_key);
        self.drop_withdrawn_runs();
        Some(ReplacedPlan { timing, options, body })
    }

    /// Pauses a job. Returns whether there is such a job.
    pub(super) fn pause(&mut self, job_key: DeadlineKey) -> bool {
        let Some(job) = self.jobs.get_mut(job_key) else { return false };
        job.is_paused = true;
        // Runs that a pause prevents are not made up for, and neither are those that waited for the end of a run.
        job.forget_extra_runs();
        self.update_deadline(job_key);
        true
    }

    /// Resumes a job. Returns whether there is such a job.
    pub(super) fn resume(&mut self, job_key: DeadlineKey, now: ClockPair) -> bool {
        let Some(job) = self.jobs.get_mut(job_key) else { return false };
        if std::mem::replace(&mut job.is_paused, false) {
            let _passed_over = job.pass_over_until(now.on(job.timing.clock()));
            self.update_deadline(job_key);
            self.remove_if_over(job_key);
        }
        true
    }

    /// Returns whether a plan that is made now begins before the scheduler was last started.
    fn starts_in_past(&self, due: DueTime) -> bool {
        self.phase == SchedulerPhase::Running && due.time < self.started_at.on(due.clock)
    }

    /// Returns when a job is due next, without the times that are passed over because the scheduler was stopped.
    pub(super) fn next_due(&self, job_key: DeadlineKey, now: ClockPair) -> Option<DueTime> {
        let job = self.jobs.get(job_key)?;
        let started_at = if self.phase == SchedulerPhase::Stopped { now } else { self.started_at };
        let clock = job.timing.clock();
        let started_at = started_at.on(clock);
        let is_exempt = job.starts_in_past && self.phase == SchedulerPhase::Running;
        let is_passed_over = job.next_deadline() < started_at && !is_exempt;
        let time = if is_passed_over { job.first_from(started_at).0 } else { job.next_deadline() };
        let time = if job.is_after_end(time) { Time::NEVER } else { time };
        (!time.is_never()).then_some(DueTime { time, clock })
    }

    fn clear_deadline(&mut self, job_key: DeadlineKey) {
        self.wall_deadlines.remove(job_key);
        self.jobs.set_deadline(job_key, Time::NEVER);
    }

    /// Returns the times for which the wake-up timers have to be set; `None` if they need not be changed.
    #[must_use]
    pub(super) fn take_new_wakeups(&mut self) -> Option<ClockPair> {
        let change = std::mem::replace(&mut self.earliest_change, ClockPair::NEVER);
        match self.wakeups {
            Some(wakeups) if !change.is_before(wakeups) => None,
            Some(wakeups) => Some(*self.wakeups.insert(wakeups.min(change))),
            None => Some(*self.wakeups.insert(self.next_wakeups())),
        }
    }

    /// Returns the next wake-ups after a deadline was removed or moved later. If the wake-up timers are set, the caller sets one of them to
    /// its time.
    ///
    /// A wake-up that has become earlier meanwhile is not recorded as set: the caller sets no timer to an earlier time, and the next
    /// thread that [takes new wake-ups](SchedulerState::take_new_wakeups) has to find it.
    pub(super) fn postponed_wakeups(&mut self) -> ClockPair {
        let next = self.next_wakeups();
        self.wakeups = self.wakeups.map(|set| set.max(next));
        next
    }

    /// Returns when a thread has to look for due jobs.
    fn next_wakeups(&self) -> ClockPair {
        match self.phase {
            SchedulerPhase::Running => {
                ClockPair { engine: self.jobs.next_wakeup(), wall: self.wall_deadlines.next_wakeup() }
            }
            _ => ClockPair::NEVER,
        }
    }

    /// Computes the due times of the jobs on the wall clock anew if that clock was set back so far that it must have been wrong.
    pub(super) fn observe_clocks(&mut self, now: ClockPair) {
        let expected = self.last_seen.wall + (now.engine - self.last_seen.engine);
        self.last_seen = now;
        if now.wall == Time::ZERO || expected - now.wall <= SET_BACK {
            return;
        }
        self.started_at.wall = self.started_at.wall.min(now.wall);
        for key in self.wall_deadlines.jobs() {
            if let Some(job) = self.jobs.get_mut(key) {
                job.due = job.due.min(job.timing.after(now.wall));
                self.update_deadline(key);
            }
        }
    }

    /// Returns whether the caller has to notify an idle thread, and counts that thread as notified. A thread that was notified before looks
    /// at everything when it wakes up, so it is not notified again.
    #[must_use]
    pub(super) fn claim_idle_thread(&mut self) -> bool {
        let is_there = self.idle > self.notified;
        self.notified += usize::from(is_there);
        is_there
    }

    /// Claims an idle thread if there is more work than the calling thread can do now.
    #[must_use]
    pub(super) fn claim_helper(&mut self) -> bool {
        let is_wanted = !self.tasks.is_empty() || (self.queued() > 0 && self.phase != SchedulerPhase::Stopped);
        is_wanted && self.claim_idle_thread()
    }

    pub(super) fn start(&mut self, now: ClockPair) {
        if self.phase == SchedulerPhase::Stopped {
            self.phase = SchedulerPhase::Running;
            self.started_at = now;
            self.clear_starts_in_past();
            self.alerts += 1;
            self.wakeups = None;
        }
    }

    /// Ends the exemption of jobs that were planned before this start. Few jobs ever have it, so the jobs are looked at only if one may.
    fn clear_starts_in_past(&mut self) {
        if std::mem::take(&mut self.may_start_in_past) {
            let keys: Vec<DeadlineKey> = self.jobs.keys().collect();
            for key in keys {
                self.jobs.get_mut(key).into_iter().for_each(|job| job.starts_in_past = false);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        if self.phase == SchedulerPhase::Running {
            self.phase = SchedulerPhase::Stopped;
        }
    }

    /// Begins a shutdown. Returns jobs to be dropped outside the lock.
    #[must_use]
    pub(super) fn shut_down(&mut self, how: Shutdown, now: ClockPair) -> Option<DeadlineMap<ScheduledJob<K>>> {
        let is_due = self.phase == SchedulerPhase::Running && self.next_wakeups().is_reached_by(now);
        match (self.phase, how) {
            (SchedulerPhase::Over | SchedulerPhase::Ending(Shutdown::Abort), _)
            | (SchedulerPhase::Ending(_), Shutdown::Drain) => return None,
            _ => self.phase = SchedulerPhase::Ending(how),
        }
        self.alerts += 1;
        if how == Shutdown::Drain {
            self.drain_until = is_due.then_some(now);
            return None;
        }
        self.drain_until = None;
        self.stats.aborted += self.queued() as u64;
        Some(self.clear())
    }

    /// Completes a shutdown if no run is active or queued. Returns jobs to be dropped outside the lock.
    #[must_use]
    pub(super) fn try_end(&mut self) -> Option<DeadlineMap<ScheduledJob<K>>> {
        let is_busy = self.running > 0 || self.queued() > 0 || self.drain_until.is_some();
        if is_busy || !matches!(self.phase, SchedulerPhase::Ending(_)) {
            return None;
        }
        self.phase = SchedulerPhase::Over;
        // A thread that has found nothing and does not wait yet must not begin to wait.
        self.alerts += 1;
        Some(self.clear())
    }

    fn clear(&mut self) -> DeadlineMap<ScheduledJob<K>> {
        self.keys = KeyIndex::new();
        *self.wall_deadlines = WallDeadlines::default();
        (self.queue, self.removed_in_queue) = (VecDeque::new(), 0);
        std::mem::take(&mut self.jobs)
    }

    /// Returns the bodies of all jobs.
    pub(super) fn bodies(&mut self) -> impl Iterator<Item = Arc<dyn JobBody<K>>> {
        self.jobs.values_mut().map(|job| job.body.share())
    }

    /// Returns whether the scheduler has not been shut down.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, SchedulerPhase::Running | SchedulerPhase::Stopped)
    }
}

#[inline]
fn has_key<K, Q>(jobs: &DeadlineMap<ScheduledJob<K>>, index: u32, key: &Q) -> bool
where
    K: Borrow<Q>,
    Q: Eq + ?Sized,
{
    let job = jobs.key_at(index).and_then(|job| jobs.get(job));
    job.is_some_and(|job| job.body.key().borrow() == key)
}
