//! `tokio-cron-scheduler`: visits all jobs every 500 ms and sends those that are due through channels to the tasks that run them.
//! It uses whole seconds of the wall clock: a job is due at the end of the second of its first run, and a whole number of seconds
//! after that.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Runtime};
use tokio_cron_scheduler::{Job, JobScheduler};

use super::{JobPlan, JobSystem, THREADS};
use crate::jobs::run_tally::RunTally;

pub(in crate::jobs) struct CronScheduler {
    runtime: Runtime,
    scheduler: JobScheduler,
    seconds: Seconds,
}

/// Messages per run in one of its channels.
const MESSAGES: usize = 3;

/// Least channel capacity, for the messages while jobs are scheduled.
const AT_LEAST: usize = 10_000;

impl JobSystem for CronScheduler {
    const NAME: &'static str = "tokio-cron-scheduler";
    const LEAD: Duration = Duration::from_secs(1);

    /// The channels hold all messages at a time: with the default of 200, messages would be lost.
    fn new(runs: usize) -> CronScheduler {
        let runtime = Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
        let runtime = runtime.expect("a Tokio runtime can be built");
        let scheduler = runtime.block_on(async {
            let mut scheduler = JobScheduler::new_with_channel_size(MESSAGES * runs.max(AT_LEAST)).await?;
            scheduler.init().await?;
            Ok::<_, tokio_cron_scheduler::JobSchedulerError>(scheduler)
        });
        CronScheduler { runtime, scheduler: scheduler.expect("a scheduler can be built"), seconds: Seconds::now() }
    }

    fn schedule_all(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> usize {
        let (plans, scheduler, tally) = (plans.clone(), self.scheduler.clone(), tally);
        let seconds = self.seconds;
        let fill = async move {
            let mut bytes = 0;
            for &plan in &*plans {
                let (job, size) = job(plan, tally, seconds);
                scheduler.add(job).await.expect("a job can be added");
                bytes = size;
            }
            bytes
        };
        self.runtime.block_on(self.runtime.spawn(fill)).expect("the task does not panic")
    }

    fn start(&mut self) {
        self.runtime.block_on(self.scheduler.start()).expect("the scheduler starts once");
    }

    fn schedule_and_remove(&mut self, plans: &Arc<[JobPlan]>, tally: &'static RunTally) -> Duration {
        let (plans, scheduler, tally) = (plans.clone(), self.scheduler.clone(), tally);
        let seconds = self.seconds;
        let churn = async move {
            let start = Instant::now();
            for &plan in &*plans {
                let (job, _) = job(plan, tally, seconds);
                let id = scheduler.add(job).await.expect("a job can be added");
                scheduler.remove(&id).await.expect("it was there");
            }
            start.elapsed()
        };
        self.runtime.block_on(self.runtime.spawn(churn)).expect("the task does not panic")
    }
}

/// Returns a job, and the size of its identifier and closure.
fn job(plan: JobPlan, tally: &'static RunTally, seconds: Seconds) -> (Job, usize) {
    let first = seconds.not_before(plan.first());
    let mut due = seconds.instant(first);
    let run = move |_, _| {
        tally.ran(due);
        due += plan.period;
    };
    let closure = size_of_val(&run);
    let mut job = Job::new_repeated(plan.period, run).expect("a job can be made");
    let mut data = job.job_data().expect("a new job has its data");
    data.next_tick = first;
    job.set_job_data(data).expect("a new job takes its data");
    let id = size_of_val(&job.guid());
    (job, id + closure)
}

/// Maps whole seconds of the wall clock to the monotonic clock.
#[derive(Clone, Copy)]
struct Seconds {
    instant: Instant,
    since_epoch: Duration,
}

impl Seconds {
    fn now() -> Seconds {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).expect("the wall clock is later than 1970");
        Seconds { instant: Instant::now(), since_epoch }
    }

    /// Returns the first second that is not before an instant.
    fn not_before(self, instant: Instant) -> u64 {
        (self.since_epoch + instant.saturating_duration_since(self.instant)).as_nanos().div_ceil(1_000_000_000) as u64
    }

    fn instant(self, second: u64) -> Instant {
        self.instant + Duration::from_secs(second).saturating_sub(self.since_epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_rounded_up_to_a_whole_second_of_the_wall_clock() {
        let seconds = Seconds { instant: Instant::now(), since_epoch: Duration::from_millis(10_250) };
        let at = |millis| seconds.instant + Duration::from_millis(millis);
        assert_eq!(seconds.not_before(at(0)), 11);
        assert_eq!(seconds.not_before(at(750)), 11);
        assert_eq!(seconds.not_before(at(751)), 12);
        assert_eq!(seconds.instant(12), at(1_750));
    }
}
