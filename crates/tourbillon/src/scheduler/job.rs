//! One job as its scheduler keeps it, and what happens when it is due.
//!
//! ```text
//!                  due             begun                    ended
//!     on the wheel ----> run queued -----> running on a thread -----> backlog? another run : nothing
//!          ^      \                                               (after its last run: the job is removed)
//!          |       `--> no run: it would overlap, or there is no room; counted
//!          `------ next time
//! ```
//!
//! A run is *active* from the moment it is queued until it has ended.

use tourbillon_queue::{Span, Time};

use super::builder::SchedulerRules;
use super::clock_pair::{ClockId, ClockPair};
use super::history::PackedRun;
use super::job_body::{HeldBody, JobBody};
use super::job_extras::{Backlog, JobExtras, JobProblems, PendingRetry};
use super::options::PlanOptions;
use super::plan::{FOR_EVER, Overlap, Plan};
use super::random::Random;
use super::timing::JobTiming;
use crate::time::{MissedTickBehavior, interval};

/// One job, with its plan and its counts.
pub(super) struct ScheduledJob<K> {
    pub(super) body: HeldBody<K>,
    /// The hash of the key, for [`KeyIndex`](super::key_index::KeyIndex).
    pub(super) hash: u32,
    pub(super) overlap: Overlap,
    pub(super) missed: MissedTickBehavior,
    pub(super) is_paused: bool,
    /// It was planned after the scheduler was last started, for a time before that start. That time is not passed over.
    pub(super) starts_in_past: bool,
    /// How many runs are queued or being made.
    pub(super) active: u32,
    /// How many of the active runs are queued.
    pub(super) queued: u32,
    /// How often the job was given another plan. A queued run of an older plan is not made.
    pub(super) plan_number: u32,
    pub(super) timing: JobTiming,
    /// When the job is due next, also while it is paused.
    pub(super) due: Time,
    /// How many runs are still to be queued.
    pub(super) runs_left: u64,
    /// How many runs have begun.
    pub(super) runs: u64,
    pub(super) last_run: PackedRun,
    pub(super) extras: Option<Box<JobExtras>>,
}

// The memory of a plain job, without its closure and key.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ScheduledJob<()>>() <= 112);

/// The parts of a removed job that have to be dropped outside the lock. (The rest of the job is not moved.)
#[expect(dead_code, reason = "the fields are there to be dropped")]
pub(super) struct RemovedJob<K> {
    pub(super) body: HeldBody<K>,
    timing: JobTiming,
    extras: Option<Box<JobExtras>>,
}

/// The occurrences of a due job, sorted by their treatment: run, overlapped or missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) struct DueAction {
    /// Whether a run is to be queued.
    pub(super) run: bool,
    /// How many occurrences have no run because the job is active.
    pub(super) overlapped: u64,
    /// How many occurrences have no run because no thread came in time. (None, if the queued run is the plan's last.)
    pub(super) missed: u64,
}

/// A run that is later than this counts as late, as for [intervals](crate::time::Interval).
const TOLERANCE: Span = Span::from_nanos(interval::TOLERANCE.as_nanos() as u64);

impl<K> ScheduledJob<K> {
    #[inline(always)]
    pub(super) fn new(
        body: Box<dyn JobBody<K>>,
        hash: u32,
        plan: Plan,
        due: Time,
        rules: &SchedulerRules,
    ) -> ScheduledJob<K> {
        ScheduledJob {
            body: HeldBody::Unshared(body),
            hash,
            overlap: plan.overlap.unwrap_or(rules.overlap),
            missed: plan.missed.unwrap_or(rules.missed),
            is_paused: false,
            starts_in_past: false,
            active: 0,
            queued: 0,
            plan_number: 0,
            timing: plan.timing,
            due,
            runs_left: plan.times,
            runs: 0,
            last_run: PackedRun::default(),
            extras: plan.options.map(JobExtras::of),
        }
    }

