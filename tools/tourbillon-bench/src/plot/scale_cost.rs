//! The cost of each operation and the memory of a sleep, against the number of pending sleeps: two charts side by side.

use std::error::Error;

use plotters::prelude::*;

use super::canvas::{Area, Axis, Chart, LEGEND, SIZE, TEXT, chart, colour, is_ours, page, short, text};
use crate::figure_line::FigureLine;
use crate::table::in_order;

/// The operations: their metrics, names and marks.
const OPERATIONS: [(&str, &str, MarkShape); 3] = [
    ("cpu_ns_per_fire", "fire (CPU)", MarkShape::Triangle),
    ("churn_ns_per_op", "arm + cancel", MarkShape::Circle),
    ("reset_ns_per_op", "reset", MarkShape::Square),
];

const BYTES: &str = "resident_bytes";

/// Width of the chart of costs; the chart of memory has the rest.
const COSTS_WIDTH: u32 = 430;

/// The least and the greatest number of bytes that the chart of memory shows in any case.
const BYTES_SHOWN: [f64; 2] = [60.0, 200.0];

/// The marks on the axis of memory.
const BYTES_MARKS: [f64; 11] = [16.0, 32.0, 64.0, 80.0, 96.0, 128.0, 160.0, 200.0, 300.0, 500.0, 1000.0];

/// Half the width of a mark, in pixels.
const MARK: i32 = 5;

/// Smaller values are drawn as this, since a logarithmic axis has no zero.
const LEAST: f64 = 1.0;

/// Returns whether a figure is in this plot.
pub(super) fn counts(line: &FigureLine) -> bool {
    line.scenario == "scale" && pending(line).is_some()
}

pub(super) fn plot(lines: &[FigureLine]) -> super::Drawn {
    let lines: Vec<&FigureLine> = lines.iter().filter(|line| counts(line)).collect();
    let systems = in_order(lines.iter().map(|line| &*line.system));
    let curve = |system: &str, metric: &str| {
        let of = lines.iter().filter(|line| line.system == system && line.metric == metric);
        let mut points: Vec<_> = of.filter_map(|line| Some((pending(line)?, line.value.max(LEAST)))).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points
    };
    let curves = |metric: &'static str, name: &str, mark: MarkShape| {
        let of_system = |system: &&str| {
            let name = format!("{system}: {name}");
            ScaleCurve { name, mark, is_ours: is_ours(system), colour: colour(system), points: curve(system, metric) }
        };
        systems.iter().map(of_system).collect::<Vec<_>>()
    };
    let costs: Vec<ScaleCurve> =
        OPERATIONS.into_iter().flat_map(|(metric, name, mark)| curves(metric, name, mark)).collect();
    let bytes = curves(BYTES, "", MarkShape::Circle);
    page(|area| {
        let (charts, right) = area.split_horizontally(SIZE.0 - LEGEND);
        let (left, middle) = charts.split_horizontally(COSTS_WIDTH);
        draw_chart(&left, "Cost of an operation", &costs, Axis::of("nanoseconds", values(&costs)))?;
        // A few bytes more or less do not fill the chart.
        let up = Axis::of("resident bytes", values(&bytes).chain(BYTES_SHOWN));
        let up = Axis { marks: BYTES_MARKS.into_iter().filter(|mark| up.range.contains(mark)).collect(), ..up };
        draw_chart(&middle, "Memory of a pending sleep", &bytes, up)?;
        draw_legend(&right, &costs)
    })
}

fn pending(line: &FigureLine) -> Option<f64> {
    line.setting("pending")?.parse().ok().filter(|pending| *pending > 0.0)
}

/// One curve of a chart.
struct ScaleCurve {
    name: String,
    mark: MarkShape,
    is_ours: bool,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// The shape of the marks of a curve.
#[derive(Clone, Copy)]
enum MarkShape {
    Circle,
    Square,
    Triangle,
}

fn values(curves: &[ScaleCurve]) -> impl Iterator<Item = f64> {
    curves.iter().flat_map(|curve| curve.points.iter().map(|(_, value)| *value))
}

fn draw_chart(area: &Area<'_>, title: &str, curves: &[ScaleCurve], up: Axis<'_>) -> Result<(), Box<dyn Error>> {
    let mut marks: Vec<f64> = curves.iter().flat_map(|curve| curve.points.iter().map(|(at, _)| *at)).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    let (first, last) = (marks.first().map_or(1.0, |at| *at), marks.last().map_or(10.0, |at| *at));
    let across = Axis { description: "pending sleeps", range: first / 1.5..last * 1.5, marks, label: &short };
    let mut chart = chart(area, title, across, up)?;
    for curve in curves {
        draw_curve(&mut chart, curve)?;
    }
    Ok(())
}

fn draw_curve(chart: &mut Chart<'_, '_>, curve: &ScaleCurve) -> Result<(), Box<dyn Error>> {
    let width = if curve.is_ours { 3 } else { 2 };
    chart.draw_series(LineSeries::new(curve.points.iter().copied(), curve.colour.stroke_width(width)))?;
    let style = curve.colour.filled();
    let points = curve.points.iter().copied();
    match curve.mark {
        MarkShape::Circle => chart.draw_series(points.map(|at| Circle::new(at, MARK, style)))?,
        MarkShape::Triangle => chart.draw_series(points.map(|at| TriangleMarker::new(at, MARK + 2, style)))?,
        MarkShape::Square => {
            let square = |at| EmptyElement::at(at) + Rectangle::new([(-MARK, -MARK), (MARK, MARK)], style);
            chart.draw_series(points.map(square))?
        }
    };
    Ok(())
}

/// Draws a column with the mark and the name of each curve.
fn draw_legend(area: &Area<'_>, curves: &[ScaleCurve]) -> Result<(), Box<dyn Error>> {
    const TOP: i32 = 50;
    const ROW: i32 = 22;
    for (row, curve) in (0..).zip(curves) {
        let (y, style) = (TOP + row * ROW, curve.colour.filled());
        match curve.mark {
            MarkShape::Circle => area.draw(&Circle::new((10, y), MARK, style))?,
            MarkShape::Triangle => area.draw(&TriangleMarker::new((10, y), MARK + 2, style))?,
            MarkShape::Square => area.draw(&Rectangle::new([(10 - MARK, y - MARK), (10 + MARK, y + MARK)], style))?,
        }
        area.draw(&Text::new(curve.name.clone(), (21, y - TEXT as i32 / 2), text(TEXT)))?;
    }
    Ok(())
}
