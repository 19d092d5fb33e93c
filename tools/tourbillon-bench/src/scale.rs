//! Scenario `scale`: what an operation costs, and what a sleep takes, beside a thousand to a hundred million pending sleeps.
//!
//! Every figure comes from a process of its own (this program with the subcommand `scale-of`), so that no size reuses memory of
//! another.

use std::pin::Pin;
use std::time::{Duration, Instant};

use tourbillon_tools::Random;

use crate::churn::arm_and_cancel;
use crate::fire::{self, FireRound};
use crate::harness::{
    BenchEntry, PendingOptions, RoundCount, RoundLength, WarmUp, arm, far_durations, in_poll, measure, per_operation,
    settle,
};
use crate::machine::available_memory;
use crate::memory::run_in_own_process;
use crate::metric::thousands;
use crate::process_usage::own_resident;
use crate::report::{BenchReport, median};
use crate::reset::push_later;
use crate::systems::tokio::Tokio;
use crate::systems::tourbillon;
use crate::systems::{TaskRunner, tokio};

/// The arguments of the measured process.
#[derive(clap::Args)]
pub(crate) struct ScaleArgs {
    system: String,
    pending: usize,
}

const SYSTEMS: &[&str] = &[tourbillon::NAME, tokio::MULTI];

/// The metrics in the order in which the measured process prints them.
const METRICS: [&str; 4] = ["churn_ns_per_op", "reset_ns_per_op", "cpu_ns_per_fire", "resident_bytes"];

const PENDING: &[usize] = &[1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
const PENDING_QUICK: &[usize] = &[1_000, 10_000, 100_000, 1_000_000];

/// More pending sleeps than this are not judged by the verdict, whose many rounds would take too long.
const JUDGED: usize = 1_000_000;
/// More pending sleeps than this are measured once, since it takes minutes.
const OFTEN: usize = 10_000_000;

/// The pending sleeps come due at random from `EARLIEST` to `EARLIEST + HORIZON`.
const EARLIEST: Duration = Duration::from_secs(20 * 60);
const HORIZON: Duration = Duration::from_secs(80 * 60);

/// Operations of a round of `churn` and of `reset`.
const OPERATIONS: usize = 100_000;
/// Rounds of `churn` and of `reset` in a process.
const ROUNDS: usize = 15;

/// Most sleeps that fire in a round.
const FIRES: usize = 100_000;
/// Rounds of `fire` in a process.
const FIRE_ROUNDS: usize = 3;
/// Time between two fires, on average: the same for all sizes, so that a wake-up is shared by as many.
const FIRE_EVERY: Duration = Duration::from_micros(10);
/// Time from the start of arming until the first sleep is due. It is doubled if it turns out to be too short.
const LEAD: Duration = Duration::from_millis(100);

/// By how much each deadline of `reset` is later than the one before.
const STEP: Duration = Duration::from_micros(1);

/// Time for background threads to take over what was armed.
const SETTLE: Duration = Duration::from_millis(200);

/// Threads of the runtime. One of them does the work.
const WORKERS: usize = 2;

/// Runs the scenario.
pub(crate) fn run(options: &PendingOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    choice.check(SYSTEMS);
    let pending = options.numbers(if choice.common.quick { PENDING_QUICK } else { PENDING });
    for &pending in pending.iter().filter(|&&pending| pending > 0) {
        let rounds = choice.rounds(3, 1, RoundLength::Long);
        let rounds = match pending <= JUDGED {
            true => rounds,
            false => RoundCount::same(if pending <= OFTEN { rounds.others } else { 1 }),
        };
        let systems = SYSTEMS.iter().filter(|system| choice.includes(system) && has_memory_for(system, pending));
        let entries = systems.map(|system| entry(system, pending)).collect();
        measure(entries, choice, rounds, WarmUp::No, report);
    }
}

/// Returns whether the machine has enough free memory, and prints a note if not.
fn has_memory_for(system: &str, pending: usize) -> bool {
    const GB: u64 = 1_000_000_000;
    let needed = memory_needed(system, pending);
    let available = available_memory().unwrap_or(u64::MAX);
    if needed > available {
        let (needed, available) = (needed.div_ceil(GB), available / GB);
        let pending = thousands(pending as u64);
        eprintln!(
            "note: {system} with {pending} pending is left out: it needs {needed} GB of free memory, there are {available} GB"
        );
    }
    needed <= available
}

/// Returns about how many bytes the measured process takes, half as much again for growth included.
fn memory_needed(system: &str, pending: usize) -> u64 {
    let each = if system == tourbillon::NAME { 80 } else { 160 };
    each * pending as u64 * 3 / 2
}

fn entry(system: &'static str, pending: usize) -> BenchEntry {
    let round = move || {
        let figures: [f64; 4] = run_in_own_process(&["scale-of", system, &pending.to_string()]);
        METRICS.into_iter().zip(figures).collect()
    };
    BenchEntry { system, case: format!("pending={pending}"), start: Box::new(move || Box::new(round)) }
}

/// Measures one system in this process, and prints the figures.
pub(crate) fn run_one(of: &ScaleArgs) {
    let mut runtime = Tokio::multi_thread(WORKERS);
    match &*of.system {
        tourbillon::NAME => {
            runtime.run_one(print_figures(tourbillon::sleep, tourbillon::instant, tourbillon::reset, of.pending));
        }
        tokio::MULTI => runtime.run_one(print_figures(tokio::sleep, Into::into, tokio::reset, of.pending)),
        _ => {}
    }
}

/// Arms the pending sleeps, measures beside them, and ends the process. `I` is the system's type for an instant.
async fn print_figures<F, I>(
    sleep: impl Fn(Duration) -> F,
    instant: impl Fn(Instant) -> I,
    reset: impl Fn(Pin<&mut F>, I),
    pending: usize,
) where
    F: Future + Send,
    I: Copy + Send,
{
    // Everything that the first sleep starts is running before the measurement.
    drop(arm(&sleep, &far_durations(1, &mut Random::new(0))).await);
    sleep(SETTLE).await;
    let before = own_resident();
    let mut held = arm_pending(&sleep, pending).await;
    sleep(SETTLE).await;
    let resident = own_resident().saturating_sub(before) as f64 / pending as f64;
    let churn = measure_churn(&sleep).await;
    let reset = measure_reset(&sleep, held[0].as_mut(), &instant, &reset).await;
    let fire = measure_fire(&sleep, pending).await;
    println!("{churn} {reset} {fire} {resident}");
    // Dropping so many sleeps would take long.
    std::process::exit(0);
}

/// Creates boxed sleeps, and polls each once. The durations are drawn one by one, since a list of them would take memory.
async fn arm_pending<F: Future>(sleep: &impl Fn(Duration) -> F, pending: usize) -> Vec<Pin<Box<F>>> {
    let (mut random, spread) = (Random::new(1), HORIZON.as_nanos() as u64);
    let mut sleeps = Vec::with_capacity(pending);
    in_poll(|cx| {
        for _ in 0..pending {
            let mut new = Box::pin(sleep(EARLIEST + Duration::from_nanos(random.below(spread))));
            assert!(new.as_mut().poll(cx).is_pending());
            sleeps.push(new);
        }
    })
    .await;
    sleeps
}

/// Returns nanoseconds to create, poll once and drop a sleep.
async fn measure_churn<F: Future>(sleep: &impl Fn(Duration) -> F) -> f64 {
    let spread = HORIZON.as_nanos() as u64;
    let mut random = Random::new(2);
    let durations: Vec<Duration> =
        (0..OPERATIONS).map(|_| EARLIEST + Duration::from_nanos(random.below(spread))).collect();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        settle(sleep).await;
        rounds.push(in_poll(|_| arm_and_cancel(sleep, &durations)).await);
    }
    median(rounds)
}

