//! The decisions of a node: what to load, claim, deliver, extend and give back, and when.
//!
//! The core is a state machine. It reads no clock, calls no store and runs no handler: the node that has it passes in the time and what has
//! happened, as [`Input`]s, and does what the core says, as [`Action`]s. So the same core runs on threads, on Tokio and in a simulation.
//!
//! ```text
//!            Registered, Noticed, Hinted, Answers, HandlerDone, Tick
//!     node -----------------------------------------------------------> Core
//!          <----------------------------------------------------------- lanes (one a kind): window, wheel, ready rows
//!            Write, Scan, Orphans, Heartbeat, Deliver, Abandon          deliveries; owned shards and their epochs
//! ```
//!
//! # Why no timer is missed (D45)
//! For each kind with a handler, a *lane* keeps the rows that are due soon: its *window*, all rows of the owned shards up to some time. Let a
//! row be armed with a time inside of the window. Its transaction was committed
//! 1. before the scan that made the window so large was sent: then the scan saw it, because a store's reads see every commit that was
//!    replied to, and of a commit that was not replied to yet the notice is still to come, as in case 2;
//! 2. after it: then the notice of that commit reaches the core while the window is as large as that or larger, and the core takes every
//!    notice whose time is inside of the window, or inside of what a running scan is about to add to it.
//!
//! A row behind the window is found by the scan that makes the window longer. When that is due follows from the time of the first row
//! behind it, as the last scan found it or as a notice said since that scan was sent.
//!
//! A store with other writers gives no notices of their commits. There the lane scans its window again at a fixed pace (D55); a hint only makes
//! that sooner. A look that was hinted at begins after the hint, and not sooner after the last one than that one took.
//!
//! # Why a paused store delivers nothing
//! A core counts its store as paused until the first answer to a heartbeat says otherwise, and claims nothing before that. When the node itself hears of a
//! pause, answers to heartbeats that were sent before do not end it. A claim that was under way at that moment is given back undelivered.
//!
//! # Rows of a kind that the owner of their shard has no handler for (D53)
//! Such rows are delegated to nodes that have one, with the answers to their heartbeats. A node claims a delegated row with a fence of its own in the
//! place of the epoch, as a worker pulls a row. The claim is conditional on the version of the row, so of the owner, which may have
//! registered the handler meanwhile, and of all nodes that count the row as delegated to them one gets it (Q2). The row then belongs to that node until
//! the lease of the delivery is over, whatever happens to the shard; after that any of them claims it again with a higher attempt (Q3), and what
//! the first node says is refused, because attempt and fence are not its own any more (Q7).
//!
//! # Why a stale entry does no harm
//! An entry in the wheel is only a reason to ask. A claim succeeds only if the row still has the version of the entry, is due by the store's clock and
//! belongs to the epoch of this node, or is delegated to it.

mod delivery;
mod failing;
mod lane;
mod ownership;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use self::delivery::Deliveries;
pub use self::failing::{FailingRequest, StoreRequest};
use self::failing::{FailingRequests, FailureReport, RequestKey};
use self::lane::Lane;
use self::ownership::OwnedShards;
use crate::store::{
    ClaimAnswer, ClaimOp, DueEntry, DuePage, DueQuery, Heartbeat, NodeId, Ownership, RowId, ShardId, StaleDelivery,
    StoreError, StoreTraits, TimerRow, Verdict, WriteAnswer, WriteOp,
};
use crate::time::StoreTime;

/// A row whose claims are answered after their lease is claimed again after ever longer pauses, doubled so often.
const LATE_DOUBLINGS: u32 = 8;

/// What a core is told of its node and its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CoreConfig {
    /// The node.
    pub node: NodeId,
    /// The traits of its store.
    pub store: StoreTraits,
    /// How long a delivery may take before it is extended or delivered again.
    pub delivery_lease: Duration,
    /// How long the node owns its shards after a heartbeat.
    pub node_lease: Duration,
    /// How far a window reaches beyond now.
    pub window: Duration,
    /// The most rows of a lane that are in memory (Q5).
    pub rows_in_memory: usize,
    /// The most rows of one scan.
    pub page: usize,
    /// How long to wait before a request that failed is made again; longer each time that it fails again.
    pub retry: Duration,
}

