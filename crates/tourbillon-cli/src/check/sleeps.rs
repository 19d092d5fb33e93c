//! The surface `sleep`: threads with many pending sleeps each ([`sleep_thread`](super::sleep_thread)) on one engine, whose own
//! counts are compared with theirs at the end.

use std::sync::Barrier;
use std::sync::mpsc::channel;
use std::thread;

use tourbillon::Engine;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::promise::Promise;
use super::sleep_thread::SleepThread;
use super::tally::SurfaceTally;
use crate::clock::CheckClock;
use crate::text::count;

/// The work on one engine.
pub(crate) struct SleepPlan {
    pub(crate) surface: &'static str,
    pub(crate) engine: Engine,
    /// The clock that it follows.
    pub(crate) clock: CheckClock,
    pub(crate) threads: usize,
    pub(crate) timers: usize,
    pub(crate) slacks: Slacks,
    /// Whether deadlines are moved. Then the engine may have armed a timer again that had just fired, so its count can be higher
    /// than ours.
    pub(crate) moves: bool,
}

/// The slacks of an engine's timers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slacks {
    /// The default only.
    Adaptive,
    /// Some of each kind.
    Mixed,
}

/// Runs as long as the load does, and then shuts the engine down.
pub(crate) fn run(check: &CheckRun, plan: &SleepPlan) -> Findings {
    let meeting = Barrier::new(plan.threads);
    let (mut outboxes, mut inboxes): (Vec<_>, Vec<_>) = (0..plan.threads).map(|_| channel()).unzip();
    // Each thread hands its sleeps to the next.
    outboxes.rotate_left(1);
    let done: Vec<(SurfaceTally, u64)> = thread::scope(|scope| {
        let start = |(thread, (inbox, neighbour))| {
            let meeting = &meeting;
            scope.spawn(move || SleepThread::new(check, plan, thread, inbox, neighbour).run(meeting))
        };
        let threads: Vec<_> = inboxes.drain(..).zip(outboxes.drain(..)).enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("a sleep thread does not panic")).collect()
    });
    let mut total = SurfaceTally::new(plan.surface);
    let moves = done.iter().map(|(_, moves)| moves).sum();
    done.iter().for_each(|(tally, _)| total.add(tally));
    total.balance();
    compare(&mut total, plan, moves);
    Findings { tallies: vec![total], ..Findings::default() }
}

/// Compares the engine's own counts with ours.
fn compare(total: &mut SurfaceTally, plan: &SleepPlan, moves: u64) {
    let stats = plan.engine.stats();
    let ended = stats.fired + stats.cancelled + stats.stopped;
    let most = if plan.moves { total.armed + moves } else { total.armed };
    let alike = stats.armed == ended
        && stats.pending == 0
        && stats.stopped == total.stopped
        && (total.armed..=most).contains(&stats.armed)
        && stats.fired >= total.fired;
    if !alike {
        let [armed, fired, cancelled, stopped, pending] =
            [stats.armed, stats.fired, stats.cancelled, stats.stopped, stats.pending].map(count);
        let engine = format!(
            "{armed} armed, {fired} fired, {cancelled} cancelled, {stopped} stopped, {pending} pending, after {} moves",
            count(moves)
        );
        let ours = total.equation();
        total.complain(
            Promise::P2,
            format!("{}: the engine counted {engine}; the threads counted {ours}", plan.surface),
        );
    }
}

/// Returns the number of timers for an engine that is not the main one.
pub(crate) fn small_engine_timers(timers: usize) -> usize {
    (timers / 100).clamp(1, 2_000)
}

/// Returns the plan of the main engine.
pub(crate) fn main_plan(check: &CheckRun, engine: Engine) -> SleepPlan {
    SleepPlan {
        surface: "sleeps",
        engine,
        clock: CheckClock::Monotonic,
        threads: check.threads,
        timers: check.timers,
        slacks: Slacks::Adaptive,
        moves: true,
    }
}
