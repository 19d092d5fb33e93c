//! Case `spread`: jobs with a period of one second, spread over it: whether all of them run, how late, and at what cost.

use std::time::{Duration, Instant};

use super::run_tally::RunTally;
use super::systems::{JobPlan, JobSystem};
use super::{CronScheduler, JobsOptions, TokioTasks, Tourbillon};
use crate::harness::{BenchEntry, Metrics, RoundLength, WarmUp, measure, per_operation};
use crate::percentiles::micros;
use crate::process_usage::own_cpu_time_between;
use crate::report::BenchReport;

const PERIOD: Duration = Duration::from_secs(1);

const JOBS: &[usize] = &[100_000];

/// Time after the first job is due that is not counted. After it every job has run, also in a system that rounds the first run up
/// to a whole second.
const WARM_UP: Duration = Duration::from_secs(2);

/// If no run happens for so long, missing runs are given up.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the case.
pub(super) fn run(options: &JobsOptions, report: &mut BenchReport) {
    let choice = &options.choice;
    let seconds = if choice.common.quick { 2 } else { 5 };
    for jobs in options.jobs(JOBS) {
        let size = SpreadSize { jobs, seconds };
        let entries = vec![entry::<Tourbillon>(size), entry::<TokioTasks>(size), entry::<CronScheduler>(size)];
        measure(entries, choice, choice.rounds(3, 1, RoundLength::Long), WarmUp::No, report);
    }
}

/// Number of jobs, and the seconds that are counted.
#[derive(Clone, Copy)]
struct SpreadSize {
    jobs: usize,
    seconds: u32,
}

fn entry<S: JobSystem>(size: SpreadSize) -> BenchEntry {
    let start = move || {
        let mut lead = S::LEAD.mul_f64(size.jobs as f64 / 100_000.0).max(Duration::from_millis(100));
        Box::new(move || {
            loop {
                if let Some(figures) = round::<S>(size, lead) {
                    break figures;
                }
                lead *= 2;
            }
        }) as _
    };
    BenchEntry { system: S::NAME, case: format!("spread={}", size.jobs), start: Box::new(start) }
}

/// Schedules all jobs and lets them run for a while; `None` if the first was due before all were scheduled.
fn round<S: JobSystem>(size: SpreadSize, lead: Duration) -> Option<Metrics> {
    let mut system = S::new(size.jobs);
    let first = Instant::now() + lead;
    let begin = first + WARM_UP;
    let end = begin + size.seconds * PERIOD;
    let tally = RunTally::of(begin..end);
    let share = |job: usize| PERIOD.mul_f64(job as f64 / size.jobs as f64);
    let plan = |job| JobPlan { period: PERIOD, first: Some(first + share(job)) };
    system.schedule_all(&(0..size.jobs).map(plan).collect(), tally);
    system.start();
    if Instant::now() > first {
        return None;
    }
    let cpu = own_cpu_time_between(begin, end);
    let due = size.jobs as u64 * u64::from(size.seconds);
    wait_for(due, tally);
    drop(system);
    Some(figures::<S>(tally, due, cpu, end - begin))
}

/// Waits until `due` runs have happened, or no more come.
fn wait_for(due: u64, tally: &RunTally) {
    let (mut runs, mut since) = (tally.runs(), Instant::now());
    while runs < due && since.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
        let now = tally.runs();
        if now > runs {
            (runs, since) = (now, Instant::now());
        }
    }
}

fn figures<S: JobSystem>(tally: &RunTally, due: u64, cpu: Duration, time: Duration) -> Metrics {
    let lateness = tally.lateness();
    let runs = lateness.len();
    if runs != due {
        eprintln!("warning: {} made {runs} runs, and {due} were due", S::NAME);
    }
    vec![
        ("runs", runs as f64),
        ("runs_due", due as f64),
        ("p50_us", micros(&lateness, 0.5)),
        ("p99_us", micros(&lateness, 0.99)),
        ("max_us", lateness.max() as f64 / 1000.0),
        ("cpu_ns_per_run", per_operation(cpu, (tally.happened() as usize).max(1))),
        ("cpu_percent", 100.0 * cpu.as_secs_f64() / time.as_secs_f64()),
    ]
}
