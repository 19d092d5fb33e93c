//! One job of a [`SchedulerModel`](super::Ledger).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use tourbillon::scheduler::Overlap;
use tourbillon::time::MissedTickBehavior;

use crate::context::add_as_is;
use crate::cron_reference::CronReference;
use crate::recorder::Id;
use crate::timer_model::NEVER;

/// A job.
#[derive(Clone, Debug)]
pub struct ModelJob {
    /// What its runs are known by.
    pub id: Id,
    /// What its user knows it by.
    pub key: u32,
    /// When it is due.
    pub timing: JobTiming,
    /// What becomes of times that cannot be made.
    pub policy: JobPolicy,
    /// When it is due next, also while it rests.
    pub due: u64,
    /// How many runs are still to be put in line; `None`: any number.
    pub times: Option<u64>,
    /// It rests.
    pub is_paused: bool,
    /// It was planned since the last start for a time before that: nothing is passed over.
    pub is_past: bool,
    /// Runs in line or under way.
    pub active: u32,
    /// Those in line.
    pub waiting: u32,
    /// How often it was given another plan.
    pub plan: u32,
    /// When it was put where it is, among those that are due at the same time.
    pub order: u64,
    /// When the runs were due that are made as soon as the one under way has ended.
    pub backlog: VecDeque<u64>,
    /// Runs so far, and what went wrong.
    pub runs: u64,
    /// See `runs`.
    pub failed: u64,
    /// See `runs`.
    pub overlapped: u64,
    /// See `runs`.
    pub overflowed: u64,
    /// See `runs`.
    pub missed_runs: u64,
}

/// What becomes of times that cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JobPolicy {
    /// Because the last run goes on.
    pub overlap: Overlap,
    /// Because nobody came.
    pub missed: MissedTickBehavior,
}

/// When a job is due.
#[derive(Clone, Debug)]
pub enum JobTiming {
    /// Every so many nanoseconds.
    Every(u64),
    /// When the wall clock says so.
    Cron(Rc<RefCell<CronReference>>),
}

/// What became of times that came.
pub(super) struct DueResult {
    pub(super) is_made: bool,
    pub(super) overlapped: u64,
    pub(super) missed: u64,
}

/// A run that is no later than this is in time: so it is documented.
const TOLERANCE: u64 = 5_000_000;
/// So many times of a cron line that went by are counted: so it is documented.
const COUNTED: u64 = 1000;

impl ModelJob {
    /// When the scheduler has to look at it; never, if it has not.
    pub(super) fn next_due(&self) -> u64 {
        if self.is_paused || self.is_settled() { NEVER } else { self.due }
    }

    /// Whether its plan has no occurrence beyond those in line and in the backlog.
    fn is_settled(&self) -> bool {
        self.times.is_some_and(|times| times <= self.backlog.len() as u64)
    }

    /// It is due, and it is `now`. Says what becomes of that, and when it is due next.
    pub(super) fn on_due(&mut self, now: u64) -> DueResult {
        let due = self.due;
        let (next, passed) = self.timing.first_from(due, now.saturating_add(1));
        // It is one more that went by, `due` itself.
        let passed = passed - 1;
        self.due = next;
        if self.active > 0 && self.policy.overlap != Overlap::Parallel {
            let is_kept = self.policy.overlap == Overlap::QueueOne && self.backlog.is_empty();
            self.backlog.extend(is_kept.then_some(due));
            let mut overlapped = passed + u64::from(!is_kept);
            if is_kept && self.is_settled() {
                // With this run the plan ends.
                (self.due, overlapped) = (self.timing.after(due), 0);
            }
            self.overlapped += overlapped;
            return DueResult { is_made: false, overlapped, missed: 0 };
        }
        let mut missed = 0;
        match self.policy.missed {
            MissedTickBehavior::Burst if self.policy.overlap == Overlap::Parallel => self.due = self.timing.after(due),
            MissedTickBehavior::Burst => self.backlog = self.timing.some_after(due, passed),
            MissedTickBehavior::Delay if now - due > TOLERANCE && !self.timing.is_wall() => {
                self.due = self.timing.after(now);
            }
            _ => missed = passed,
        }
        DueResult { is_made: true, overlapped: 0, missed }
    }

    /// It was away until `since`: says how many of its times went by.
    pub(super) fn skip_until(&mut self, since: u64) -> u64 {
        if self.due >= since {
            return 0;
        }
        let (next, passed) = self.timing.first_from(self.due, since);
        self.due = next;
        passed
    }

    pub(super) fn enqueue_run(&mut self) {
        (self.active, self.waiting) = (self.active + 1, self.waiting + 1);
        self.times = self.times.map(|times| times - 1);
    }

    /// A run in line, of this plan or an older one, is not made.
    pub(super) fn unqueue_run(&mut self, plan: u32) {
        (self.active, self.waiting) = (self.active - 1, self.waiting - 1);
        self.times = self.times.map(|times| times + u64::from(plan == self.plan));
    }

    /// A run has ended. Says when the next was due, if one is to follow at once.
    pub(super) fn end_run(&mut self) -> Option<u64> {
        self.active -= 1;
        let is_over = self.active > 0 || self.is_paused || self.times == Some(0);
        if is_over { None } else { self.backlog.pop_front() }
    }

    pub(super) fn is_over(&self) -> bool {
        self.times == Some(0) && self.active == 0
    }
}

impl JobTiming {
    /// Whether it follows the wall clock.
    #[must_use]
    pub fn is_wall(&self) -> bool {
        matches!(self, JobTiming::Cron(_))
    }

    /// The time after this one.
    #[must_use]
    pub fn after(&self, due: u64) -> u64 {
        match self {
            JobTiming::Every(interval) => add_as_is(due, Duration::from_nanos(*interval)),
            JobTiming::Cron(almanac) => almanac.borrow_mut().next(due),
        }
    }

    /// The first of its times that is not before `since`, from `due` on, and how many are before it.
    pub(super) fn first_from(&self, due: u64, since: u64) -> (u64, u64) {
        match self {
            JobTiming::Every(interval) => {
                let count = since.saturating_sub(due).div_ceil(*interval);
                let next = u128::from(due) + u128::from(count) * u128::from(*interval);
                (u64::try_from(next).unwrap_or(NEVER), count)
            }
            JobTiming::Cron(_) => {
                let (mut next, mut count) = (due, 0);
                while next < since && count <= COUNTED {
                    (next, count) = (self.after(next), count + 1);
                }
                if next < since { (self.after(since - 1), count) } else { (next, count) }
            }
        }
    }

    /// So many times after this one.
    fn some_after(&self, due: u64, count: u64) -> VecDeque<u64> {
        let times = std::iter::successors(Some(self.after(due)), |time| Some(self.after(*time)));
        times.take(count as usize).collect()
    }
}
