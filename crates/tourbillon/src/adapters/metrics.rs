//! The counts of an engine, for the crate `metrics`.
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

use std::time::Duration;

use ::metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tourbillon_queue::Span;

use crate::core::CoreRef;
use crate::core::thread_shard;
use crate::engine::Engine;
use crate::entry::Entry;
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

/// Publishes the counts of an engine to the installed recorder, whenever its user calls it.
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
/// Create one exporter for each engine and keep it: each export adds to the histogram the timers that fired since the last one. A
/// [label](Exporter::label) tells engines apart. Between two exports the exporter costs nothing.
///
/// An exporter does not keep its engine running after the last handle is dropped.
pub struct Exporter {
    core: CoreRef,
    labels: Vec<Label>,
    /// The lateness that was published last; `None` before the first export.
    published: Option<Lateness>,
}

impl Exporter {
    /// Creates an exporter for this engine, without publishing anything yet.
    #[must_use]
    pub fn new(engine: &Engine) -> Exporter {
        Exporter { core: engine.core().clone(), labels: Vec::new(), published: None }
    }

    /// Adds a label to all metrics that this exporter publishes.
    #[must_use]
    pub fn label(mut self, key: impl Into<SharedString>, value: impl Into<SharedString>) -> Exporter {
        self.labels.push(Label::new(key, value));
        self
    }

    /// Publishes the counts so far. The first call also describes each metric.
    pub fn export(&mut self) {
        let published = self.published.take().unwrap_or_else(|| {
            describe();
            Lateness::default()
        });
        let stats = self.core.stats();
        let labels = || self.labels.clone();
        counter!(ARMED, labels()).absolute(stats.armed);
        counter!(FIRED, labels()).absolute(stats.fired);
        counter!(CANCELLED, labels()).absolute(stats.cancelled);
        counter!(STOPPED, labels()).absolute(stats.stopped);
        gauge!(PENDING, labels()).set(stats.pending as f64);
        counter!(WAKER_PANICS, labels()).absolute(stats.waker_panics);
        counter!(CALLBACK_PANICS, labels()).absolute(stats.callback_panics);
        gauge!(CALLBACKS_WAITING, labels()).set(stats.callbacks_waiting as f64);
        let lateness = histogram!(LATENESS, labels());
        for (late, count) in stats.lateness.since(&published).buckets() {
            lateness.record_many(late, count as usize);
        }
        self.published = Some(stats.lateness);
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
            if self.core.is_closed() {
                return;
            }
            self.sleep(every.max(SHORTEST)).await;
        }
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Sleep::from_entry(thread_shard::with(self.core.as_ptr(), |local| {
            Entry::idle(local, local.now() + Span::from(duration))
        }))
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