/// The two clocks of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Now {
    /// The store's clock, as far as the node knows it. It may be set.
    pub store: StoreTime,
    /// The node's own clock, which never goes back, since any origin.
    pub steady: Duration,
}

/// The number of a delivery, within one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeliveryId(u64);

/// What a core is told.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "the answer to a write is the common input, and is moved once")]
pub enum Input {
    /// A handler for a kind, with the most deliveries at the same time, or none any more.
    Registered {
        /// The kind.
        kind: String,
        /// The most deliveries at the same time; zero if there is no handler any more.
        limit: usize,
    },
    /// A row was armed by an operation that the store has committed.
    Noticed {
        /// Its kind.
        kind: String,
        /// The row.
        entry: DueEntry,
    },
    /// The store was paused, or its pause has ended.
    Paused(bool),
    /// Another node says that it armed something that is due soon.
    Hinted,
    /// A row of a kind was armed, or may have been, and it is not known which.
    HintedKind(String),
    /// The answer to [`Action::Write`].
    Written(WriteTag, Result<WriteAnswer, StoreError>),
    /// The answer to [`Action::Scan`].
    Scanned {
        /// The kind of the lane.
        kind: String,
        /// The number of the scan.
        scan: u64,
        /// What the store replied.
        result: Result<DuePage, StoreError>,
    },
    /// The answer to [`Action::Orphans`].
    OrphansFound {
        /// The kind of the lane.
        kind: String,
        /// What the store replied.
        result: Result<Vec<DueEntry>, StoreError>,
    },
    /// A heartbeat whose answer does not count otherwise has said whether the store is paused.
    PauseHeard {
        /// When the heartbeat was sent, on the node's own clock.
        sent: Duration,
        /// Whether the store is paused.
        is_paused: bool,
    },
    /// The answer to [`Action::Heartbeat`].
    Owned {
        /// When the heartbeat was sent, on the node's own clock.
        sent: Duration,
        /// What the store replied.
        result: Result<Ownership, StoreError>,
    },
    /// A handler has ended.
    HandlerDone(DeliveryId, Verdict),
    /// The node ends: nothing is claimed any more, and the shards are given up when the last delivery has ended.
    Drain,
    /// Nothing but that time has passed.
    Tick,
}

/// What a node has to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Write this operation, in a batch with others.
    Write(WriteTag, WriteOp),
    /// Ask the store for the rows of a window.
    Scan(u64, DueQuery),
    /// Ask the store for rows whose owner is gone.
    Orphans {
        /// The kind.
        kind: String,
        /// The shards, in ascending order.
        shards: Vec<ShardId>,
        /// The most rows.
        limit: usize,
    },
    /// Send a heartbeat.
    Heartbeat(Heartbeat),
    /// Call the handler of the row's kind.
    Deliver(DeliveryId, TimerRow),
    /// Tell the handler that its delivery is another node's now: its result does not count.
    Abandon(DeliveryId),
    /// The store has failed for good.
    StoreFailed(StoreError),
    /// A request has failed for a minute, or for twice as long as when that was said last. It goes on being made.
    StoreFails(FailingRequest),
    /// No request has failed for a minute any more.
    StoreRecovered,
    /// The node has given up its shards after [`Input::Drain`].
    Drained,
}

/// What the answer to a write is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WriteTag {
    /// A claim for a lane.
    Claim(ClaimTag),
    /// The end of a delivery.
    Finish(DeliveryId),
    /// A longer lease of a delivery.
    Extend(DeliveryId),
}

/// Which claim was made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClaimTag {
    kind: String,
    entry: DueEntry,
    sent: SentClaim,
    /// Whether an answer to this claim was lost before.
    is_repeated: bool,
}

/// A claim as it was sent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct SentClaim {
    token: u64,
    at: Duration,
}

impl WriteTag {
    fn key(&self) -> RequestKey {
        match self {
            WriteTag::Claim(tag) => RequestKey::Claim(tag.entry.id),
            WriteTag::Finish(id) => RequestKey::Finish(*id),
            WriteTag::Extend(id) => RequestKey::Extend(*id),
        }
    }
}

impl ClaimTag {
    /// Returns the kind of the row.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the row.
    #[must_use]
    pub fn row_id(&self) -> RowId {
        self.entry.id
    }
}

/// When a core wants its next [`Input::Tick`], on either clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wakeup {
    /// By the store's clock.
    pub store: Option<StoreTime>,
    /// By the node's own clock.
    pub steady: Option<Duration>,
}

