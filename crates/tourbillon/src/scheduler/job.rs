//! One job as its scheduler keeps it, and what it does when it is due.
//!
//! ```text
//!                  due                       begun                    ended
//!     on the wheel ----> in the line of runs -----> running on a thread -----> backlog? another run : nothing
//!          ^      \                                                       (the last of its times: the job is gone)
//!          |       `--> not made: it overlaps, or there is no room; counted
//!          `------ next time
//! ```
//!
//! A run is *active* from the moment it stands in line until it has ended.

use std::sync::Arc;

use tourbillon_queue::{Span, Time};

use super::Rules;
use super::plan::{FOR_EVER, Overlap, Plan, Timing};
use super::work::Work;
use crate::time::{MissedTickBehavior, interval};

pub(super) struct Job<K> {
    pub(super) work: Arc<dyn Work<K>>,
    /// Of the key, for the table.
    pub(super) hash: u32,
    pub(super) overlap: Overlap,
    pub(super) missed: MissedTickBehavior,
    pub(super) is_paused: bool,
    /// It was planned after the scheduler was last started, for a time before that.
    pub(super) is_past: bool,
    /// Runs that stand in line or are being made.
    pub(super) active: u32,
    /// Those of them that stand in line.
    pub(super) waiting: u32,
    /// How often it was given another plan. A run in line that is of an older one took none of this one's times.
    pub(super) plans: u32,
    pub(super) timing: Timing,
    /// When it is due next, also while it is paused.
    pub(super) due: Time,
    /// Runs that are still to be put in line.
    pub(super) times: u64,
    /// Runs that have been begun.
    pub(super) runs: u64,
    pub(super) backlog: Backlog,
    pub(super) troubles: Option<Box<Troubles>>,
}

/// Runs that were due while another of the same job was active, and are made one after the other when it has ended.
#[derive(Clone, Copy, Default)]
pub(super) struct Backlog {
    pub(super) count: u64,
    /// When the first of them was due.
    pub(super) due: Time,
}

/// What is left of a job that was taken out: what has to be dropped, outside the lock. The rest need not be moved.
#[expect(dead_code, reason = "it is there to be dropped")]
pub(super) struct Gone<K> {
    work: Arc<dyn Work<K>>,
    timing: Timing,
    troubles: Option<Box<Troubles>>,
}

/// What did not go well. Most jobs have none, so it takes a word.
#[derive(Default)]
pub(super) struct Troubles {
    pub(super) failed: u64,
    pub(super) overlapped: u64,
    pub(super) overflowed: u64,
    pub(super) missed: u64,
    pub(super) last_failure: Option<String>,
}

/// What to do with a job that is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) struct Due {
    /// Put a run in line.
    pub(super) run: bool,
    /// So many are not made because the job is active.
    pub(super) overlapped: u64,
    /// So many are not made because nobody came in time, unless the run is the plan's last: then the plan has none of them.
    pub(super) missed: u64,
}

/// A run that is no later than this is in time: as for [intervals](crate::time::Interval).
const TOLERANCE: Span = Span::from_nanos(interval::TOLERANCE.as_nanos() as u64);

impl<K> Job<K> {
    #[inline(always)]
    pub(super) fn new(work: Arc<dyn Work<K>>, hash: u32, plan: Plan, due: Time, rules: &Rules) -> Job<K> {
        Job {
            work,
            hash,
            overlap: plan.overlap.unwrap_or(rules.overlap),
            missed: plan.missed.unwrap_or(rules.missed),
            is_paused: false,
            is_past: false,
            active: 0,
            waiting: 0,
            plans: 0,
            timing: plan.timing,
            due,
            times: plan.times,
            runs: 0,
            backlog: Backlog::default(),
            troubles: None,
        }
    }

