//! One job of a [`SchedulerModel`](super::SchedulerModel).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tourbillon::Span;
use tourbillon::scheduler::Overlap;
use tourbillon::time::MissedTickBehavior;

use crate::context::add_exact;
use crate::cron_reference::CronReference;
use crate::recorder::Id;
use crate::timer_model::NEVER;

/// The modelled state of a job.
#[derive(Clone, Debug)]
pub struct ModelJob {
    /// Identifies its runs in recorded events.
    pub id: Id,
    /// Identifies the closure that its runs call now, which differs from `id` after an upsert.
    pub closure: Id,
    /// Its key in the scheduler.
    pub key: u32,
    /// When it is due.
    pub timing: ModelTiming,
    /// The rules for occurrences that cannot run on time.
    pub policy: JobPolicy,
    /// Next occurrence, also while the job is paused.
    pub due: u64,
    /// Runs that are still to be queued; `None` for any number.
    pub times: Option<u64>,
    /// Whether the job is paused.
    pub is_paused: bool,
    /// Whether its plan was made since the last start for a time before that start: then no occurrence is skipped.
    pub is_past: bool,
    /// Runs that are queued or running.
    pub active: u32,
    /// Runs that are queued.
    pub waiting: u32,
    /// How often its plan was replaced.
    pub plan: u32,
    /// Its rank among jobs that are due at the same time.
    pub order: u64,
    /// Occurrences that run as soon as the running one has ended.
    pub backlog: VecDeque<u64>,
    /// When a run was asked for that is made as soon as the running one has ended.
    pub requested: Option<u64>,
    /// Retries that are not due yet: when they are, on the engine's clock, and which attempts they are.
    pub retries: Vec<(u64, u32)>,
    /// Runs so far.
    pub runs: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were retries.
    pub retried: u64,
    /// Runs that were skipped because the last one still ran.
    pub overlapped: u64,
    /// Runs that found the queue full.
    pub overflowed: u64,
    /// Occurrences that passed while no run could be made.
    pub missed_runs: u64,
}

/// The rules for occurrences that cannot run on time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPolicy {
    /// If the last run has not ended.
    pub overlap: Overlap,
    /// If the scheduler looked too late.
    pub missed: MissedTickBehavior,
    /// Most retries of a run that failed, and the delay before each.
    pub retry: Option<(u32, u64)>,
    /// Last time at which a run may be due, on the plan's clock; `NEVER` for any.
    pub end: u64,
}

/// When a job is due.
#[derive(Clone, Debug)]
pub enum ModelTiming {
    /// Periodically. The period is in nanoseconds.
    Every(u64),
    /// By a cron line and the wall clock.
    Cron(Rc<RefCell<CronReference>>),
}

/// The result for the occurrences that are due.
pub(super) struct DueResult {
    pub(super) is_made: bool,
    pub(super) overlapped: u64,
    pub(super) missed: u64,
}

/// A run that is no later than this counts as on time, as documented.
const TOLERANCE: Span = Span::from_millis(5);
/// Most missed times of a cron line that are counted, as documented.
const COUNTED: u64 = 1000;

impl ModelJob {
    /// Returns when the scheduler has to look at the job; `NEVER` if it need not.
    pub(super) fn next_due(&self) -> u64 {
        if self.is_paused || self.is_settled() || self.has_ended() { NEVER } else { self.due }
    }

    /// Returns when it is due by one of the clocks. Retries are due by the engine's, for all jobs.
    pub(super) fn due_on(&self, is_wall: bool) -> u64 {
        let regular = if self.timing.is_wall() == is_wall { self.next_due() } else { NEVER };
        if is_wall { regular } else { regular.min(self.next_retry()) }
    }

    /// Returns when the first retry is due.
    #[must_use]
    pub fn next_retry(&self) -> u64 {
        self.retries.iter().map(|retry| retry.0).min().unwrap_or(NEVER)
    }

    /// Takes the first retry.
    pub(super) fn take_retry(&mut self) -> Option<(u64, u32)> {
        let first = (0..self.retries.len()).min_by_key(|index| self.retries[*index].0)?;
        Some(self.retries.remove(first))
    }

    /// Plans the retry of an attempt that failed at this time of the engine's clock and of the plan's. Returns whether there is one.
    pub(super) fn plan_retry(&mut self, attempt: u32, engine: u64, own: u64) -> bool {
        let Some((most, delay)) = self.policy.retry else { return false };
        let (due, own) = (engine.saturating_add(delay), own.saturating_add(delay));
        let is_made = attempt <= most && !self.is_paused && self.backlog.is_empty();
        let is_made = is_made && own < self.next_due() && own <= self.policy.end && due != NEVER;
        if is_made {
            self.retries.push((due, attempt + 1));
        }
        is_made
    }

    /// Forgets what was to run beside the regular occurrences.
    pub(super) fn forget_extra_runs(&mut self) {
        self.backlog.clear();
        self.retries.clear();
        self.requested = None;
    }

