//! Callbacks, each with a ticket: it is told its outcome once. Told twice, or dropped without having been told, it says so.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

use tourbillon::Outcome;

use super::check_run::CheckRun;
use super::promise::Promise;
use super::tally::Tally;
use crate::clock::monotonic;
use crate::text::count;

/// The ledger of a surface with callbacks, shared by all threads that arm, cancel and call.
pub(crate) struct CallbackLedger {
    surface: &'static str,
    tally: Mutex<Tally>,
    /// Callbacks that were neither called nor dropped.
    pub(crate) outstanding: AtomicU64,
    /// What cancels have said that they cancelled.
    cancels: AtomicU64,
    twice: AtomicU64,
    lost: AtomicU64,
    /// The fault of P2: some report twice.
    tells_twice: bool,
}

/// Of one callback.
pub(crate) struct CallbackTicket {
    calls: Arc<CallbackLedger>,
    due: u64,
    number: u64,
    told: AtomicU32,
}

impl CallbackLedger {
    pub(crate) fn new(check: &CheckRun, surface: &'static str) -> Arc<CallbackLedger> {
        Arc::new(CallbackLedger {
            surface,
            tally: Mutex::new(Tally::new(surface)),
            outstanding: AtomicU64::new(0),
            cancels: AtomicU64::new(0),
            twice: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            tells_twice: check.breaks(Promise::P2),
        })
    }

    /// For a callback that must not be told `Fired` before `due`.
    pub(crate) fn ticket(self: &Arc<Self>, due: u64) -> CallbackTicket {
        self.outstanding.fetch_add(1, SeqCst);
        let number = self.with(|tally| {
            tally.armed += 1;
            tally.armed
        });
        CallbackTicket { calls: Arc::clone(self), due, number, told: AtomicU32::new(0) }
    }

    /// A cancel said that it has cancelled so many.
    pub(crate) fn cancelled(&self, many: usize) {
        self.cancels.fetch_add(many as u64, SeqCst);
    }

    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Tally) -> T) -> T {
        f(&mut self.tally.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When all is over: everybody has been told once, and as many `Cancelled` as the cancels said.
    pub(crate) fn close(&self) -> Tally {
        let [told_twice, lost, cancels, outstanding] =
            [&self.twice, &self.lost, &self.cancels, &self.outstanding].map(|number| number.load(SeqCst));
        self.with(|tally| {
            let surface = self.surface;
            let mut complain = |number, what: &str| {
                if number > 0 {
                    tally.complain(Promise::P2, format!("{surface}: {} {what}", count(number)));
                }
            };
            complain(told_twice, "callbacks were told twice how they ended");
            complain(lost, "callbacks were dropped and never called");
            complain(outstanding, "callbacks have not been called");
            if tally.cancelled != cancels {
                let [told, said] = [tally.cancelled, cancels].map(count);
                let what =
                    format!("{surface}: cancels said {said}, and {told} callbacks were told that they were cancelled");
                tally.complain(Promise::P2, what);
            }
            tally.balance();
            tally.clone()
        })
    }
}

impl CallbackTicket {
    /// The callback was called.
    pub(crate) fn tell(&self, outcome: Outcome) {
        self.tell_once(outcome);
        if self.calls.tells_twice && self.number % 100 == 7 {
            self.tell_once(outcome);
        }
    }

    fn tell_once(&self, outcome: Outcome) {
        let seen = monotonic();
        if self.told.fetch_add(1, SeqCst) > 0 {
            self.calls.twice.fetch_add(1, SeqCst);
        }
        self.calls.with(|tally| {
            tally.count(outcome);
            if outcome == Outcome::Fired {
                tally.check(self.due, seen);
            }
        });
    }
}

impl Drop for CallbackTicket {
    fn drop(&mut self) {
        if self.told.load(SeqCst) == 0 {
            self.calls.lost.fetch_add(1, SeqCst);
        }
        self.calls.outstanding.fetch_sub(1, SeqCst);
    }
}
