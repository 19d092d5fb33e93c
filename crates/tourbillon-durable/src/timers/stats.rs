//! What a node has delivered, and how late (O6).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram;

use super::Ack;
use crate::core::{FailingRequest, StoreRequest};
use crate::store::StoreError;

/// What a process has delivered since it was started.
#[derive(Clone, Debug, Default)]
pub struct DeliveryStats {
    /// Deliveries that were begun, retries included.
    pub begun: u64,
    /// Deliveries that were acknowledged by their handlers.
    pub done: u64,
    /// Deliveries that failed and are tried again, unless no attempt is left.
    pub retried: u64,
    /// Deliveries that were given back before they were tried.
    pub postponed: u64,
    /// Deliveries that were given up by their handlers.
    pub given_up: u64,
    /// Rows in memory, due soon.
    pub rows_in_memory: usize,
    /// Deliveries that have begun and not ended.
    pub running: usize,
    /// Whether this process delivers timers at the moment: it owns a shard.
    pub is_owner: bool,
    /// How far the clock of this machine was off from the store's at the last sign of life; zero for a store that has no clock of its own.
    pub clock_skew: Duration,
    /// Whether this process owns no timers because its clock is off by more than [`max_clock_skew`](super::TimersBuilder::max_clock_skew) (O1).
    pub is_clock_off: bool,
    /// Whether the store is paused, as far as this process knows.
    pub is_paused: bool,
    /// The request of this process by itself that the store has failed for longest; `None` if none fails. It goes on being made.
    pub store_failing: Option<StoreFailing>,
    /// Operations that wait for the store, cancels and answers of workers among them: at the limits of
    /// [`waiting_requests`](super::TimersBuilder::waiting_requests) further ones wait to be sent (O2).
    pub waiting_requests: usize,
    /// The lateness, by namespace.
    pub lateness: BTreeMap<String, NamespaceLateness>,
}

/// A request of a process that its store has failed, once or again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreFailing {
    /// What the process asks for.
    pub request: StoreRequest,
    /// Why it failed the last time.
    pub error: StoreError,
    /// Since when it fails.
    pub since: SystemTime,
    /// How often it has failed.
    pub times: u32,
}

impl StoreFailing {
    /// Returns a request that is failing at the time `steady` of the node's own clock.
    pub(super) fn new(failing: &FailingRequest, steady: Duration) -> StoreFailing {
        let FailingRequest { request, error, since, times } = failing.clone();
        let since = SystemTime::now().checked_sub(steady.saturating_sub(since)).unwrap_or(SystemTime::UNIX_EPOCH);
        StoreFailing { request, error, since, times }
    }
}

/// How late timers of a namespace were delivered for the first time, in microseconds.
#[derive(Clone, Debug)]
pub struct NamespaceLateness {
    /// From the due time until the store had committed the claim.
    pub claim: Histogram<u64>,
    /// From there until the handler was called.
    pub queue: Histogram<u64>,
    /// From there until the handler had ended.
    pub delivery: Histogram<u64>,
}

/// The most namespaces with histograms of their own; those after them are counted together under `*`.
const MOST_NAMESPACES: usize = 1_000;

/// The node's thread takes the first mutex all the time. Histograms, of which a copy of all takes long, are behind others.
#[derive(Debug)]
pub(super) struct StatsRecorder {
    /// All but the lateness.
    stats: Mutex<DeliveryStats>,
    lateness: Mutex<BTreeMap<String, Arc<Mutex<NamespaceLateness>>>>,
}

/// A store counts as paused until the node knows better.
impl Default for StatsRecorder {
    fn default() -> StatsRecorder {
        let stats = Mutex::new(DeliveryStats { is_paused: true, ..DeliveryStats::default() });
        StatsRecorder { stats, lateness: Mutex::default() }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl StatsRecorder {
    /// Returns whether the store is paused, or the node does not know it yet.
    pub(super) fn is_paused(&self) -> bool {
        lock(&self.stats).is_paused
    }

    pub(super) fn read(&self) -> DeliveryStats {
        let all: Vec<_> =
            lock(&self.lateness).iter().map(|(namespace, one)| (namespace.clone(), Arc::clone(one))).collect();
        let lateness = all.into_iter().map(|(namespace, one)| (namespace, lock(&one).clone())).collect();
        DeliveryStats { lateness, ..self.read_without_lateness() }
    }

    pub(super) fn read_without_lateness(&self) -> DeliveryStats {
        lock(&self.stats).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut DeliveryStats)) {
        change(&mut lock(&self.stats));
    }

    /// Records how late a worker has pulled a row.
    pub(super) fn record_claim(&self, namespace: &str, claim: Option<Duration>) {
        let Some(claim) = claim else { return };
        lock(&self.lateness_of(namespace)).claim.saturating_record(micros(claim));
    }

    /// Records the times of one delivery.
    pub(super) fn record(&self, namespace: &str, claim: Option<Duration>, queue: Duration, delivery: Duration) {
        let lateness = self.lateness_of(namespace);
        let mut lateness = lock(&lateness);
        if let Some(claim) = claim {
            lateness.claim.saturating_record(micros(claim));
        }
        lateness.queue.saturating_record(micros(queue));
        lateness.delivery.saturating_record(micros(delivery));
    }

    /// Returns the histograms of a namespace, or those of all namespaces after the most that have their own.
    fn lateness_of(&self, namespace: &str) -> Arc<Mutex<NamespaceLateness>> {
        let mut all = lock(&self.lateness);
        if let Some(known) = all.get(namespace) {
            return Arc::clone(known);
        }
        let namespace = if all.len() < MOST_NAMESPACES { namespace } else { "*" };
        let of_namespace = all.entry(namespace.to_owned());
        Arc::clone(of_namespace.or_insert_with(|| Arc::new(Mutex::new(NamespaceLateness::new()))))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl DeliveryStats {
    /// Counts how a delivery ended.
    pub(super) fn count(&mut self, ack: &Ack) {
        match ack {
            Ack::Done => self.done += 1,
            Ack::Retry(_) | Ack::RetryAfter(..) => self.retried += 1,
            Ack::Postpone(_) => self.postponed += 1,
            Ack::GiveUp(_) => self.given_up += 1,
        }
    }
}

impl NamespaceLateness {
    fn new() -> NamespaceLateness {
        // One microsecond to a day, two digits.
        let histogram = || Histogram::new_with_max(86_400_000_000, 2).expect("the bounds are valid");
        NamespaceLateness { claim: histogram(), queue: histogram(), delivery: histogram() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o6_a_reader_of_the_histograms_does_not_hold_up_the_node() {
        let recorder = StatsRecorder::default();
        recorder.record("shop", None, Duration::ZERO, Duration::ZERO);
        let of_shop = recorder.lateness_of("shop");
        // Such a lock is held while a histogram is copied.
        let _copying = lock(&of_shop);
        recorder.change(|stats| stats.begun += 1);
        recorder.record("other", None, Duration::ZERO, Duration::ZERO);
        let stats = recorder.read_without_lateness();
        assert_eq!((stats.begun, stats.lateness.len()), (1, 0));
    }

    #[test]
    fn o6_namespaces_after_the_most_are_counted_together() {
        let recorder = StatsRecorder::default();
        for number in 0..MOST_NAMESPACES + 5 {
            recorder.record(&number.to_string(), None, Duration::ZERO, Duration::ZERO);
        }
        let lateness = recorder.read().lateness;
        assert_eq!((lateness.len(), lateness["*"].queue.len(), lateness["7"].queue.len()), (MOST_NAMESPACES + 1, 5, 1));
    }
}
