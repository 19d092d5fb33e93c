//! Runs every scenario one after the other, each in a process of its own: no scenario inherits memory or threads from another,
//! and a failure of one does not stop the others.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::Common;
use crate::figure_line::FigureLine;
use crate::report::print;
use crate::results_folder;
use crate::table::tables;
use crate::verdict_table::print_verdict;
use crate::virtual_time;

#[derive(clap::Args)]
pub(crate) struct AllOptions {
    #[command(flatten)]
    common: Common,
    /// Only these scenarios.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(SCENARIOS))]
    scenario: Vec<String>,
    /// Also writes figures, tables, plots and a description of the machine to this folder.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// All scenarios, in the order in which they run.
pub(crate) const SCENARIOS: [&str; 14] = [
    "queue", "churn", "contend", "cross", "reset", "fire", "lateness", "memory", "jobs", "io", "scale", "durable",
    "serve", VIRTUAL,
];

/// The scenario that only some builds have.
const VIRTUAL: &str = "virtual";

/// Runs all scenarios. An error lists those that failed; the others are reported nevertheless.
pub(crate) fn run(options: &AllOptions) -> Result<(), String> {
    let start = Instant::now();
    let (mut lines, mut failed) = (Vec::new(), Vec::new());
    let is_selected = |name: &&str| options.scenario.is_empty() || options.scenario.iter().any(|it| it == name);
    let scenarios: Vec<&str> = SCENARIOS.into_iter().filter(is_selected).collect();
    for (number, &scenario) in scenarios.iter().enumerate() {
        eprintln!("{scenario} ({} of {})", number + 1, scenarios.len());
        if scenario == VIRTUAL && !virtual_time::IS_BUILT {
            virtual_time::print_how_to_build(options.common.json);
            continue;
        }
        let begin = Instant::now();
        let (found, ended) = run_one(scenario, command(scenario, &options.common), options.common.json);
        if !options.common.json {
            print(&format!("\n== {scenario}\n{}", tables(&found)));
        }
        eprintln!("{scenario}: {:.0} s", begin.elapsed().as_secs_f64());
        lines.extend(found);
        failed.extend(ended.err());
    }
    eprintln!("all: {:.0} s", start.elapsed().as_secs_f64());
    if options.common.verdict {
        failed.extend(print_verdict(&lines, options.common.json).err());
    }
    if let Some(folder) = &options.out {
        let plots = results_folder::write(folder, &lines, options.common.verdict)
            .map_err(|error| format!("could not write to {}: {error}", folder.display()))?;
        eprintln!("written to {}", folder.display());
        plots.iter().for_each(|plot| eprintln!("plot: {}", folder.join(plot).display()));
    }
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

/// Returns the command that runs one scenario in this program.
fn command(scenario: &str, common: &Common) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([scenario, "--json"]);
    command.args(common.quick.then_some("--quick")).args(common.verdict.then_some("--verdict"));
    command
}

/// Runs a scenario. Returns its figures and how it ended; its progress and its errors go to standard error.
fn run_one(scenario: &str, mut command: Command, json: bool) -> (Vec<FigureLine>, Result<(), String>) {
    let mut lines = Vec::new();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return (lines, Err(format!("{scenario} could not be started: {error}"))),
    };
    let output = BufReader::new(child.stdout.take().expect("it was asked for"));
    let mut bad_line = None;
    for text in output.lines().map_while(Result::ok) {
        if json {
            print(&format!("{text}\n"));
        }
        match FigureLine::from_json(&text) {
            Ok(line) => lines.push(line),
            Err(error) => bad_line = Some(format!("{scenario} printed a line that is not a figure: {error}")),
        }
    }
    let ended = match child.wait() {
        Ok(status) if !status.success() => Err(format!("{scenario} failed: {status}")),
        Err(error) => Err(format!("{scenario} failed: {error}")),
        Ok(_) if lines.is_empty() => Err(format!("{scenario} printed no figures")),
        Ok(_) => bad_line.map_or(Ok(()), Err),
    };
    (lines, ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> (Vec<FigureLine>, Result<(), String>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run_one("fire", command, false)
    }

    const LINE: &str =
        r#"{"scenario":"fire","system":"ours","case":"pending=1","metric":"cpu_ns_per_fire","value":99}"#;

    #[test]
    fn a_scenario_that_ends_well_gives_its_figures() {
        let (lines, ended) = shell(&format!("echo '{LINE}'; echo '{LINE}'"));
        assert_eq!((lines.len(), ended), (2, Ok(())));
    }

    #[test]
    fn a_scenario_that_fails_does_not_hide_and_keeps_what_it_found_before() {
        let (lines, ended) = shell(&format!("echo '{LINE}'; exit 3"));
        assert_eq!(lines.len(), 1);
        assert!(ended.is_err_and(|why| why.starts_with("fire failed")));
        assert!(shell("kill -9 $$").1.is_err(), "by a signal");
        assert!(shell("true").1.is_err(), "without figures");
        assert!(shell(&format!("echo '{LINE}'; echo nonsense")).1.is_err(), "with something else");
    }
}
