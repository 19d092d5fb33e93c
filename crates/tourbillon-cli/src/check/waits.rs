//! Waits for a `Timer` or a named timer, as futures and on a blocked thread. The thread that cancels a wait knows its expected
//! outcome.

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

use tourbillon::{Engine, NamedTimers, Outcome, Timer};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::local_executor::{LocalTask, run_tasks};
use super::promise::Promise;
use super::tally::SurfaceTally;
use crate::clock::{monotonic, nanos};

const TASKS: usize = 16;
const LONGEST: Duration = Duration::from_millis(20);

/// Runs as long as the load does.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let blocking = thread::scope(|scope| {
        let blocking = scope.spawn(|| blocked(check, engine));
        let tally = RefCell::new(SurfaceTally::new("waits"));
        let named = NamedTimers::on(engine);
        let mut tasks: Vec<LocalTask<'_>> = Vec::new();
        for task in 0..TASKS {
            tasks.push(Box::pin(for_timers(check, engine, &tally, check.random("waits", task))));
            tasks.push(Box::pin(for_named(check, &named, &tally, check.random("named waits", task))));
        }
        run_tasks(tasks);
        // No timer is left under any name.
        if !named.is_empty() {
            tally.borrow_mut().complain(Promise::P2, format!("waits: {} named timers are left", named.len()));
        }
        [Some(tally.into_inner()), blocking.join().ok()]
    });
    let mut total = SurfaceTally::new("waits");
    blocking.iter().flatten().for_each(|tally| total.add(tally));
    total.balance();
    Findings { tallies: vec![total], ..Findings::default() }
}

async fn for_timers(check: &CheckRun, engine: &Engine, tally: &RefCell<SurfaceTally>, mut random: Random) {
    let timer = Timer::on(engine);
    while check.is_under_load() {
        let duration = random.duration(LONGEST);
        let due = monotonic() + nanos(duration);
        timer.expires_after(duration);
        let wait = timer.wait();
        // There is one wait, so a cancel that is not too late returns one.
        let cancelled = if random.one_in(4) { timer.cancel() } else { 0 };
        let outcome = wait.await;
        ended(&mut tally.borrow_mut(), due, cancelled, outcome);
    }
}

async fn for_named(check: &CheckRun, timers: &NamedTimers, tally: &RefCell<SurfaceTally>, mut random: Random) {
    let name = random.any().to_string();
    while check.is_under_load() {
        let duration = random.duration(LONGEST);
        let due = monotonic() + nanos(duration);
        let Ok(wait) = timers.create(&name).wait(duration) else {
            tally.borrow_mut().complain(Promise::P6, "waits: a named timer was refused");
            return;
        };
        let cancelled = if random.one_in(4) { timers.cancel(&name) } else { 0 };
        let outcome = wait.await;
        ended(&mut tally.borrow_mut(), due, cancelled, outcome);
    }
}

/// Makes one wait after the other on a blocked thread.
fn blocked(check: &CheckRun, engine: &Engine) -> SurfaceTally {
    let mut random = check.random("blocking waits", 0);
    let mut tally = SurfaceTally::new("waits");
    let timer = Timer::on(engine);
    while check.is_under_load() {
        let duration = random.duration(LONGEST);
        let due = monotonic() + nanos(duration);
        timer.expires_after(duration);
        ended(&mut tally, due, 0, timer.wait_blocking());
    }
    tally
}

/// Checks that the outcome agrees with what the cancel returned.
fn ended(tally: &mut SurfaceTally, due: u64, cancelled: usize, outcome: Outcome) {
    let seen = monotonic();
    tally.armed += 1;
    tally.count(outcome);
    if outcome == Outcome::Fired {
        tally.check(due, seen);
    }
    let expected = if cancelled == 1 { Outcome::Cancelled } else { Outcome::Fired };
    if outcome != expected || cancelled > 1 {
        tally.complain(Promise::P2, format!("waits: a cancel returned {cancelled}, and the wait ended as {outcome:?}"));
    }
}
