//! The cost to arm and cancel a timer, against the number of other pending timers.

use super::canvas::short;
use super::curves::{Curve, CurvePlot};
use crate::figure_line::FigureLine;
use crate::table::in_order;

/// Returns whether a figure is in this plot: only those of drivers that have turned, as in servers, and for Tourbillon only those on
/// Tokio's multi-thread runtime.
pub(super) fn counts(line: &FigureLine) -> bool {
    line.scenario == "churn"
        && line.metric == "ns_per_op"
        && line.setting("driver") == Some("turned")
        && line.setting("window").is_none()
        && line.setting("rt").is_none_or(|rt| rt == "multi")
        && pending(line).is_some()
}

pub(super) fn plot(lines: &[FigureLine]) -> super::Drawn {
    let lines: Vec<&FigureLine> = lines.iter().filter(|line| counts(line)).collect();
    let mut all: Vec<u64> = lines.iter().filter_map(|line| pending(line)).collect();
    all.sort_unstable();
    all.dedup();
    // A logarithmic axis has no zero, so zero gets a position before the first mark.
    let none = all.iter().find(|pending| **pending > 0).map_or(1.0, |least| *least as f64 / 10.0);
    let place = |pending: u64| if pending == 0 { none } else { pending as f64 };
    let curve = |system: &str| {
        let of = lines.iter().filter(|line| line.system == system);
        let mut points: Vec<_> = of.filter_map(|line| Some((place(pending(line)?), line.value.max(0.1)))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Curve::new(system, system, points)
    };
    let curves = CurvePlot {
        title: "Cost to arm and cancel a timer, by the number of other pending timers".into(),
        across: "pending timers",
        up: "nanoseconds",
        marks: all.iter().map(|&pending| (place(pending), short(pending as f64))).collect(),
        curves: in_order(lines.iter().map(|line| &*line.system)).into_iter().map(curve).collect(),
    };
    curves.plot()
}

fn pending(line: &FigureLine) -> Option<u64> {
    line.setting("pending")?.parse().ok()
}
