//! Deliveries beside many pending timers: how late they are, and how long a hundred thousand at once take.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::{TimerId, Timers};

use super::DurableOptions;
use super::load::{self, KIND};
use super::place::{close, fail, runtime};
use super::stage::{Stage, wait_until};
use crate::percentiles::{histogram, known, micros};
use crate::report::{BenchReport, Figure};

/// Timers that are due in a second of the case `lateness`.
const PER_SECOND: u64 = 1_000;

/// Timers that are due within one second in the case `burst`.
const BURST: usize = 100_000;

/// Handlers at the same time.
const HANDLERS: usize = 1_024;

/// Measures the lateness with many pending timers and some due all the time.
pub(super) fn lateness(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    let pending = options.many_pending();
    for backend in options.backends() {
        let seconds = if options.is_quick() { 10 } else { 20 };
        let Some(place) = stage.filled(backend, pending) else { continue };
        let timers = place.open(Timers::builder());
        let begin = SystemTime::now() + Duration::from_secs(3);
        let expected = PER_SECOND * seconds;
        let first = load::numbers(expected).start;
        let seen = Seen::register(&timers);
        let due = move |number: u64| {
            let place = number.wrapping_sub(first) % expected;
            load::due(number, begin + Duration::from_micros(place * 1_000_000 / PER_SECOND))
        };
        load::create(&timers, expected as usize, due);
        if SystemTime::now() >= begin {
            eprintln!("warning: some timers of the case were due before they were created");
        }
        let (commits, left) = commits_until(&timers, begin + Duration::from_secs(seconds));
        wait_until("the delivery of all timers", || seen.has_timers(expected as usize));
        // The store has as many timers for the next case.
        load::cancel(&timers, left);
        close(&timers);
        let case = format!("lateness,pending={pending}");
        let figures = histogram(&seen.lateness());
        let mut add = |metric, value| report.add(Figure::once(backend.system(), case.clone(), metric, value));
        known(&figures).for_each(|(metric, quantile)| add(metric, micros(&figures, quantile)));
        add("max_us", figures.max() as f64 / 1e3);
        add("early_percent", 100.0 * seen.early() as f64 / expected as f64);
        let commits = histogram(&commits);
        let commit = micros(&commits, 0.5);
        add("commit_p50_us", commit);
        add("commit_p99_us", micros(&commits, 0.99));
        add("p99_beyond_commit_us", micros(&figures, 0.99) - commit);
        add("delivered", seen.timers() as f64);
        add("repeated_deliveries", seen.repeated() as f64);
        add("expected", expected as f64);
    }
}

/// Creates a timer ten times a second until a time, and returns the nanoseconds of each answer, the time of a commit, and the timers.
fn commits_until(timers: &Timers, end: SystemTime) -> (Vec<u64>, Vec<u64>) {
    let (mut nanos, mut numbers) = (Vec::new(), Vec::new());
    while SystemTime::now() < end {
        let number = load::numbers(1).start;
        numbers.push(number);
        let begin = Instant::now();
        let created = runtime().block_on(timers.create(load::far(number)));
        created.unwrap_or_else(|error| fail(&error.to_string()));
        nanos.push(begin.elapsed().as_nanos() as u64);
        std::thread::sleep(Duration::from_millis(100));
    }
    (nanos, numbers)
}

/// Measures how long it takes until timers that are due within one second are delivered.
pub(super) fn burst(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    for backend in options.backends() {
        let Some(place) = stage.place(backend) else { continue };
        let timers = place.open(Timers::builder());
        // Created before they are due: that takes some seconds.
        let begin = SystemTime::now() + Duration::from_secs(8);
        let first = load::numbers(BURST as u64).start;
        let due = move |number: u64| {
            load::due(number, begin + Duration::from_micros(number.wrapping_sub(first) % BURST as u64 * 10))
        };
        load::create(&timers, BURST, due);
        let seen = Seen::register(&timers);
        wait_until("the delivery of all timers", || seen.has_timers(BURST));
        let took = SystemTime::now().duration_since(begin).unwrap_or_default();
        close(&timers);
        let mut add =
            |metric, value| report.add(Figure::once(backend.system(), format!("burst,timers={BURST}"), metric, value));
        add("s_until_all_delivered", took.as_secs_f64());
        add("delivered", seen.timers() as f64);
        add("repeated_deliveries", seen.repeated() as f64);
        add("early_percent", 100.0 * seen.early() as f64 / BURST as f64);
        stage.remove(&place);
    }
}

/// What the handler has seen: the timer of each call, and its lateness in nanoseconds, which is negative if it was early.
#[derive(Clone, Default)]
pub(super) struct Seen(Arc<Mutex<Vec<(TimerId, i128)>>>);

impl Seen {
    /// Registers a handler that only notes when it is called.
    pub(super) fn register(timers: &Timers) -> Seen {
        let seen = Seen::default();
        let notes = seen.clone();
        let registered = timers.on_with_limit(KIND, HANDLERS, move |delivery| {
            let late = match SystemTime::now().duration_since(delivery.due()) {
                Ok(late) => late.as_nanos() as i128,
                Err(early) => -(early.duration().as_nanos() as i128),
            };
            notes.calls().push((delivery.id(), late));
            async {}
        });
        registered.unwrap_or_else(|error| fail(&error.to_string()));
        seen
    }

    fn calls(&self) -> MutexGuard<'_, Vec<(TimerId, i128)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether so many timers were delivered, each of which may have been delivered more than once.
    fn has_timers(&self, expected: usize) -> bool {
        self.calls().len() >= expected && self.timers() >= expected
    }

    /// Returns how many timers were delivered.
    fn timers(&self) -> usize {
        self.calls().iter().map(|(timer, _)| *timer).collect::<HashSet<TimerId>>().len()
    }

    /// Returns how many calls of the handler were of a timer that it was called for before.
    fn repeated(&self) -> usize {
        let timers = self.timers();
        self.calls().len() - timers
    }

    fn early(&self) -> usize {
        self.calls().iter().filter(|(_, late)| *late < 0).count()
    }

    fn lateness(&self) -> Vec<u64> {
        self.calls().iter().map(|(_, late)| u64::try_from(*late).unwrap_or(0)).collect()
    }
}
