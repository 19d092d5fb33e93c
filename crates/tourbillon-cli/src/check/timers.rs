//! The surface `Timer`: waits with callbacks, on timers that several threads share; some are set anew, some cancelled, while they expire.

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

/// Timers that are shared, each with some waits.
const TIMERS: usize = 32;
const WAITS: u64 = 8;
const LONGEST: Duration = Duration::from_millis(10);

/// Runs as long as the load does, on an engine of its own that it shuts down.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let calls = CallbackLedger::new(check, "timers");
    let timers: Vec<Timer> = (0..TIMERS).map(|_| Timer::on(engine)).collect();
    thread::scope(|scope| {
        scope.spawn(|| set(check, &timers, &calls));
        scope.spawn(|| cancel(check, &timers, &calls));
    });
    // What is left ends as stopped.
    engine.shutdown();
    check.reference.wait_limit().wait_for_all(0, || calls.outstanding.load(SeqCst));
    Findings { tallies: vec![calls.close()], ..Findings::default() }
}

/// Sets expiries and begins waits. Only this thread sets them, so it knows what each wait waits for.
fn set(check: &CheckRun, timers: &[Timer], calls: &Arc<CallbackLedger>) {
    let mut random = check.random("timers", 0);
    while check.is_under_load() {
        for timer in timers {
            let duration = random.duration(LONGEST);
            let due = monotonic() + nanos(duration);
            // Those that were pending are cancelled by that.
            calls.cancelled(timer.expires_after(duration));
            for _ in 0..random.below(WAITS) {
                begin(timer, calls, due, &mut random);
            }
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn begin(timer: &Timer, calls: &Arc<CallbackLedger>, due: u64, random: &mut Random) {
    let ticket = calls.ticket(due);
    let wait = timer.on_expiry(move |outcome| ticket.tell(outcome));
    if random.one_in(8) && wait.cancel() {
        calls.cancelled(1);
    }
}

/// Cancels at any time.
fn cancel(check: &CheckRun, timers: &[Timer], calls: &CallbackLedger) {
    let mut random = check.random("timers", 1);
    while check.is_under_load() {
        let timer = &timers[random.below(TIMERS as u64) as usize];
        match random.below(4) {
            0 => calls.cancelled(timer.cancel()),
            _ => calls.cancelled(usize::from(timer.cancel_one())),
        }
        thread::sleep(random.duration(Duration::from_micros(500)));
    }
}
