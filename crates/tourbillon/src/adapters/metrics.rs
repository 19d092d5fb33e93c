//! The counts of an engine, of schedulers and of their jobs, for the crate `metrics`.
//!
//! | name | kind | |
//! |---|---|---|
//! | `tourbillon_timers_armed_total` | counter | timers that were armed |
//! | `tourbillon_timers_fired_total` | counter | armed timers whose deadline came |
//! | `tourbillon_timers_cancelled_total` | counter | armed timers that were cancelled before their deadline |
//! | `tourbillon_timers_stopped_total` | counter | armed timers that a shutdown ended |
//! | `tourbillon_timers_pending` | gauge | timers that are armed now |
//! | `tourbillon_waker_panics_total` | counter | wakers that panicked when their timer fired |
//! | `tourbillon_callback_panics_total` | counter | callbacks that panicked |
//! | `tourbillon_callbacks_waiting` | gauge | callbacks whose timer has ended and that have not returned |
//! | `tourbillon_timer_lateness_seconds` | histogram | how late each timer fired |
//!
//! With the label `scheduler`, for each [scheduler](Exporter::scheduler):
//!
//! | name | kind | |
//! |---|---|---|
//! | `tourbillon_scheduler_jobs` | gauge | jobs that the scheduler has now |
//! | `tourbillon_scheduler_runs_waiting`, `.._runs_running` | gauge | runs that are queued, or being made, now |
//! | `tourbillon_scheduler_runs_total` | counter | runs that have begun |
//! | `tourbillon_scheduler_.._total` | counter | the other counts of [`SchedulerStats`](crate::scheduler::SchedulerStats), by their names |
//! | `tourbillon_scheduler_run_seconds` | histogram | how long each run took |
//! | `tourbillon_scheduler_lateness_seconds` | histogram | how long after its due time each run began |
//!
//! For each job, if [jobs](Exporter::jobs) are exported: `tourbillon_job_runs_total` and the other counts of
//! [`JobReport`](crate::scheduler::JobReport), `tourbillon_job_run_seconds`, `tourbillon_job_lateness_seconds`, with the labels `scheduler` and
//! `job_key`. (Prometheus itself uses `job`.)
//!
//! The repository has a dashboard for Grafana that shows all of them, `docs/grafana-dashboard.json`. Its quantiles need histograms with
//! buckets: set some for the metrics whose names end with `_seconds`.

mod schedulers;

use std::time::Duration;

use ::metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tourbillon_queue::Span;

use self::schedulers::ExportedScheduler;
use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::engine::Engine;
use crate::entry::Entry;
use crate::scheduler::Scheduler;
use crate::stats::Lateness;
use crate::time::Sleep;

const ARMED: &str = "tourbillon_timers_armed_total";
const FIRED: &str = "tourbillon_timers_fired_total";
const CANCELLED: &str = "tourbillon_timers_cancelled_total";
const STOPPED: &str = "tourbillon_timers_stopped_total";
const PENDING: &str = "tourbillon_timers_pending";
const WAKER_PANICS: &str = "tourbillon_waker_panics_total";
const CALLBACK_PANICS: &str = "tourbillon_callback_panics_total";
const CALLBACKS_WAITING: &str = "tourbillon_callbacks_waiting";
const LATENESS: &str = "tourbillon_timer_lateness_seconds";

/// The shortest time between two exports of [`Exporter::run`].
const SHORTEST: Duration = Duration::from_millis(1);

