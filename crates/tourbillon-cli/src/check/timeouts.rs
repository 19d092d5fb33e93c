//! The surfaces `timeout`, `Deadline` and `interval`: tasks that wait for a future that is never ready, or ready first.

use std::cell::RefCell;
use std::future::pending;
use std::pin::pin;
use std::time::Duration;

use tourbillon::time::{Deadline, Instant, MissedTickBehavior, interval, sleep, timeout, try_timeout};
use tourbillon::{Engine, Outcome};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::local_executor::{LocalTask, run_tasks};
use super::tally::SurfaceTally;
use crate::clock::{monotonic, nanos};

/// Number of tasks of each surface.
const TASKS: usize = 16;
const LONGEST: Duration = Duration::from_millis(20);
/// Longer than a run, so that the timer is cancelled.
const FAR: Duration = Duration::from_secs(24 * 3600);
const MISSED: [MissedTickBehavior; 3] =
    [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip];

/// Runs as long as the load does.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let _entered = engine.enter();
    let [timeouts, deadlines, intervals] =
        ["timeouts", "deadline scopes", "intervals"].map(|surface| RefCell::new(SurfaceTally::new(surface)));
    let mut tasks: Vec<LocalTask<'_>> = Vec::new();
    for task in 0..TASKS {
        let random = |surface| check.random(surface, task);
        tasks.push(Box::pin(with_timeouts(check, &timeouts, random("timeouts"))));
        tasks.push(Box::pin(with_deadlines(check, &deadlines, random("deadlines"))));
        tasks.push(Box::pin(with_intervals(check, &intervals, random("intervals"), MISSED[task % MISSED.len()])));
    }
    run_tasks(tasks);
    let tallies = [timeouts, deadlines, intervals].map(RefCell::into_inner);
    Findings { tallies: tallies.into_iter().map(balanced).collect(), ..Findings::default() }
}

fn balanced(mut tally: SurfaceTally) -> SurfaceTally {
    tally.balance();
    tally
}

async fn with_timeouts(check: &CheckRun, tally: &RefCell<SurfaceTally>, mut random: Random) {
    while check.is_under_load() {
        let duration = random.duration(LONGEST);
        let before = monotonic();
        match random.below(5) {
            0 => {
                let _ = timeout(duration, pending::<()>()).await;
                fired(tally, before + nanos(duration));
            }
            1 => {
                // The sleep ends first, which cancels the timeout.
                if timeout(FAR, sleep(duration)).await.is_ok() {
                    fired(tally, before + nanos(duration));
                    ended(tally, Outcome::Cancelled);
                }
            }
            2 => {
                let mut longer = pin!(timeout(duration, pending::<()>()));
                longer.as_mut().extend(duration);
                let _ = longer.await;
                fired(tally, before + 2 * nanos(duration));
            }
            3 => {
                let mut moved = pin!(timeout(FAR, pending::<()>()));
                moved.as_mut().disarm();
                moved.as_mut().reset(Instant::now() + duration);
                let _ = moved.await;
                fired(tally, before + nanos(duration));
            }
            _ => {
                // The timeout is dropped before its deadline.
                if try_timeout(FAR, sleep(duration)).is_ok() {
                    ended(tally, Outcome::Cancelled);
                }
            }
        }
    }
}

async fn with_deadlines(check: &CheckRun, tally: &RefCell<SurfaceTally>, mut random: Random) {
    while check.is_under_load() {
        let [outer, inner] = [(); 2].map(|()| random.duration(LONGEST));
        let before = monotonic();
        // The inner scope never outlives the outer one, whatever its duration.
        let nested = async { Deadline::after(inner).scope(pending::<()>()).await };
        let _ = Deadline::after(outer).scope(nested).await;
        fired(tally, before + nanos(outer.min(inner)));
    }
}

async fn with_intervals(
    check: &CheckRun,
    tally: &RefCell<SurfaceTally>,
    mut random: Random,
    missed: MissedTickBehavior,
) {
    while check.is_under_load() {
        let period = random.duration(LONGEST) + Duration::from_micros(100);
        let before = monotonic();
        let mut interval = interval(period);
        interval.set_missed_tick_behavior(missed);
        // The n-th tick comes no earlier than n periods after the start, whatever was missed.
        for tick in 0..8 {
            interval.tick().await;
            fired(tally, before + tick * nanos(period));
        }
        // No task waits for the next tick.
        interval.reset_after(FAR);
    }
}

fn fired(tally: &RefCell<SurfaceTally>, due: u64) {
    tally.borrow_mut().check(due, monotonic());
    ended(tally, Outcome::Fired);
}

fn ended(tally: &RefCell<SurfaceTally>, outcome: Outcome) {
    let mut tally = tally.borrow_mut();
    tally.armed += 1;
    tally.count(outcome);
}
