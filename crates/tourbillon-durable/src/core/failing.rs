//! Requests that the store has failed: when they are made again, and since when they fail.
//!
//! Each request that the core repeats has its own count, so that one that the store always refuses is seen although all others succeed. It is
//! made again after ever longer waits, up to a part of the lease that it is for; when it succeeds, it is forgotten.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::{CoreConfig, DeliveryId};
use crate::store::{RowId, StoreError};

/// A request that fails for so long is reported, and again whenever the time has doubled.
const REPORT_AFTER: Duration = Duration::from_secs(60);

/// How often the request that has failed for longest is looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a node asks its store for by itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum StoreRequest {
    /// To renew the lease of its shards.
    Heartbeat,
    /// To read which timers of a kind are due soon.
    Scan,
    /// To read which deliveries of nodes that are gone are to be taken over.
    Orphans,
    /// To claim a timer that is due.
    Claim,
    /// To write how a delivery has ended.
    Finish,
    /// To make the lease of a delivery longer.
    Extend,
}

/// A request that the store has failed, once or again and again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailingRequest {
    /// What the node asks for.
    pub request: StoreRequest,
    /// Why it failed the last time.
    pub error: StoreError,
    /// When it failed first, on the node's own clock.
    pub since: Duration,
    /// How often it has failed.
    pub times: u32,
}

/// Which request it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum RequestKey {
    Heartbeat,
    Scan(String),
    Orphans(String),
    Claim(RowId),
    Finish(DeliveryId),
    Extend(DeliveryId),
}

/// What is to be told of failing requests.
#[derive(Debug)]
pub(super) enum FailureReport {
    Failing(FailingRequest),
    Recovered,
}

/// All requests that have failed and are to be made again.
#[derive(Debug)]
pub(super) struct FailingRequests {
    config: CoreConfig,
    failing: BTreeMap<RequestKey, FailingRequest>,
    /// The one that has failed for longest, as of the last look.
    longest: Option<FailingRequest>,
    look_at: Duration,
    /// When a failure was reported last, and for how long the request had failed by then.
    reported: Option<(Duration, Duration)>,
}

impl FailingRequests {
    pub(super) fn new(config: CoreConfig) -> FailingRequests {
        FailingRequests { config, failing: BTreeMap::new(), longest: None, look_at: Duration::ZERO, reported: None }
    }

    /// Records that a request has failed, and returns when it is made again.
    pub(super) fn failed(&mut self, now: Duration, key: RequestKey, error: StoreError) -> Duration {
        let request = key.request();
        if self.failing.is_empty() {
            self.look_at = now;
        }
        let first = FailingRequest { request, error: error.clone(), since: now, times: 0 };
        let failing = self.failing.entry(key).or_insert(first);
        failing.times = failing.times.saturating_add(1);
        failing.error = error;
        again_at(&self.config, now, request, failing.times)
    }

    /// Forgets a request that has succeeded, or is not to be made any more.
    pub(super) fn forget(&mut self, key: &RequestKey) {
        if !self.failing.is_empty() {
            self.failing.remove(key);
        }
    }

    /// Forgets the reads of kinds for which the node does not ask any more.
    pub(super) fn keep_reads(&mut self, is_read: impl Fn(&str) -> bool) {
        self.failing.retain(|key, _| match key {
            RequestKey::Scan(kind) | RequestKey::Orphans(kind) => is_read(kind),
            _ => true,
        });
    }

    /// Forgets reads and claims: the node makes none at the moment.
    pub(super) fn forget_lanes(&mut self) {
        self.failing
            .retain(|key, _| !matches!(key, RequestKey::Scan(_) | RequestKey::Orphans(_) | RequestKey::Claim(_)));
    }

    /// Returns the request that has failed for longest, as it was within the last second.
    pub(super) fn longest(&self) -> Option<&FailingRequest> {
        self.longest.as_ref().filter(|_| !self.failing.is_empty())
    }

    /// Returns what is to be told, if anything.
    pub(super) fn report(&mut self, now: Duration) -> Option<FailureReport> {
        if self.failing.is_empty() {
            self.longest = None;
        } else if self.look_at <= now {
            self.look_at = now + LOOK_EVERY;
            self.longest = self.failing.values().min_by_key(|failing| failing.since).cloned();
        }
        let long = self.longest.as_ref().map(|failing| (failing, now.saturating_sub(failing.since)));
        let Some((failing, lasts)) = long.filter(|(_, lasts)| *lasts >= REPORT_AFTER) else {
            return self.reported.take().map(|_| FailureReport::Recovered);
        };
        // What has failed beside the request that was reported is not reported anew when that one has succeeded.
        let is_reported = self.reported.is_some_and(|(at, lasted)| failing.since <= at && lasts < lasted * 2);
        if is_reported {
            return None;
        }
        self.reported = Some((now, lasts));
        Some(FailureReport::Failing(failing.clone()))
    }
}

impl RequestKey {
    fn request(&self) -> StoreRequest {
        match self {
            RequestKey::Heartbeat => StoreRequest::Heartbeat,
            RequestKey::Scan(_) => StoreRequest::Scan,
            RequestKey::Orphans(_) => StoreRequest::Orphans,
            RequestKey::Claim(_) => StoreRequest::Claim,
            RequestKey::Finish(_) => StoreRequest::Finish,
            RequestKey::Extend(_) => StoreRequest::Extend,
        }
    }
}

/// Returns when a request is made again that has failed so often.
///
/// The wait doubles, and each node shortens it by other parts, up to a quarter. The longest is so short that a lease can still be renewed. After
/// the first wait requests are gathered at multiples of the first, so that an outage does not end in as many batches as there are requests.
fn again_at(config: &CoreConfig, now: Duration, request: StoreRequest, times: u32) -> Duration {
    let first = config.retry;
    if times <= 1 {
        return now + first;
    }
    let longest = match request {
        StoreRequest::Heartbeat => config.node_lease / 10,
        StoreRequest::Scan | StoreRequest::Orphans => config.node_lease / 2,
        StoreRequest::Claim | StoreRequest::Finish | StoreRequest::Extend => config.delivery_lease / 10,
    };
    let wait = first.saturating_mul(1 << (times - 1).min(16)).min(longest.max(first));
    let mut hasher = DefaultHasher::new();
    (config.node, request, times).hash(&mut hasher);
    let shortened = wait - wait / 4 * u32::from(hasher.finish() as u8) / 256;
    let steps = (now + shortened).as_micros() / first.as_micros().max(1);
    let gathered = first.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
    gathered.max(now + shortened / 2)
}

impl fmt::Display for StoreRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StoreRequest::Heartbeat => "renew the lease of this node",
            StoreRequest::Scan => "read which timers are due",
            StoreRequest::Orphans => "read which deliveries to take over",
            StoreRequest::Claim => "claim a timer",
            StoreRequest::Finish => "write the end of a delivery",
            StoreRequest::Extend => "make the lease of a delivery longer",
        })
    }
}
