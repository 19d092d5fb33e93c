//! Creates: by clients that wait for each answer, beside what the disk allows, and in batches.

use std::time::{Duration, Instant};

use tourbillon_durable::Timers;

use super::load::{self, BATCH, ClientsWork};
use super::place::{close, fail};
use super::stage::{Backend, Stage};
use super::{DISK, DurableOptions, disk};
use crate::percentiles::{histogram, micros};
use crate::report::{BenchReport, Figure};

/// Requests that a client which creates in batches has under way.
const BATCH_CLIENTS: usize = 4;

/// Measures creates with several numbers of clients. Rounds of `fdatasync` and of the stores are interleaved.
pub(super) fn clients(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let (rounds, time) = options.rounds();
    let stores = opened(options, stage);
    for &count in options.clients() {
        let case = format!("create,clients={count}");
        let mut syncs = Vec::new();
        let mut figures: Vec<[Vec<f64>; 5]> = stores.iter().map(|_| Default::default()).collect();
        for _ in 0..rounds {
            for ((_, timers), of_store) in stores.iter().zip(&mut figures) {
                let sync = disk::fdatasync(stage.directory(), time / 4);
                let work = create_by_clients(timers, count, time);
                syncs.push(sync.as_secs_f64() * 1e6);
                let answers = histogram(&work.answers);
                let values = [
                    work.rate,
                    work.rate * sync.as_secs_f64() / count as f64,
                    micros(&answers, 0.5) / 1e3,
                    micros(&answers, 0.99) / 1e3,
                    micros(&answers, 0.99) / 1e6 / sync.as_secs_f64(),
                ];
                of_store.iter_mut().zip(values).for_each(|(of_metric, value)| of_metric.push(value));
            }
        }
        report.add(Figure::of_rounds(DISK, case.clone(), "fdatasync_p50_us", syncs));
        let metrics =
            ["creates_per_s", "share_of_fdatasync", "answer_p50_ms", "answer_p99_ms", "answer_p99_times_fdatasync"];
        for ((backend, _), of_store) in stores.iter().zip(figures) {
            for (metric, values) in metrics.into_iter().zip(of_store) {
                report.add(Figure::of_rounds(backend.system(), case.clone(), metric, values));
            }
        }
    }
    stores.iter().for_each(|(_, timers)| close(timers));
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
