//! `Exporter`: the values that a recorder of the crate `metrics` receives.
#![cfg(all(feature = "metrics", feature = "test-util"))]

mod support;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
    with_local_recorder,
};
use support::{Task, ms};
use tourbillon::adapters::metrics::Exporter;
use tourbillon::{Clock, Driver, Engine, Slack};

/// A recorder that stores its values by the names of the metrics with their labels.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Recorded>>);

#[derive(Default)]
struct Recorded {
    described: Vec<String>,
    counters: BTreeMap<String, u64>,
    gauges: BTreeMap<String, f64>,
    /// Values, and how often each was recorded.
    histograms: BTreeMap<String, Vec<(f64, usize)>>,
}

/// One metric.
struct RecordedMetric(Memory, String);

impl Memory {
    fn handle(&self, key: &Key) -> Arc<RecordedMetric> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value())).collect::<String>();
        Arc::new(RecordedMetric(self.clone(), format!("{}{labels}", key.name())))
    }

    fn describe(&self, key: &KeyName) {
        self.0.lock().unwrap().described.push(key.as_str().to_owned());
    }

    fn counter(&self, name: &str) -> u64 {
        self.0.lock().unwrap().counters[name]
    }
}

impl Recorder for Memory {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key);
    }

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        assert_eq!(unit, Some(Unit::Seconds));
        self.describe(&key);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.handle(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.handle(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.handle(key))
    }
}

impl CounterFn for RecordedMetric {
    fn increment(&self, _: u64) {
        panic!("counters are absolute");
    }

    fn absolute(&self, value: u64) {
        self.0.0.lock().unwrap().counters.insert(self.1.clone(), value);
    }
}

impl GaugeFn for RecordedMetric {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.0.0.lock().unwrap().gauges.insert(self.1.clone(), value);
    }
}

impl HistogramFn for RecordedMetric {
    fn record(&self, value: f64) {
        self.record_many(value, 1);
    }

    fn record_many(&self, value: f64, count: usize) {
        self.0.0.lock().unwrap().histograms.entry(self.1.clone()).or_default().push((value, count));
    }
}

fn engine() -> Engine {
    Engine::builder().clock(Clock::manual()).driver(Driver::external()).slack(Slack::exact()).build().unwrap()
}

#[test]
fn b5_the_recorder_receives_the_counts_of_the_engine() {
    let (engine, memory, task) = (engine(), Memory::default(), Task::new());
    let mut exporter = Exporter::new(&engine);
    let mut fires = [1, 2, 3].map(|after| Box::pin(engine.sleep(ms(after))));
    let mut cancelled = Box::pin(engine.sleep(ms(10)));
    let mut pending = pin!(engine.sleep(ms(1000)));
    assert!(fires.iter_mut().all(|sleep| task.poll(sleep.as_mut()).is_pending()));
    assert!(task.poll(cancelled.as_mut()).is_pending() && task.poll(pending.as_mut()).is_pending());
    drop(cancelled);
    engine.advance(ms(5));
    with_local_recorder(&memory, || exporter.export());

    assert_eq!(memory.counter("tourbillon_timers_armed_total"), 5);
    assert_eq!(memory.counter("tourbillon_timers_fired_total"), 3);
    assert_eq!(memory.counter("tourbillon_timers_cancelled_total"), 1);
    assert_eq!(memory.counter("tourbillon_timers_stopped_total"), 0);
    assert_eq!(memory.counter("tourbillon_waker_panics_total"), 0);
    assert_eq!(memory.0.lock().unwrap().gauges["tourbillon_timers_pending"], 1.0);

    engine.shutdown();
    with_local_recorder(&memory, || exporter.export());
    assert_eq!(memory.counter("tourbillon_timers_stopped_total"), 1);
    assert_eq!(memory.0.lock().unwrap().gauges["tourbillon_timers_pending"], 0.0);
}

#[test]
fn b5_every_metric_is_described_and_only_once() {
    let (engine, memory) = (engine(), Memory::default());
    let mut exporter = Exporter::new(&engine);
    with_local_recorder(&memory, || (0..3).for_each(|_| exporter.export()));
    let recorded = memory.0.lock().unwrap();
    let mut described = recorded.described.clone();
    described.sort();
    described.dedup();
    assert_eq!(described.len(), recorded.described.len());
    let used = recorded.counters.keys().chain(recorded.gauges.keys());
    assert!(used.into_iter().all(|name| described.contains(name)));
    assert_eq!(
        described.len(),
        recorded.counters.len() + recorded.gauges.len() + 1,
        "the counters, the gauges and one histogram"
    );
}

