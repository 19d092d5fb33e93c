//! P8: each engine follows the clock that it was built with.
//!
//! What an engine's clock shows must lie between two readings of that clock of the kernel. And a timer on it completes no earlier than that
//! clock shows its deadline. Should somebody set the wall clock meanwhile, nothing is concluded from it.

use std::cell::RefCell;
use std::time::Duration;

use tourbillon::Engine;

use super::audit::Findings;
use super::outside;
use super::promise::Promise;
use super::stage::Stage;
use super::tasks::{Task, run_all};
use crate::clock::{Source, monotonic, nanos};
use crate::text::{count, time};

/// A clock of the kernel, and an engine that is to follow it.
struct Pair {
    name: &'static str,
    source: Source,
    engine: Engine,
}

#[derive(Default)]
struct Seen {
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
pub(crate) fn run(stage: &Stage) -> Findings {
    let pairs = pairs(stage);
    let seen: Vec<_> = pairs.iter().map(|_| RefCell::new(Seen::default())).collect();
    let task = |(pair, seen)| Box::pin(follow(stage, pair, seen)) as Task<'_>;
    run_all(pairs.iter().zip(&seen).map(task).collect());
    let mut findings = Findings::default();
    let (mut readings, mut fires) = (0, 0);
    for (pair, seen) in pairs.iter().zip(seen.into_iter().map(RefCell::into_inner)) {
        let name = pair.name;
        readings += seen.readings;
        fires += seen.fires;
        findings.expect(seen.wrong == 0, Promise::P8, || {
            format!("{name}: {} of {} readings were not that clock's", count(seen.wrong), count(seen.readings))
        });
        if let Some(by) = seen.early.iter().max() {
            let what = format!("{name}: {} fires by it were early, one by {}", seen.early.len(), time(*by));
            findings.complain(Promise::P8, what);
        }
        if seen.steps > 0 {
            findings.skipped.push(format!("{name}: it was set meanwhile, and {} fires not judged", seen.steps));
        }
        findings.clocks.push(name.to_owned());
    }
    let names = pairs.iter().map(|pair| pair.name).collect::<Vec<_>>().join(", ");
    let [readings, fires] = [readings, fires].map(count);
    findings.counted(Promise::P8, format!("{names}: {readings} readings and {fires} fires compared with the kernel's"));
    findings
}

#[cfg(target_os = "linux")]
fn pairs(stage: &Stage) -> Vec<Pair> {
    use tourbillon::Clock;
    // The fault: one clock in place of another.
    let wall = if stage.breaks(Promise::P8) { Clock::monotonic() } else { Clock::wall() };
    let pair = |name, source, clock| Pair { name, source, engine: outside::build(Engine::builder().clock(clock)) };
    vec![
        pair("monotonic", Source::Monotonic, Clock::monotonic()),
        pair("boot-time", Source::Boot, Clock::boot()),
        pair("wall", Source::Wall, wall),
    ]
}

/// There is one clock, and nothing to mistake it for.
#[cfg(not(target_os = "linux"))]
fn pairs(_: &Stage) -> Vec<Pair> {
    let engine = outside::build(Engine::builder());
    vec![Pair { name: "monotonic", source: Source::Monotonic, engine }]
}

async fn follow(stage: &Stage, pair: &Pair, seen: &RefCell<Seen>) {
    let mut random = stage.random(pair.name, 0);
    while stage.is_on() {
        let duration = random.duration(LONGEST);
        let offset = pair.offset();
        let before = pair.source.now();
        let reading = pair.engine.clock().now().as_nanos();
        let after = pair.source.now();
        let due = before + nanos(duration);
        pair.wait_until(due, duration).await;
        let fired = pair.source.now();
        let mut seen = seen.borrow_mut();
        if pair.offset().abs_diff(offset) > STEP {
            seen.steps += 1;
            continue;
        }
        seen.readings += 1;
        seen.fires += 1;
        seen.wrong += u64::from(!(before..=after).contains(&reading));
        if fired < due {
            seen.early.push(due - fired);
        }
    }
}

impl Pair {
    /// By the clock itself where it shows the time of day, else by what is left.
    async fn wait_until(&self, due: u64, duration: Duration) {
        #[cfg(target_os = "linux")]
        if self.source == Source::Wall {
            let when = std::time::SystemTime::UNIX_EPOCH + Duration::from_nanos(due);
            return self.engine.sleep_until_wall(when).await;
        }
        let _ = due;
        self.engine.sleep(duration).await;
    }

    /// How far it is from the monotonic clock. It changes in steps when the clock is set; the boot-time clock's does when the machine
    /// is suspended.
    fn offset(&self) -> i64 {
        // The largest is the one with the least time between the two readings.
        (0..3).map(|_| self.source.now().wrapping_sub(monotonic()) as i64).max().unwrap_or(0)
    }
}
