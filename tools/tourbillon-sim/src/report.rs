//! The printed output: how a plan fails, how to repeat it, and the totals of all runs.

use std::fmt::Write;
use std::time::Duration;

use crate::plan::SimPlan;
use crate::planted_fault::PlantedFault;
use crate::shrink::Shrunk;
use crate::totals::Totals;

/// Describes a plan that fails, with the command that repeats it.
#[must_use]
pub fn failure(shrunk: &Shrunk, steps: usize, broken: Option<PlantedFault>) -> String {
    let mut text = String::new();
    let plan = &shrunk.plan;
    let _infallible = writeln!(text, "seed {} breaks a promise:\n    {}\n", plan.seed, shrunk.failure.violation);
    text.push_str(&list(plan));
    let keep: Vec<String> = plan.steps.iter().map(|(number, _)| number.to_string()).collect();
    let broken = broken.map_or_else(String::new, |broken| format!(" --break {broken:?}"));
    let _infallible = write!(
        text,
        "\nto repeat these {} steps (found in {} runs):\n    cargo run --release -p tourbillon-sim -- --seed {} --steps {steps} --keep {}{broken}",
        keep.len(),
        shrunk.runs,
        plan.seed,
        keep.join(",")
    );
    text
}

/// Lists the setup and the steps of a plan, one line each.
#[must_use]
pub fn list(plan: &SimPlan) -> String {
    let mut text = format!("{:?}\n", plan.setup);
    for (number, step) in &plan.steps {
        let _infallible = writeln!(text, "{number:>6}  {step:?}");
    }
    text
}

/// Formats totals as a table.
#[must_use]
pub fn table(totals: &Totals, took: Duration) -> String {
    let mut text = String::new();
    let rows = [
        ("runs", totals.runs.to_string()),
        ("steps", totals.steps.to_string()),
        ("compared with a model", totals.checks.to_string()),
        ("fired", totals.fires.to_string()),
        ("cancelled", totals.cancels.to_string()),
        ("stopped", totals.stops.to_string()),
        ("runs of jobs", totals.jobs.to_string()),
        ("simulated years", format!("{:.0}", totals.years())),
        ("simulated years per minute", format!("{:.0}", a_minute(totals, took))),
        ("seconds", format!("{:.1}", took.as_secs_f64())),
    ];
    for (name, value) in rows {
        let _infallible = writeln!(text, "{name:<32}{value:>16}");
    }
    text.push_str("faults injected\n");
    for (kind, count) in &totals.faults {
        let _infallible = writeln!(text, "  {kind:<30}{count:>16}");
    }
    text
}

/// Formats totals as one JSON object.
#[must_use]
pub fn json(totals: &Totals, took: Duration, failed: Option<u64>) -> String {
    let faults: Vec<String> = totals.faults.iter().map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
    let failed = failed.map_or_else(|| "null".to_owned(), |seed| seed.to_string());
    format!(
        "{{\"runs\":{},\"steps\":{},\"checks\":{},\"fired\":{},\"cancelled\":{},\"stopped\":{},\"job_runs\":{},\
         \"simulated_years\":{:.1},\"years_a_minute\":{:.1},\"seconds\":{:.3},\"faults\":{{{}}},\"failed_seed\":{failed}}}",
        totals.runs,
        totals.steps,
        totals.checks,
        totals.fires,
        totals.cancels,
        totals.stops,
        totals.jobs,
        totals.years(),
        a_minute(totals, took),
        took.as_secs_f64(),
        faults.join(",")
    )
}

fn a_minute(totals: &Totals, took: Duration) -> f64 {
    totals.years() * 60.0 / took.as_secs_f64().max(1e-9)
}
