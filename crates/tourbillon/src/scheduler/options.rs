//! The options of a plan that few plans have: retries, a time limit, an end, jitter.

use std::time::{Duration, SystemTime};

use tourbillon_queue::{Span, Time};

use super::backoff::Backoff;
use super::clock_pair::{ClockId, JobClock};
use super::error::ScheduleErrorKind;
use super::plan::Plan;
use super::timing::JobTiming;
use crate::clock::since_1970;
use crate::instant::Instant;

/// Boxed in a [`Plan`] and in a job, to keep those without options small.
#[derive(Clone, Debug)]
pub(super) struct PlanOptions {
    pub(super) retry: Option<RetryRule>,
    pub(super) time_limit: Option<Duration>,
    until: Option<PlanEnd>,
    /// The end on the clock that the plan follows; `NEVER` until the job is scheduled, and if there is none.
    pub(super) end: Time,
    jitter: Span,
}

/// How often a failed run is repeated, and after which delays.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct RetryRule {
    pub(super) most: u32,
    pub(super) backoff: Backoff,
}

/// When a plan ends, as the user gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PlanEnd {
    At(Instant),
    AtWall(SystemTime),
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions { retry: None, time_limit: None, until: None, end: Time::NEVER, jitter: Span::ZERO }
    }
}

impl Plan {
    /// Repeats a run that panics, returns an error or, if it is a future, exceeds its [time limit](Plan::time_limit), up to `most` times,
    /// each time after the next delay of `backoff`.
    ///
    /// A retry is a run of the same job: it has a [number](super::Run::number) of its own, and [`Run::attempt`](super::Run::attempt) is
    /// 2 for the first retry. It uses up none of the plan's [`times`](Plan::times), and a job is there until the retries of its
    /// last run are over. The delay is counted on the engine's clock from the end of the failed run, also for a cron line.
    ///
    /// The regular times stay as planned. A retry that would be due at or after the next regular time, or is not yet queued
    /// then, is not made, because the regular run comes instead, with all its retries; neither is one after the plan's
    /// [end](Plan::until), while the scheduler is shut down, or after the job was paused or got another plan.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Backoff, Plan};
    ///
    /// let backoff = Backoff::exponential(Duration::from_secs(1)).up_to(Duration::from_secs(30));
    /// let plan = Plan::every(Duration::from_secs(3600)).retry(5, backoff).time_limit(Duration::from_secs(60));
    /// ```
    ///
    /// No retries, an impossible backoff, and a backoff whose first delay is never shorter than the interval are errors when
    /// the job is scheduled.
    pub fn retry(mut self, most: u32, backoff: Backoff) -> Plan {
        self.options_mut().retry = Some(RetryRule { most, backoff });
        self
    }

    /// Limits how long each run may take. Zero is an error when the job is scheduled.
    ///
    /// An async run that takes longer is cancelled: its future is dropped where it waits, and the run has failed. A closure cannot be
    /// interrupted: when its time is over it is reported to [`on_failure`](super::Builder::on_failure), and goes on to its own end,
    /// which alone says whether it failed. Both are counted as [`over_limit`](super::JobReport::over_limit).
    pub fn time_limit(mut self, limit: Duration) -> Plan {
        self.options_mut().time_limit = Some(limit);
        self
    }

