//! The metrics of schedulers and their jobs.

use std::collections::HashMap;

use ::metrics::{Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge};

use super::record;
use crate::core::CoreRef;
use crate::scheduler::metrics_source::{JobSample, MetricsSource};
use crate::scheduler::{JobId, JobReport, SchedulerStats};

/// A scheduler that is exported.
pub(super) struct ExportedScheduler {
    name: SharedString,
    source: Box<dyn MetricsSource>,
    /// The counts of each job that were published last.
    published: HashMap<JobId, JobReport>,
}

/// A count of a scheduler: its name, its value, its description.
type SchedulerCount = (&'static str, fn(&SchedulerStats) -> u64, &'static str);
/// A count of a job: its name, its value, its description.
type JobCount = (&'static str, fn(&JobReport) -> u64, &'static str);

const JOBS: &str = "tourbillon_scheduler_jobs";
const WAITING: &str = "tourbillon_scheduler_runs_waiting";
const RUNNING: &str = "tourbillon_scheduler_runs_running";
const DURATION: &str = "tourbillon_scheduler_run_seconds";
const LATENESS: &str = "tourbillon_scheduler_lateness_seconds";
const JOB_DURATION: &str = "tourbillon_job_run_seconds";
const JOB_LATENESS: &str = "tourbillon_job_lateness_seconds";

const SCHEDULER_COUNTS: [SchedulerCount; 9] = [
    ("tourbillon_scheduler_runs_total", |stats| stats.runs, "Runs that have begun."),
    ("tourbillon_scheduler_failed_total", |stats| stats.failed, "Runs that failed."),
    ("tourbillon_scheduler_retried_total", |stats| stats.retried, "Runs that were retries."),
    ("tourbillon_scheduler_over_limit_total", |stats| stats.over_limit, "Runs that took longer than their time limit."),
    ("tourbillon_scheduler_overlapped_total", |stats| stats.overlapped, "Runs not made because one was active."),
    ("tourbillon_scheduler_overflowed_total", |stats| stats.overflowed, "Runs not made because the queue was full."),
    ("tourbillon_scheduler_late_total", |stats| stats.late, "Runs queued although the queue was full."),
    ("tourbillon_scheduler_missed_total", |stats| stats.missed, "Occurrences without a run, as their time had passed."),
    ("tourbillon_scheduler_aborted_total", |stats| stats.aborted, "Runs that a shutdown or an executor ended."),
];

const JOB_COUNTS: [JobCount; 7] = [
    ("tourbillon_job_runs_total", |job| job.runs, "Runs of a job that have begun."),
    ("tourbillon_job_failed_total", |job| job.failed, "Runs of a job that failed."),
    ("tourbillon_job_retried_total", |job| job.retried, "Runs of a job that were retries."),
    ("tourbillon_job_over_limit_total", |job| job.over_limit, "Runs of a job that took longer than their time limit."),
    ("tourbillon_job_overlapped_total", |job| job.overlapped, "Runs of a job not made because one was active."),
    ("tourbillon_job_overflowed_total", |job| job.overflowed, "Runs of a job not made because the queue was full."),
    ("tourbillon_job_missed_total", |job| job.missed, "Occurrences of a job without a run, as their time had passed."),
];

impl ExportedScheduler {
    pub(super) fn new(name: SharedString, source: Box<dyn MetricsSource>) -> ExportedScheduler {
        ExportedScheduler { name, source, published: HashMap::new() }
    }

    /// Returns the engine of the wall clock, once a job follows it.
    pub(super) fn wall_core(&self) -> Option<CoreRef> {
        self.source.wall_core()
    }

    /// Publishes the counts. Returns whether the scheduler is still there.
    pub(super) fn export(&mut self, labels: &[Label]) -> bool {
        let mut labels = labels.to_vec();
        labels.push(Label::new("scheduler", self.name.clone()));
        let Some(stats) = self.source.stats() else {
            // A recorder shows the last value of a gauge for ever.
            set_gauges(&labels, &SchedulerStats::default());
            return false;
        };
        for (name, value, _) in SCHEDULER_COUNTS {
            counter!(name, labels.clone()).absolute(value(&stats));
        }
        set_gauges(&labels, &stats);
        let timings = self.source.take_timings();
        record(DURATION, labels.clone(), &timings.duration);
        record(LATENESS, labels.clone(), &timings.lateness);
        self.export_jobs(&labels);
        true
    }

    fn export_jobs(&mut self, labels: &[Label]) {
        let before = std::mem::take(&mut self.published);
        for JobSample { id, label, counts, timings } in self.source.take_jobs() {
            let mut labels = labels.to_vec();
            labels.push(Label::new("job_key", label));
            let earlier = before.get(&id).cloned().unwrap_or_default();
            // A later job under the same key begins at zero, and goes on with the counts of the metric.
            for (name, value, _) in JOB_COUNTS {
                counter!(name, labels.clone()).increment(value(&counts).saturating_sub(value(&earlier)));
            }
            let timings = timings.unwrap_or_default();
            record(JOB_DURATION, labels.clone(), &timings.duration);
            record(JOB_LATENESS, labels, &timings.lateness);
            self.published.insert(id, counts);
        }
    }
}

fn set_gauges(labels: &[Label], stats: &SchedulerStats) {
    gauge!(JOBS, labels.to_vec()).set(stats.jobs as f64);
    gauge!(WAITING, labels.to_vec()).set(stats.waiting as f64);
    gauge!(RUNNING, labels.to_vec()).set(stats.running as f64);
}

pub(super) fn describe() {
    for (name, _, text) in SCHEDULER_COUNTS {
        describe_counter!(name, Unit::Count, text);
    }
    for (name, _, text) in JOB_COUNTS {
        describe_counter!(name, Unit::Count, text);
    }
    describe_gauge!(JOBS, Unit::Count, "Jobs that the scheduler has now.");
    describe_gauge!(WAITING, Unit::Count, "Runs that wait for a thread now.");
    describe_gauge!(RUNNING, Unit::Count, "Runs that are being made now.");
    describe_histogram!(DURATION, Unit::Seconds, "How long a run took.");
    describe_histogram!(LATENESS, Unit::Seconds, "How long after its due time a run began.");
    describe_histogram!(JOB_DURATION, Unit::Seconds, "How long a run of a job took.");
    describe_histogram!(JOB_LATENESS, Unit::Seconds, "How long after its due time a run of a job began.");
}
