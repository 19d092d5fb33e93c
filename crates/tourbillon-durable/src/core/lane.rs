//! The rows of one kind that are due soon, and their claims.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tourbillon_queue::{Key, Time, TimerQueue, Wheel};

use super::ownership::OwnedShards;
use super::window::{ScanPlan, Window};
use super::{CoreConfig, Now, SentClaim, Wakeup};
use crate::store::{DueCursor, DueEntry, DuePage, DueQuery, RowId, ShardId};
use crate::time::StoreTime;

/// How long a claim that the store's clock found early waits at least, so that clocks that differ do not make a loop.
const AFTER_EARLY: Duration = Duration::from_millis(1);

/// The rows of one kind.
#[derive(Debug)]
pub(super) struct Lane {
    config: CoreConfig,
    /// The most claims and deliveries at the same time; zero while there is no handler.
    limit: usize,
    /// Claims that were sent and deliveries that have begun.
    busy: usize,
    /// All rows in memory.
    known: HashMap<RowId, KnownRow>,
    wheel: Wheel<DueEntry>,
    /// Rows that are due, in order.
    ready: VecDeque<DueEntry>,
    /// Claims whose answer was lost, to be sent again at that time with the same token.
    unanswered: Vec<(Duration, DueEntry, SentClaim)>,
    window: Window,
    orphans: OrphanSearch,
}

#[derive(Debug)]
struct KnownRow {
    version: u64,
    place: RowPlace,
}

