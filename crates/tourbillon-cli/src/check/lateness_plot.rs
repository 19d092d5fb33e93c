//! Draws lateness for the page: a histogram as a table with bars, and its quantiles as curves in SVG.
//!
//! Both axes of the plot are logarithmic. To the right it has the share of timers that were later, a tenth for each step: 90 %, 99 %,
//! 99.9 % of all timers were not later than the curve shows there.

use hdrhistogram::Histogram;

use super::histogram_text::buckets;
use crate::html::escape;
use crate::text::{count, time};

/// One curve: its name, its class in the style, and its values in nanoseconds.
pub(crate) struct Curve<'a> {
    pub(crate) name: &'static str,
    pub(crate) class: &'static str,
    pub(crate) values: &'a Histogram<u64>,
}

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 290.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
/// Points of a curve for each step of the horizontal axis.
const POINTS: u32 = 24;
/// The least value that is drawn, in nanoseconds.
const LEAST: u64 = 1_000;
const QUANTILES: [&str; 7] = ["0%", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"];

/// The scales of a plot.
struct Axes {
    /// Steps of the horizontal axis.
    steps: u32,
    /// Powers of ten of nanoseconds, at the bottom and at the top.
    lowest: u32,
    highest: u32,
}

/// Returns a histogram as a table with a bar for each power of two.
pub(crate) fn histogram_table(values: &Histogram<u64>) -> String {
    let buckets = buckets(values);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let rows = buckets.iter().map(|bucket| {
        let share = 100.0 * bucket.count as f64 / most as f64;
        let class = if bucket.count == 0 { "bar none" } else { "bar" };
        let (up_to, count) = (time(bucket.up_to), count(bucket.count));
        format!(
            "<tr><th scope=\"row\">&lt; {up_to}</th><td><span class=\"{class}\" style=\"width:{share:.2}%\"></span></td>\
             <td>{count}</td></tr>\n"
        )
    });
    format!(
        "<table class=\"bars\">\n<thead><tr><th scope=\"col\">late by</th><th></th><th scope=\"col\">timers</th></tr></thead>\n\
         <tbody>\n{}</tbody>\n</table>\n",
        rows.collect::<String>()
    )
}

/// Returns the plot of the curves that have values, with a legend.
pub(crate) fn quantile_plot(curves: &[Curve<'_>]) -> String {
    let curves: Vec<_> = curves.iter().filter(|curve| !curve.values.is_empty()).collect();
    if curves.is_empty() {
        return "<p class=\"faint\">Nothing was measured.</p>\n".to_owned();
    }
    let axes = Axes::of(&curves);
    let lines: String = curves.iter().map(|curve| axes.line(curve)).collect();
    let legend: String = curves.iter().map(|curve| legend_item(curve)).collect();
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Lateness by share of timers\">\n{}{lines}</svg>\n\
         <ul class=\"legend\">\n{legend}</ul>\n",
        axes.grid()
    )
}

impl Axes {
    fn of(curves: &[&Curve<'_>]) -> Axes {
        let most_values = curves.iter().map(|curve| curve.values.len()).max().unwrap_or(1);
        let highest = curves.iter().map(|curve| curve.values.max()).max().unwrap_or(LEAST).max(LEAST * 10);
        let lowest = curves.iter().map(|curve| curve.values.min()).min().unwrap_or(LEAST).max(LEAST);
        Axes {
            steps: (most_values.max(10).ilog10()).clamp(2, QUANTILES.len() as u32 - 1),
            lowest: lowest.ilog10(),
            highest: (highest - 1).ilog10() + 1,
        }
    }

    /// Returns where a share of `10^-step` of later timers is.
    fn x(&self, step: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * step / f64::from(self.steps)
    }

    fn y(&self, nanos: u64) -> f64 {
        let height = (nanos.max(1) as f64).log10() - f64::from(self.lowest);
        let share = (height / f64::from(self.highest - self.lowest)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share
    }

    fn grid(&self) -> String {
        let mut grid = String::new();
        for power in self.lowest..=self.highest {
            let (y, label) = (self.y(10_u64.pow(power)), axis_time(power));
            grid += &format!(
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>\n\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\n",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        for (step, label) in (0..=self.steps).zip(QUANTILES) {
            let (x, bottom) = (self.x(f64::from(step)), HEIGHT - BOTTOM);
            let anchor = if step == self.steps { "end" } else { "middle" };
            let text_x = if step == self.steps { WIDTH - 2.0 } else { x };
            grid += &format!(
                "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\n\
                 <text x=\"{text_x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>\n",
                bottom + 16.0
            );
        }
        grid += &format!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">share of timers that were not later</text>\n",
            LEFT + (WIDTH - LEFT - RIGHT) / 2.0,
            HEIGHT - 6.0
        );
        grid
    }

    /// Returns a curve, which ends where less than one of its values would be later.
    fn line(&self, curve: &Curve<'_>) -> String {
        let last = (curve.values.len() as f64).log10().min(f64::from(self.steps));
        let steps = (0..=self.steps * POINTS).map(|point| f64::from(point) / f64::from(POINTS));
        let steps = steps.take_while(|step| *step < last).chain([last]);
        let points = steps.map(|step| {
            let quantile = 1.0 - 10_f64.powf(-step);
            format!("{:.1},{:.1}", self.x(step), self.y(curve.values.value_at_quantile(quantile)))
        });
        let points = points.collect::<Vec<_>>().join(" ");
        format!(
            "<polyline class=\"line {}\" points=\"{points}\"><title>{}</title></polyline>\n",
            curve.class,
            escape(curve.name)
        )
    }
}

fn legend_item(curve: &Curve<'_>) -> String {
    let [p50, p99] = [0.5, 0.99].map(|quantile| time(curve.values.value_at_quantile(quantile)));
    format!(
        "<li><svg viewBox=\"0 0 32 8\" aria-hidden=\"true\"><path class=\"line {}\" d=\"M0 4H32\"/></svg>{}: p50 {p50}, p99 {p99}, \
         max {}</li>\n",
        curve.class,
        escape(curve.name),
        time(curve.values.max())
    )
}

/// Formats a power of ten of nanoseconds without decimals: `10 us`.
fn axis_time(power: u32) -> String {
    let unit = ["ns", "us", "ms", "s"][(power / 3).min(3) as usize];
    format!("{} {unit}", 10_u64.pow(power - 3 * (power / 3).min(3)))
}

#[cfg(test)]
mod tests {
    use super::super::tally::histogram;
    use super::*;

    fn curve(values: &Histogram<u64>) -> Curve<'_> {
        Curve { name: "a & b", class: "one", values }
    }

    #[test]
    fn e9_every_point_of_a_curve_lies_within_the_plot_and_later_is_never_lower() {
        let mut values = histogram();
        for value in [1, 900, 61_000, 62_000, 1_500_000, 599_000_000_000] {
            values.record(value).unwrap();
        }
        let plot = quantile_plot(&[curve(&values)]);
        let points = plot.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("points");
        let points: Vec<(f64, f64)> = points
            .split(' ')
            .map(|point| point.split_once(',').map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).unwrap())
            .collect();
        assert!(
            points.iter().all(|(x, y)| (LEFT..=WIDTH).contains(x) && (TOP..=HEIGHT - BOTTOM).contains(y)),
            "{plot}"
        );
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 >= pair[1].1), "{plot}");
        assert!(plot.contains("a &amp; b"));
    }

    #[test]
    fn e9_nothing_measured_is_said_and_not_drawn() {
        assert!(quantile_plot(&[curve(&histogram())]).contains("Nothing was measured"));
        assert!(!histogram_table(&histogram()).contains("<td>"));
    }

    #[test]
    fn e9_the_labels_of_the_axis_have_round_numbers() {
        assert_eq!([3, 4, 5, 6, 9, 11].map(axis_time), ["1 us", "10 us", "100 us", "1 ms", "1 s", "100 s"]);
    }
}