    /// Processes the occurrence at `due`, which is not after `now`: sets the next due time and the backlog.
    pub(super) fn on_due(&mut self, due: Time, now: Time) -> DueAction {
        // Every occurrence gets its own run. The next one may be due at once; counting those that have passed would be slow for a cron line.
        if self.overlap == Overlap::Parallel && self.missed == MissedTickBehavior::Burst {
            self.due = self.timing.after(due);
            return DueAction { run: true, overlapped: 0, missed: 0 };
        }
        let (next, passed) = self.timing.first_after(due, now.min(self.end()));
        self.due = next;
        if self.active > 0 && self.overlap != Overlap::Parallel {
            return self.overlap(due, passed.saturating_add(1));
        }
        match self.missed {
            MissedTickBehavior::Burst => {
                self.set_backlog(Backlog { count: passed, due: self.timing.after(due) });
                DueAction { run: true, overlapped: 0, missed: 0 }
            }
            MissedTickBehavior::Delay if now - due > TOLERANCE && self.timing.clock() == ClockId::Engine => {
                self.due = self.timing.after(now);
                DueAction { run: true, overlapped: 0, missed: 0 }
            }
            _ => DueAction { run: true, overlapped: 0, missed: passed },
        }
    }

    /// Processes `count` occurrences, the first of them at `due`, while a run is active.
    fn overlap(&mut self, due: Time, count: u64) -> DueAction {
        let is_place_taken = self.extras.as_ref().is_some_and(|extras| extras.requested.is_some());
        // A job that runs once does not skip its only run.
        let is_kept = (self.overlap == Overlap::QueueOne && !is_place_taken) || self.timing.is_once();
        if !is_kept || self.backlog().count > 0 {
            return DueAction { run: false, overlapped: count, missed: 0 };
        }
        self.set_backlog(Backlog { count: 1, due });
        if self.has_no_more_occurrences() {
            // The plan ends with this run. If this run finds no room, the plan goes on from here.
            self.due = self.timing.after(due);
            return DueAction { run: false, overlapped: 0, missed: 0 };
        }
        DueAction { run: false, overlapped: count - 1, missed: 0 }
    }

    /// Passes over the times before `now`, because the job was paused or the scheduler stopped. Returns how many those were.
    pub(super) fn pass_over_until(&mut self, now: Time) -> u64 {
        if self.due >= now {
            return 0;
        }
        let (next, passed) = self.first_from(now);
        self.due = next;
        passed
    }

    /// Returns the first time that is not before `now`, and how many times are passed over for it. `now` is after `due`. The time of a
    /// job that runs once is not passed over, but becomes `now`.
    pub(super) fn first_from(&self, now: Time) -> (Time, u64) {
        if self.timing.is_once() {
            return (now, 0);
        }
        // A time that equals `now` is not passed over.
        let (next, passed) = self.timing.first_after(self.due, (now - Span::from_nanos(1)).min(self.end()));
        (next, passed.saturating_add(1))
    }

    /// Records that a run is queued. Retries and runs that were asked for are not planned, and use up none of the plan's runs.
    pub(super) fn enqueue_run(&mut self, is_planned: bool) {
        (self.active, self.queued) = (self.active + 1, self.queued + 1);
        if is_planned && self.runs_left != FOR_EVER {
            self.runs_left -= 1;
        }
    }

    /// Records that a queued run begins.
    pub(super) fn begin_run(&mut self) {
        self.queued -= 1;
        self.runs += 1;
    }

    /// Records that a queued run, which was due at `due`, is not made after all.
    pub(super) fn withdraw_run(&mut self, is_planned: bool, due: Time) {
        (self.active, self.queued) = (self.active - 1, self.queued - 1);
        if is_planned && self.runs_left != FOR_EVER {
            self.runs_left += 1;
            self.restore_only_time(due);
        }
    }

    /// Makes a job that runs once due at this time again, because its run was withdrawn.
    fn restore_only_time(&mut self, due: Time) {
        if self.timing.is_once() {
            self.due = due;
        }
    }

    /// Records that none of the queued runs is made, because the job has another plan. Returns how many they were.
    pub(super) fn forget_queued_runs(&mut self) -> u32 {
        let queued = std::mem::take(&mut self.queued);
        self.active -= queued;
        queued
    }

    /// Records that a run has ended. Returns when the next run of the backlog was due, if that run is to be queued now.
    pub(super) fn end_run(&mut self) -> Option<Time> {
        self.active -= 1;
        let Backlog { count, due } = self.backlog();
        if count == 0 || self.active > 0 || self.is_paused || self.runs_left == 0 {
            return None;
        }
        self.set_backlog(Backlog { count: count - 1, due: self.timing.after(due) });
        Some(due)
    }

    #[inline]
    pub(super) fn backlog(&self) -> Backlog {
        self.extras.as_ref().map_or(Backlog::default(), |extras| extras.backlog)
    }

    /// Takes all runs out of the backlog.
    pub(super) fn take_backlog(&mut self) -> Backlog {
        self.extras.as_mut().map_or(Backlog::default(), |extras| std::mem::take(&mut extras.backlog))
    }

