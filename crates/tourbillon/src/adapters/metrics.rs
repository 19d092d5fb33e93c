//! What an engine counts, for the crate `metrics`.
//!
//! | name | kind | |
//! |---|---|---|
//! | `tourbillon_timers_armed_total` | counter | timers that were armed |
//! | `tourbillon_timers_fired_total` | counter | of those, the ones whose deadline came |
//! | `tourbillon_timers_cancelled_total` | counter | the ones that were cancelled before it |
//! | `tourbillon_timers_stopped_total` | counter | the ones that a shutdown ended |
//! | `tourbillon_timers_pending` | gauge | the ones that are armed now |
//! | `tourbillon_waker_panics_total` | counter | wakers that panicked when their timer fired |
//! | `tourbillon_callback_panics_total` | counter | callbacks that panicked |
//! | `tourbillon_callbacks_waiting` | gauge | callbacks whose timer has ended and that have not returned |
//! | `tourbillon_timer_lateness_seconds` | histogram | how late each timer fired |

use std::time::Duration;

use ::metrics::{
    Label, SharedString, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tourbillon_queue::Span;

use crate::Engine;
use crate::core::CoreRef;
use crate::core::thread_shard;
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

/// Publishes what an engine counts to the recorder that is installed, at the pace of its user.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Engine;
/// use tourbillon::adapters::metrics::Exporter;
///
/// // Install a recorder first: what is published before that is lost.
/// let engine = Engine::global();
/// let exporter = Exporter::new(&engine).label("service", "checkout");
///
/// // Every ten seconds, on a thread; or give the future to an executor.
/// std::thread::spawn(move || futures_lite::future::block_on(exporter.run(Duration::from_secs(10))));
/// ```
///
/// Make one for each engine and keep it: the histogram gets what has fired since the last time. Engines are told apart by
/// a [label](Exporter::label). Nothing is done, and nothing slowed, between two exports.
///
/// It does not keep the engine from being shut down when its last handle is dropped.
pub struct Exporter {
    core: CoreRef,
    labels: Vec<Label>,
    /// What the histogram has been told; `None` before the first time.
    told: Option<Lateness>,
}

impl Exporter {
    /// For this engine. Nothing is published yet.
    #[must_use]
    pub fn new(engine: &Engine) -> Exporter {
        Exporter { core: engine.core().clone(), labels: Vec::new(), told: None }
    }

    /// Puts a label on all that it publishes.
    #[must_use]
    pub fn label(mut self, key: impl Into<SharedString>, value: impl Into<SharedString>) -> Exporter {
        self.labels.push(Label::new(key, value));
        self
    }

    /// Publishes what has been counted so far. The first time it also describes each metric.
    pub fn export(&mut self) {
        let told = self.told.take().unwrap_or_else(|| {
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
        for (late, count) in stats.lateness.since(&told).buckets() {
            lateness.record_many(late, count as usize);
        }
        self.told = Some(stats.lateness);
    }

    /// Publishes every so often, until the engine is shut down, and then a last time.
    ///
    /// It waits a millisecond between two exports at least, also if `every` is shorter or zero: so it never keeps its thread busy,
    /// other tasks get on, and it can be aborted.
    ///
    /// It waits on the engine that it is about, so its own timer is one of those that are counted.
    ///
    /// # Cancel safety
    /// Dropping it ends the publishing; what was counted since the last time is then not published.
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
