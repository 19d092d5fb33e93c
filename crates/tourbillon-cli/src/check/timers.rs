//! The surface `Timer`: waits with callbacks on timers that several threads share. Some are set again or cancelled while they
//! expire.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use tourbillon::{Engine, Timer};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::callback_ledger::CallbackLedger;
use super::check_run::CheckRun;
use crate::clock::{monotonic, nanos};

/// Number of shared timers, and most new waits of each per round.
const TIMERS: usize = 32;
const WAITS: u64 = 8;
const LONGEST: Duration = Duration::from_millis(10);

/// Runs as long as the load does, on an engine of its own, which it shuts down.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let ledger = CallbackLedger::new(check, "timers");
    let timers: Vec<Timer> = (0..TIMERS).map(|_| Timer::on(engine)).collect();
    thread::scope(|scope| {
        scope.spawn(|| set(check, &timers, &ledger));
        scope.spawn(|| cancel(check, &timers, &ledger));
    });
    // The shutdown stops what is left.
    engine.shutdown();
    check.reference.wait_limit().wait_for_all(0, || ledger.outstanding.load(SeqCst));
    Findings { tallies: vec![ledger.close()], ..Findings::default() }
}

/// Sets expiries and begins waits. Only this thread sets them, so it knows the deadline of each wait.
fn set(check: &CheckRun, timers: &[Timer], ledger: &Arc<CallbackLedger>) {
    let mut random = check.random("timers", 0);
    while check.is_under_load() {
        for timer in timers {
            let duration = random.duration(LONGEST);
            let due = monotonic() + nanos(duration);
            // Setting the timer cancels its pending waits.
            ledger.cancelled(timer.expires_after(duration));
            for _ in 0..random.below(WAITS) {
                begin(timer, ledger, due, &mut random);
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn begin(timer: &Timer, ledger: &Arc<CallbackLedger>, due: u64, random: &mut Random) {
    let ticket = ledger.ticket(due);
    let wait = timer.on_expiry(move |outcome| ticket.called(outcome));
    if random.one_in(8) && wait.cancel() {
        ledger.cancelled(1);
    }
}

/// Cancels waits at random times.
fn cancel(check: &CheckRun, timers: &[Timer], ledger: &CallbackLedger) {
    let mut random = check.random("timers", 1);
    while check.is_under_load() {
        let timer = &timers[random.below(TIMERS as u64) as usize];
        match random.below(4) {
            0 => ledger.cancelled(timer.cancel()),
            _ => ledger.cancelled(usize::from(timer.cancel_one())),
        }
        thread::sleep(random.duration(Duration::from_micros(500)));
    }
}
