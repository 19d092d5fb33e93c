//! How far a lane has loaded its rows, and what it scans next.

use std::time::Duration;

use super::{Now, Wakeup};
use crate::id::TimerId;
use crate::store::{DueCursor, DueEntry, DuePage, RowId};
use crate::time::StoreTime;

/// Behind every row with the same time.
const LAST_ROW: RowId = RowId { timer: TimerId::from_u128(u128::MAX), occurrence: u64::MAX };

/// How long a lane waits at least between two looks that were hinted at.
const BETWEEN_HINTS: Duration = Duration::from_millis(20);

/// The window of a lane: all rows up to `loaded` are in memory, or were claimed.
#[derive(Debug)]
pub(super) struct Window {
    /// How far the window is to reach beyond now.
    reach: Duration,
    /// How often the whole window is scanned again; `None` if every row that is armed is noticed.
    rescan: Option<Duration>,
    loaded: Option<DueCursor>,
    /// When the first row behind the window is due, if that is known; `MAX` if there is none.
    next_wake: Option<StoreTime>,
    scan: Option<RunningScan>,
    /// The last page was full: there is more right behind the window.
    has_more: bool,
    /// When a scan may begin, after one that failed.
    not_before: Duration,
    /// When the window is scanned from its beginning again.
    again_at: Option<Duration>,
    /// When a hint may have it scanned again at the earliest.
    hints_from: Duration,
    last_number: u64,
}

#[derive(Debug)]
struct RunningScan {
    number: u64,
    until: StoreTime,
    /// Where the pass is; `None` at its beginning.
    after: Option<DueCursor>,
    /// Whether the pass began at the beginning of the window.
    is_rescan: bool,
    began: Duration,
    /// Whether the store is being asked.
    is_waiting: bool,
    /// The earliest row behind the scan that was noticed while the store was asked: the store's answer may be older than the row.
    noticed_behind: StoreTime,
}

/// A scan to be made.
pub(super) struct ScanPlan {
    pub(super) number: u64,
    pub(super) after: Option<DueCursor>,
    pub(super) until: StoreTime,
}

impl Window {
    pub(super) fn new(reach: Duration, rescan: Option<Duration>) -> Window {
        Window {
            reach,
            rescan,
            loaded: None,
            next_wake: None,
            scan: None,
            has_more: true,
            not_before: Duration::ZERO,
            again_at: None,
            hints_from: Duration::ZERO,
            last_number: 0,
        }
    }

    /// Forgets how far the window was loaded: it is loaded anew.
    pub(super) fn forget(&mut self) {
        let Window { hints_from, last_number, .. } = *self;
        *self = Window { hints_from, last_number, ..Window::new(self.reach, self.rescan) };
    }

    /// Has the window scanned from its beginning, soon: at once, or some time after the last pass, so that hints which come faster than passes do not
    /// have the store asked all the time. What is behind the window is not known any more.
    pub(super) fn scan_again(&mut self) {
        self.next_wake = None;
        self.again_at = super::earlier(self.again_at, Some(self.hints_from));
    }

    /// Ends the window at a row, because there is no memory for more. A scan that is running is given up.
    pub(super) fn end_at(&mut self, last: DueCursor) {
        self.loaded = Some(last);
        self.has_more = true;
        self.next_wake = None;
        self.scan = None;
    }

    /// Returns whether a row that was armed belongs into memory: it is inside of the window, or of what a running scan adds to it.
    pub(super) fn takes(&mut self, entry: &DueEntry) -> bool {
        let is_loaded = self.loaded.is_some_and(|loaded| (entry.wake, entry.id) <= loaded);
        let is_scanned = self.scan.as_ref().is_some_and(|scan| entry.wake <= scan.until);
        if !is_loaded {
            let noticed = self.scan.as_mut().map(|scan| &mut scan.noticed_behind);
            for earliest in noticed.into_iter().chain(&mut self.next_wake) {
                *earliest = entry.wake.min(*earliest);
            }
        }
        is_loaded || is_scanned
    }

