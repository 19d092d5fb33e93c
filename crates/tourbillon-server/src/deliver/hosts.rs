//! Limits by host: how many deliveries at a time, how many in a second, and none while the host fails (a circuit breaker).
//!
//! A delivery waits a short time for a place at its host. After that it is given back to the store, so that a host that hangs delays
//! nobody else's deliveries. The rules of rate and circuit are pure: they are told the time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::WebhookConfig;

/// The most hosts that are remembered although nothing is under way for them.
const MOST_IDLE_HOSTS: usize = 10_000;

/// How long a delivery waits for a place before it is given back.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How many deliveries may wait for a place at one host, for each that may run.
const WAITING_FOR_EACH: usize = 8;

/// Places for deliveries of something: of a host, or of a namespace.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    most_waiting: usize,
}

impl Places {
    pub(crate) fn new(count: usize) -> Places {
        let free = Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Places { free, waiting: Arc::default(), most_waiting: count.saturating_mul(WAITING_FOR_EACH) }
    }

    /// Takes a place; `None` if there is none for some time, or too many wait already.
    pub(crate) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(place);
        }
        let counted = Waiting::begin(&self.waiting);
        if counted.before >= self.most_waiting {
            return None;
        }
        let place = tokio::time::timeout(LONGEST_WAIT, Arc::clone(&self.free).acquire_owned()).await;
        place.ok().and_then(Result::ok)
    }

    /// Returns whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.free) == 1
    }
}

/// Counts a delivery that waits, until it is dropped.
struct Waiting<'a> {
    count: &'a AtomicUsize,
    before: usize,
}

impl Waiting<'_> {
    fn begin(count: &AtomicUsize) -> Waiting<'_> {
        Waiting { count, before: count.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The hosts that deliveries go to.
#[derive(Debug)]
pub(crate) struct Hosts {
    rules: HostRules,
    hosts: Mutex<HashMap<String, HostState>>,
}

#[derive(Clone, Copy, Debug)]
struct HostRules {
    concurrency: usize,
    rate: u32,
    failures: u32,
    pause: Duration,
}

#[derive(Debug)]
struct HostState {
    places: Places,
    /// When the next delivery may begin, by the rate.
    next_start: Option<Instant>,
    failures_in_a_row: u32,
    /// Until when no delivery is tried.
    open_until: Option<Instant>,
    /// Whether one delivery tries out a host that has failed.
    is_probing: bool,
}

/// Whether a delivery may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Admission {
    /// It may, and [`Hosts::end`] must be called.
    Begin,
    /// It may not now: it looks again after this time.
    After(Duration),
    /// The circuit is open for this long.
    Open(Duration),
}

