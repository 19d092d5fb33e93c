//! The surface `NamedTimers`: many timers per name, cancelled by name with an exact count.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use tourbillon::{Engine, NamedTimers};

use super::audit::Findings;
use super::callback_ledger::CallbackLedger;
use super::check_run::CheckRun;
use super::promise::Promise;
use crate::clock::{monotonic, nanos};

const NAMES: u64 = 64;
const LONGEST: Duration = Duration::from_millis(50);

/// Runs as long as the load does, and stops what is left.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let ledger = CallbackLedger::new(check, "named timers");
    let timers = NamedTimers::on(engine);
    thread::scope(|scope| {
        scope.spawn(|| start(check, &timers, &ledger));
        scope.spawn(|| cancel(check, &timers, &ledger));
    });
    let stopped = timers.shutdown() as u64;
    check.reference.wait_limit().wait_for_all(0, || ledger.outstanding.load(SeqCst));
    let mut tally = ledger.close();
    if tally.stopped != stopped {
        let what = format!(
            "named timers: `stop` returned {stopped}, and {} callbacks were called with Stopped",
            tally.stopped
        );
        tally.complain(Promise::P2, what);
    }
    Findings { tallies: vec![tally], ..Findings::default() }
}

fn start(check: &CheckRun, timers: &NamedTimers, ledger: &std::sync::Arc<CallbackLedger>) {
    let mut random = check.random("named timers", 0);
    while check.is_under_load() {
        for _ in 0..64 {
            let name = name(random.below(NAMES));
            if random.one_in(16) {
                // A timer that is created and never started leaves nothing behind.
                drop(timers.create(&name));
                continue;
            }
            let duration = random.duration(LONGEST);
            let ticket = ledger.ticket(monotonic() + nanos(duration));
            let started = timers.start(&name, duration, move |outcome| ticket.called(outcome));
            if let Err(error) = started {
                ledger.with(|tally| tally.complain(Promise::P6, format!("named timers: a timer was refused: {error}")));
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn cancel(check: &CheckRun, timers: &NamedTimers, ledger: &CallbackLedger) {
    let mut random = check.random("named timers", 1);
    while check.is_under_load() {
        let name = name(random.below(NAMES));
        let most = if random.one_in(2) { usize::MAX } else { random.below(8) as usize };
        ledger.cancelled(timers.cancel_up_to(&name, most));
        thread::sleep(random.duration(Duration::from_millis(2)));
    }
}

fn name(number: u64) -> String {
    format!("session-{number}")
}
