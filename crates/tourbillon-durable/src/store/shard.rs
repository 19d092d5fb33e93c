//! Shards, and the nodes that own them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::spec::TimerSpec;
use crate::time::StoreTime;

/// The number of a shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// A process that delivers timers. A process that is started again is another node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct NodeId(pub Uuid);

/// What a node says regularly to keep its shards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// How long its shards are its own from now on; zero if it leaves.
    pub lease: Duration,
    /// Shards that it gives up, which another node may own at once.
    pub release: Vec<ShardId>,
    /// The kinds that it has handlers for. `None`: it does not say, and counts as a node that has all of them.
    pub kinds: Option<BTreeSet<String>>,
}

/// What a node owns, as the answer to a [`Heartbeat`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ownership {
    /// The shards, each with its epoch, in ascending order.
    pub shards: Vec<(ShardId, u64)>,
    /// The shards of other nodes that this node claims for, by kind: their owners are alive and have no handler for the kind.
    pub delegated: BTreeMap<String, BTreeSet<ShardId>>,
    /// How many shards a node should have, as many nodes as there are. A node with more releases some when it can.
    pub fair_share: usize,
    /// When the lease of another node ends first, unless that node renews it; `None` if there is no other node.
    pub others_until: Option<StoreTime>,
    /// The time of the store's clock.
    pub now: StoreTime,
    /// Whether the store is paused: its owners begin no delivery.
    pub is_paused: bool,
}

/// The owner of each shard and the end of its lease: the rules of leases, for stores that keep the table wherever they like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardTable {
    shards: Vec<ShardOwner>,
    nodes: BTreeMap<NodeId, LiveNode>,
}

/// A node that has sent a heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveNode {
    /// Until when it counts as alive.
    pub alive_until: StoreTime,
    /// The kinds that it has handlers for; `None` if it has not said.
    pub kinds: Option<BTreeSet<String>>,
}

/// Until when the nodes of a store count as alive, unless they send another heartbeat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeLeases {
    /// The time of the store's clock.
    pub now: StoreTime,
    /// The nodes, and the ends of their leases. A lease that is over may still be among them.
    pub alive_until: BTreeMap<NodeId, StoreTime>,
}

/// The owner of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShardOwner {
    /// The node.
    pub node: Option<NodeId>,
    /// Raised each time the owner changes.
    pub epoch: u64,
    /// The shard can be taken over from this time on.
    pub lease_until: StoreTime,
}

impl ShardTable {
    /// Returns a table of `count` shards without owners.
    #[must_use]
    pub fn new(count: u16) -> ShardTable {
        let nobody = ShardOwner { node: None, epoch: 0, lease_until: StoreTime::ZERO };
        ShardTable { shards: vec![nobody; usize::from(count)], nodes: BTreeMap::new() }
    }

    /// Returns the table with these rows, for a store that has read them.
    #[must_use]
    pub fn from_rows(shards: Vec<ShardOwner>, nodes: BTreeMap<NodeId, LiveNode>) -> ShardTable {
        ShardTable { shards, nodes }
    }

    /// Returns the owners, in the order of the shards.
    #[must_use]
    pub fn owners(&self) -> &[ShardOwner] {
        &self.shards
    }

    /// Returns the nodes that were alive at the last heartbeat.
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<NodeId, LiveNode> {
        &self.nodes
    }

    /// Returns the epoch of a shard; zero if there is no such shard.
    #[must_use]
    pub fn epoch(&self, shard: ShardId) -> u64 {
        self.shards.get(usize::from(shard.0)).map_or(0, |owner| owner.epoch)
    }

