//! Curves over an axis whose marks are given. Both axes are on a scale of logarithms.

use plotters::coord::combinators::BindKeyPoints;
use plotters::prelude::*;

use super::canvas::{GRID, INK, LEGEND, SIZE, TEXT, TITLE, is_ours, legend, log_range, page, round_numbers};
use super::canvas::{shade, short, text};

/// What a plot shows.
pub(super) struct Curves {
    pub(super) title: String,
    pub(super) across: &'static str,
    pub(super) up: &'static str,
    /// The marks of the axis, from left to right: where each is, and what it says.
    pub(super) marks: Vec<(f64, String)>,
    pub(super) curves: Vec<Curve>,
}

/// One of a plot's curves.
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

impl Curves {
    pub(super) fn plot(mut self) -> super::Drawn {
        for curve in 0..self.curves.len() {
            let system = &self.curves[curve].system;
            let before = self.curves[..curve].iter().filter(|other| other.system == *system).count();
            self.curves[curve].colour = shade(system, before);
        }
        // In the legend as they are at the right: the highest first.
        let end = |curve: &Curve| curve.points.last().map_or(0.0, |(_, y)| *y);
        self.curves.sort_by(|a, b| end(b).total_cmp(&end(a)));
        page(|area| {
            let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
            let names: Vec<_> = self.curves.iter().map(|curve| (curve.name.clone(), curve.colour)).collect();
            legend(&right, &names)?;
            let heights = log_range(self.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, y)| *y)));
            let (first, last) = self.ends();
            let key_points: Vec<f64> = self.marks.iter().map(|(at, _)| *at).collect();
            let across = (first..last).log_scale().with_key_points(key_points);
            let up = heights.clone().log_scale().with_key_points(round_numbers(&heights));
            let mut chart = ChartBuilder::on(&left)
                .caption(&self.title, text(TITLE))
                .margin(14)
                .x_label_area_size(44)
                .y_label_area_size(64)
                .build_cartesian_2d(across, up)?;
            chart
                .configure_mesh()
                .light_line_style(WHITE)
                .bold_line_style(GRID)
                .axis_style(INK)
                .label_style(text(TEXT))
                .x_labels(self.marks.len())
                .y_labels(30)
                .x_label_formatter(&|at| self.mark(*at))
                .y_label_formatter(&|value| short(*value))
                .x_desc(self.across)
                .y_desc(self.up)
                .draw()?;
            for curve in &self.curves {
                let (colour, width) = (curve.colour, if is_ours(&curve.system) { 4 } else { 2 });
                chart.draw_series(LineSeries::new(curve.points.iter().copied(), colour.stroke_width(width)))?;
                chart.draw_series(curve.points.iter().map(|point| Circle::new(*point, width + 1, colour.filled())))?;
            }
            Ok(())
        })
    }

    /// Where the axis begins and ends: a little beyond the marks.
    fn ends(&self) -> (f64, f64) {
        let (first, last) =
            (self.marks.first().map_or(1.0, |(at, _)| *at), self.marks.last().map_or(10.0, |(at, _)| *at));
        let more = (last / first).powf(0.025).max(1.1);
        (first / more, last * more)
    }

    fn mark(&self, at: f64) -> String {
        let near = |(mark, _): &&(f64, String)| (mark / at - 1.0).abs() < 1e-6;
        self.marks.iter().find(near).map_or(String::new(), |(_, said)| said.clone())
    }
}
