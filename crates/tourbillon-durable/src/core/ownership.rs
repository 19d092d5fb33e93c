//! The shards of a node, and its heartbeats.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::CoreConfig;
use super::delivery::Deliveries;
use crate::store::{Heartbeat, Ownership, ShardId, TimerRow, node_fence};

/// The shards that the node owns, as far as it may be sure of it.
///
/// The lease begins, for the node, when it *sends* the heartbeat, on its own clock; for the store it begins when the heartbeat arrives. So
/// the node stops before the store lets another node take over. A tenth of the lease is left for clocks that run at different speeds.
#[derive(Debug)]
pub(super) struct OwnedShards {
    config: CoreConfig,
    shards: BTreeMap<ShardId, u64>,
    /// Shards beyond the fair share that had a delivery when the others were given up: nothing is claimed for them any more.
    draining: BTreeSet<ShardId>,
    /// Shards of other nodes that have no handler for a kind of this node, by kind. The lease holds for them too.
    delegated: BTreeMap<String, BTreeSet<ShardId>>,
    /// What stands in the place of an epoch in claims for these shards. A process that is started again is another node, and has another one.
    fence: u64,
    /// The kinds of the last heartbeat.
    announced: BTreeSet<String>,
    /// When the node stops unless it has been heard; `None` if it owns its shards for good.
    until: Option<Duration>,
    /// When the next heartbeat is sent; `None` while one is under way, and if none is needed any more.
    next: Option<Duration>,
    fair_share: usize,
    /// Whether the last heartbeat asked for no shard, because the node had no handler.
    is_idle: bool,
}

/// What a node has gained with a heartbeat.
#[derive(Debug, Default)]
pub(super) struct GainedShards {
    /// It owns a shard that it did not own, or under another epoch, or claims again for one that it was to give up.
    owned: bool,
    /// The kinds of which a shard is delegated to it that was not.
    delegated: BTreeSet<String>,
}

impl GainedShards {
    /// Returns whether there may be rows of a kind to claim that the node has not seen.
    pub(super) fn concerns(&self, kind: &str) -> bool {
        self.owned || self.delegated.contains(kind)
    }
}

impl OwnedShards {
    pub(super) fn new(config: CoreConfig) -> OwnedShards {
        OwnedShards {
            config,
            shards: BTreeMap::new(),
            draining: BTreeSet::new(),
            delegated: BTreeMap::new(),
            fence: node_fence(config.node),
            announced: BTreeSet::new(),
            until: None,
            next: Some(Duration::ZERO),
            fair_share: usize::MAX,
            is_idle: false,
        }
    }

    /// Returns whether the node owns no shard.
    pub(super) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Returns whether the node has rows of a kind to claim.
    pub(super) fn serves(&self, kind: &str) -> bool {
        !self.shards.is_empty() || self.delegated.contains_key(kind)
    }

