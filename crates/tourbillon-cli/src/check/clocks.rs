//! P8: each engine follows the clock that it was built with.
//!
//! The time that an engine's clock shows must lie between two readings of the same kernel clock, if both count from the same origin, and a timer on it completes no earlier
//! than that clock shows its deadline. If the wall clock is set meanwhile, the fires in question are not judged.

use std::cell::RefCell;
use std::time::Duration;

use tourbillon::{Clock, Engine};

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines;
use super::local_executor::{LocalTask, run_tasks};
use super::promise::Promise;
use crate::clock::{CheckClock, monotonic, nanos};
use crate::text::{count, time};

/// A kernel clock, and an engine that should follow it.
struct ClockCase {
    name: &'static str,
    clock: CheckClock,
    engine: Engine,
}

#[derive(Default)]
struct ClockFindings {
    readings: u64,
    wrong: u64,
    fires: u64,
    early: Vec<u64>,
    steps: u64,
}

const LONGEST: Duration = Duration::from_millis(20);
/// The wall clock is slewed by less than this while a timer is pending; more is a step.
const STEP: u64 = 1_000_000;

/// Runs as long as the load does.
pub(crate) fn run(check: &CheckRun) -> Findings {
    let cases = cases(check);
    let seen: Vec<_> = cases.iter().map(|_| RefCell::new(ClockFindings::default())).collect();
    let task = |(case, seen)| Box::pin(follow(check, case, seen)) as LocalTask<'_>;
    run_tasks(cases.iter().zip(&seen).map(task).collect());
    let mut findings = Findings::default();
    let (mut readings, mut fires) = (0, 0);
    for (case, seen) in cases.iter().zip(seen.into_iter().map(RefCell::into_inner)) {
        let name = case.name;
        readings += seen.readings;
        fires += seen.fires;
        findings.expect(seen.wrong == 0, Promise::P8, || {
            format!("{name}: {} of {} readings came from another clock", count(seen.wrong), count(seen.readings))
        });
        if let Some(by) = seen.early.iter().max() {
            let what = format!("{name}: {} fires by this clock were early, one by {}", seen.early.len(), time(*by));
            findings.complain(Promise::P8, what);
        }
        if seen.steps > 0 {
            findings
                .skipped
                .push(format!("{name}: the clock was set meanwhile, so {} fires were not judged", seen.steps));
        }
        findings.clocks.push(name.to_owned());
    }
    let names = cases.iter().map(|case| case.name).collect::<Vec<_>>().join(", ");
    let [readings, fires] = [readings, fires].map(count);
    findings.counted(Promise::P8, format!("{names}: {readings} readings and {fires} fires compared with the kernel's"));
    findings
}

fn cases(check: &CheckRun) -> Vec<ClockCase> {
    // The planted fault: the monotonic clock instead of the wall clock.
    let wall = if check.breaks(Promise::P8) { Clock::monotonic() } else { Clock::wall() };
    let case =
        |name, clock, followed| ClockCase { name, clock, engine: engines::build(Engine::builder().clock(followed)) };
    vec![
        case("monotonic", CheckClock::Monotonic, Clock::monotonic()),
        case("boot-time", CheckClock::Boot, Clock::boot()),
        case("wall", CheckClock::Wall, wall),
    ]
}

async fn follow(check: &CheckRun, case: &ClockCase, seen: &RefCell<ClockFindings>) {
    let mut random = check.random(case.name, 0);
    while check.is_under_load() {
        let duration = random.duration(LONGEST);
        let offset = case.offset();
        let before = case.clock.now();
        let reading = case.engine.clock().now().as_nanos();
        let after = case.clock.now();
        let due = before + nanos(duration);
        case.wait_until(due, duration).await;
        let fired = case.clock.now();
        let mut seen = seen.borrow_mut();
        if case.offset().abs_diff(offset) > STEP {
            seen.steps += 1;
            continue;
        }
        seen.readings += 1;
        seen.fires += 1;
        seen.wrong += u64::from(case.clock.is_comparable() && !(before..=after).contains(&reading));
        if fired < due {
            seen.early.push(due - fired);
        }
    }
}

impl ClockCase {
    /// Waits by the time of day if the clock shows it, else for the duration.
    async fn wait_until(&self, due: u64, duration: Duration) {
        if self.clock == CheckClock::Wall {
            let when = std::time::SystemTime::UNIX_EPOCH + Duration::from_nanos(due);
            return self.engine.sleep_until_wall(when).await;
        }
        self.engine.sleep(duration).await;
    }

    /// Returns the distance to the monotonic clock. It changes in steps when the wall clock is set, and for the boot-time clock
    /// when the machine is suspended.
    fn offset(&self) -> i64 {
        // The largest value has the least time between its two readings.
        (0..3).map(|_| self.clock.now().wrapping_sub(monotonic()) as i64).max().unwrap_or(0)
    }
}
