//! One cancel of a hundred thousand timers by name, while they fire.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tourbillon_durable::store::CancelCounts;
use tourbillon_durable::{NewTimer, Timers};

use super::DurableOptions;
use super::load::{self, KIND};
use super::place::{close, fail, runtime};
use super::stage::{Stage, wait_until};
use crate::report::{BenchReport, Figure};

/// Timers of the name.
const NAMED: usize = 100_000;
const NAME: &str = "campaign";

/// How long the store may have timers whose handler has ended.
const LONGEST_ACKNOWLEDGEMENT: Duration = Duration::from_secs(20);

/// Measures the cancel, and verifies its counts. Exits this program if they are wrong.
pub(super) fn run(options: &DurableOptions, stage: &Stage, report: &mut BenchReport) {
    for backend in options.backends() {
        let Some(place) = stage.place(backend) else { continue };
        let timers = place.open(Timers::builder());
        let begin = SystemTime::now() + Duration::from_secs(8);
        let made: Arc<Mutex<HashSet<String>>> = Arc::default();
        let made_keys = Arc::clone(&made);
        let due = move |number: u64| {
            let at = begin + Duration::from_micros(number.wrapping_mul(7_919) % 10_000_000);
            made_keys.lock().unwrap_or_else(PoisonError::into_inner).insert(load::key(number));
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
        let before = stored(&timers);
        let start = Instant::now();
        let counts = runtime().block_on(timers.cancel_name(NAME)).unwrap_or_else(|error| fail(&error.to_string()));
        let took = start.elapsed();
        let begun = delivered();
        wait_until("the end of all deliveries", || timers.stats().running == 0);
        // Longer than the rest of the timers would have taken.
        let last = begin + Duration::from_secs(11);
        std::thread::sleep(last.duration_since(SystemTime::now()).unwrap_or_default());
        let mut left = stored(&timers);
        while left > 0 && last.elapsed().is_ok_and(|since| since < LONGEST_ACKNOWLEDGEMENT) {
            std::thread::sleep(Duration::from_millis(100));
            left = stored(&timers);
        }
        close(&timers);
        let is_of_made = seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_subset(&made.lock().unwrap_or_else(PoisonError::into_inner));
        let account =
            CancelNameAccount { counts, is_of_made, begun: begun as u64, delivered: delivered() as u64, before, left };
        if let Some(fault) = account.fault(NAMED as u64) {
            fail(&format!("{}: of {NAMED} timers: {fault}: {account:?}", backend.system()));
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

/// Returns how many timers the store has, pending and being delivered.
fn stored(timers: &Timers) -> u64 {
    let counts = runtime().block_on(timers.counts()).unwrap_or_else(|error| fail(&error.to_string()));
    counts.armed + counts.claimed + counts.dead
}

/// What became of the timers.
#[derive(Clone, Copy, Debug)]
struct CancelNameAccount {
    counts: CancelCounts,
    /// Whether only timers of the case were delivered.
    is_of_made: bool,
    /// Timers whose delivery had begun when the cancel was answered, or later.
    begun: u64,
    /// Timers that were delivered, each counted once.
    delivered: u64,
    /// Timers that the store had before the cancel: the others were acknowledged.
    before: u64,
    /// Timers that the store has in the end.
    left: u64,
}

impl CancelNameAccount {
    /// Returns what is wrong. A timer was delivered or cancelled, and not both; what the cancel found in flight was delivered, and nothing else that was
    /// not begun when it was answered.
    fn fault(&self, named: u64) -> Option<&'static str> {
        let CancelCounts { cancelled, in_flight, gone } = self.counts;
        let acknowledged = named - self.before;
        let faults = [
            (!self.is_of_made, "another timer was delivered"),
            (self.left > 0, "some are neither cancelled nor delivered"),
            (gone > 0 || self.delivered + cancelled != named, "what was delivered and what was cancelled are not all"),
            (self.delivered - self.begun > in_flight, "more were begun after the answer than were in flight"),
            (in_flight > self.delivered.saturating_sub(acknowledged), "more were in flight than were not acknowledged"),
        ];
        faults.into_iter().find(|(is_wrong, _)| *is_wrong).map(|(_, fault)| fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q2_u2_a_cancel_by_name_whose_counts_do_not_add_up_is_found() {
        let counts = CancelCounts { cancelled: 80, in_flight: 5, ..CancelCounts::default() };
        let good = CancelNameAccount { counts, is_of_made: true, begun: 17, delivered: 20, before: 86, left: 0 };
        assert_eq!(good.fault(100), None);
        let bad = [
            CancelNameAccount { is_of_made: false, ..good },
            CancelNameAccount { left: 1, ..good },
            CancelNameAccount { delivered: 21, ..good },
            CancelNameAccount { begun: 14, ..good },
            CancelNameAccount { before: 84, ..good },
            CancelNameAccount { counts: CancelCounts { in_flight: 2, ..counts }, ..good },
        ];
        assert!(bad.iter().all(|account| account.fault(100).is_some()));
    }
}