#[test]
fn b5_each_fire_is_in_the_histogram_once() {
    let (engine, memory, task) = (engine(), Memory::default(), Task::new());
    let mut exporter = Exporter::new(&engine);
    for _ in 0..2 {
        let mut sleeps = [0, 0, 8].map(|more| Box::pin(engine.sleep(ms(1 + more))));
        assert!(sleeps.iter_mut().all(|sleep| task.poll(sleep.as_mut()).is_pending()));
        // All are due when the engine is turned at last: two of them by nine milliseconds, one by one.
        engine.clock().advance(ms(10));
        assert_eq!(engine.turn().fired, 3);
        with_local_recorder(&memory, || (0..2).for_each(|_| exporter.export()));
    }
    let recorded = memory.0.lock().unwrap();
    let recorded = &recorded.histograms["tourbillon_timer_lateness_seconds"];
    let counts = recorded.iter().map(|(_, count)| *count).collect::<Vec<_>>();
    assert_eq!(counts, [1, 2, 1, 2]);
    for (late, least) in recorded.iter().map(|(late, _)| *late).zip([0.001, 0.009, 0.001, 0.009]) {
        assert!(late >= least && late <= least * 1.125, "{late} s for {least} s");
    }
}

#[test]
fn b5_engines_are_distinguished_by_a_label() {
    let (one, two, memory) = (engine(), engine(), Memory::default());
    let task = Task::new();
    let mut pending = pin!(two.sleep(ms(1)));
    assert!(task.poll(pending.as_mut()).is_pending());
    with_local_recorder(&memory, || {
        Exporter::new(&one).label("engine", "one").export();
        Exporter::new(&two).label("engine", "two").export();
    });
    assert_eq!(memory.counter("tourbillon_timers_armed_total engine=one"), 0);
    assert_eq!(memory.counter("tourbillon_timers_armed_total engine=two"), 1);
}

#[test]
fn b5_the_loop_publishes_periodically_and_ends_with_the_engine() {
    let (engine, memory, task) = (engine(), Memory::default(), Task::new());
    let mut exports = Box::pin(Exporter::new(&engine).run(ms(10)));
    with_local_recorder(&memory, || {
        assert!(task.poll(exports.as_mut()).is_pending());
        assert_eq!(memory.counter("tourbillon_timers_fired_total"), 0);
        for fired in 1..=3 {
            engine.advance(ms(10));
            assert_eq!(task.wakes(), 1);
            assert!(task.poll(exports.as_mut()).is_pending());
            assert_eq!(memory.counter("tourbillon_timers_fired_total"), fired);
        }
        // The loop holds no handle: the engine ends with its last handle, and the loop with it.
        drop(engine);
        assert_eq!(task.wakes(), 1);
        assert!(task.poll(exports.as_mut()).is_ready());
        assert_eq!(memory.counter("tourbillon_timers_stopped_total"), 1);
    });
}

// ---- a period of zero ----

/// Runs `call` on a thread of its own, and fails if it does not return.
fn promptly<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || _ = sender.send(call()));
    receiver.recv_timeout(Duration::from_secs(60)).expect("it has neither hung nor panicked")
}

#[test]
fn d83_with_a_period_of_zero_other_tasks_run_and_the_task_can_be_aborted() {
    for every in [Duration::ZERO, Duration::from_nanos(1)] {
        let is_cancelled = promptly(move || {
            let engine = Engine::builder().build().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let exports = tokio::spawn(Exporter::new(&engine).run(every));
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
                engine.sleep(ms(5)).await;
                exports.abort();
                exports.await.unwrap_err().is_cancelled()
            })
        });
        assert!(is_cancelled, "{every:?}");
    }
}

#[test]
fn d83_with_a_period_of_zero_futures_polled_beside_it_make_progress() {
    for every in [Duration::ZERO, Duration::from_nanos(1)] {
        promptly(move || {
            let engine = Engine::builder().build().unwrap();
            let exports = Exporter::new(&engine).run(every);
            futures_lite::future::block_on(futures_lite::future::or(exports, engine.sleep(ms(5))));
            let exports = Exporter::new(&engine).run(every);
            let limited = tourbillon::time::timeout(ms(5), exports);
            assert!(futures_lite::future::block_on(limited).is_err());
        });
    }
}

#[test]
fn d83_a_period_of_zero_is_one_of_a_millisecond_and_ends_with_the_engine() {
    let (engine, memory, task) = (engine(), Memory::default(), Task::new());
    let mut exports = Box::pin(Exporter::new(&engine).run(Duration::ZERO));
    with_local_recorder(&memory, || {
        for exported in 0..5 {
            assert!(task.poll(exports.as_mut()).is_pending());
            assert_eq!(memory.counter("tourbillon_timers_fired_total"), exported);
            engine.advance(Duration::from_micros(999));
            assert!(task.poll(exports.as_mut()).is_pending());
            assert_eq!(
                memory.counter("tourbillon_timers_fired_total"),
                exported,
                "nothing is exported before the period has passed"
            );
            engine.advance(Duration::from_micros(1));
        }
        engine.shutdown();
        while task.poll(exports.as_mut()).is_pending() {}
    });
}
