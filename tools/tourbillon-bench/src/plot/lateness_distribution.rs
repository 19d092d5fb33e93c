//! How late timers are: a curve of percentiles for each system.

use super::curves::{Curve, CurvePlot};
use super::lateness_against_cpu::{MeasuredVariant, variant};
use crate::figure_line::FigureLine;
use crate::percentiles::quantile;
use crate::table::in_order;

/// The marks of the axis, on which every nine takes the same room.
const MARKS: [(f64, &str); 5] = [(0.1, "10%"), (0.5, "50%"), (0.9, "90%"), (0.99, "99%"), (0.999, "99.9%")];

/// Less is drawn as this much, in microseconds: on a scale of logarithms there is no place for none.
const LEAST: f64 = 1.0;

/// Of ours, the slacks that are drawn; the plane has all.
const SLACKS: [&str; 2] = ["adaptive", "exact"];

/// Of the figures of one number of tasks.
pub(super) fn plot(lines: &[FigureLine], tasks: &str) -> super::Drawn {
    let known: Vec<(MeasuredVariant, f64, &FigureLine)> = lines
        .iter()
        .filter_map(|line| Some((variant(line)?, quantile(&line.metric)?, line)))
        .filter(|(variant, ..)| variant.slack.as_deref().is_none_or(|slack| SLACKS.contains(&slack)))
        .filter(|(variant, ..)| variant.driver.as_deref() != Some("tokio"))
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
        title: format!("How late timers are that {}", sleepers(tasks)),
        across: "percentile of the fires",
        up: "microseconds after the deadline",
        marks: marks.map(|(at, said)| (nines(at), said.to_owned())).collect(),
        curves: in_order(known.iter().map(|(variant, ..)| &*variant.name)).into_iter().map(curve).collect(),
    };
    curves.plot()
}

/// Who waits for them.
pub(super) fn sleepers(tasks: &str) -> String {
    if tasks == "1" { "one task waits for".into() } else { format!("{tasks} tasks wait for") }
}

/// Where a quantile is: 0.9 at 10, 0.99 at 100, 0.999 at 1000.
fn nines(quantile: f64) -> f64 {
    1.0 / (1.0 - quantile)
}
