//! The part under load: all surfaces at once, each on threads of its own.

use std::sync::Arc;
use std::time::Duration;

use tourbillon::Engine;

use super::audit::{Audit, Findings};
use super::order::KINDS;
use super::promise::Promise;
use super::sleeps::{self, Plan, Slacks};
use super::stage::Stage;
use super::watch::Part;
use super::{clocks, delay_queue, jobs, named, outside, timeouts, timers, waits};
use crate::clock::{Source, monotonic};

/// What runs as long as the load does, and hands in what it found.
type Surface = Box<dyn FnOnce(&Arc<Stage>) -> Findings + Send>;

/// Starts all surfaces, and waits until each has handed in what it found.
pub(crate) fn run(stage: &Arc<Stage>, audit: &mut Audit) {
    stage.is_at("all surfaces at once");
    let lasts = Duration::from_nanos(stage.load_ends.saturating_sub(monotonic()));
    let start = |name, run: Surface| Part::start(stage, name, Promise::P10, lasts, move |stage| run(stage));
    let surfaces: Vec<(&'static str, Surface)> = vec![
        (
            "sleeps",
            Box::new(|stage| {
                let engine = outside::engine(stage, Engine::builder());
                sleeps::run(stage, &sleeps::main_plan(stage, engine))
            }),
        ),
        ("timeouts", Box::new(|stage| timeouts::run(stage, &outside::build(Engine::builder())))),
        ("waits", Box::new(|stage| waits::run(stage, &outside::build(Engine::builder())))),
        ("delay queue", Box::new(|stage| delay_queue::run(stage, &outside::build(Engine::builder())))),
        ("timers", Box::new(|stage| timers::run(stage, &outside::build(Engine::builder())))),
        ("named timers", Box::new(|stage| named::run(stage, &outside::build(Engine::builder())))),
        ("jobs", Box::new(|stage| jobs::run(stage, &outside::build(Engine::builder())))),
        ("clocks", Box::new(|stage| clocks::run(stage))),
    ];
    let others = other_plans(stage)
        .into_iter()
        .map(|plan| -> (&'static str, Surface) { (plan.surface, Box::new(move |stage| sleeps::run(stage, &plan))) });
    let parts = surfaces.into_iter().chain(others).chain(io());
    let parts: Vec<_> = parts.map(|(name, run)| start(name, run)).collect();
    parts.into_iter().for_each(|part| audit.take(part.wait(stage)));
}

/// Fewer timers, on engines with the other queues, with other slacks, and with another clock.
fn other_plans(stage: &Stage) -> Vec<Plan> {
    let plan = |surface, engine, source| Plan {
        surface,
        engine: outside::build(engine),
        source,
        threads: 1,
        timers: sleeps::few(stage.timers),
        slacks: Slacks::Adaptive,
        moves: false,
    };
    let names = ["sleeps on a heap", "sleeps on a list and tree", "sleeps on rounds"];
    let kinds = names.into_iter().zip(&KINDS[1..]);
    let mut plans: Vec<_> =
        kinds.map(|(name, (_, kind))| plan(name, Engine::builder().queue(*kind), Source::Monotonic)).collect();
    let mixed = plan("sleeps with other slacks", Engine::builder(), Source::Monotonic);
    plans.push(Plan { slacks: Slacks::Mixed, moves: true, ..mixed });
    #[cfg(target_os = "linux")]
    plans.push(plan("sleeps by boot time", Engine::builder().clock(tourbillon::Clock::boot()), Source::Boot));
    plans
}

#[cfg(target_os = "linux")]
fn io() -> Vec<(&'static str, Surface)> {
    use tourbillon_rt::Backend;
    vec![
        ("I/O on epoll", Box::new(|stage| super::io::run(stage, Backend::Epoll))),
        ("I/O on io_uring", Box::new(|stage| super::io::run(stage, Backend::Uring))),
    ]
}

#[cfg(not(target_os = "linux"))]
fn io() -> Vec<(&'static str, Surface)> {
    Vec::new()
}
