//! Writes a run to a folder: figures, plots, and a page with the machine and the tables.

use std::fs;
use std::io;
use std::path::Path;

use crate::figure_line::FigureLine;
use crate::table::{in_order, tables};
use crate::verdict::judge;
use crate::verdict_table::verdict;
use crate::{machine, plot};

/// File name of the figures, as JSON lines.
const FIGURES: &str = "figures.jsonl";

/// File name of the page, which repository browsers show with the folder.
const PAGE: &str = "README.md";

/// Writes a run to a folder, and returns the file names of its plots.
pub(crate) fn write(folder: &Path, lines: &[FigureLine], with_verdict: bool) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder)?;
    let figures: String = lines.iter().map(|line| line.to_json() + "\n").collect();
    fs::write(folder.join(FIGURES), figures)?;
    let plots = plot::write(folder, lines)?;
    let verdict = with_verdict.then(|| verdict(&judge(lines)));
    fs::write(folder.join(PAGE), page(&machine::describe(), &plots, verdict, lines))?;
    Ok(plots)
}

fn page(machine: &[(&str, String)], plots: &[String], verdict: Option<String>, lines: &[FigureLine]) -> String {
    let mut page = String::from("# One run of the benchmark\n\n|  |  |\n|---|---|\n");
    for (name, value) in machine {
        page += &format!("| {name} | {value} |\n");
    }
    page += &format!(
        "\nWhat each scenario, system and metric is: [the benchmark's README](../../tools/tourbillon-bench/README.md). The \
         figures: [`{FIGURES}`]({FIGURES}). Compare within the run, not between machines.\n"
    );
    for plot in plots {
        page += &format!("\n![{}]({plot})\n", plot.trim_end_matches(".svg"));
    }
    if let Some(verdict) = verdict {
        page += &format!("\n## Verdict\n\n```text\n{verdict}```\n");
    }
    for scenario in in_order(lines.iter().map(|line| &*line.scenario)) {
        let lines: Vec<FigureLine> = lines.iter().filter(|line| line.scenario == scenario).cloned().collect();
        page += &format!("\n## `{scenario}`\n\n```text{}```\n", tables(&lines));
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_machine_the_plots_and_the_tables() {
        let line = r#"{"scenario":"fire","system":"ours","case":"pending=1","metric":"cpu_ns_per_fire","value":99}"#;
        let lines = [FigureLine::from_json(line).expect("it is a line")];
        let page = page(&[("kernel", "6.18".into())], &["churn.svg".into()], Some("1 ahead\n".into()), &lines);
        for part in ["| kernel | 6.18 |", "![churn](churn.svg)", "1 ahead", "## `fire`", "ours    99.0 ns"] {
            assert!(page.contains(part), "{part} is not in {page}");
        }
    }
}
