//! A simulated node: a core, its batches, and its clocks.

use std::collections::BTreeSet;
use std::time::Duration;

use tourbillon_durable::batch::Batcher;
use tourbillon_durable::core::{Core, CoreConfig, Now, WriteTag};
use tourbillon_durable::store::{CreateOp, FinishOp, NodeId, StoreTraits};
use tourbillon_durable::{StoreTime, TimerId};

/// What the answer to an operation is for.
#[derive(Clone, Debug)]
pub(crate) enum Tag {
    Core(WriteTag),
    /// A client, which asked for something, perhaps to create a timer of this kind, perhaps in a group.
    Client(String, Option<CreateOp>, Option<GroupPlace>),
    /// A worker, for which a row is claimed since that time.
    Pull(u64),
    /// A worker, which ends a delivery.
    Worker(FinishOp),
    /// A worker, which makes a lease longer.
    Extension,
}

/// The place of an operation in a group, which is written in one transaction and in its order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupPlace {
    pub(crate) group: u128,
    pub(crate) index: usize,
    pub(crate) size: usize,
}

/// Checks that a batch has all of a group, in its order and with nothing between, or nothing of it.
pub(crate) fn check_groups(tags: &[Tag]) {
    let mut places = tags.iter().map(|tag| if let Tag::Client(_, _, place) = tag { *place } else { None });
    while let Some(place) = places.next() {
        let Some(GroupPlace { group, index, size }) = place else { continue };
        let rest = (1..size).map(|index| Some(GroupPlace { group, index, size }));
        assert!(
            index == 0 && rest.eq(places.by_ref().take(size - 1)),
            "u1: a group was not written as it came: {tags:?}"
        );
    }
}

/// A process. One that is started again is another node.
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) core: Core,
    pub(crate) batcher: Batcher<Tag>,
    /// How far the node's idea of the store's clock is off, in microseconds.
    pub(crate) skew: i64,
    /// By how many thousandths its steady clock is too fast.
    rate: i64,
    /// Its requests do not reach the store before this time.
    pub(crate) cut_off_until: u64,
    /// It does nothing before this time.
    pub(crate) paused_until: u64,
    /// Whether it is being stopped.
    pub(crate) is_draining: bool,
    /// The kinds that it has handlers for.
    pub(crate) kinds: BTreeSet<&'static str>,
    /// Its next tick that is under way.
    pub(crate) tick_at: Option<u64>,
}

/// A rule that nodes break.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeFlaw {
    /// Their clocks take twice as long as the leases have room for.
    HasSlowClock,
    /// Their leases begin a whole lease after the answer to the heartbeat arrives.
    IgnoresLeaseEnd,
    /// Their looks for rows that others have armed take three seconds.
    LooksSlowly,
    /// They are not told of rows that their own clients have armed.
    DropsNotices,
}

/// By how many thousandths the steady clock of a node is too fast or too slow at most. A node leaves room for 100.
pub(crate) const FASTEST: i64 = 50;

pub(crate) const ROWS_IN_MEMORY: usize = 40;
pub(crate) const PAGE: usize = 8;
pub(crate) const NODE_LEASE: Duration = Duration::from_secs(5);
pub(crate) const DELIVERY_LEASE: Duration = Duration::from_secs(3);

impl Node {
    pub(crate) fn new(number: u64, store: StoreTraits, rate: i64) -> Node {
        let config = CoreConfig {
            node: NodeId(TimerId::from_u128(u128::from(number)).as_uuid()),
            store,
            delivery_lease: DELIVERY_LEASE,
            node_lease: NODE_LEASE,
            window: Duration::from_secs(2),
            rows_in_memory: ROWS_IN_MEMORY,
            page: PAGE,
            retry: Duration::from_millis(100),
        };
        Node {
            number,
            core: Core::new(config),
            batcher: Batcher::new(store.parallel_writes, 6),
            skew: 0,
            rate,
            cut_off_until: 0,
            paused_until: 0,
            is_draining: false,
            kinds: BTreeSet::new(),
            tick_at: None,
        }
    }

    /// Returns the clocks of the node when the world's time is `time` and the store's clock shows `store`.
    pub(crate) fn now(&self, time: u64, store: StoreTime) -> Now {
        let store = StoreTime::from_micros(store.as_micros().saturating_add_signed(self.skew));
        Now { store, steady: self.steady(time) }
    }

    /// Returns what the steady clock of the node shows.
    pub(crate) fn steady(&self, time: u64) -> Duration {
        Duration::from_micros(time * (1_000 + self.rate).unsigned_abs() / 1_000)
    }

    /// Returns the first time of the world at which the steady clock of the node shows this or more.
    pub(crate) fn time_of(&self, steady: Duration) -> u64 {
        (steady.as_micros() as u64 * 1_000).div_ceil((1_000 + self.rate).unsigned_abs())
    }
}