    fn set_backlog(&mut self, backlog: Backlog) {
        if backlog.count > 0 || self.extras.is_some() {
            self.extras_mut().backlog = backlog;
        }
    }

    /// Takes the run that was asked for while another was active, if it can be queued now.
    pub(super) fn take_requested(&mut self) -> Option<Time> {
        if self.active > 0 || self.is_paused {
            return None;
        }
        self.extras.as_mut().and_then(|extras| extras.requested.take())
    }

    #[inline(always)]
    pub(super) fn into_removed(self) -> RemovedJob<K> {
        RemovedJob { body: self.body, timing: self.timing, extras: self.extras }
    }

    /// Returns whether all runs have been made, and no retry is pending.
    pub(super) fn is_over(&self) -> bool {
        let has_ended = self.runs_left == 0 || self.has_passed_end();
        has_ended && self.active == 0 && self.extras.as_ref().is_none_or(|extras| extras.retries.is_empty())
    }

    /// Returns whether the plan has an end, and no occurrence is left before it.
    #[inline]
    fn has_passed_end(&self) -> bool {
        self.is_after_end(self.due)
    }

    /// Returns whether a time is after the plan's end.
    #[inline]
    pub(super) fn is_after_end(&self, time: Time) -> bool {
        time > self.end()
    }

    /// Returns the last time at which a run may be due.
    #[inline]
    fn end(&self) -> Time {
        self.options().map_or(Time::NEVER, |options| options.end)
    }

    #[inline]
    pub(super) fn options(&self) -> Option<&PlanOptions> {
        self.extras.as_ref().and_then(|extras| extras.options.as_deref())
    }

    /// Replaces the options, and returns the old ones.
    pub(super) fn set_options(&mut self, options: Option<Box<PlanOptions>>) -> Option<Box<PlanOptions>> {
        if options.is_none() && self.extras.is_none() {
            return None;
        }
        std::mem::replace(&mut self.extras.get_or_insert_default().options, options)
    }

    /// Returns whether the plan has no occurrence beyond those that are queued or in the backlog.
    #[inline]
    fn has_no_more_occurrences(&self) -> bool {
        self.runs_left <= self.backlog().count
    }

    /// Returns the deadline that the job should have: never while it is paused, and after its last occurrence.
    #[inline]
    pub(super) fn next_deadline(&self) -> Time {
        let is_over = self.is_paused || self.has_no_more_occurrences() || self.has_passed_end();
        if is_over { Time::NEVER } else { self.due }
    }

    /// Returns when the first pending retry is due, on the engine's clock.
    pub(super) fn retry_deadline(&self) -> Time {
        self.extras.as_ref().map_or(Time::NEVER, |extras| extras.retries.next_due())
    }

    /// Plans the retry of a run that has just failed, if its plan has one: see [`Plan::retry`]. Returns whether it has.
    pub(super) fn plan_retry(&mut self, attempt: u32, wall: Time, now: ClockPair, random: &mut Random) -> bool {
        let next = self.next_deadline();
        let (end, clock) = (self.end(), self.timing.clock());
        let Some(rule) = self.options().and_then(|options| options.retry) else { return false };
        if attempt > rule.most || self.is_paused || self.backlog().count > 0 {
            return false;
        }
        let delay = Span::from(rule.backoff.delay_with_jitter(attempt, random));
        let on_plan_clock = now.on(clock) + delay;
        let due = now.engine + delay;
        // The regular run comes instead of a retry that is not before it.
        if on_plan_clock >= next || on_plan_clock > end || due.is_never() {
            return false;
        }
        self.extras_mut().retries.push(PendingRetry { due, attempt: attempt + 1, wall });
        true
    }

    /// Forgets the runs that were still to be made beside the regular ones: backlog, retries, a run that was asked for.
    pub(super) fn forget_extra_runs(&mut self) {
        let backlog = self.take_backlog();
        if backlog.count > 0 {
            self.restore_only_time(backlog.due);
        }
        self.extras.iter_mut().for_each(|extras| extras.forget_extra_runs());
    }

    /// Returns the extras, created if necessary.
    pub(super) fn extras_mut(&mut self) -> &mut JobExtras {
        self.extras.get_or_insert_default()
    }

    /// Returns the counts of problems, created if necessary.
    pub(super) fn problems_mut(&mut self) -> &mut JobProblems {
        &mut self.extras_mut().problems
    }
}
