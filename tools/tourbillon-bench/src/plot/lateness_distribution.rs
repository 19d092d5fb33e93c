//! The lateness of timers: a curve of percentiles for each system.

use super::curves::{Curve, CurvePlot};
use super::lateness_against_cpu::{MeasuredVariant, variant};
use crate::figure_line::FigureLine;
use crate::percentiles::quantile;
use crate::table::in_order;

/// The marks of the axis, on which every further nine takes the same width.
const MARKS: [(f64, &str); 5] = [(0.1, "10%"), (0.5, "50%"), (0.9, "90%"), (0.99, "99%"), (0.999, "99.9%")];

/// Smaller values are drawn as this, in microseconds, since a logarithmic axis has no zero.
const LEAST: f64 = 1.0;

/// The slacks of Tourbillon that are drawn; the plot of lateness against CPU time has all.
const SLACKS: [&str; 2] = ["adaptive", "exact"];

/// Plots the figures of one number of tasks.
pub(super) fn plot(lines: &[FigureLine], tasks: &str) -> super::Drawn {
    // Older files have no default driver; then the driver thread is drawn.
    let has_default = lines.iter().any(|line| line.setting("driver") == Some("default"));
    let shown = if has_default { "default" } else { "thread" };
    let known: Vec<(MeasuredVariant, f64, &FigureLine)> = lines
        .iter()
        .filter_map(|line| Some((variant(line)?, quantile(&line.metric)?, line)))
        .filter(|(variant, ..)| variant.slack.as_deref().is_none_or(|slack| SLACKS.contains(&slack)))
        .filter(|(variant, ..)| variant.driver.as_deref().is_none_or(|driver| driver == shown))
        .collect();
    let curve = |name: &str| {
        let of: Vec<_> = known.iter().filter(|(variant, ..)| variant.name == name).collect();
        let mut points: Vec<_> = of.iter().map(|(_, at, line)| (nines(*at), line.value.max(LEAST))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let system = of.first().map_or("", |(_, _, line)| &line.system);
        Curve::new(name, system, points)
    };
    let most = known.iter().map(|(_, at, _)| *at).fold(0.5, f64::max);
    let marks = MARKS.into_iter().filter(|(at, _)| *at <= most);
    let curves = CurvePlot {
        title: format!("Lateness of timers that {}", sleepers(tasks)),
        across: "percentile of the fires",
        up: "microseconds after the deadline",
        marks: marks.map(|(at, label)| (nines(at), label.to_owned())).collect(),
        curves: in_order(known.iter().map(|(variant, ..)| &*variant.name)).into_iter().map(curve).collect(),
    };
    curves.plot()
}

/// Returns the end of a title: which tasks wait for the timers.
pub(super) fn sleepers(tasks: &str) -> String {
    if tasks == "1" { "one task waits for".into() } else { format!("{tasks} tasks wait for") }
}

/// Returns the position of a quantile: 10 for 0.9, 100 for 0.99, 1000 for 0.999.
fn nines(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}
