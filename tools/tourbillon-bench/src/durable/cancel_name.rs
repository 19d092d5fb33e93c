//! One cancel of a hundred thousand timers by name, while they fire.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::{NewTimer, Timers};

use super::DurableOptions;
use super::load::{self, KIND};
use super::place::{close, fail, runtime};
use super::stage::{Stage, wait_until};
use crate::report::{BenchReport, Figure};

/// Timers of the name.
const NAMED: usize = 100_000;
const NAME: &str = "campaign";

/// Measures the cancel, and verifies its counts. Exits this program if they are wrong.
pub(super) fn run(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    for backend in options.backends() {
        let Some(place) = stage.place(backend) else { continue };
        let timers = place.open(Timers::builder());
        let begin = SystemTime::now() + Duration::from_secs(8);
        let due = move |number: u64| {
            let at = begin + Duration::from_micros(number.wrapping_mul(7_919) % 10_000_000);
            NewTimer::at(KIND, at).key(load::key(number)).name(NAME).payload(vec![7; 256])
        };
        load::create(&timers, NAMED, due);
        let seen: Arc<Mutex<HashSet<String>>> = Arc::default();
        let notes = Arc::clone(&seen);
        let registered = timers.on(KIND, move |delivery| {
            let key = delivery.key().unwrap_or_default().to_owned();
            if !notes.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
                fail("a timer was delivered twice in a process that was not killed");
            }
            async {}
        });
        registered.unwrap_or_else(|error| fail(&error.to_string()));
        let delivered = || seen.lock().unwrap_or_else(PoisonError::into_inner).len();
        wait_until("the first deliveries", || delivered() > NAMED / 100);
        let start = Instant::now();
        let counts = runtime().block_on(timers.cancel_name(NAME)).unwrap_or_else(|error| fail(&error.to_string()));
        let took = start.elapsed();
        wait_until("the end of all deliveries", || timers.stats().running == 0);
        // Longer than the rest of the timers would have taken.
        let last = begin + Duration::from_secs(11);
        std::thread::sleep(last.duration_since(SystemTime::now()).unwrap_or_default());
        close(&timers);
        if delivered() as u64 + counts.cancelled != NAMED as u64 || counts.gone != 0 {
            fail(&format!(
                "{}: of {NAMED} timers {} were delivered, and the cancel counted {counts:?}",
                backend.system(),
                delivered()
            ));
        }
        let case = format!("cancel-name,timers={NAMED}");
        let mut add = |metric, value| report.add(Figure::once(backend.system(), case.clone(), metric, value));
        add("ms_until_answer", took.as_secs_f64() * 1e3);
        add("cancelled", counts.cancelled as f64);
        add("in_flight", counts.in_flight as f64);
        add("delivered", delivered() as f64);
        stage.remove(&place);
    }
}
