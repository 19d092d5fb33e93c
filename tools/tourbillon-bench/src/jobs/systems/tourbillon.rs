//! Tourbillon's `Scheduler`: keyed jobs on its own threads, with one timer of an engine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tourbillon::scheduler::{self, Run, Scheduler};

use super::{JobPlan, JobSystem, THREADS};
use crate::jobs::run_tally::RunTally;
use crate::systems::tourbillon::{NAME, instant};

pub(in crate::jobs) struct Tourbillon {
    scheduler: Scheduler<u64>,
    /// The key of the next job.
    key: u64,
}

impl JobSystem for Tourbillon {
    const NAME: &'static str = NAME;
    const LEAD: Duration = Duration::from_secs(1);

    fn new(_: usize) -> Tourbillon {
        let scheduler = Scheduler::builder().threads(THREADS).build().expect("a scheduler can be built");
        Tourbillon { scheduler, key: 0 }
    }

    fn schedule_all(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> usize {
        let mut bytes = 0;
        for &plan in &**plans {
            let job = job(tally);
            bytes = size_of_val(&self.key) + size_of_val(&job);
            self.scheduler.schedule(self.key, plan, job).expect("the key is new");
            self.key += 1;
        }
        bytes
    }

    fn schedule_and_remove(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> Duration {
        let start = Instant::now();
        for &plan in &**plans {
            self.scheduler.schedule(self.key, plan, job(tally)).expect("the key is new");
            assert!(self.scheduler.remove(&self.key), "it was there");
            self.key += 1;
        }
        start.elapsed()
    }
}

fn job(tally: &'static RunTally) -> impl Fn(&Run<u64>) + Send + Sync + use<> {
    move |run| tally.ran(run.due().into_std())
}

impl From<JobPlan> for scheduler::Plan {
    fn from(plan: JobPlan) -> scheduler::Plan {
        let every = scheduler::Plan::every(plan.period);
        match plan.first {
            Some(first) => every.first_at(instant(first)),
            None => every,
        }
    }
}
