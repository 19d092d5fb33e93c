//! Parts that all plots use: page, colours, fonts, axes, legends.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, WithKeyPoints};
use plotters::prelude::*;

/// A drawing area of a plot.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(super) const SIZE: (u32, u32) = (960, 540);

/// Width of the column with the legend.
pub(super) const LEGEND: u32 = 190;

/// Height of text, in pixels.
pub(super) const TEXT: u32 = 14;
const TITLE: u32 = 18;

pub(super) const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

/// The colour of each system, the same in every plot. Tourbillon is red.
const COLOURS: [(&str, RGBColor); 13] = [
    ("tourbillon", RGBColor(200, 30, 40)),
    ("tourbillon-rt", RGBColor(240, 120, 30)),
    ("tokio-current", RGBColor(60, 130, 220)),
    ("tokio-multi", RGBColor(20, 60, 150)),
    ("async-io", RGBColor(0, 140, 130)),
    ("smol", RGBColor(0, 140, 130)),
    ("futures-timer", RGBColor(150, 110, 60)),
    ("monoio", RGBColor(70, 150, 40)),
    ("pingora-timeout", RGBColor(170, 160, 20)),
    ("asio", RGBColor(140, 60, 170)),
    ("libuv", RGBColor(220, 90, 170)),
    ("libevent", RGBColor(100, 100, 190)),
    ("clock_nanosleep", RGBColor(90, 90, 90)),
];

/// The colour of any other system.
const OTHER: RGBColor = RGBColor(150, 150, 150);

pub(super) fn colour(system: &str) -> RGBColor {
    COLOURS.iter().find(|(name, _)| *name == system).map_or(OTHER, |(_, colour)| *colour)
}

/// Returns the colour of the nth curve of a system, from 0 on; the others are paler than the first.
pub(super) fn shade(system: &str, nth: usize) -> RGBColor {
    let RGBColor(r, g, b) = colour(system);
    let paler = |of: u8| if nth == 0 { of } else { 255 - (255 - of) / 2 };
    RGBColor(paler(r), paler(g), paler(b))
}

/// Returns whether a system is Tourbillon's, which is drawn a little thicker.
pub(super) fn is_ours(system: &str) -> bool {
    system.starts_with("tourbillon")
}

pub(super) fn text(size: u32) -> TextStyle<'static> {
    // A plot only names a font family; the viewer provides the font.
    ("sans-serif", size).into_font().color(&INK)
}

/// Draws onto a white page, and returns it as SVG text.
pub(super) fn page(draw: impl FnOnce(&Area<'_>) -> Result<(), Box<dyn Error>>) -> super::Drawn {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        draw(&area)?;
        area.present()?;
    }
    Ok(svg)
}

/// A logarithmic axis.
pub(super) struct Axis<'a> {
    pub(super) description: &'a str,
    pub(super) range: Range<f64>,
    /// Positions of the marks.
    pub(super) marks: Vec<f64>,
    /// Formats the label of a mark.
    pub(super) label: &'a dyn Fn(f64) -> String,
}

impl<'a> Axis<'a> {
    /// Returns an axis with round numbers as marks.
    pub(super) fn of(description: &'a str, values: impl IntoIterator<Item = f64>) -> Axis<'a> {
        let range = log_range(values);
        Axis { description, marks: round_numbers(&range), range, label: &short }
    }
}

type Scale = WithKeyPoints<LogCoord<f64>>;

/// A chart to draw points and curves into.
pub(super) type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

/// Draws a title, two axes and a grid.
pub(super) fn chart<'a, 'b>(
    area: &'a Area<'b>,
    title: &str,
    across: Axis<'_>,
    up: Axis<'_>,
) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
    let (x_labels, y_labels) = (across.marks.len(), up.marks.len());
    let mut chart = ChartBuilder::on(area)
        .caption(title, text(TITLE))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            across.range.log_scale().with_key_points(across.marks),
            up.range.log_scale().with_key_points(up.marks),
        )?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(text(TEXT))
        .x_labels(x_labels)
        .y_labels(y_labels)
        .x_label_formatter(&|value| (across.label)(*value))
        .y_label_formatter(&|value| (up.label)(*value))
        .x_desc(across.description)
        .y_desc(up.description)
        .draw()?;
    Ok(chart)
}

/// Draws a column with a coloured mark and a name for each entry.
pub(super) fn legend(area: &Area<'_>, entries: &[(String, RGBColor)]) -> Result<(), Box<dyn Error>> {
    const TOP: i32 = 50;
    const ROW: i32 = 22;
    for (row, (name, colour)) in (0..).zip(entries) {
        let y = TOP + row * ROW;
        area.draw(&Circle::new((12, y), 5, colour.filled()))?;
        area.draw(&Text::new(name.clone(), (24, y - TEXT as i32 / 2), text(TEXT)))?;
    }
    Ok(())
}

/// Returns a logarithmic range that contains all values with a margin.
fn log_range(values: impl IntoIterator<Item = f64>) -> Range<f64> {
    let (least, most) = values.into_iter().fold((f64::MAX, f64::MIN_POSITIVE), |(a, b), v| (a.min(v), b.max(v)));
    if least > most { 1.0..10.0 } else { least / 1.3..most * 1.3 }
}

/// Returns the round numbers of a range: 1, 2 and 5 times the powers of ten.
fn round_numbers(range: &Range<f64>) -> Vec<f64> {
    let powers = (-3..12).map(|power| 10f64.powi(power));
    let all = powers.flat_map(|power| [power, 2.0 * power, 5.0 * power]);
    all.filter(|number| range.contains(number)).collect()
}

/// Formats a number in few characters: `500`, `20k`, `1M`.
pub(super) fn short(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{}M", n / 1e6),
        n if n >= 1e3 => format!("{}k", n / 1e3),
        n => format!("{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_round() {
        assert_eq!([0.5, 20.0, 5_000.0, 1e6].map(short), ["0.5", "20", "5k", "1M"]);
        assert_eq!(round_numbers(&(15.0..600.0)), [20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(log_range([13.0, 26.0]), 10.0..33.800000000000004);
    }
}