/// The state machine of a node. The [module](self) describes it.
#[derive(Debug)]
pub struct Core {
    config: CoreConfig,
    /// A lane stays, closed, when its handler is removed.
    lanes: BTreeMap<String, Lane>,
    /// The keys of the open lanes.
    kinds: BTreeSet<String>,
    owned: OwnedShards,
    deliveries: Deliveries,
    failing: FailingRequests,
    next_number: u64,
    phase: Phase,
    /// Whether the store is paused. It counts as paused until the first answer to a heartbeat says otherwise.
    is_paused: bool,
    /// Whether the node has heard if the store is paused.
    knows_pause: bool,
    /// When the node itself heard of a pause or of its end: older answers to heartbeats do not count.
    paused_at: Option<Duration>,
    actions: Vec<Action>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Running,
    /// Nothing is claimed any more; deliveries end.
    Draining,
    /// The last heartbeat was sent.
    Leaving,
    Ended,
}

impl Core {
    /// Returns the core of a node that owns nothing yet.
    #[must_use]
    pub fn new(config: CoreConfig) -> Core {
        Core {
            config,
            lanes: BTreeMap::new(),
            kinds: BTreeSet::new(),
            owned: OwnedShards::new(config),
            deliveries: Deliveries::default(),
            failing: FailingRequests::new(config),
            next_number: 1,
            phase: Phase::Running,
            is_paused: true,
            knows_pause: false,
            paused_at: None,
            actions: Vec::new(),
        }
    }