    /// Returns the scan that is due, if any. `has_room`: there is memory for more rows.
    pub(super) fn next_scan(&mut self, now: Now, has_room: bool) -> Option<ScanPlan> {
        if now.steady < self.not_before || self.scan.as_ref().is_some_and(|scan| scan.is_waiting) {
            return None;
        }
        if self.scan.is_none() {
            self.scan = self.begin_scan(now, has_room);
        }
        self.last_number += 1;
        let number = self.last_number;
        let scan = self.scan.as_mut()?;
        (scan.number, scan.is_waiting, scan.noticed_behind) = (number, true, StoreTime::MAX);
        Some(ScanPlan { number, after: scan.after, until: scan.until })
    }

    fn begin_scan(&mut self, now: Now, has_room: bool) -> Option<RunningScan> {
        let until = now.store.saturating_add(self.reach);
        let new_scan = |after, is_rescan, until| RunningScan {
            number: 0,
            until,
            after,
            is_rescan,
            began: now.steady,
            is_waiting: false,
            noticed_behind: StoreTime::MAX,
        };
        if self.again_at.is_some_and(|at| at <= now.steady) {
            self.again_at = None;
            // All that is loaded, which after the clock was set back reaches farther than a new window.
            let loaded = self.loaded.map_or(until, |(wake, _)| wake);
            let until = if has_room { until.max(loaded) } else { loaded };
            return Some(new_scan(None, true, until));
        }
        let is_due = has_room && self.extends_at(now.store).is_some_and(|at| at <= now.store);
        is_due.then(|| new_scan(self.loaded, false, until))
    }

    /// Returns when, by the store's clock, the window is to be made longer.
    fn extends_at(&self, now: StoreTime) -> Option<StoreTime> {
        let Some((loaded, _)) = self.loaded else { return Some(StoreTime::ZERO) };
        if self.has_more {
            return Some(now);
        }
        match self.next_wake {
            Some(StoreTime::MAX) => None,
            Some(next_wake) => Some(next_wake.saturating_sub(self.reach)),
            None => Some(loaded.saturating_sub(self.reach / 2)),
        }
    }

    /// Takes the answer to a scan. Returns whether it was the one that is running.
    pub(super) fn scanned(&mut self, now: Now, number: u64, page: &DuePage) -> bool {
        let Some(scan) = self.scan.as_mut().filter(|scan| scan.number == number && scan.is_waiting) else {
            return false;
        };
        scan.is_waiting = false;
        let end = page.entries.last().map(|entry| (entry.wake, entry.id)).filter(|_| page.has_more);
        let reached = end.unwrap_or((scan.until, LAST_ROW));
        scan.after = Some(reached);
        let (is_rescan, began, noticed_behind) = (scan.is_rescan, scan.began, scan.noticed_behind);
        if !is_rescan || self.loaded.is_none_or(|loaded| loaded < reached) {
            self.loaded = Some(reached);
            self.has_more = page.has_more;
            let next_wake = page.next_wake.filter(|_| self.rescan.is_none());
            self.next_wake = next_wake.map(|wake| wake.min(noticed_behind));
        }
        // A page that goes on is continued at once if it is a second look; otherwise when there is memory for more.
        if !(page.has_more && is_rescan) {
            self.scan = None;
        }
        if self.scan.is_none() {
            let lasted = now.steady.saturating_sub(began);
            self.hints_from = now.steady + lasted.max(BETWEEN_HINTS);
            // A pass that takes long is not repeated all the time.
            let rescan = self.rescan.map(|rescan| now.steady + rescan.max(lasted * 4));
            self.again_at = self.again_at.map(|at| at.max(self.hints_from)).or(rescan);
        }
        true
    }

    /// Has a scan that failed made again at that time.
    pub(super) fn scan_failed(&mut self, number: u64, at: Duration) {
        if let Some(scan) = self.scan.as_mut().filter(|scan| scan.number == number) {
            scan.is_waiting = false;
            self.not_before = at;
        }
    }

    pub(super) fn next_wakeup(&self, has_room: bool) -> Wakeup {
        match &self.scan {
            Some(scan) if scan.is_waiting => Wakeup::default(),
            Some(_) => Wakeup { store: None, steady: Some(self.not_before) },
            None => {
                let extends = self.extends_at(StoreTime::ZERO).filter(|_| has_room);
                Wakeup { store: extends, steady: self.again_at }
            }
        }
    }
}
