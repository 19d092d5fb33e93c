//! How many requests are served at the same time (O2).

use std::sync::Arc;

use http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::RequestLimits;

/// How urgent a request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Urgency {
    /// It makes room: cancels, acknowledgements. It is served although the server is full.
    Urgent,
    /// Everything else.
    Ordinary,
    /// It waits for most of its time: pulls and live events. These have places of their own.
    Waiting,
    /// It costs nothing, and must be answered when the server is full: health.
    Free,
}

/// The places of requests.
#[derive(Debug)]
pub(crate) struct Gate {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(limits: &RequestLimits) -> Gate {
        let places = |count: usize| Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS)));
        Gate {
            ordinary: places(limits.concurrent),
            reserve: places(limits.concurrent_reserve),
            waiting: places(limits.connections),
        }
    }

    /// Takes a place; `None` if there is none. A free request needs none.
    pub(crate) fn enter(&self, urgency: Urgency) -> Option<Option<OwnedSemaphorePermit>> {
        let take = |places: &Arc<Semaphore>| Arc::clone(places).try_acquire_owned().ok();
        match urgency {
            Urgency::Free => Some(None),
            Urgency::Ordinary => take(&self.ordinary).map(Some),
            Urgency::Waiting => take(&self.waiting).map(Some),
            Urgency::Urgent => take(&self.ordinary).or_else(|| take(&self.reserve)).map(Some),
        }
    }
}

impl Urgency {
    pub(crate) fn of(method: &Method, path: &str) -> Urgency {
        match path {
            "/healthz" | "/readyz" => Urgency::Free,
            "/v1/cancel" => Urgency::Urgent,
            "/v1/events" => Urgency::Waiting,
            _ if *method == Method::DELETE => Urgency::Urgent,
            _ if path.starts_with("/v1/queues/") && path.ends_with("/pull") => Urgency::Waiting,
            _ if path.starts_with("/v1/queues/") => Urgency::Urgent,
            _ => Urgency::Ordinary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o2_cancels_are_served_while_creates_are_refused() {
        let limits = RequestLimits { concurrent: 1, concurrent_reserve: 1, ..RequestLimits::default() };
        let gate = Gate::new(&limits);
        let create = gate.enter(Urgency::of(&Method::POST, "/v1/timers"));
        assert!(create.is_some());
        assert!(gate.enter(Urgency::of(&Method::POST, "/v1/timers")).is_none());
        let cancel = gate.enter(Urgency::of(&Method::POST, "/v1/cancel"));
        assert!(cancel.is_some());
        assert!(gate.enter(Urgency::of(&Method::DELETE, "/v1/timers/x")).is_none(), "the reserve is bounded too");
        assert!(gate.enter(Urgency::of(&Method::GET, "/healthz")).is_some());
        assert!(gate.enter(Urgency::of(&Method::POST, "/v1/queues/q/pull")).is_some());
        drop((create, cancel));
        assert!(gate.enter(Urgency::of(&Method::POST, "/v1/queues/q/ack")).is_some());
    }
}
