//! Helpers of the stories: raw rows, nodes and races.

use std::sync::mpsc::channel;
use std::time::{Duration, SystemTime};

use tourbillon_durable::NewTimer;
use tourbillon_durable::store::{Heartbeat, NodeId, Ownership, Store};
use tourbillon_durable::{StoreError, TimerId};

use crate::conformance::ask::ask;

/// A timer that was due long ago.
pub(crate) fn past(kind: &str) -> NewTimer {
    NewTimer::at(kind, SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000))
}

/// A timer that is due in many days.
pub(crate) fn far(kind: &str) -> NewTimer {
    NewTimer::after(kind, Duration::from_secs(1_000_000))
}

/// Lets a node keep or take shards for the time of a lease.
pub(crate) fn beat(store: &dyn Store, node: u128, lease: Duration) -> Result<Ownership, StoreError> {
    let node = NodeId(TimerId::from_u128(node).as_uuid());
    ask(|reply| store.heartbeat(Heartbeat { node, lease, release: Vec::new(), kinds: None }, reply))
}

/// The same of a node that says for which kinds it has handlers.
pub(crate) fn beat_with(
    store: &dyn Store,
    node: u128,
    lease: Duration,
    kinds: &[&str],
) -> Result<Ownership, StoreError> {
    let node = NodeId(TimerId::from_u128(node).as_uuid());
    let kinds = Some(kinds.iter().map(|kind| (*kind).to_owned()).collect());
    ask(|reply| store.heartbeat(Heartbeat { node, lease, release: Vec::new(), kinds }, reply))
}

/// Runs something on another thread, and returns whether it has ended within a time.
pub(crate) fn ends_within(time: Duration, run: impl FnOnce() + Send + 'static) -> bool {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        run();
        let _gone = sender.send(());
    });
    receiver.recv_timeout(time).is_ok()
}
