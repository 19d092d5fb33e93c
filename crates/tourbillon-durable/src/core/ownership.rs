//! The shards of a node, and its heartbeats.

use std::collections::BTreeMap;
use std::time::Duration;

use super::CoreConfig;
use super::delivery::Deliveries;
use crate::store::{Heartbeat, Ownership, ShardId, StoreError};

/// The shards that the node owns, as far as it may be sure of it.
///
/// The lease begins, for the node, when it *sends* the heartbeat, on its own clock; for the store it begins when the heartbeat arrives. So
/// the node stops before the store lets another node take over. A tenth of the lease is left for clocks that run at different speeds.
#[derive(Debug)]
pub(super) struct OwnedShards {
    config: CoreConfig,
    shards: BTreeMap<ShardId, u64>,
    /// When the node stops unless it has been heard; `None` if it owns its shards for good.
    until: Option<Duration>,
    /// When the next heartbeat is sent; `None` while one is under way, and if none is needed any more.
    next: Option<Duration>,
    fair_share: usize,
    /// Whether the last heartbeat asked for no shard, because the node had no handler.
    is_idle: bool,
}

impl OwnedShards {
    pub(super) fn new(config: CoreConfig) -> OwnedShards {
        OwnedShards {
            config,
            shards: BTreeMap::new(),
            until: None,
            next: Some(Duration::ZERO),
            fair_share: usize::MAX,
            is_idle: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    pub(super) fn epoch(&self, shard: ShardId) -> Option<u64> {
        self.shards.get(&shard).copied()
    }

    pub(super) fn ids(&self) -> Vec<ShardId> {
        self.shards.keys().copied().collect()
    }

    pub(super) fn lose(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
    }

    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        super::earlier(self.next, self.until.filter(|_| !self.shards.is_empty()))
    }

    /// Gives up all shards if the lease is over. Returns whether it was.
    pub(super) fn expire(&mut self, steady: Duration) -> bool {
        let is_over = self.until.is_some_and(|until| steady >= until) && !self.shards.is_empty();
        if is_over {
            self.shards.clear();
        }
        is_over
    }

    /// Returns the heartbeat that is due. Shards beyond the fair share that have no delivery are given up with it.
    ///
    /// A node without handlers takes no shard of a shared store: timers of its shards would wait, although another node can deliver them.
    /// When it gets its first handler, it asks for shards at once, or when the heartbeat that is under way has been answered.
    pub(super) fn wants_heartbeat(
        &mut self,
        steady: Duration,
        deliveries: &Deliveries,
        has_handlers: bool,
    ) -> Option<Heartbeat> {
        let next = self.next?;
        let is_needed = has_handlers || deliveries.len() > 0 || !self.config.store.has_other_writers();
        if steady < next && !(self.is_idle && is_needed) {
            return None;
        }
        self.is_idle = !is_needed;
        if self.is_idle {
            return Some(self.leave());
        }
        self.next = None;
        let busy = deliveries.shards();
        let surplus = self.shards.len().saturating_sub(self.fair_share);
        let release: Vec<ShardId> =
            self.ids().into_iter().filter(|shard| !busy.contains(shard)).take(surplus).collect();
        release.iter().for_each(|shard| self.lose(*shard));
        Some(Heartbeat { node: self.config.node, lease: self.config.node_lease, release })
    }

    /// Returns a heartbeat that gives up all shards and asks for none.
    pub(super) fn leave(&mut self) -> Heartbeat {
        self.next = None;
        self.shards.clear();
        Heartbeat { node: self.config.node, lease: Duration::ZERO, release: Vec::new() }
    }

    /// Takes the answer to a heartbeat. Returns whether the node owns a shard that it did not own, or under another epoch.
    pub(super) fn answered(&mut self, steady: Duration, sent: Duration, result: Result<Ownership, StoreError>) -> bool {
        let Ok(ownership) = result else {
            self.next = Some(steady + self.config.retry);
            return false;
        };
        let lease = self.config.node_lease;
        let is_shared = self.config.store.has_other_writers();
        self.until = is_shared.then(|| sent + lease - lease / 10);
        self.next = (is_shared || ownership.shards.is_empty()).then(|| sent + lease / 3);
        self.fair_share = ownership.fair_share.max(1);
        let shards: BTreeMap<ShardId, u64> = ownership.shards.into_iter().collect();
        let gained = shards.iter().any(|(shard, epoch)| self.shards.get(shard) != Some(epoch));
        self.shards = shards;
        // The answer may have been on its way for longer than the lease.
        !self.expire(steady) && gained
    }
}