    /// Takes an input at a time, and returns what the node has to do.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Action> {
        self.take(now, input);
        self.proceed(now);
        std::mem::take(&mut self.actions)
    }

    /// Returns when the core wants to be called next if nothing happens.
    #[must_use]
    pub fn next_wakeup(&self) -> Wakeup {
        let mut wakeup = Wakeup { store: None, steady: self.owned.next_wakeup() };
        let mut steady = |at: Option<Duration>| wakeup.steady = earlier(wakeup.steady, at);
        steady(self.deliveries.next_wakeup());
        if self.may_claim() {
            for (_, lane) in self.lanes.iter().filter(|(kind, lane)| lane.is_open() && self.owned.serves(kind)) {
                let of_lane = lane.next_wakeup();
                wakeup.steady = earlier(wakeup.steady, of_lane.steady);
                wakeup.store = earlier(wakeup.store, of_lane.store);
            }
        }
        wakeup
    }

    /// Returns how many rows are in memory, in all lanes.
    #[must_use]
    pub fn rows_in_memory(&self) -> usize {
        self.lanes.values().map(Lane::len).sum()
    }

    /// Returns how many deliveries have begun and not ended.
    #[must_use]
    pub fn deliveries(&self) -> usize {
        self.deliveries.len()
    }

    /// Returns whether the node owns any shard.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        !self.owned.is_empty()
    }

    /// Returns the request that the store has failed for longest, as it was within the last second; `None` if none fails.
    #[must_use]
    pub fn failing(&self) -> Option<&FailingRequest> {
        self.failing.longest()
    }

    /// Returns whether the store is paused, as far as the node knows.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Returns whether the node has heard if the store is paused.
    #[must_use]
    pub fn knows_pause(&self) -> bool {
        self.knows_pause
    }

    /// Returns whether a delivery has begun and not ended.
    #[must_use]
    pub fn has_delivery(&self, id: DeliveryId) -> bool {
        self.deliveries.kind(id).is_some()
    }

    fn may_claim(&self) -> bool {
        self.phase == Phase::Running && !self.is_paused
    }

    fn take(&mut self, now: Now, input: Input) {
        match input {
            Input::Paused(is_paused) => {
                self.paused_at = Some(now.steady);
                self.set_paused(is_paused);
            }
            Input::Registered { kind, limit: 0 } => {
                self.kinds.remove(&kind);
                if let Some(lane) = self.lanes.get_mut(&kind) {
                    lane.unanswered().for_each(|id| self.failing.forget(&RequestKey::Claim(id)));
                    lane.close();
                }
                self.failing.keep_reads(|other| *other != kind);
            }
            Input::Registered { kind, limit } => {
                self.kinds.insert(kind.clone());
                let lane = self.lanes.entry(kind).or_insert_with(|| Lane::new(self.config));
                lane.set_limit(limit);
            }
            Input::Noticed { kind, entry } => self.notice(&kind, entry),
            Input::PauseHeard { sent, is_paused } => self.pause_heard(sent, is_paused),
            Input::Hinted => self.lanes.values_mut().for_each(Lane::scan_again),
            Input::HintedKind(kind) => self.lanes.get_mut(&kind).into_iter().for_each(Lane::scan_again),
            Input::Written(tag, result) => self.written(now, tag, result),
            Input::Scanned { kind, scan, result } => {
                if self.kinds.contains(&kind) {
                    let again = self.ended(now, RequestKey::Scan(kind.clone()), result.as_ref().err());
                    let lane = self.lanes.get_mut(&kind);
                    lane.into_iter().for_each(|lane| lane.scanned(now, scan, result.as_ref().map_err(|_| again)));
                }
            }
            Input::OrphansFound { kind, result } => {
                if self.kinds.contains(&kind) {
                    let again = self.ended(now, RequestKey::Orphans(kind.clone()), result.as_ref().err());
                    let lane = self.lanes.get_mut(&kind);
                    lane.into_iter().for_each(|lane| lane.orphans_found(now, result.as_ref().map_err(|_| again)));
                }
            }
            Input::Owned { sent, result } => self.owned_changed(now, sent, result),
            Input::HandlerDone(id, verdict) => self.handler_done(id, verdict),
            Input::Drain => {
                if self.phase == Phase::Running {
                    self.phase = Phase::Draining;
                    // Nothing is claimed any more, so these claims would never be answered, and the node would never leave.
                    self.lanes.values_mut().for_each(Lane::end_unanswered);
                }
            }
            Input::Tick => {}
        }
    }

    /// Does what the time and the state call for.
    fn proceed(&mut self, now: Now) {
        if self.owned.expire(now.steady) {
            self.abandon_all();
        }
        for (tag, op) in self.deliveries.due_again(now.steady, self.config.delivery_lease) {
            self.actions.push(Action::Write(tag, op));
        }
        if self.may_claim() {
            self.scan(now);
            self.claim(now);
        } else {
            self.failing.forget_lanes();
        }
        self.beat(now);
        match self.failing.report(now.steady) {
            Some(FailureReport::Failing(failing)) => self.actions.push(Action::StoreFails(failing)),
            Some(FailureReport::Recovered) => self.actions.push(Action::StoreRecovered),
            None => {}
        }
    }

    fn scan(&mut self, now: Now) {
        for (kind, lane) in self.lanes.iter_mut().filter(|(kind, lane)| lane.is_open() && self.owned.serves(kind)) {
            if let Some(shards) = lane.wants_orphans(now, kind, &self.owned) {
                let limit = self.config.page;
                self.actions.push(Action::Orphans { kind: kind.clone(), shards, limit });
            }
            if let Some((scan, query)) = lane.wants_scan(now, kind, &self.owned) {
                self.actions.push(Action::Scan(scan, query));
            }
        }
    }

    fn claim(&mut self, now: Now) {
        for (kind, lane) in &mut self.lanes {
            while let Some((entry, sent)) = lane.next_claim(now) {
                let Some(epoch) = self.owned.claim_epoch(kind, entry.shard, sent.is_some()) else {
                    lane.claim_ended(&entry);
                    self.failing.forget(&RequestKey::Claim(entry.id));
                    continue;
                };
                // A claim that is made again has its old token, so that the store recognises it.
                let is_repeated = sent.is_some();
                let sent = sent.unwrap_or_else(|| SentClaim { token: next(&mut self.next_number), at: now.steady });
                let lease = self.config.delivery_lease;
                let op = ClaimOp { id: entry.id, version: entry.version, epoch, token: sent.token, lease };
                let tag = ClaimTag { kind: kind.clone(), entry, sent, is_repeated };
                self.actions.push(Action::Write(WriteTag::Claim(tag), WriteOp::Claim(op)));
            }
        }
    }

    fn beat(&mut self, now: Now) {
        match self.phase {
            Phase::Running | Phase::Draining => {
                if let Some(heartbeat) = self.owned.wants_heartbeat(now.steady, &self.deliveries, &self.kinds) {
                    self.actions.push(Action::Heartbeat(heartbeat));
                }
            }
            Phase::Leaving | Phase::Ended => {}
        }
        if self.phase == Phase::Draining && self.deliveries.len() == 0 && self.lanes.values().all(Lane::has_no_claims) {
            self.phase = Phase::Leaving;
            self.actions.push(Action::Heartbeat(self.owned.leave()));
        }
    }

    fn notice(&mut self, kind: &str, entry: DueEntry) {
        if let Some(lane) = self.lanes.get_mut(kind) {
            lane.notice(entry);
        }
    }

    fn written(&mut self, now: Now, tag: WriteTag, result: Result<WriteAnswer, StoreError>) {
        if result.is_ok() {
            self.failing.forget(&tag.key());
        }
        match (tag, result) {
            (WriteTag::Claim(tag), Ok(WriteAnswer::Claim(answer))) => self.claim_answered(now, &tag, answer),
            (WriteTag::Finish(id), Ok(WriteAnswer::Finish(Ok(again)))) => {
                if let Some((kind, entry)) = self.deliveries.remove(id).zip(again) {
                    self.notice(&kind, entry);
                }
            }
            // Somebody else has ended the delivery; or the first answer to this finish was lost, and with it the row that it armed.
            (WriteTag::Finish(id), Ok(_)) => {
                let kind = self.deliveries.remove(id);
                let lane = kind.and_then(|kind| self.lanes.get_mut(&kind));
                lane.into_iter().for_each(Lane::scan_again);
            }
            (WriteTag::Extend(id), Ok(WriteAnswer::Extend(Err(StaleDelivery)))) => self.abandon(id),
            (WriteTag::Extend(id), Ok(_)) => self.deliveries.extended(id, now.steady, self.config.delivery_lease),
            (WriteTag::Claim(tag), Ok(_)) => {
                if let Some(lane) = self.lanes.get_mut(&tag.kind) {
                    lane.claim_ended(&tag.entry);
                }
            }
            (tag, Err(error)) => self.write_failed(now, tag, error),
        }
    }

    fn claim_answered(&mut self, now: Now, tag: &ClaimTag, answer: ClaimAnswer) {
        let may_claim = self.may_claim();
        let Some(lane) = self.lanes.get_mut(&tag.kind) else { return };
        // If the handler was taken away in the meantime, another node may have one.
        let has_handler = lane.is_open();
        match answer {
            ClaimAnswer::Claimed { row, next: armed } => {
                lane.claimed(&tag.entry);
                armed.into_iter().for_each(|entry| lane.notice(entry));
                // After the lease another may have claimed the row, and a client cancelled it (Q2). Less a tenth, for clocks that run at
                // different speeds.
                let lease = self.config.delivery_lease;
                let has_lease = now.steady < tag.sent.at + lease - lease / 10;
                if !has_lease {
                    // A store that takes longer than the lease is not asked for the same row without a pause.
                    let after = self.config.retry.saturating_mul(1 << row.returned.min(LATE_DOUBLINGS));
                    return self.give_back(now, row, after);
                }
                if !(may_claim && has_handler && self.owned.may_deliver(&row, now.steady)) {
                    return self.give_back(now, row, Duration::ZERO);
                }
                let id = DeliveryId(next(&mut self.next_number));
                // The store has counted the lease from some time after the claim was sent.
                self.deliveries.begin(id, &row, tag.sent.at, self.config.delivery_lease);
                self.actions.push(Action::Deliver(id, row));
            }
            ClaimAnswer::GivenUp { next: armed, .. } => {
                lane.claim_ended(&tag.entry);
                armed.into_iter().for_each(|entry| lane.notice(entry));
            }
            ClaimAnswer::Early(wake) => lane.claim_was_early(&tag.entry, wake, now),
            ClaimAnswer::Lost => {
                lane.claim_ended(&tag.entry);
                // The first answer may have been that the row was given up, with the row that was armed after it.
                if tag.is_repeated {
                    lane.scan_again();
                }
            }
            ClaimAnswer::Fenced => {
                lane.claim_ended(&tag.entry);
                self.owned.lose(tag.entry.shard);
            }
        }
    }

    fn handler_done(&mut self, id: DeliveryId, verdict: Verdict) {
        self.failing.forget(&RequestKey::Extend(id));
        let lane = self.deliveries.kind(id).and_then(|kind| self.lanes.get_mut(kind));
        lane.into_iter().for_each(Lane::handler_ended);
        if let Some(op) = self.deliveries.handler_done(id, verdict) {
            self.actions.push(Action::Write(WriteTag::Finish(id), op));
        }
    }

    /// Ends a claim without a delivery.
    fn give_back(&mut self, now: Now, row: TimerRow, after: Duration) {
        let id = DeliveryId(next(&mut self.next_number));
        self.deliveries.begin(id, &row, now.steady, self.config.delivery_lease);
        self.handler_done(id, Verdict::Return { after });
    }

    fn write_failed(&mut self, now: Now, tag: WriteTag, error: StoreError) {
        let is_wanted = match &tag {
            WriteTag::Claim(tag) => self.phase == Phase::Running && self.kinds.contains(&tag.kind),
            WriteTag::Finish(id) => self.has_delivery(*id),
            WriteTag::Extend(id) => self.deliveries.is_handled(*id),
        };
        if !is_wanted {
            // The claim of a kind without a handler, or of a node that ends, is over.
            if let WriteTag::Claim(tag) = tag
                && let Some(lane) = self.lanes.get_mut(&tag.kind)
            {
                lane.claim_ended(&tag.entry);
            }
            return self.note_failure(&error);
        }
        let again = self.ended(now, tag.key(), Some(&error));
        match tag {
            WriteTag::Claim(tag) => {
                if let Some(lane) = self.lanes.get_mut(&tag.kind) {
                    lane.claim_failed(tag.entry, tag.sent, again);
                }
            }
            WriteTag::Finish(id) => self.deliveries.finish_again(id, again),
            WriteTag::Extend(id) => self.deliveries.extend_again(id, again),
        }
    }

    /// Records how a request has ended, and returns when it is made again if it has failed.
    fn ended(&mut self, now: Now, key: RequestKey, error: Option<&StoreError>) -> Duration {
        let Some(error) = error else {
            self.failing.forget(&key);
            return now.steady;
        };
        self.note_failure(error);
        self.failing.failed(now.steady, key, error.clone())
    }

    /// Reports an error that does not pass.
    fn note_failure(&mut self, error: &StoreError) {
        if !error.is_temporary() && self.phase != Phase::Ended {
            self.phase = Phase::Ended;
            self.actions.push(Action::StoreFailed(error.clone()));
        }
    }

    fn owned_changed(&mut self, now: Now, sent: Duration, result: Result<Ownership, StoreError>) {
        if self.phase == Phase::Leaving {
            self.phase = Phase::Ended;
            self.actions.push(Action::Drained);
            return;
        }
        let again = self.ended(now, RequestKey::Heartbeat, result.as_ref().err());
        if let Ok(ownership) = &result {
            self.pause_heard(sent, ownership.is_paused);
        }
        let gained = self.owned.answered(now.steady, sent, result.map_err(|_| again));
        let owned = &self.owned;
        self.failing.keep_reads(|kind| owned.serves(kind));
        for (_, lane) in self.lanes.iter_mut().filter(|(kind, _)| gained.concerns(kind)) {
            lane.owner_changed();
        }
        for id in self.deliveries.not_owned(&self.owned) {
            self.abandon(id);
        }
    }

    /// Takes what a heartbeat has said, unless the node itself has heard of a pause since that was sent.
    fn pause_heard(&mut self, sent: Duration, is_paused: bool) {
        if self.paused_at.is_none_or(|at| at < sent) {
            self.knows_pause = true;
            if self.is_paused != is_paused {
                self.set_paused(is_paused);
            }
        }
    }

    /// Records whether the store is paused. After a pause each lane looks for its rows anew: of rows that were imported meanwhile there was no notice.
    fn set_paused(&mut self, is_paused: bool) {
        (self.is_paused, self.knows_pause) = (is_paused, true);
        if !is_paused {
            self.lanes.values_mut().for_each(Lane::owner_changed);
        }
    }

    fn abandon(&mut self, id: DeliveryId) {
        self.failing.forget(&RequestKey::Extend(id));
        if self.deliveries.abandon(id) {
            self.actions.push(Action::Abandon(id));
        }
    }

    fn abandon_all(&mut self) {
        for id in self.deliveries.ids() {
            self.abandon(id);
        }
    }
}

fn next(number: &mut u64) -> u64 {
    *number += 1;
    *number - 1
}

fn earlier<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}