    /// Ends the plan: no run is due after `end`. The job is removed when its last run before that has ended. (A paused job is removed
    /// when it is resumed.)
    ///
    /// A plan that ends before its first run is an error when the job is scheduled.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon::scheduler::{Plan, ScheduleErrorKind, Scheduler};
    /// use tourbillon::time::Instant;
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let plan = Plan::every(Duration::from_secs(5)).until(Instant::now() + Duration::from_secs(60));
    /// scheduler.schedule("a minute long", plan, |_| println!("tick"))?;
    /// let over = scheduler.schedule("over", Plan::every(Duration::from_secs(5)).until(Instant::now()), |_| ());
    /// assert_eq!(over.unwrap_err().kind, ScheduleErrorKind::EndsBeforeFirstRun);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until(mut self, end: Instant) -> Plan {
        self.options_mut().until = Some(PlanEnd::At(end));
        self
    }

    /// Ends the plan when the wall clock shows `end`: see [`until`](Plan::until). A cron plan follows the wall clock also if that
    /// is set; for any other plan, the time that is left is computed when the job is scheduled.
    pub fn until_wall(mut self, end: SystemTime) -> Plan {
        self.options_mut().until = Some(PlanEnd::AtWall(end));
        self
    }

    /// Makes all runs of the job later by the same span, drawn at random below `most` when the job is scheduled. So jobs with the same
    /// plan are not all due together, and the interval between two runs of one job stays exact.
    ///
    /// The first run of a cron line is that of the first time after now, and later by the span. So no time has a second run when a job
    /// is scheduled anew. In a plan that [ends](Plan::until), the span is short enough for one run before the end.
    pub fn jitter(mut self, most: Duration) -> Plan {
        self.options_mut().jitter = Span::from(most);
        self
    }

    fn options_mut(&mut self) -> &mut PlanOptions {
        self.options.get_or_insert_default()
    }

    /// Refuses options that make no sense.
    pub(super) fn check_options(&self, options: &PlanOptions) -> Result<(), ScheduleErrorKind> {
        if options.time_limit == Some(Duration::ZERO) {
            return Err(ScheduleErrorKind::ZeroTimeLimit);
        }
        let Some(retry) = options.retry else { return Ok(()) };
        if retry.most == 0 {
            return Err(ScheduleErrorKind::ZeroRetries);
        }
        retry.backoff.check().map_err(ScheduleErrorKind::Backoff)?;
        match self.timing {
            JobTiming::Every(interval) if self.times != 1 && Span::from(retry.backoff.shortest()) >= interval => {
                Err(ScheduleErrorKind::RetryAfterNextRun)
            }
            _ => Ok(()),
        }
    }

    /// Computes the end on the plan's clock, and delays the plan by its jitter. Returns when the first run is due. `delay` draws a
    /// span below the given one.
    pub(super) fn first_due_with_options(
        &mut self,
        clock: &JobClock,
        delay: impl FnOnce(Span) -> Span,
    ) -> Result<Time, ScheduleErrorKind> {
        let Some(options) = &mut self.options else { return Ok(self.first_due(clock)) };
        options.end = options.until.map_or(Time::NEVER, |until| until.on(clock, self.timing.clock()));
        let (end, jitter) = (options.end, options.jitter);
        let due = self.first_due(clock);
        if due > end {
            return Err(ScheduleErrorKind::EndsBeforeFirstRun);
        }
        let by = if jitter == Span::ZERO { Span::ZERO } else { delay(jitter.min(end - due)) };
        self.timing.delay(by);
        Ok(due + by)
    }
}

impl PlanEnd {
    /// Returns the end on this clock.
    fn on(self, clock: &JobClock, id: ClockId) -> Time {
        match (self, id) {
            (PlanEnd::At(end), _) => clock.time_of(end),
            (PlanEnd::AtWall(end), ClockId::Wall) => since_1970(end),
            (PlanEnd::AtWall(end), ClockId::Engine) => {
                let engine = &clock.core.clock;
                // In virtual time the wall clock moves with the engine's.
                match engine.wall_shift() {
                    Some(shift) => shift.to_engine(since_1970(end)),
                    // Before a first run at once, also if the clock shows the same time twice.
                    None if end < SystemTime::now() => Time::ZERO,
                    None => engine.time_of_wall(end),
                }
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::task::Waker;

    use super::*;
    use crate::engine::Engine;
    use crate::multi::wakeup_timer::WakeupTimer;

    /// Two readings of a clock may be equal, so an end in the past must not become the time of a reading.
    #[test]
    fn e5_g8_an_end_in_the_past_is_before_any_reading_of_the_clock() {
        let engine = Engine::builder().build().unwrap();
        let clock = JobClock::new(engine.core().clone(), WakeupTimer::on(engine.core(), Waker::noop().clone()), None);
        let ends_in = |wall: SystemTime| PlanEnd::AtWall(wall).on(&clock, ClockId::Engine);
        let before = clock.now();
        assert!(ends_in(SystemTime::now() - Duration::from_secs(1)) < before);
        assert!(ends_in(SystemTime::now() + Duration::from_secs(1)) > before);
    }
}
