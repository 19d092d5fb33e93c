//! Churn: clients create timers and cancel 95 of 100, beside no others and beside many.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tourbillon_durable::{NewTimer, Timers};

use super::load::{self, ClientsWork};
use super::place::{close, fail};
use super::stage::Stage;
use super::{CLIENTS, DurableOptions};
use crate::percentiles::{histogram, micros};
use crate::report::{BenchReport, Figure};

/// One timer of so many is not cancelled.
const KEPT: u64 = 20;

/// Measures churn. Rounds beside nothing and beside many timers are interleaved, and compared pair by pair.
pub(super) fn run(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let (rounds, time) = options.rounds();
    let pending = options.pending(1_000_000, 1_000_000);
    for backend in options.backends() {
        let (Some(empty), Some(full)) = (stage.place(backend), stage.filled(backend, pending)) else { continue };
        let stores = [empty, full].map(|place| place.open(Timers::builder()));
        let [mut beside_none, mut beside_many, mut shares, mut p99s] = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            let [none, many] = stores.each_ref().map(|timers| {
                let left = Arc::default();
                let work = churn(timers, time, &left);
                // The store has as many timers for the next round, case and run.
                load::cancel(timers, std::mem::take(&mut left.lock().unwrap_or_else(PoisonError::into_inner)));
                work
            });
            shares.push(many.rate / none.rate);
            p99s.push(micros(&histogram(&many.answers), 0.99) / 1e3);
            beside_none.push(none.rate);
            beside_many.push(many.rate);
        }
        let mut add = |pending: usize, metric, values| {
            let case = format!("churn,pending={pending}");
            report.add(Figure::of_rounds(backend.system(), case, metric, values));
        };
        add(0, "operations_per_s", beside_none);
        add(pending, "operations_per_s", beside_many);
        add(pending, "share_of_empty_store", shares);
        add(pending, "answer_p99_ms", p99s);
        stores.iter().for_each(close);
    }
}

/// Creates timers and cancels most of them. The others are added to `left`.
fn churn(timers: &Timers, time: Duration, left: &Arc<Mutex<Vec<u64>>>) -> ClientsWork {
    let (timers, left) = (timers.clone(), Arc::clone(left));
    load::clients(CLIENTS, time, move |mut answers| {
        let (timers, left) = (timers.clone(), Arc::clone(&left));
        async move {
            let number = load::numbers(1).start;
            let timer: NewTimer = load::far(number);
            let begin = Instant::now();
            let created = timers.create(timer).await;
            created.unwrap_or_else(|error| fail(&error.to_string()));
            answers.push(begin.elapsed().as_nanos() as u64);
            if number.is_multiple_of(KEPT) {
                left.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            } else {
                let begin = Instant::now();
                let counts = timers.cancel(load::key(number)).await.unwrap_or_else(|error| fail(&error.to_string()));
                answers.push(begin.elapsed().as_nanos() as u64);
                if counts.cancelled != 1 {
                    fail(&format!("a cancel of a pending timer counted {counts:?}"));
                }
            }
            answers
        }
    })
}