    /// Renews, releases and takes over shards for a node, at the time `now` of the store's clock.
    ///
    /// A lease that has run out is not renewed but taken over, with a new epoch, even by the same node: in between another node may have
    /// read the table, and the node itself has stopped delivering.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat, now: StoreTime) -> Ownership {
        let node = heartbeat.node;
        let until = now.saturating_add(heartbeat.lease);
        let leaves = heartbeat.lease.is_zero();
        self.nodes.retain(|_, node| node.alive_until > now);
        if leaves {
            self.nodes.remove(&node);
        } else {
            self.nodes.insert(node, LiveNode { alive_until: until, kinds: heartbeat.kinds.clone() });
        }
        let fair_share = self.shards.len().div_ceil(self.nodes.len().max(1));
        for (index, shard) in self.shards.iter_mut().enumerate() {
            let is_mine = shard.node == Some(node) && shard.lease_until > now;
            if is_mine && (leaves || heartbeat.release.contains(&ShardId(index as u16))) {
                *shard = ShardOwner { node: None, lease_until: now, ..*shard };
            } else if is_mine {
                shard.lease_until = until;
            }
        }
        if !leaves {
            self.take_over(node, fair_share, &heartbeat.release, now, until);
        }
        let (shards, delegated) = (self.owned_by(node, now), self.delegated_to(node, now));
        let others = self.nodes.iter().filter(|(id, _)| **id != node);
        let others_until = others.map(|(_, other)| other.alive_until).min();
        Ownership { shards, delegated, fair_share, others_until, now, is_paused: false }
    }

    /// Returns for each kind of a node the shards that it claims for, because their owner is alive and has no handler for the kind (D53).
    ///
    /// The nodes that have a handler share these shards. Nodes that have seen the table at different times may disagree about the shares: then two of them
    /// claim the same row, and the store gives it to one. So the shares save work, and no promise depends on them.
    fn delegated_to(&self, node: NodeId, now: StoreTime) -> BTreeMap<String, BTreeSet<ShardId>> {
        let kinds = self.nodes.get(&node).and_then(|node| node.kinds.as_ref()).into_iter().flatten();
        let shards_of_kind = |kind: &String| {
            let able: Vec<NodeId> =
                self.nodes.iter().filter(|(_, node)| node.announces(kind)).map(|(id, _)| *id).collect();
            let owner = |shard: &ShardOwner| shard.node.filter(|_| shard.lease_until > now);
            let lacks = |shard: &ShardOwner| {
                owner(shard).and_then(|id| self.nodes.get(&id)).is_some_and(|node| node.lacks(kind))
            };
            let shards = self.shards.iter().enumerate().filter(|(_, shard)| lacks(shard)).map(|(index, _)| index);
            let own = shards.filter(|index| able.get(index % able.len().max(1)) == Some(&node));
            own.map(|index| ShardId(index as u16)).collect::<BTreeSet<ShardId>>()
        };
        let delegated = kinds.map(|kind| (kind.clone(), shards_of_kind(kind)));
        delegated.filter(|(_, shards)| !shards.is_empty()).collect()
    }

    /// Gives the node shards that nobody owns, up to its fair share.
    fn take_over(&mut self, node: NodeId, fair_share: usize, released: &[ShardId], now: StoreTime, until: StoreTime) {
        let mut room = fair_share.saturating_sub(self.owned_by(node, now).len());
        for (index, shard) in self.shards.iter_mut().enumerate() {
            if room == 0 {
                break;
            }
            let is_free = shard.node.is_none() || shard.lease_until <= now;
            if is_free && !released.contains(&ShardId(index as u16)) {
                *shard = ShardOwner { node: Some(node), epoch: shard.epoch + 1, lease_until: until };
                room -= 1;
            }
        }
    }

    fn owned_by(&self, node: NodeId, now: StoreTime) -> Vec<(ShardId, u64)> {
        let owned = |shard: &ShardOwner| shard.node == Some(node) && shard.lease_until > now;
        let shards = self.shards.iter().enumerate().filter(|(_, shard)| owned(shard));
        shards.map(|(index, shard)| (ShardId(index as u16), shard.epoch)).collect()
    }
}

impl NodeLeases {
    /// Returns the nodes whose lease lasts and is still that of an earlier answer, and the longest time until one of these leases is over.
    #[must_use]
    pub fn not_renewed_since(&self, before: &NodeLeases) -> (usize, Duration) {
        let is_old =
            |(node, until): &(&NodeId, &StoreTime)| **until > self.now && before.alive_until.get(node) == Some(until);
        let old = self.alive_until.iter().filter(is_old);
        let left = old.clone().map(|(_, until)| until.since(self.now)).max();
        (old.count(), left.unwrap_or_default())
    }
}

impl LiveNode {
    /// Returns whether the node has said that it has a handler for a kind.
    fn announces(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_some_and(|kinds| kinds.contains(kind))
    }

    /// Returns whether the node has said which handlers it has, and none for this kind.
    fn lacks(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_some_and(|kinds| !kinds.contains(kind))
    }
}

/// Fences of pulls are from here on: no epoch is ever as high.
const FIRST_PULL_FENCE: u64 = 1 << 62;

/// Returns what stands in the place of an epoch in a claim by a process that does not own the shard, made of random bits: a worker that pulls
/// rows, with bits for each row, or a node that has a handler that the owner of the shard lacks, with bits of its own. The fence is
/// known to nobody else.
#[must_use]
pub fn pull_fence(random: u64) -> u64 {
    FIRST_PULL_FENCE | (random >> 2)
}

/// Returns the fence of a node, for the claims that are delegated to it: a hash (FNV-1a) of its id, which no other node has.
#[must_use]
pub(crate) fn node_fence(node: NodeId) -> u64 {
    let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    pull_fence(node.0.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash))
}

/// Returns whether an epoch is the fence of a pull.
#[must_use]
pub fn is_pull_fence(epoch: u64) -> bool {
    epoch >= FIRST_PULL_FENCE
}