/// Returns nanoseconds to give one of the pending sleeps a later deadline.
async fn measure_reset<F: Future, I: Copy>(
    sleep: &impl Fn(Duration) -> F,
    mut pushed: Pin<&mut F>,
    instant: &impl Fn(Instant) -> I,
    reset: &impl Fn(Pin<&mut F>, I),
) -> f64 {
    // Later than the last pending sleep.
    let mut deadline = Instant::now() + 2 * (EARLIEST + HORIZON);
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let next = || {
            deadline += STEP;
            instant(deadline)
        };
        let deadlines: Vec<I> = std::iter::repeat_with(next).take(OPERATIONS).collect();
        settle(sleep).await;
        rounds.push(in_poll(|_| push_later(pushed.as_mut(), reset, &deadlines)).await);
    }
    median(rounds)
}

/// Returns the CPU nanoseconds of a fire. As many sleeps fire as are pending, but no more than [`FIRES`].
async fn measure_fire<F: Future>(sleep: &impl Fn(Duration) -> F, pending: usize) -> f64 {
    let fires = pending.min(FIRES);
    let offsets = fire::offsets(fires, FIRE_EVERY * fires as u32);
    let (mut rounds, mut lead) = (Vec::new(), LEAD);
    while rounds.len() < FIRE_ROUNDS {
        match fire::round(sleep, FireRound { offsets: offsets.clone(), lead }).await {
            Some(cpu) => rounds.push(per_operation(cpu, fires)),
            None => lead *= 2,
        }
    }
    median(rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_million_of_ours_need_12_gb() {
        assert_eq!(memory_needed(tourbillon::NAME, 100_000_000), 12_000_000_000);
        assert!(!has_memory_for(tokio::MULTI, usize::MAX >> 10));
        assert!(has_memory_for(tokio::MULTI, 1_000));
    }
}
