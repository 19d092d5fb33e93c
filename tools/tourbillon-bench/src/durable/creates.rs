//! Creates: by clients that wait for each answer, beside what the disk allows, and in batches.

use std::time::{Duration, Instant};

use tourbillon_durable::Timers;

use super::load::{self, BATCH, ClientsWork};
use super::place::{Place, close, fail};
use super::stage::{Backend, Stage};
use super::{DISK, DurableOptions, disk};
use crate::percentiles::{histogram, micros};
use crate::report::{BenchReport, Figure, median};

/// Requests that a client which creates in batches has under way.
const BATCH_CLIENTS: usize = 4;

/// Measures creates with several numbers of clients, beside what the disk allows. Rounds of the stores are interleaved. The disk is measured
/// while no store is open, because an open store has work to do after a round.
pub(super) fn clients(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let (rounds, time) = options.rounds();
    // The server that is idle is measured too, so it is started before.
    let places: Vec<(Backend, Place)> =
        options.backends().filter_map(|backend| Some((backend, stage.place(backend)?))).collect();
    let disk = DiskTimes::measure(stage, rounds, time);
    for (metric, values) in [("fdatasync_p50_us", &disk.idle), ("fdatasync_beside_load_p50_us", &disk.beside_load)] {
        let micros = values.iter().map(|sync| sync * 1e6).collect();
        report.add(Figure::of_rounds(DISK, "create".to_owned(), metric, micros));
    }
    let [idle, beside_load] = disk.medians();
    let stores: Vec<(Backend, Timers)> =
        places.iter().map(|(backend, place)| (*backend, place.open(Timers::builder()))).collect();
    for &count in options.clients() {
        let case = format!("create,clients={count}");
        let mut figures: Vec<[Vec<f64>; METRICS.len()]> = stores.iter().map(|_| Default::default()).collect();
        for _ in 0..rounds {
            for ((_, timers), of_store) in stores.iter().zip(&mut figures) {
                let work = create_by_clients(timers, count, time);
                let answers = histogram(&work.answers);
                let p99 = micros(&answers, 0.99);
                let values = [
                    work.rate,
                    work.rate * idle / count as f64,
                    work.rate * beside_load / count as f64,
                    micros(&answers, 0.5) / 1e3,
                    p99 / 1e3,
                    p99 / 1e6 / idle,
                    p99 / 1e6 / beside_load,
                ];
                of_store.iter_mut().zip(values).for_each(|(of_metric, value)| of_metric.push(value));
            }
        }
        for ((backend, _), of_store) in stores.iter().zip(figures) {
            for (metric, values) in METRICS.into_iter().zip(of_store) {
                report.add(Figure::of_rounds(backend.system(), case.clone(), metric, values));
            }
        }
    }
    stores.iter().for_each(|(_, timers)| close(timers));
}

/// The metrics of a store, in the order of their values.
const METRICS: [&str; 7] = [
    "creates_per_s",
    "share_of_fdatasync",
    "share_of_fdatasync_beside_load",
    "answer_p50_ms",
    "answer_p99_ms",
    "answer_p99_times_fdatasync",
    "answer_p99_times_fdatasync_beside_load",
];

/// Seconds of an `fdatasync`: the medians of several rounds.
struct DiskTimes {
    idle: Vec<f64>,
    beside_load: Vec<f64>,
}

impl DiskTimes {
    fn measure(stage: &Stage, rounds: usize, time: Duration) -> DiskTimes {
        let mut times = DiskTimes { idle: Vec::new(), beside_load: Vec::new() };
        for _ in 0..rounds {
            times.idle.push(disk::idle(stage.directory(), time / 2).as_secs_f64());
            times.beside_load.push(disk::beside_load(stage.directory(), time / 4).as_secs_f64());
        }
        times
    }

    fn medians(&self) -> [f64; 2] {
        [&self.idle, &self.beside_load].map(|values| median(values.clone()))
    }
}

/// Measures creates in batches of 1,000.
pub(super) fn batches(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let (rounds, time) = options.rounds();
    let stores = opened(options, stage);
    let mut rates: Vec<Vec<f64>> = stores.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for ((_, timers), rates) in stores.iter().zip(&mut rates) {
            rates.push(create_in_batches(timers, time));
        }
    }
    for ((backend, timers), rates) in stores.iter().zip(rates) {
        report.add(Figure::of_rounds(backend.system(), format!("create,batch={BATCH}"), "creates_per_s", rates));
        close(timers);
    }
}

fn opened(options: &DurableOptions, stage: &Stage) -> Vec<(Backend, Timers)> {
    let places = options.backends().filter_map(|backend| Some((backend, stage.place(backend)?)));
    places.map(|(backend, place)| (backend, place.open(Timers::builder()))).collect()
}

fn create_by_clients(timers: &Timers, count: usize, time: Duration) -> ClientsWork {
    let timers = timers.clone();
    load::clients(count, time, move |mut answers| {
        let timers = timers.clone();
        async move {
            let begin = Instant::now();
            let created = timers.create(load::far(load::numbers(1).start)).await;
            answers.push(begin.elapsed().as_nanos() as u64);
            created.unwrap_or_else(|error| fail(&error.to_string()));
            answers
        }
    })
}

fn create_in_batches(timers: &Timers, time: Duration) -> f64 {
    let timers = timers.clone();
    let work = load::clients(BATCH_CLIENTS, time, move |mut answers| {
        let timers = timers.clone();
        async move {
            load::create_batch(&timers, BATCH as u64, &load::far).await;
            answers.push(0);
            answers
        }
    });
    work.rate * BATCH as f64
}