#[derive(Debug)]
enum RowPlace {
    /// In the wheel.
    Waiting(Key),
    /// In the queue of due rows.
    Ready,
    /// A claim is under way. A newer version of the row that was noticed meanwhile is kept.
    Claiming(Option<DueEntry>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OrphanSearch {
    Wanted(Duration),
    Running,
    Done,
}

impl Lane {
    pub(super) fn new(config: CoreConfig) -> Lane {
        Lane {
            config,
            limit: 1,
            busy: 0,
            known: HashMap::new(),
            wheel: Wheel::new(),
            ready: VecDeque::new(),
            unanswered: Vec::new(),
            window: Window::new(config.window, config.store.rescan),
            orphans: OrphanSearch::Wanted(Duration::ZERO),
        }
    }

    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Forgets all rows, because there is no handler any more. What is claimed and delivered counts on, so that the next handler has no more than its
    /// limit (P7), and so do the numbers of scans, so that an answer that is on its way is not taken for that to a later scan (D45).
    pub(super) fn close(&mut self) {
        self.limit = 0;
        self.end_unanswered();
        self.known.clear();
        self.wheel = Wheel::new();
        self.ready.clear();
        self.owner_changed();
    }

    /// Ends the claims that failed and were to be sent again: if the store has made one of them, the next owner of its shard takes the row over.
    pub(super) fn end_unanswered(&mut self) {
        for (_, entry, _) in std::mem::take(&mut self.unanswered) {
            self.claim_ended(&entry);
        }
    }

    /// Returns whether there is a handler.
    pub(super) fn is_open(&self) -> bool {
        self.limit > 0
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn has_no_claims(&self) -> bool {
        self.busy == 0
    }

    /// Has the lane look at its window from the beginning, soon.
    pub(super) fn scan_again(&mut self) {
        self.window.scan_again();
    }

    /// Has the lane look for all its rows anew: those of shards that are new to the node, or those that were imported during a pause.
    pub(super) fn owner_changed(&mut self) {
        self.window.forget();
        self.orphans = OrphanSearch::Wanted(Duration::ZERO);
    }

    /// Takes the notice of a row that was armed.
    pub(super) fn notice(&mut self, entry: DueEntry) {
        if self.window.takes(&entry) {
            self.insert(entry);
            self.shrink();
        }
    }

    pub(super) fn wants_orphans(&mut self, now: Now, kind: &str, owned: &OwnedShards) -> Option<Vec<ShardId>> {
        match self.orphans {
            OrphanSearch::Wanted(at) if at <= now.steady && self.ready.is_empty() => {
                self.orphans = OrphanSearch::Running;
                Some(owned.serving(kind))
            }
            _ => None,
        }
    }

    /// Takes the rows whose owner is gone, or the time when the store is asked again.
    pub(super) fn orphans_found(&mut self, now: Now, result: Result<&Vec<DueEntry>, Duration>) {
        match result {
            Ok(entries) => {
                let may_be_more = entries.len() >= self.config.page;
                self.orphans = if may_be_more { OrphanSearch::Wanted(now.steady) } else { OrphanSearch::Done };
                for entry in entries {
                    self.forget_waiting(entry.id);
                    self.make_ready(*entry);
                }
            }
            Err(again) => self.orphans = OrphanSearch::Wanted(again),
        }
    }

    pub(super) fn wants_scan(&mut self, now: Now, kind: &str, owned: &OwnedShards) -> Option<(u64, DueQuery)> {
        let has_room = self.known.len() <= self.config.rows_in_memory / 2;
        let ScanPlan { number, after, until } = self.window.next_scan(now, has_room)?;
        let limit = self.config.page;
        Some((number, DueQuery { kind: kind.to_owned(), shards: owned.serving(kind), after, until, limit }))
    }

    /// Takes a page of the window, or the time when the store is asked again.
    pub(super) fn scanned(&mut self, now: Now, scan: u64, result: Result<&DuePage, Duration>) {
        match result {
            Ok(page) if self.window.scanned(now, scan, page) => {
                page.entries.iter().for_each(|entry| self.insert(*entry));
                self.shrink();
            }
            Ok(_) => {}
            Err(again) => self.window.scan_failed(scan, again),
        }
    }

    /// Returns the next row to be claimed, and the first claim if it is made again.
    pub(super) fn next_claim(&mut self, now: Now) -> Option<(DueEntry, Option<SentClaim>)> {
        if let Some(index) = self.unanswered.iter().position(|(at, ..)| *at <= now.steady) {
            let (_, entry, sent) = self.unanswered.swap_remove(index);
            return Some((entry, Some(sent)));
        }
        if self.busy >= self.limit {
            return None;
        }
        if self.ready.is_empty() {
            self.expire(now.store);
        }
        let entry = self.ready.pop_front()?;
        if let Some(row) = self.known.get_mut(&entry.id) {
            row.place = RowPlace::Claiming(None);
        }
        self.busy += 1;
        Some((entry, None))
    }

    /// Records that a claim has ended in a delivery.
    pub(super) fn claimed(&mut self, entry: &DueEntry) {
        self.forget_claim(entry);
    }

    /// Records that a claim has ended without a delivery.
    pub(super) fn claim_ended(&mut self, entry: &DueEntry) {
        self.busy = self.busy.saturating_sub(1);
        self.forget_claim(entry);
    }

    /// Records that the handler of a delivery has ended.
    pub(super) fn handler_ended(&mut self) {
        self.busy = self.busy.saturating_sub(1);
    }

    /// Has a row claimed once more when the store's clock has come so far.
    pub(super) fn claim_was_early(&mut self, entry: &DueEntry, wake: StoreTime, now: Now) {
        self.claim_ended(entry);
        if self.is_open() {
            let wake = wake.max(now.store.saturating_add(AFTER_EARLY));
            self.insert(DueEntry { wake, ..*entry });
        }
    }

    /// Returns the rows whose claims are to be sent again.
    pub(super) fn unanswered(&self) -> impl Iterator<Item = RowId> {
        self.unanswered.iter().map(|(_, entry, _)| entry.id)
    }

    /// Has the same claim sent again at that time.
    pub(super) fn claim_failed(&mut self, entry: DueEntry, sent: SentClaim, at: Duration) {
        self.unanswered.push((at, entry, sent));
    }

    pub(super) fn next_wakeup(&self) -> Wakeup {
        let has_room = self.known.len() <= self.config.rows_in_memory / 2;
        let mut wakeup = self.window.next_wakeup(has_room);
        if self.busy < self.limit {
            let wheel = self.wheel.next_wakeup().map(|time| StoreTime::from_micros(time.as_nanos().div_ceil(1_000)));
            wakeup.store = super::earlier(wakeup.store, wheel);
        }
        if let OrphanSearch::Wanted(at) = self.orphans {
            wakeup.steady = super::earlier(wakeup.steady, Some(at).filter(|_| self.ready.is_empty()));
        }
        let again = self.unanswered.iter().map(|(at, ..)| *at).min();
        wakeup.steady = super::earlier(wakeup.steady, again);
        wakeup
    }

    /// Moves rows that are due from the wheel to the queue, as many as can be claimed soon.
    fn expire(&mut self, now: StoreTime) {
        let now = wheel_time(now);
        while self.ready.len() < self.limit
            && let Some(expired) = self.wheel.pop(now)
        {
            let entry = expired.value;
            if let Some(row) = self.known.get_mut(&entry.id) {
                row.place = RowPlace::Ready;
            }
            self.ready.push_back(entry);
        }
    }

    /// Puts a row into the wheel, unless the lane knows this version or a newer one.
    fn insert(&mut self, entry: DueEntry) {
        match self.known.get_mut(&entry.id) {
            Some(row) if row.version >= entry.version => return,
            Some(KnownRow { place: RowPlace::Claiming(newer), .. }) => {
                *newer = Some(entry);
                return;
            }
            _ => self.forget_waiting(entry.id),
        }
        let key = self.wheel.insert(wheel_time(entry.wake), entry);
        self.known.insert(entry.id, KnownRow { version: entry.version, place: RowPlace::Waiting(key) });
    }

    /// Puts a row into the queue of due rows, whatever its time.
    fn make_ready(&mut self, entry: DueEntry) {
        if let Entry::Vacant(row) = self.known.entry(entry.id) {
            row.insert(KnownRow { version: entry.version, place: RowPlace::Ready });
            self.ready.push_back(entry);
        }
    }

    /// Forgets a row, unless a claim of it is under way.
    fn forget_waiting(&mut self, id: RowId) {
        match self.known.get(&id).map(|row| &row.place) {
            Some(RowPlace::Waiting(key)) => drop(self.wheel.remove(*key)),
            Some(RowPlace::Ready) => self.ready.retain(|entry| entry.id != id),
            Some(RowPlace::Claiming(_)) | None => return,
        }
        self.known.remove(&id);
    }

    /// Forgets the claim of a row, and takes a newer version of the row that was noticed meanwhile.
    fn forget_claim(&mut self, entry: &DueEntry) {
        let Some(KnownRow { place: RowPlace::Claiming(newer), .. }) = self.known.get_mut(&entry.id) else { return };
        let newer = newer.take();
        self.known.remove(&entry.id);
        newer.into_iter().for_each(|newer| self.notice(newer));
    }

    /// Forgets the latest rows if there are too many (Q5): a later scan finds them again.
    fn shrink(&mut self) {
        if self.known.len() <= self.config.rows_in_memory {
            return;
        }
        let mut waiting: Vec<(DueCursor, Key)> = Vec::new();
        for row in self.known.values() {
            if let RowPlace::Waiting(key) = row.place
                && let Some(entry) = self.wheel.get(key)
            {
                waiting.push(((entry.wake, entry.id), key));
            }
        }
        let kept = self.config.rows_in_memory / 2;
        if waiting.len() <= kept {
            return;
        }
        waiting.select_nth_unstable(kept);
        for (_, key) in waiting.drain(kept + 1..) {
            if let Some(entry) = self.wheel.remove(key) {
                self.known.remove(&entry.id);
            }
        }
        self.window.end_at(waiting[kept].0);
    }
}

/// Returns the time in the wheel's unit. What the wheel cannot represent, from the year 2554 on, is never due.
fn wheel_time(time: StoreTime) -> Time {
    time.as_micros().checked_mul(1_000).map_or(Time::NEVER, Time::from_nanos)
}