    /// It was due at `due`, and now somebody looks. Sets when it is due next, and its backlog.
    pub(super) fn fall_due(&mut self, due: Time, now: Time) -> Due {
        // Each in its turn: it is due again at once. How many went by need not be known, and takes long to find out for a cron line.
        if self.overlap == Overlap::Parallel && self.missed == MissedTickBehavior::Burst {
            self.due = self.timing.after(due);
            return Due { run: true, overlapped: 0, missed: 0 };
        }
        let (next, passed) = self.timing.beyond(due, now);
        self.due = next;
        if self.active > 0 && self.overlap != Overlap::Parallel {
            return self.overlap(due, passed.saturating_add(1));
        }
        match self.missed {
            MissedTickBehavior::Burst => {
                self.backlog = Backlog { count: passed, due: self.timing.after(due) };
                Due { run: true, overlapped: 0, missed: 0 }
            }
            MissedTickBehavior::Delay if now - due > TOLERANCE && !self.timing.is_wall() => {
                self.due = self.timing.after(now);
                Due { run: true, overlapped: 0, missed: 0 }
            }
            _ => Due { run: true, overlapped: 0, missed: passed },
        }
    }

    /// It was due at `due`, for the first of `count` times, while a run of it is active.
    fn overlap(&mut self, due: Time, count: u64) -> Due {
        // A single run is not skipped: the job would have none.
        let is_kept = self.overlap == Overlap::QueueOne || self.timing.is_once();
        if !is_kept || self.backlog.count > 0 {
            return Due { run: false, overlapped: count, missed: 0 };
        }
        self.backlog = Backlog { count: 1, due };
        if self.is_settled() {
            // The plan ends with this run. If that finds no room, the plan goes on from here.
            self.due = self.timing.after(due);
            return Due { run: false, overlapped: 0, missed: 0 };
        }
        Due { run: false, overlapped: count - 1, missed: 0 }
    }

    /// It was away: the times before `now` are passed over. Gives how many those were.
    pub(super) fn come_back(&mut self, now: Time) -> u64 {
        if self.due >= now {
            return 0;
        }
        let (next, passed) = self.beyond(now);
        self.due = next;
        passed
    }

    /// Its first time that is not before `now`, which is after the one that it has; and how many are passed over, that one
    /// included. A single occurrence is not passed over, but due now.
    pub(super) fn beyond(&self, now: Time) -> (Time, u64) {
        if self.timing.is_once() {
            return (now, 0);
        }
        // A time that is just now is not over.
        let (next, passed) = self.timing.beyond(self.due, now - Span::from_nanos(1));
        (next, passed.saturating_add(1))
    }

    /// One of its runs is put in line.
    pub(super) fn line_up(&mut self) {
        (self.active, self.waiting) = (self.active + 1, self.waiting + 1);
        if self.times != FOR_EVER {
            self.times -= 1;
        }
    }

    /// A run in line is begun.
    pub(super) fn begin_run(&mut self) {
        self.waiting -= 1;
        self.runs += 1;
    }

    /// A run in line, of this plan or an older one, is not made after all.
    pub(super) fn step_back(&mut self, plan: u32) {
        (self.active, self.waiting) = (self.active - 1, self.waiting - 1);
        if self.times != FOR_EVER && plan == self.plans {
            self.times += 1;
        }
    }

    /// A run has ended. Gives when the next of the backlog was due, if that is to be put in line.
    pub(super) fn end_run(&mut self) -> Option<Time> {
        self.active -= 1;
        if self.backlog.count == 0 || self.active > 0 || self.is_paused || self.times == 0 {
            return None;
        }
        let due = self.backlog.due;
        self.backlog = Backlog { count: self.backlog.count - 1, due: self.timing.after(due) };
        Some(due)
    }

    #[inline(always)]
    pub(super) fn into_gone(self) -> Gone<K> {
        Gone { work: self.work, timing: self.timing, troubles: self.troubles }
    }

    /// Whether it has made all its runs.
    pub(super) fn is_over(&self) -> bool {
        self.times == 0 && self.active == 0
    }

    /// Whether its plan has no occurrence beyond those that stand in line or in the backlog.
    fn is_settled(&self) -> bool {
        self.times <= self.backlog.count
    }

    /// When it should be on the wheel for; never, if it should not.
    pub(super) fn next_wake(&self) -> Time {
        if self.is_paused || self.is_settled() { Time::NEVER } else { self.due }
    }

    pub(super) fn troubles(&mut self) -> &mut Troubles {
        self.troubles.get_or_insert_default()
    }
}
