//! A ledger of callbacks. Each callback owns a ticket, which records a second call, and a drop without a call.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tourbillon::Outcome;

use super::check_run::CheckRun;
use super::promise::Promise;
use super::tally::SurfaceTally;
use crate::clock::monotonic;
use crate::text::count;

/// The callbacks of a surface, shared by all threads that arm, cancel and call.
pub(crate) struct CallbackLedger {
    surface: &'static str,
    tally: Mutex<SurfaceTally>,
    /// Callbacks that were neither called nor dropped.
    pub(crate) outstanding: AtomicU64,
    /// Sum of what cancels returned.
    cancels: AtomicU64,
    twice: AtomicU64,
    lost: AtomicU64,
    /// The planted fault of P2: some callbacks are recorded twice.
    reports_twice: bool,
}

/// The ticket of one callback.
pub(crate) struct CallbackTicket {
    ledger: Arc<CallbackLedger>,
    due: u64,
    number: u64,
    calls_made: AtomicU32,
}

impl CallbackLedger {
    pub(crate) fn new(check: &CheckRun, surface: &'static str) -> Arc<CallbackLedger> {
        Arc::new(CallbackLedger {
            surface,
            tally: Mutex::new(SurfaceTally::new(surface)),
            outstanding: AtomicU64::new(0),
            cancels: AtomicU64::new(0),
            twice: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            reports_twice: check.breaks(Promise::P2),
        })
    }

    /// Returns a ticket for a callback that must not be called with `Fired` before `due`.
    pub(crate) fn ticket(self: &Arc<Self>, due: u64) -> CallbackTicket {
        self.outstanding.fetch_add(1, SeqCst);
        let number = self.with(|tally| {
            tally.armed += 1;
            tally.armed
        });
        CallbackTicket { ledger: Arc::clone(self), due, number, calls_made: AtomicU32::new(0) }
    }

    /// Adds what a cancel returned.
    pub(crate) fn cancelled(&self, many: usize) {
        self.cancels.fetch_add(many as u64, SeqCst);
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut SurfaceTally) -> T) -> T {
        f(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks at the end that every callback was called once, and that as many were called with `Cancelled` as the cancels
    /// returned.
    pub(crate) fn close(&self) -> SurfaceTally {
        let [called_twice, lost, cancels, outstanding] =
            [&self.twice, &self.lost, &self.cancels, &self.outstanding].map(|number| number.load(SeqCst));
        self.with(|tally| {
            let surface = self.surface;
            let mut complain = |number, what: &str| {
                if number > 0 {
                    tally.complain(Promise::P2, format!("{surface}: {} {what}", count(number)));
                }
            };
            complain(called_twice, "callbacks were called twice");
            complain(lost, "callbacks were dropped without a call");
            complain(outstanding, "callbacks have not been called");
            if tally.cancelled != cancels {
                let [called, returned] = [tally.cancelled, cancels].map(count);
                let what = format!(
                    "{surface}: cancels returned {returned}, and {called} callbacks were called with Cancelled"
                );
                tally.complain(Promise::P2, what);
            }
            tally.balance();
            tally.clone()
        })
    }
}

impl CallbackTicket {
    /// Records the call of the callback.
    pub(crate) fn called(&self, outcome: Outcome) {
        self.record(outcome);
        if self.ledger.reports_twice && self.number % 100 == 7 {
            self.record(outcome);
        }
    }

    fn record(&self, outcome: Outcome) {
        let seen = monotonic();
        if self.calls_made.fetch_add(1, SeqCst) > 0 {
            self.ledger.twice.fetch_add(1, SeqCst);
        }
        self.ledger.with(|tally| {
            tally.count(outcome);
            if outcome == Outcome::Fired {
                tally.check(self.due, seen);
            }
        });
    }
}

impl Drop for CallbackTicket {
    fn drop(&mut self) {
        if self.calls_made.load(SeqCst) == 0 {
            self.ledger.lost.fetch_add(1, SeqCst);
        }
        self.ledger.outstanding.fetch_sub(1, SeqCst);
    }
}
