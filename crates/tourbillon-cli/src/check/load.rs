//! The part under load: all surfaces at once, each on threads of its own.

use std::sync::Arc;
use std::time::Duration;

use tourbillon::Engine;

use super::audit::{Audit, Findings};
use super::check_run::CheckRun;
use super::order::KINDS;
use super::promise::Promise;
use super::sleeps::{self, Slacks, SleepPlan};
use super::watchdog::WatchedPart;
use super::{clocks, delay_queue, engines, expiring_map, jobs, named, timeouts, timers, waits};
use crate::clock::{CheckClock, monotonic};

/// A surface, which runs as long as the load does and returns its findings.
type SurfaceRun = Box<dyn FnOnce(&Arc<CheckRun>) -> Findings + Send>;

/// Starts all surfaces, and waits for the findings of each.
pub(crate) fn run(check: &Arc<CheckRun>, audit: &mut Audit) {
    check.set_phase("all surfaces at once");
    let lasts = Duration::from_nanos(check.load_ends.saturating_sub(monotonic()));
    let start = |name, run: SurfaceRun| WatchedPart::start(check, name, Promise::P10, lasts, move |check| run(check));
    let surfaces: Vec<(&'static str, SurfaceRun)> = vec![
        (
            "sleeps",
            Box::new(|check| {
                let engine = engines::engine(check, Engine::builder());
                sleeps::run(check, &sleeps::main_plan(check, engine))
            }),
        ),
        ("timeouts", Box::new(|check| timeouts::run(check, &engines::build(Engine::builder())))),
        ("waits", Box::new(|check| waits::run(check, &engines::build(Engine::builder())))),
        ("delay queue", Box::new(|check| delay_queue::run(check, &engines::build(Engine::builder())))),
        ("timers", Box::new(|check| timers::run(check, &engines::build(Engine::builder())))),
        ("named timers", Box::new(|check| named::run(check, &engines::build(Engine::builder())))),
        ("map entries", Box::new(|check| expiring_map::run(check, &engines::build(Engine::builder())))),
        ("jobs", Box::new(|check| jobs::run(check, &engines::build(Engine::builder())))),
        ("clocks", Box::new(|check| clocks::run(check))),
    ];
    let others = other_plans(check)
        .into_iter()
        .map(|plan| -> (&'static str, SurfaceRun) { (plan.surface, Box::new(move |check| sleeps::run(check, &plan))) });
    let parts = surfaces.into_iter().chain(others).chain(io());
    let parts: Vec<_> = parts.map(|(name, run)| start(name, run)).collect();
    parts.into_iter().for_each(|part| audit.add(part.wait(check)));
}

/// Returns plans with fewer timers, for engines with other queues, other slacks, and another clock.
fn other_plans(check: &CheckRun) -> Vec<SleepPlan> {
    let plan = |surface, engine, clock| SleepPlan {
        surface,
        engine: engines::build(engine),
        clock,
        threads: 1,
        timers: sleeps::small_engine_timers(check.timers),
        slacks: Slacks::Adaptive,
        moves: false,
    };
    let names = ["sleeps on a heap", "sleeps on a list and tree", "sleeps on rounds"];
    let kinds = names.into_iter().zip(&KINDS[1..]);
    let mut plans: Vec<_> =
        kinds.map(|(name, (_, kind))| plan(name, Engine::builder().queue(*kind), CheckClock::Monotonic)).collect();
    let mixed = plan("sleeps with other slacks", Engine::builder(), CheckClock::Monotonic);
    plans.push(SleepPlan { slacks: Slacks::Mixed, moves: true, ..mixed });
    plans.push(plan("sleeps by boot time", Engine::builder().clock(tourbillon::Clock::boot()), CheckClock::Boot));
    plans
}

#[cfg(target_os = "linux")]
fn io() -> Vec<(&'static str, SurfaceRun)> {
    use tourbillon_rt::Backend;
    vec![
        ("I/O on epoll", Box::new(|check| super::io::run(check, Backend::Epoll))),
        ("I/O on io_uring", Box::new(|check| super::io::run(check, Backend::Uring))),
    ]
}

#[cfg(not(target_os = "linux"))]
fn io() -> Vec<(&'static str, SurfaceRun)> {
    Vec::new()
}
