//! Curves over an axis with given marks. Both axes are logarithmic.

use plotters::prelude::*;

use super::canvas::{Axis, INK, LEGEND, SIZE, chart, is_ours, legend, page, shade};

/// A plot with several curves.
pub(super) struct CurvePlot {
    pub(super) title: String,
    pub(super) across: &'static str,
    pub(super) up: &'static str,
    /// The marks of the axis from left to right: positions and labels.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) curves: Vec<Curve>,
}

/// One curve of a plot.
pub(super) struct Curve {
    name: String,
    system: String,
    points: Vec<(f64, f64)>,
    colour: RGBColor,
}

impl Curve {
    pub(super) fn new(name: &str, system: &str, points: Vec<(f64, f64)>) -> Curve {
        Curve { name: name.to_owned(), system: system.to_owned(), points, colour: INK }
    }
}

impl CurvePlot {
    pub(super) fn plot(mut self) -> super::Drawn {
        for curve in 0..self.curves.len() {
            let system = &self.curves[curve].system;
            let before = self.curves[..curve].iter().filter(|other| other.system == *system).count();
            self.curves[curve].colour = shade(system, before);
        }
        // The legend lists the curves in the order of their right ends, highest first.
        let end = |curve: &Curve| curve.points.last().map_or(0.0, |(_, y)| *y);
        self.curves.sort_by(|a, b| end(b).total_cmp(&end(a)));
        page(|area| {
            let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
            let names: Vec<_> = self.curves.iter().map(|curve| (curve.name.clone(), curve.colour)).collect();
            legend(&right, &names)?;
            let (first, last) = self.ends();
            let marks = self.marks.iter().map(|(at, _)| *at).collect();
            let across = Axis { description: self.across, range: first..last, marks, label: &|at| self.mark(at) };
            let heights = self.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, y)| *y));
            let mut chart = chart(&left, &self.title, across, Axis::of(self.up, heights))?;
            for curve in &self.curves {
                let (colour, width) = (curve.colour, if is_ours(&curve.system) { 4 } else { 2 });
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(width)))?;
                chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, width + 1, colour.filled())))?;
            }
            Ok(())
        })
    }

    /// Returns the ends of the axis, a little beyond the marks.
    fn ends(&self) -> (f64, f64) {
        let (first, last) =
            (self.marks.first().map_or(1.0, |(at, _)| *at), self.marks.last().map_or(10.0, |(at, _)| *at));
        let more = (last / first).powf(0.025).max(1.1);
        (first / more, last * more)
    }

    fn mark(&self, at: f64) -> String {
        let near = |(mark, _): &&(f64, String)| (mark / at - 1.0).abs() < 1e-6;
        self.marks.iter().find(near).map_or(String::new(), |(_, label)| label.clone())
    }
}
