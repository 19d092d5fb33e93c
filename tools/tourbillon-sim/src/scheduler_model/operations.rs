//! The operations of users on the jobs of a [`SchedulerModel`], from outside or from within a run.

use tourbillon::scheduler::{Overflow, Overlap, RunNowError, Shutdown};

use super::{JobPolicy, ModelJob, ModelPhase, ModelRun, ModelTiming, SchedulerModel, SimClocks};
use crate::recorder::Id;

impl SchedulerModel {
    /// Schedules a job, and returns whether it was accepted.
    pub fn schedule(
        &mut self,
        (id, key): (Id, u32),
        (timing, policy): (ModelTiming, JobPolicy),
        (due, times): (u64, Option<u64>),
        now: SimClocks,
    ) -> bool {
        self.has_read_wall |= timing.is_wall();
        let is_new = self.jobs.iter().all(|job| job.key != key) && self.jobs.len() < self.rules.capacity;
        if !is_new || !self.is_open() || due > policy.end {
            return false;
        }
        self.note_wall_clock(&timing, now);
        let is_past = self.is_past(due, timing.is_wall());
        self.jobs.push(ModelJob {
            id,
            closure: id,
            key,
            timing,
            policy,
            due,
            times,
            is_paused: false,
            is_past,
            active: 0,
            waiting: 0,
            plan: 0,
            order: 0,
            backlog: Default::default(),
            requested: None,
            retries: Vec::new(),
            runs: 0,
            failed: 0,
            retried: 0,
            overlapped: 0,
            overflowed: 0,
            missed_runs: 0,
        });
        self.renew_order(self.jobs.len() - 1);
        true
    }

    /// Removes a job, and returns whether it existed.
    pub fn remove(&mut self, key: u32) -> bool {
        let found = self.find(key);
        found.map(|index| self.jobs.remove(index)).is_some()
    }

    /// Pauses a job, and returns whether it exists.
    pub fn pause(&mut self, key: u32) -> bool {
        let Some(index) = self.find(key) else { return false };
        let job = &mut self.jobs[index];
        job.is_paused = true;
        job.forget_extra_runs();
        self.renew_order(index);
        true
    }

    /// Resumes a job, and returns whether it exists.
    pub fn resume(&mut self, key: u32, now: SimClocks) -> bool {
        let Some(index) = self.find(key) else { return false };
        let job = &mut self.jobs[index];
        if std::mem::take(&mut job.is_paused) {
            let _rested = job.skip_until(now.on(job.timing.is_wall()));
            self.end_or_renew(index);
        }
        true
    }

    /// Replaces the plan of a job, and returns whether it exists.
    pub fn reschedule(
        &mut self,
        key: u32,
        (timing, policy): (ModelTiming, JobPolicy),
        (due, times): (u64, Option<u64>),
        now: SimClocks,
    ) -> bool {
        self.has_read_wall |= timing.is_wall();
        let Some(index) = self.find(key).filter(|_| due <= policy.end) else { return false };
        self.note_wall_clock(&timing, now);
        let is_past = self.is_past(due, timing.is_wall());
        let job = &mut self.jobs[index];
        (job.timing, job.policy, job.due, job.times, job.is_past) = (timing, policy, due, times, is_past);
        job.forget_extra_runs();
        job.plan += 1;
        // A run of the old plan that has not begun is not made.
        job.active -= std::mem::take(&mut job.waiting);
        let id = job.id;
        self.queue.retain(|run| run.job != id);
        self.renew_order(index);
        true
    }

    /// Schedules a job, or replaces the plan and the closure of the one under its key. Returns `None` if it was refused, and else
    /// whether a job was replaced.
    pub fn upsert(
        &mut self,
        (id, key): (Id, u32),
        plan: (ModelTiming, JobPolicy),
        (due, times): (u64, Option<u64>),
        now: SimClocks,
    ) -> Option<bool> {
        let Some(index) = self.find(key) else {
            return self.schedule((id, key), plan, (due, times), now).then_some(false);
        };
        let job = self.jobs[index].id;
        if !self.reschedule(key, plan, (due, times), now) {
            return None;
        }
        self.replaced.insert(id, job);
        self.job_mut(job).into_iter().for_each(|job| job.closure = id);
        Some(true)
    }

    /// Asks for a run of a job. Returns whether the run waits for the end of the active one.
    ///
    /// # Errors
    /// Returns why none is made.
    pub fn run_now(&mut self, key: u32, now: SimClocks) -> Result<bool, RunNowError> {
        if !self.is_open() {
            return Err(RunNowError::ShutDown);
        }
        let index = self.find(key).ok_or(RunNowError::Unknown)?;
        let is_full = self.is_full() && self.rules.overflow != Overflow::RunLate;
        let queue = self.rules.queue_capacity;
        let job = &mut self.jobs[index];
        let (is_active, is_wall) = (job.active > 0, job.timing.is_wall());
        match job.policy.overlap {
            _ if self.phase == ModelPhase::Stopped => Err(RunNowError::Stopped),
            _ if job.is_paused => Err(RunNowError::Paused),
            Overlap::QueueOne if is_active && job.backlog.is_empty() && job.requested.is_none() => {
                job.requested = Some(now.on(is_wall));
                Ok(true)
            }
            Overlap::Parallel if is_full => Err(RunNowError::Full { queue }),
            overlap if is_active && overlap != Overlap::Parallel => Err(RunNowError::Active),
            _ if is_full => Err(RunNowError::Full { queue }),
            _ => {
                self.enqueue_run(index, ModelRun::requested(now.on(is_wall), is_wall));
                Ok(false)
            }
        }
    }

    /// Stops the scheduler: no run begins.
    pub fn stop(&mut self) {
        if self.phase == ModelPhase::Running {
            self.phase = ModelPhase::Stopped;
        }
    }

    /// Starts a stopped scheduler. Occurrences that have passed are skipped.
    pub fn start(&mut self, now: SimClocks) {
        if self.phase == ModelPhase::Stopped {
            let wall = if self.has_read_wall { now.wall } else { 0 };
            (self.phase, self.since) = (ModelPhase::Running, SimClocks { wall, ..now });
            self.jobs.iter_mut().for_each(|job| job.is_past = false);
        }
    }

    /// Begins the shutdown.
    pub fn shut_down(&mut self, how: Shutdown, now: SimClocks) {
        match (self.phase, how) {
            (ModelPhase::Over | ModelPhase::Ending(Shutdown::Abort), _) | (ModelPhase::Ending(_), Shutdown::Drain) => {
                return;
            }
            _ => {}
        }
        let is_running = self.phase == ModelPhase::Running;
        self.phase = ModelPhase::Ending(how);
        self.until = (is_running && how == Shutdown::Drain && self.is_any_due(now)).then_some(now);
        if how == Shutdown::Abort {
            self.counts.aborted += self.waiting() as u64;
            self.clear();
        }
        self.try_end();
    }

    /// Notes the wall clock if a plan follows it.
    fn note_wall_clock(&mut self, timing: &ModelTiming, now: SimClocks) {
        if timing.is_wall() {
            self.note_clocks(now);
        }
    }

    fn is_past(&self, due: u64, is_wall: bool) -> bool {
        self.phase == ModelPhase::Running && due < self.since.on(is_wall)
    }

    fn find(&self, key: u32) -> Option<usize> {
        self.jobs.iter().position(|job| job.key == key).filter(|_| self.is_open())
    }
}