/// Publishes the counts of an engine, and of schedulers, to the installed recorder, whenever its user calls it.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Engine;
/// use tourbillon::adapters::metrics::Exporter;
///
/// // Install a recorder first: counts that are published before that are lost.
/// let engine = Engine::global();
/// let exporter = Exporter::new(&engine).label("service", "checkout");
///
/// // Every ten seconds, on a thread; or give the future to an executor.
/// std::thread::spawn(move || futures_lite::future::block_on(exporter.run(Duration::from_secs(10))));
/// ```
///
/// Create one exporter for each engine and each scheduler and keep it: each export adds to the histograms the timers that fired, and the
/// runs that ended, since the last one. A [label](Exporter::label) tells engines apart. Between two exports the exporter costs nothing.
///
/// An exporter keeps neither its engine nor its schedulers running after their last handle is dropped. A scheduler that is gone has its
/// gauges set to zero, and is no longer exported.
pub struct Exporter {
    /// The first is the exporter's own; the others are those whose wall clock the schedulers follow.
    engines: Vec<ExportedEngine>,
    labels: Vec<Label>,
    schedulers: Vec<ExportedScheduler>,
    is_described: bool,
}

struct ExportedEngine {
    core: CoreRef,
    /// The lateness that was published last.
    published: Lateness,
    /// Tells an engine that is not the exporter's own apart.
    label: Option<Label>,
}

impl Exporter {
    /// Creates an exporter for this engine, without publishing anything yet.
    #[must_use]
    pub fn new(engine: &Engine) -> Exporter {
        let own = ExportedEngine { core: engine.core().clone(), published: Lateness::default(), label: None };
        Exporter { engines: vec![own], labels: Vec::new(), schedulers: Vec::new(), is_described: false }
    }

    /// Adds a label to all metrics that this exporter publishes.
    #[must_use]
    pub fn label(mut self, key: impl Into<SharedString>, value: impl Into<SharedString>) -> Exporter {
        self.labels.push(Label::new(key, value));
        self
    }

    /// Adds a scheduler, with the label `scheduler` and this name, and the engine of the wall clock that its cron plans follow, with the
    /// label `clock="wall"`. If schedulers follow different engines, those after the first have `clock="wall-2"` and so on.
    ///
    /// From now on the scheduler records how long its runs take and how late they begin.
    ///
    /// ```
    /// use tourbillon::Engine;
    /// use tourbillon::adapters::metrics::Exporter;
    /// use tourbillon::scheduler::Scheduler;
    ///
    /// let billing: Scheduler<u64> = Scheduler::builder().threads(1).build()?;
    /// let reports: Scheduler<&str> = Scheduler::builder().threads(1).build()?;
    /// let mut exporter = Exporter::new(&Engine::current())
    ///     .scheduler("billing", &billing)
    ///     .jobs("reports", &reports, |key| key.to_string());
    /// exporter.export();
    /// # Ok::<(), tourbillon::scheduler::SchedulerBuildError>(())
    /// ```
    #[must_use]
    pub fn scheduler<K>(mut self, name: impl Into<SharedString>, scheduler: &Scheduler<K>) -> Exporter
    where
        K: Send + Sync + 'static,
    {
        self.schedulers.push(ExportedScheduler::new(name.into(), scheduler.metrics_source(None)));
        self
    }

    /// Adds a scheduler and each of its jobs: see [`scheduler`](Exporter::scheduler). `label` makes the value of the label `job_key` of a
    /// job's key.
    ///
    /// Each job is some metrics of the recorder, and takes up to 8 KB more in the scheduler once it has run. So this is for hundreds of
    /// jobs, not for millions. The counts of a job that is removed end with its last export; those of the scheduler have all runs.
    #[must_use]
    pub fn jobs<K>(
        mut self,
        name: impl Into<SharedString>,
        scheduler: &Scheduler<K>,
        label: impl Fn(&K) -> String + Send + 'static,
    ) -> Exporter
    where
        K: Send + Sync + 'static,
    {
        self.schedulers.push(ExportedScheduler::new(name.into(), scheduler.metrics_source(Some(Box::new(label)))));
        self
    }