    fn has_ended(&self) -> bool {
        self.due > self.policy.end
    }

    /// Returns whether all remaining occurrences of the plan are queued or in the backlog.
    fn is_settled(&self) -> bool {
        self.times.is_some_and(|times| times <= self.backlog.len() as u64)
    }

    /// Decides what happens to the occurrences up to `now`, and sets the next one.
    pub(super) fn on_due(&mut self, now: u64) -> DueResult {
        let due = self.due;
        let (next, passed) = self.timing.first_from(due, now.min(self.policy.end).saturating_add(1));
        // `due` itself is one of those that were passed.
        let passed = passed - 1;
        self.due = next;
        if self.active > 0 && self.policy.overlap != Overlap::Parallel {
            let is_place_free = self.backlog.is_empty() && self.requested.is_none();
            let is_kept = self.policy.overlap == Overlap::QueueOne && is_place_free;
            self.backlog.extend(is_kept.then_some(due));
            let mut overlapped = passed + u64::from(!is_kept);
            if is_kept && self.is_settled() {
                // This run is the last of the plan.
                (self.due, overlapped) = (self.timing.after(due), 0);
            }
            self.overlapped += overlapped;
            return DueResult { is_made: false, overlapped, missed: 0 };
        }
        let mut missed = 0;
        match self.policy.missed {
            MissedTickBehavior::Burst if self.policy.overlap == Overlap::Parallel => self.due = self.timing.after(due),
            MissedTickBehavior::Burst => self.backlog = self.timing.some_after(due, passed),
            MissedTickBehavior::Delay if now - due > TOLERANCE.as_nanos() && !self.timing.is_wall() => {
                self.due = self.timing.after(now);
            }
            _ => missed = passed,
        }
        DueResult { is_made: true, overlapped: 0, missed }
    }

    /// Skips the occurrences before `since`, and returns how many they were.
    pub(super) fn skip_until(&mut self, since: u64) -> u64 {
        if self.due >= since {
            return 0;
        }
        let (next, passed) = self.first_from(since);
        self.due = next;
        passed
    }

    /// Returns the first occurrence that is not before `since`, or one after the end, and how many are before it.
    pub(super) fn first_from(&self, since: u64) -> (u64, u64) {
        self.timing.first_from(self.due, since.min(self.policy.end.saturating_add(1)))
    }

    pub(super) fn enqueue_run(&mut self, is_planned: bool) {
        (self.active, self.waiting) = (self.active + 1, self.waiting + 1);
        self.times = self.times.map(|times| times - u64::from(is_planned));
    }

    /// Removes a queued run.
    pub(super) fn unqueue_run(&mut self, is_planned: bool) {
        (self.active, self.waiting) = (self.active - 1, self.waiting - 1);
        self.times = self.times.map(|times| times + u64::from(is_planned));
    }

    /// Notes the end of a run. Returns when the next one was due, if it follows at once.
    pub(super) fn end_run(&mut self) -> Option<u64> {
        self.active -= 1;
        let is_over = self.active > 0 || self.is_paused || self.times == Some(0);
        if is_over { None } else { self.backlog.pop_front() }
    }

    /// Takes the run that was asked for, if it can be queued now.
    pub(super) fn take_requested(&mut self) -> Option<u64> {
        if self.active > 0 || self.is_paused { None } else { self.requested.take() }
    }

    pub(super) fn is_over(&self) -> bool {
        (self.times == Some(0) || self.has_ended()) && self.active == 0 && self.retries.is_empty()
    }
}

impl ModelTiming {
    /// Returns whether it follows the wall clock.
    #[must_use]
    pub fn is_wall(&self) -> bool {
        matches!(self, ModelTiming::Cron(_))
    }

    /// Returns the occurrence after `due`.
    #[must_use]
    pub fn after(&self, due: u64) -> u64 {
        match self {
            ModelTiming::Every(interval) => add_exact(due, Duration::from_nanos(*interval)),
            ModelTiming::Cron(reference) => reference.borrow_mut().next(due),
        }
    }

    /// Returns the first occurrence from `due` on that is not before `since`, and how many are before it.
    pub(super) fn first_from(&self, due: u64, since: u64) -> (u64, u64) {
        match self {
            ModelTiming::Every(interval) => {
                let count = since.saturating_sub(due).div_ceil(*interval);
                let next = u128::from(due) + u128::from(count) * u128::from(*interval);
                (u64::try_from(next).unwrap_or(NEVER), count)
            }
            ModelTiming::Cron(_) => {
                let (mut next, mut count) = (due, 0);
                while next < since && count <= COUNTED {
                    (next, count) = (self.after(next), count + 1);
                }
                if next < since { (self.after(since - 1), count) } else { (next, count) }
            }
        }
    }

    /// Returns the next `count` occurrences after `due`.
    fn some_after(&self, due: u64, count: u64) -> VecDeque<u64> {
        let times = std::iter::successors(Some(self.after(due)), |time| Some(self.after(*time)));
        times.take(count as usize).collect()
    }
}
