//! The part of a scheduler that an exporter of metrics reads.

use std::sync::{Arc, Weak};

use super::job_body::JobBody;
use super::shared::SchedulerShared;
use super::stats::{JobReport, SchedulerStats};
use super::timings::RunTimings;
use super::{JobId, Scheduler};
use crate::core::CoreRef;
use crate::sync::catch_panic::catch_panic;

/// Gives an exporter the counts of a scheduler, whatever the type of its keys.
pub(crate) trait MetricsSource: Send {
    /// Returns `None` once the last handle of the scheduler has been dropped and its runs have ended.
    fn stats(&self) -> Option<SchedulerStats>;

    /// Returns the timings of all runs that have ended since the last call.
    fn take_timings(&self) -> RunTimings;

    /// Returns the counts of each job, and the timings of its runs that have ended since the last call. Empty if jobs are not exported.
    fn take_jobs(&self) -> Vec<JobSample>;

    /// Returns the engine of the wall clock, once a job follows it.
    fn wall_core(&self) -> Option<CoreRef>;
}

/// The counts of one job.
pub(crate) struct JobSample {
    pub(crate) id: JobId,
    pub(crate) label: String,
    /// Without texts.
    pub(crate) counts: JobReport,
    pub(crate) timings: Option<RunTimings>,
}

/// Makes a label of a job's key.
pub(crate) type JobLabel<K> = Box<dyn Fn(&K) -> String + Send>;

/// A scheduler as an exporter sees it. It does not keep the scheduler running.
struct SchedulerSource<K> {
    shared: Weak<SchedulerShared<K>>,
    job_label: Option<JobLabel<K>>,
}

/// The counts of one job, before its key is made a label outside the lock.
struct UnlabelledSample<K> {
    id: JobId,
    body: Arc<dyn JobBody<K>>,
    counts: JobReport,
    timings: Option<RunTimings>,
}

/// How many jobs are read before the lock is released (D26).
const BATCH: u32 = 256;
/// How many empty histograms are allocated before the lock is taken. A batch with more jobs that have run since the last export is read in
/// several parts.
const SPARE: usize = 32;

impl<K: Send + Sync + 'static> Scheduler<K> {
    /// Returns a source of metrics, and begins to record timings: for all runs, and also for each job if there is a label.
    pub(crate) fn metrics_source(&self, job_label: Option<JobLabel<K>>) -> Box<dyn MetricsSource> {
        let shared = &self.owner.shared;
        let timings = Box::default();
        let mut state = shared.lock();
        state.timings.get_or_insert(timings);
        state.records_each_job |= job_label.is_some();
        drop(state);
        Box::new(SchedulerSource { shared: Arc::downgrade(shared), job_label })
    }
}

/// Reads a batch of jobs, from the index `from` on, and replaces the histograms that it takes by empty ones, so that none is allocated under
/// the lock. Returns where to go on; `None` at the end.
fn take_batch<K>(
    shared: &SchedulerShared<K>,
    from: u32,
    spare: &mut Vec<RunTimings>,
    samples: &mut Vec<UnlabelledSample<K>>,
) -> Option<u32> {
    let mut state = shared.lock();
    for index in from..from + BATCH {
        let key = state.jobs.key_at(index)?;
        let Some(job) = state.jobs.get_mut(key) else { continue };
        let recorded = job.extras.as_mut().and_then(|extras| extras.timings.as_mut());
        let timings = match recorded.filter(|recorded| !recorded.is_empty()) {
            None => None,
            Some(recorded) => match spare.pop() {
                Some(empty) => Some(std::mem::replace(&mut **recorded, empty)),
                None => return Some(index),
            },
        };
        let (body, counts) = (job.body.share(), JobReport::counts_of(job));
        samples.push(UnlabelledSample { id: JobId(key), body, counts, timings });
    }
    Some(from + BATCH)
}

impl<K: Send + Sync + 'static> MetricsSource for SchedulerSource<K> {
    fn stats(&self) -> Option<SchedulerStats> {
        self.shared.upgrade().map(|shared| shared.stats())
    }

    fn take_timings(&self) -> RunTimings {
        let empty = Box::default();
        let taken = self.shared.upgrade().and_then(|shared| shared.lock().timings.replace(empty));
        taken.map(|timings| *timings).unwrap_or_default()
    }

    fn take_jobs(&self) -> Vec<JobSample> {
        let (Some(label), Some(shared)) = (&self.job_label, self.shared.upgrade()) else { return Vec::new() };
        let (mut samples, mut spare) = (Vec::new(), Vec::new());
        let mut from = Some(0);
        while let Some(index) = from {
            spare.resize_with(SPARE, RunTimings::default);
            from = take_batch(&shared, index, &mut spare, &mut samples);
        }
        let labelled = samples.into_iter().map(|sample| {
            let UnlabelledSample { id, body, counts, timings } = sample;
            let label = label(body.key());
            // If the job was removed meanwhile, this drops its closure, whose destructor may panic.
            let _ignored = catch_panic(|| drop(body));
            JobSample { id, label, counts, timings }
        });
        labelled.collect()
    }

    fn wall_core(&self) -> Option<CoreRef> {
        self.shared.upgrade().and_then(|shared| shared.wall_core().cloned())
    }
}