    /// Publishes the counts so far. The first call also describes each metric.
    pub fn export(&mut self) {
        if !std::mem::replace(&mut self.is_described, true) {
            describe();
            if !self.schedulers.is_empty() {
                schedulers::describe();
            }
        }
        self.add_wall_engines();
        self.engines.iter_mut().for_each(|engine| engine.export(&self.labels));
        self.schedulers.retain_mut(|scheduler| scheduler.export(&self.labels));
    }

    /// Adds the engines of wall clocks that the schedulers have begun to follow.
    fn add_wall_engines(&mut self) {
        for core in self.schedulers.iter().filter_map(ExportedScheduler::wall_core) {
            if self.engines.iter().all(|engine| engine.core.as_ptr() != core.as_ptr()) {
                let label = Some(Label::new("clock", wall_label(self.engines.len())));
                self.engines.push(ExportedEngine { core, published: Lateness::default(), label });
            }
        }
    }

    /// Publishes at this interval until the engine is shut down, and then a last time.
    ///
    /// The interval is at least a millisecond, also if `every` is shorter, so that this never keeps its thread busy and can be aborted.
    ///
    /// The wait between two exports is a timer of the same engine, and so is counted itself.
    ///
    /// # Cancel safety
    /// Dropping it ends the publishing; counts since the last export are not published.
    pub async fn run(mut self, every: Duration) {
        loop {
            self.export();
            if self.engines[0].core.is_closed() {
                return;
            }
            self.sleep(every.max(SHORTEST)).await;
        }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.engines[0].core.as_ptr(), |local| {
            Entry::idle(local, local.now() + Span::from(duration))
        }))
    }
}

impl ExportedEngine {
    fn export(&mut self, labels: &[Label]) {
        let stats = self.core.stats();
        let labels = || labels.iter().chain(&self.label).cloned().collect::<Vec<_>>();
        counter!(ARMED, labels()).absolute(stats.armed);
        counter!(FIRED, labels()).absolute(stats.fired);
        counter!(CANCELLED, labels()).absolute(stats.cancelled);
        counter!(STOPPED, labels()).absolute(stats.stopped);
        gauge!(PENDING, labels()).set(stats.pending as f64);
        counter!(WAKER_PANICS, labels()).absolute(stats.waker_panics);
        counter!(CALLBACK_PANICS, labels()).absolute(stats.callback_panics);
        gauge!(CALLBACKS_WAITING, labels()).set(stats.callbacks_waiting as f64);
        record(LATENESS, labels(), &stats.lateness.since(&self.published));
        self.published = stats.lateness;
    }
}

/// Returns the value of the label `clock` for the n-th engine of a wall clock.
fn wall_label(n: usize) -> SharedString {
    if n == 1 { "wall".into() } else { format!("wall-{n}").into() }
}

/// Adds all values of a histogram to that of a metric.
fn record(name: &'static str, labels: Vec<Label>, values: &Lateness) {
    let metric = histogram!(name, labels);
    for (value, count) in values.buckets() {
        metric.record_many(value, count as usize);
    }
}

fn describe() {
    describe_counter!(ARMED, Unit::Count, "Timers that were armed.");
    describe_counter!(FIRED, Unit::Count, "Timers whose deadline came.");
    describe_counter!(CANCELLED, Unit::Count, "Timers that were cancelled before their deadline.");
    describe_counter!(STOPPED, Unit::Count, "Timers that were pending when the engine was shut down.");
    describe_gauge!(PENDING, Unit::Count, "Timers that are armed now.");
    describe_counter!(WAKER_PANICS, Unit::Count, "Wakers that panicked when their timer fired.");
    describe_counter!(CALLBACK_PANICS, Unit::Count, "Callbacks that panicked.");
    describe_gauge!(CALLBACKS_WAITING, Unit::Count, "Callbacks whose timer has ended and that have not returned.");
    describe_histogram!(LATENESS, Unit::Seconds, "How long after its deadline a timer fired.");
}

impl std::fmt::Debug for Exporter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exporter").field("labels", &self.labels).finish_non_exhaustive()
    }
}
