//! Draws figures as SVG plots on a white background.

mod canvas;
mod churn_cost;
mod curves;
mod lateness_against_cpu;
mod lateness_distribution;
mod scale_cost;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::figure_line::{FigureLine, lines};
use crate::table::in_order;

#[derive(clap::Args)]
pub(crate) struct PlotOptions {
    /// A file with JSON lines.
    file: PathBuf,
    /// The folder for the plots.
    #[arg(long, default_value = ".")]
    to: PathBuf,
}

/// The SVG text of a plot.
type Drawn = Result<String, Box<dyn Error>>;

/// Draws the plots of a file.
pub(crate) fn run(options: &PlotOptions) -> Result<(), String> {
    let describe = |error: &dyn Error| format!("{}: {error}", options.file.display());
    let text = fs::read_to_string(&options.file).map_err(|error| describe(&error))?;
    let lines = lines(&text).map_err(|error| format!("{}: {error}", options.file.display()))?;
    fs::create_dir_all(&options.to).map_err(|error| describe(&error))?;
    let plots = write(&options.to, &lines).map_err(|error| describe(&error))?;
    if plots.is_empty() {
        return Err(format!("{}: the file has no figures of `churn`, `lateness` or `scale`", options.file.display()));
    }
    plots.iter().for_each(|plot| println!("{}", options.to.join(plot).display()));
    Ok(())
}

/// Writes the plots that have figures, and returns their file names.
pub(crate) fn write(folder: &Path, lines: &[FigureLine]) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (name, plot) in plots(lines).map_err(|error| io::Error::other(error.to_string()))? {
        fs::write(folder.join(&name), plot)?;
        names.push(name);
    }
    Ok(names)
}

/// Returns the plots by their file names.
fn plots(lines: &[FigureLine]) -> Result<Vec<(String, String)>, Box<dyn Error>> {
    let mut plots = Vec::new();
    if lines.iter().any(churn_cost::counts) {
        plots.push(("churn.svg".to_owned(), churn_cost::plot(lines)?));
    }
    let lateness: Vec<FigureLine> = lines.iter().filter(|line| line.scenario == "lateness").cloned().collect();
    for tasks in in_order(lateness.iter().filter_map(|line| line.setting("tasks"))) {
        let of: Vec<FigureLine> =
            lateness.iter().filter(|line| line.setting("tasks") == Some(tasks)).cloned().collect();
        plots.push((format!("lateness-{tasks}.svg"), lateness_distribution::plot(&of, tasks)?));
        plots.push((format!("plane-{tasks}.svg"), lateness_against_cpu::plot(&of, tasks)?));
    }
    if lines.iter().any(scale_cost::counts) {
        plots.push(("scale.svg".to_owned(), scale_cost::plot(lines)?));
    }
    Ok(plots)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns figures of a few systems, as in a run.
    fn fixture() -> Vec<FigureLine> {
        let mut text = String::new();
        let mut add = |scenario: &str, system: &str, case: &str, metric: &str, value: f64| {
            text += &format!(
                r#"{{"scenario":"{scenario}","system":"{system}","case":"{case}","metric":"{metric}","value":{value}}}"#
            );
            text += "\n";
        };
        for (factor, system) in SYSTEMS.into_iter().enumerate() {
            let factor = 1.0 + factor as f64;
            for (pending, nanos) in [(0, 30.0), (1_000, 31.0), (1_000_000, 40.0)] {
                add("churn", system, &format!("pending={pending},driver=turned"), "ns_per_op", factor * nanos);
                add("churn", system, &format!("pending={pending}"), "ns_per_op", 9e9);
                add("churn", system, &format!("pending={pending},driver=turned,rt=current"), "ns_per_op", 9e9);
            }
            for (pending, nanos) in [(1_000, 30.0), (10_000_000, 40.0)] {
                for metric in ["churn_ns_per_op", "reset_ns_per_op", "cpu_ns_per_fire", "resident_bytes"] {
                    add("scale", system, &format!("pending={pending}"), metric, factor * nanos);
                }
            }
            let variant = if system == "tourbillon" { ",slack=adaptive,driver=default,rt=multi" } else { "" };
            for tasks in [1, 1000] {
                for (metric, micros) in [("p50_us", 70.0), ("p90_us", 200.0), ("p99_us", 900.0)] {
                    add("lateness", system, &format!("tasks={tasks}{variant}"), metric, factor * micros);
                }
                add("lateness", system, &format!("tasks={tasks}{variant}"), "cpu_ns_per_fire", factor * 1000.0);
            }
        }
        add("lateness", "libuv", "tasks=1", "p10_us", 0.0);
        lines(&text).expect("all are lines")
    }

    const SYSTEMS: [&str; 5] = ["tourbillon", "tokio-multi", "asio", "libuv", "a-new-one"];

    #[test]
    fn every_plot_is_made_and_names_every_system() {
        let plots = plots(&fixture()).expect("they can be drawn");
        let names: Vec<_> = plots.iter().map(|(name, _)| name.as_str()).collect();
        let expected =
            ["churn.svg", "lateness-1.svg", "plane-1.svg", "lateness-1000.svg", "plane-1000.svg", "scale.svg"];
        assert_eq!(names, expected);
        for (name, plot) in &plots {
            for system in SYSTEMS {
                assert!(plot.contains(system), "{system} is not in {name}");
            }
        }
    }

    #[test]
    fn a_plot_is_xml_whose_elements_are_closed_and_whose_numbers_are_numbers() {
        for (name, plot) in plots(&fixture()).expect("they can be drawn") {
            assert!(plot.starts_with("<svg") && plot.trim_end().ends_with("</svg>"), "{name}");
            let (mut open, mut rest) = (Vec::new(), plot.as_str());
            while let Some((_, tag)) = rest.split_once('<') {
                let (tag, after) = tag.split_once('>').expect("a tag ends");
                rest = after;
                if let Some(closed) = tag.strip_prefix('/') {
                    assert_eq!(open.pop(), Some(closed), "{name}");
                } else if !tag.ends_with('/') {
                    open.push(tag.split_whitespace().next().unwrap_or(tag));
                }
            }
            assert!(open.is_empty(), "{name}: {open:?}");
            assert!(!plot.contains("NaN") && !plot.contains("inf"), "{name}");
        }
    }

    #[test]
    fn without_figures_there_are_no_plots() {
        assert!(plots(&[]).expect("there is nothing to draw").is_empty());
    }

    #[test]
    fn only_a_driver_that_has_gone_round_is_in_the_plot_of_costs() {
        let counted: Vec<_> = fixture().into_iter().filter(churn_cost::counts).collect();
        assert_eq!(counted.len(), 3 * SYSTEMS.len());
        assert!(counted.iter().all(|line| line.value < 1e6));
    }
}
