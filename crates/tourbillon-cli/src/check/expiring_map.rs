//! The surface `ExpiringMap`: entries that expire, are replaced or removed, each in one way.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use tourbillon::{Engine, ExpiringMap, Outcome};

use super::audit::Findings;
use super::callback_ledger::{CallbackLedger, CallbackTicket};
use super::check_run::CheckRun;
use super::promise::Promise;
use crate::clock::{monotonic, nanos};

const KEYS: u64 = 4096;
const LONGEST: Duration = Duration::from_millis(50);

type Entries = ExpiringMap<u64, CallbackTicket>;

/// Runs as long as the load does, and removes what is left.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let ledger = CallbackLedger::new(check, "map entries");
    let on_expiry = |_, ticket: CallbackTicket| ticket.called(Outcome::Fired);
    let entries: Entries = ExpiringMap::builder().engine(engine).on_expiry(on_expiry).build();
    thread::scope(|scope| {
        scope.spawn(|| insert(check, &entries, &ledger));
        scope.spawn(|| remove(check, &entries, &ledger));
    });
    (0..KEYS).for_each(|key| taken(&ledger, entries.remove(&key)));
    check.reference.wait_limit().wait_for_all(0, || ledger.outstanding.load(SeqCst));
    Findings { tallies: vec![ledger.close()], ..Findings::default() }
}

fn insert(check: &CheckRun, entries: &Entries, ledger: &Arc<CallbackLedger>) {
    let mut random = check.random("map entries", 0);
    while check.is_under_load() {
        for _ in 0..64 {
            let duration = random.duration(LONGEST);
            let ticket = ledger.ticket(monotonic() + nanos(duration));
            match entries.insert(random.below(KEYS), ticket, duration) {
                Ok(old) => taken(ledger, old),
                Err(error) => {
                    ledger.with(|tally| tally.complain(Promise::P6, format!("map entries: one was refused: {error}")));
                }
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn remove(check: &CheckRun, entries: &Entries, ledger: &CallbackLedger) {
    let mut random = check.random("map entries", 1);
    while check.is_under_load() {
        (0..16).for_each(|_| taken(ledger, entries.remove(&random.below(KEYS))));
        thread::sleep(random.duration(Duration::from_millis(2)));
    }
}

/// Records an entry that was taken out of the map before it expired.
fn taken(ledger: &CallbackLedger, ticket: Option<CallbackTicket>) {
    if let Some(ticket) = ticket {
        ledger.cancelled(1);
        ticket.called(Outcome::Cancelled);
    }
}