/// Returns the shard of a timer: by namespace and name, so that all timers of a name are in one shard; by namespace and key without a
/// name; `id` decides without either. The hash is FNV-1a, which an SQL function can compute too.
#[must_use]
pub fn shard_of(spec: &TimerSpec, id: crate::TimerId, shards: u16) -> ShardId {
    let id = id.as_u128().to_be_bytes();
    let name = spec.name.as_ref().or(spec.key.as_ref()).map_or(&id[..], |name| name.as_bytes());
    let parts = [spec.namespace.as_bytes(), &[0], name];
    let mut hash: u32 = 0x811c_9dc5;
    for byte in parts.into_iter().flatten() {
        hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    }
    ShardId((hash % u32::from(shards.max(1))) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn node(number: u128) -> NodeId {
        NodeId(Uuid::from_u128(number))
    }

    fn beat(table: &mut ShardTable, number: u128, now: u64) -> Ownership {
        beat_with(table, number, now, None)
    }

    fn beat_with(table: &mut ShardTable, number: u128, now: u64, kinds: Option<&[&str]>) -> Ownership {
        let kinds = kinds.map(|kinds| kinds.iter().map(|kind| (*kind).to_owned()).collect());
        let heartbeat = Heartbeat { node: node(number), lease: LEASE, release: Vec::new(), kinds };
        table.heartbeat(&heartbeat, StoreTime::from_micros(now * 1_000_000))
    }

    #[test]
    fn q7_d53_nodes_have_different_fences() {
        let ids = (0..1_000_u128).flat_map(|number| [number, number << 64, number << 100]);
        let ids: BTreeSet<u128> = ids.collect();
        let fences: BTreeSet<u64> = ids.iter().map(|id| node_fence(node(*id))).collect();
        assert_eq!(fences.len(), ids.len());
        assert!(fences.iter().all(|fence| is_pull_fence(*fence)));
    }

    #[test]
    fn d53_nodes_with_a_handler_share_the_shards_whose_owner_has_none() {
        let mut table = ShardTable::new(8);
        assert_eq!(beat_with(&mut table, 1, 100, Some(&["mail"])).delegated, BTreeMap::new());
        let second = beat_with(&mut table, 2, 101, Some(&["mail", "tick"]));
        assert_eq!(second.shards, [], "the first node owns all shards");
        assert_eq!(second.delegated.keys().collect::<Vec<_>>(), ["tick"], "and delivers mail itself");
        assert_eq!(second.delegated["tick"].len(), 8, "nobody else has this handler");
        let third = beat_with(&mut table, 3, 102, Some(&["tick"])).delegated;
        let second = beat_with(&mut table, 2, 103, Some(&["mail", "tick"])).delegated;
        assert!(second["tick"].is_disjoint(&third["tick"]));
        assert_eq!(second["tick"].len() + third["tick"].len(), 8);
        // The owner gets the handler, and the others stop; an owner that does not say which handlers it has keeps its shards for itself.
        beat_with(&mut table, 1, 104, Some(&["mail", "tick"]));
        assert_eq!(beat_with(&mut table, 3, 105, Some(&["tick"])).delegated, BTreeMap::new());
        beat(&mut table, 1, 106);
        assert_eq!(beat_with(&mut table, 3, 107, Some(&["tick"])).delegated, BTreeMap::new());
        // Shards of a node that is dead are taken over, and not claimed for.
        beat_with(&mut table, 1, 108, Some(&["mail"]));
        let after = beat_with(&mut table, 3, 118, Some(&["tick"]));
        assert_eq!((after.shards.len(), after.delegated.len()), (8, 0));
    }

    #[test]
    fn o9_a_shard_whose_lease_has_run_out_is_taken_over_with_a_higher_epoch() {
        let mut table = ShardTable::new(4);
        assert_eq!(beat(&mut table, 1, 100).shards.len(), 4);
        assert_eq!(beat(&mut table, 2, 109).shards, [], "the first node has all leases");
        let taken = beat(&mut table, 2, 110).shards;
        assert_eq!(taken.len(), 4, "the first node is dead");
        assert!(taken.iter().all(|(_, epoch)| *epoch == 2));
        assert_eq!(beat(&mut table, 1, 111).shards, [], "a node that comes back owns nothing");
    }

    #[test]
    fn o9_a_node_that_is_late_with_its_own_heartbeat_gets_a_new_epoch() {
        let mut table = ShardTable::new(1);
        assert_eq!(beat(&mut table, 1, 100).shards, [(ShardId(0), 1)]);
        assert_eq!(beat(&mut table, 1, 109).shards, [(ShardId(0), 1)]);
        assert_eq!(beat(&mut table, 1, 119).shards, [(ShardId(0), 2)]);
    }

    #[test]
    fn o9_nodes_share_the_shards_as_they_come_and_go() {
        let mut table = ShardTable::new(8);
        assert_eq!(beat(&mut table, 1, 100).shards.len(), 8);
        let second = beat(&mut table, 2, 101);
        assert_eq!((second.shards.len(), second.fair_share), (0, 4));
        let release = (0..4).map(ShardId).collect();
        let now = StoreTime::from_micros(102_000_000);
        let first = table.heartbeat(&Heartbeat { node: node(1), lease: LEASE, release, kinds: None }, now);
        assert_eq!(first.shards.len(), 4);
        assert_eq!(beat(&mut table, 2, 103).shards.len(), 4);
        let leaving = Heartbeat { node: node(2), lease: Duration::ZERO, release: Vec::new(), kinds: None };
        assert_eq!(table.heartbeat(&leaving, StoreTime::from_micros(104_000_000)).shards, []);
        assert_eq!(beat(&mut table, 1, 105).shards.len(), 8);
    }
}