    /// Returns the shards whose rows of a kind the node claims, in ascending order.
    pub(super) fn serving(&self, kind: &str) -> Vec<ShardId> {
        let delegated = self.delegated.get(kind).into_iter().flatten();
        let own = self.shards.keys().filter(|shard| !self.draining.contains(shard));
        own.chain(delegated).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns what a claim of a row of this kind carries: the epoch of a shard that the node owns, or the fence of the node if the claim
    /// is delegated to it; `None` if the row is not the node's to claim. A claim that is made again may have been made by the store already: it is
    /// made also for a shard that is to be given up.
    pub(super) fn claim_epoch(&self, kind: &str, shard: ShardId, is_repeated: bool) -> Option<u64> {
        if self.draining.contains(&shard) && !is_repeated {
            return None;
        }
        let is_delegated = || self.delegated.get(kind).is_some_and(|shards| shards.contains(&shard));
        self.epoch(shard).or_else(|| is_delegated().then_some(self.fence))
    }

    /// Returns whether a row that this node has claimed may still be delivered. A row that was claimed with the fence belongs to the node
    /// whichever node owns the shard. A node whose lease is over delivers nothing.
    pub(super) fn may_deliver(&self, row: &TimerRow, steady: Duration) -> bool {
        let is_alive = self.until.is_none_or(|until| steady < until);
        is_alive && (self.epoch(row.shard) == Some(row.epoch) || row.epoch == self.fence)
    }

    pub(super) fn epoch(&self, shard: ShardId) -> Option<u64> {
        self.shards.get(&shard).copied()
    }

    pub(super) fn ids(&self) -> Vec<ShardId> {
        self.shards.keys().copied().collect()
    }

    pub(super) fn lose(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.draining.remove(&shard);
    }

    pub(super) fn next_wakeup(&self) -> Option<Duration> {
        super::earlier(self.next, self.until.filter(|_| self.has_any()))
    }

    /// Gives up all shards if the lease is over. Returns whether it was.
    pub(super) fn expire(&mut self, steady: Duration) -> bool {
        let is_over = self.until.is_some_and(|until| steady >= until) && self.has_any();
        if is_over {
            self.shards.clear();
            self.draining.clear();
            self.delegated.clear();
        }
        is_over
    }

    fn has_any(&self) -> bool {
        !(self.shards.is_empty() && self.delegated.is_empty())
    }

    /// Returns the heartbeat that is due. Shards beyond the fair share that have no delivery are given up with it; if they are too few, nothing is
    /// claimed for others any more, which are given up with a later heartbeat when their deliveries have ended.
    ///
    /// A node without handlers takes no shard of a shared store: timers of its shards would wait, although another node can deliver them.
    /// When its handlers change, it says so at once, or when the heartbeat that is under way has been answered.
    pub(super) fn wants_heartbeat(
        &mut self,
        steady: Duration,
        deliveries: &Deliveries,
        kinds: &BTreeSet<String>,
    ) -> Option<Heartbeat> {
        let next = self.next?;
        let is_shared = self.config.store.has_other_writers();
        let is_needed = !kinds.is_empty() || deliveries.len() > 0 || !is_shared;
        let is_news = is_shared && is_needed && *kinds != self.announced;
        if steady < next && !is_news && !(self.is_idle && is_needed) {
            return None;
        }
        self.announced.clone_from(kinds);
        self.is_idle = !is_needed;
        if self.is_idle {
            return Some(self.leave());
        }
        self.next = None;
        let busy = deliveries.shards();
        let surplus = self.shards.len().saturating_sub(self.fair_share);
        // Those that were chosen before come first.
        let (chosen, other): (Vec<ShardId>, Vec<ShardId>) =
            self.ids().into_iter().partition(|shard| self.draining.contains(shard));
        let (idle, working): (Vec<ShardId>, Vec<ShardId>) =
            chosen.into_iter().chain(other).partition(|shard| !busy.contains(shard));
        let release: Vec<ShardId> = idle.into_iter().take(surplus).collect();
        release.iter().for_each(|shard| self.lose(*shard));
        self.draining.extend(working.into_iter().take(surplus - release.len()));
        Some(Heartbeat { node: self.config.node, lease: self.config.node_lease, release, kinds: Some(kinds.clone()) })
    }

    /// Returns a heartbeat that gives up all shards and asks for none.
    pub(super) fn leave(&mut self) -> Heartbeat {
        self.next = None;
        self.shards.clear();
        self.draining.clear();
        self.delegated.clear();
        Heartbeat { node: self.config.node, lease: Duration::ZERO, release: Vec::new(), kinds: None }
    }

    /// Returns when the lease of another node ends first, or a little later, on the node's own clock. The store said the time before `steady`, so
    /// that the lease has ended by then. Each node adds another part of a hundredth of the lease, so that they do not come together.
    fn takeover_at(&self, steady: Duration, ownership: &Ownership) -> Option<Duration> {
        let others_until = ownership.others_until.filter(|_| !self.is_idle)?;
        let least = self.config.node_lease / 200;
        let own_part = least * u32::from(self.fence as u8) / 256;
        Some(steady + others_until.since(ownership.now) + least + own_part)
    }

    /// Takes the answer to a heartbeat, or the time of the next one if it has failed, and returns what the node has gained with it.
    pub(super) fn answered(
        &mut self,
        steady: Duration,
        sent: Duration,
        result: Result<Ownership, Duration>,
    ) -> GainedShards {
        let ownership = match result {
            Ok(ownership) => ownership,
            Err(again) => {
                self.next = Some(again);
                return GainedShards::default();
            }
        };
        let lease = self.config.node_lease;
        let is_shared = self.config.store.has_other_writers();
        self.until = is_shared.then(|| sent + lease - lease / 10);
        self.next = (is_shared || ownership.shards.is_empty()).then(|| sent + lease / 3);
        // A node that does not renew its lease is succeeded soon after the lease has ended. Others have renewed theirs long before.
        if let Some(takeover) = self.takeover_at(steady, &ownership) {
            self.next = super::earlier(self.next, Some(takeover));
        }
        self.fair_share = ownership.fair_share.max(1);
        let shards: BTreeMap<ShardId, u64> = ownership.shards.into_iter().collect();
        let owned = shards.iter().any(|(shard, epoch)| self.shards.get(shard) != Some(epoch));
        let is_new = |(kind, shards): &(&String, &BTreeSet<ShardId>)| {
            self.delegated.get(*kind).is_none_or(|known| !shards.is_subset(known))
        };
        let delegated = ownership.delegated.iter().filter(is_new).map(|(kind, _)| kind.clone()).collect();
        (self.shards, self.delegated) = (shards, ownership.delegated);
        let surplus = self.shards.len().saturating_sub(self.fair_share);
        let before = self.draining.len();
        self.draining.retain(|shard| self.shards.contains_key(shard));
        while self.draining.len() > surplus {
            self.draining.pop_last();
        }
        // What was armed in these shards meanwhile is looked for again.
        let owned = owned || self.draining.len() < before;
        // The answer may have been on its way for longer than the lease.
        if self.expire(steady) { GainedShards::default() } else { GainedShards { owned, delegated } }
    }
}
