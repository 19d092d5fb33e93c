//! A Tokio task per job, which loops on an interval: the usual code without a scheduler.
//!
//! There are no keys. To remove a job by key, a program would keep the tasks' handles in a map; here the code that spawned a task
//! keeps its handle, and the tasks of live jobs are detached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use super::{JobPlan, JobSystem, THREADS};
use crate::jobs::run_tally::RunTally;

pub(in crate::jobs) struct TokioTasks(Runtime);

impl JobSystem for TokioTasks {
    const NAME: &'static str = "tokio-tasks";
    const LEAD: Duration = Duration::from_secs(1);

    fn new(_: usize) -> TokioTasks {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        TokioTasks(runtime.expect("a Tokio runtime can be built"))
    }

    fn schedule_all(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> usize {
        for &plan in &**plans {
            self.0.spawn(job(plan, tally));
        }
        size_of::<&'static RunTally>()
    }

    fn schedule_and_remove(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> Duration {
        let (plans, tally) = (plans.clone(), tally);
        let churn = async move {
            let start = Instant::now();
            for &plan in &*plans {
                let task = tokio::spawn(job(plan, tally));
                // The new task runs first, and begins to wait.
                tokio::task::yield_now().await;
                task.abort();
                assert!(task.await.is_err_and(|error| error.is_cancelled()), "a job runs until it is removed");
            }
            start.elapsed()
        };
        self.0.block_on(self.0.spawn(churn)).expect("the task does not panic")
    }
}

async fn job(plan: JobPlan, tally: &'static RunTally) {
    let mut interval = tokio::time::interval_at(plan.first().into(), plan.period);
    loop {
        let due = interval.tick().await;
        tally.ran(due.into_std());
    }
}