impl Hosts {
    pub(crate) fn new(config: &WebhookConfig) -> Hosts {
        let rules = HostRules {
            concurrency: config.host_concurrency.max(1),
            rate: config.host_rate,
            failures: config.breaker_failures.max(1),
            pause: config.breaker_pause,
        };
        Hosts { rules, hosts: Mutex::new(HashMap::new()) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, HostState>> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the places of a host.
    pub(crate) fn places(&self, host: &str) -> Places {
        let mut hosts = self.lock();
        if let Some(state) = hosts.get(host) {
            return state.places.clone();
        }
        if hosts.len() >= MOST_IDLE_HOSTS {
            hosts.retain(|_, state| !state.places.is_idle() || state.failures_in_a_row > 0);
        }
        let state = HostState::new(self.rules.concurrency);
        let places = state.places.clone();
        hosts.insert(host.to_owned(), state);
        places
    }

    /// Asks for a delivery that has a place to begin.
    pub(crate) fn begin(&self, host: &str, now: Instant) -> Admission {
        let mut hosts = self.lock();
        let state = hosts.entry(host.to_owned()).or_insert_with(|| HostState::new(self.rules.concurrency));
        state.begin(self.rules, now)
    }

    /// Records the end of a delivery that has begun.
    pub(crate) fn end(&self, host: &str, has_failed: bool, now: Instant) {
        if let Some(state) = self.lock().get_mut(host) {
            state.end(self.rules, has_failed, now);
        }
    }

    /// Returns how many hosts are not called at the moment, because they failed.
    pub(crate) fn open_circuits(&self, now: Instant) -> usize {
        self.lock().values().filter(|state| state.open_until.is_some_and(|until| until > now)).count()
    }
}

impl HostState {
    fn new(concurrency: usize) -> HostState {
        HostState {
            places: Places::new(concurrency),
            next_start: None,
            failures_in_a_row: 0,
            open_until: None,
            is_probing: false,
        }
    }

    fn begin(&mut self, rules: HostRules, now: Instant) -> Admission {
        if let Some(until) = self.open_until {
            if now < until {
                return Admission::Open(until - now);
            }
            if self.is_probing {
                return Admission::Open(rules.pause.min(Duration::from_secs(1)));
            }
            self.is_probing = true;
        }
        if rules.rate > 0 {
            // Up to a second's worth may begin at once.
            let step = Duration::from_secs(1) / rules.rate;
            let earliest = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
            let next = self.next_start.map_or(earliest, |next| next.max(earliest));
            if next > now {
                self.is_probing = false;
                return Admission::After(next - now);
            }
            self.next_start = Some(next + step);
        }
        Admission::Begin
    }

    fn end(&mut self, rules: HostRules, has_failed: bool, now: Instant) {
        self.is_probing = false;
        if has_failed {
            self.failures_in_a_row = self.failures_in_a_row.saturating_add(1);
            if self.failures_in_a_row >= rules.failures {
                self.open_until = Some(now + rules.pause);
            }
        } else {
            (self.failures_in_a_row, self.open_until) = (0, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(change: impl FnOnce(&mut WebhookConfig)) -> Hosts {
        let mut config = WebhookConfig::default();
        change(&mut config);
        Hosts::new(&config)
    }

    #[tokio::test]
    async fn v7_a_host_has_places_of_its_own_and_a_delivery_waits_for_one() {
        let hosts = hosts(|config| config.host_concurrency = 1);
        let place = hosts.places("a").take().await;
        assert!(place.is_some());
        assert!(hosts.places("b").take().await.is_some(), "another host is not concerned");
        let places = hosts.places("a");
        let waiting = tokio::spawn(async move { places.take().await.is_some() });
        tokio::task::yield_now().await;
        drop(place);
        assert!(waiting.await.unwrap());
    }

    #[tokio::test]
    async fn v7_when_too_many_wait_for_a_host_further_deliveries_are_given_back_at_once() {
        let places = Places::new(1);
        let _running = places.take().await;
        let waiting: Vec<_> = (0..WAITING_FOR_EACH)
            .map(|_| {
                tokio::spawn({
                    let places = places.clone();
                    async move { places.take().await.is_some() }
                })
            })
            .collect();
        while places.waiting.load(Ordering::Relaxed) < WAITING_FOR_EACH {
            tokio::task::yield_now().await;
        }
        assert!(places.take().await.is_none());
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[test]
    fn v7_the_rate_of_a_host_is_kept_after_a_burst_of_one_second() {
        let (hosts, now) = (hosts(|config| config.host_rate = 10), Instant::now());
        let begun = (0..100).filter(|_| hosts.begin("a", now) == Admission::Begin).count();
        assert!((10..=11).contains(&begun), "{begun}");
        let later = now + Duration::from_millis(350);
        let begun = (0..100).filter(|_| hosts.begin("a", later) == Admission::Begin).count();
        assert!((3..=4).contains(&begun), "{begun}");
    }

    #[test]
    fn v2_the_circuit_of_a_failing_host_opens_and_one_delivery_tries_it_out() {
        let (hosts, start) = (hosts(|config| config.breaker_failures = 3), Instant::now());
        for _ in 0..3 {
            assert_eq!(hosts.begin("a", start), Admission::Begin);
            hosts.end("a", true, start);
        }
        assert!(matches!(hosts.begin("a", start), Admission::Open(_)));
        assert_eq!(hosts.open_circuits(start), 1);
        let later = start + Duration::from_secs(11);
        assert_eq!(hosts.begin("a", later), Admission::Begin);
        assert!(matches!(hosts.begin("a", later), Admission::Open(_)), "only one tries");
        hosts.end("a", false, later);
        assert_eq!((hosts.begin("a", later), hosts.begin("a", later)), (Admission::Begin, Admission::Begin));
    }
}
