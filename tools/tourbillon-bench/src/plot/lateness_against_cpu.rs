//! Lateness against CPU time: how late a system's timers are, and what a fire costs. Down and to the left is better.

use plotters::prelude::*;

use super::canvas::{Axis, LEGEND, SIZE, chart, colour, is_ours, legend, page, text};
use super::lateness_distribution::sleepers;
use crate::figure_line::FigureLine;
use crate::table::in_order;

/// A variant in which a system was measured.
#[derive(Clone, PartialEq)]
pub(super) struct MeasuredVariant {
    /// Includes what distinguishes it from other variants of the same system.
    pub(super) name: String,
    pub(super) slack: Option<String>,
    pub(super) driver: Option<String>,
}

/// Returns the variant of a line. Tourbillon was measured in two of Tokio's runtimes; plots show only the multi-threaded one.
pub(super) fn variant(line: &FigureLine) -> Option<MeasuredVariant> {
    if line.setting("rt").is_some_and(|rt| rt != "multi") {
        return None;
    }
    let setting = |name| line.setting(name).map(str::to_owned);
    let (slack, driver) = (setting("slack"), setting("driver"));
    let parts = [
        slack.clone(),
        driver.clone().filter(|driver| driver != "default").map(|it| format!("on {it}")),
        setting("timer"),
    ];
    let name = [Some(line.system.clone())].into_iter().chain(parts).flatten().collect::<Vec<_>>().join(" ");
    Some(MeasuredVariant { name, slack, driver })
}

/// A point of the plot.
struct LatenessPoint<'a> {
    system: &'a str,
    /// Without the system's name if the colour shows it.
    label: String,
    cpu: f64,
    late: f64,
}

/// Height of labels, in pixels.
const LABEL: u32 = 12;

/// Smaller values are drawn as this, since a logarithmic axis has no zero.
const LEAST: f64 = 1.0;

/// Plots the figures of one number of tasks.
pub(super) fn plot(lines: &[FigureLine], tasks: &str) -> super::Drawn {
    let points = points(lines);
    page(|area| {
        let (left, right) = area.split_horizontally(SIZE.0 - LEGEND);
        let systems = in_order(points.iter().map(|point| point.system));
        legend(&right, &systems.iter().map(|system| ((*system).to_owned(), colour(system))).collect::<Vec<_>>())?;
        let title = format!("Lateness against CPU time, for timers that {}", sleepers(tasks));
        let across = Axis::of("CPU nanoseconds per fire", points.iter().map(|point| point.cpu));
        let up = Axis::of("median lateness, microseconds", points.iter().map(|point| point.late));
        let mut chart = chart(&left, &title, across, up)?;
        chart.draw_series(points.iter().map(|point| {
            let size = if is_ours(point.system) { 6 } else { 5 };
            Circle::new((point.cpu, point.late), size, colour(point.system).filled())
        }))?;
        let places: Vec<_> = points.iter().map(|point| chart.backend_coord(&(point.cpu, point.late))).collect();
        let mut taken: Vec<LabelBox> = places.iter().map(|place| LabelBox::around(*place)).collect();
        for (point, place) in points.iter().zip(places) {
            let square = LabelBox::beside(place, &point.label, &taken);
            let colour = colour(point.system);
            area.draw(&PathElement::new(vec![place, square.nearest(place)], colour.mix(0.5)))?;
            area.draw(&Text::new(point.label.clone(), (square.x, square.y), text(LABEL).color(&colour)))?;
            taken.push(square);
        }
        Ok(())
    })
}

fn points(lines: &[FigureLine]) -> Vec<LatenessPoint<'_>> {
    let value = |of: &FigureLine, metric: &str| {
        let same = |line: &&FigureLine| (&line.system, &line.case, &*line.metric) == (&of.system, &of.case, metric);
        lines.iter().find(same).map(|line| line.value.max(LEAST))
    };
    let point = |line: &'_ FigureLine| {
        let MeasuredVariant { name, .. } = variant(line)?;
        let short = name.strip_prefix(&line.system).map(str::trim).filter(|rest| !rest.is_empty());
        let label = if is_ours(&line.system) { short.unwrap_or(&name).to_owned() } else { name.clone() };
        Some((label, value(line, "p50_us")?))
    };
    let cpu = lines.iter().filter(|line| line.metric == "cpu_ns_per_fire");
    cpu.filter_map(|line| {
        let (label, late) = point(line)?;
        Some(LatenessPoint { system: &line.system, label, cpu: line.value.max(LEAST), late })
    })
    .collect()
}

/// An occupied part of the page.
#[derive(Clone, Copy, Debug)]
struct LabelBox {
    x: i32,
    y: i32,
    width: i32,
    height: i32,
}

impl LabelBox {
    /// Returns the box around a point.
    fn around((x, y): (i32, i32)) -> LabelBox {
        LabelBox { x: x - 6, y: y - 6, width: 12, height: 12 }
    }

    /// Returns the box of a label beside a point, in a free place if there is one near.
    fn beside((x, y): (i32, i32), text: &str, taken: &[LabelBox]) -> LabelBox {
        // Approximate width of a character.
        let (width, height) = (text.chars().count() as i32 * LABEL as i32 / 2, LABEL as i32 + 1);
        let at = |x, y| LabelBox { x, y, width, height };
        let near = (0..8).flat_map(|step| {
            let away = 7 * step;
            [
                at(x + 9, y - height / 2 - away),
                at(x + 9, y - height / 2 + away),
                at(x - 9 - width, y - height / 2 - away),
                at(x - 9 - width, y - height / 2 + away),
                at(x - width / 2, y - 9 - height - away),
                at(x - width / 2, y + 9 + away),
            ]
        });
        let is_free = |square: &LabelBox| square.is_in_plot() && taken.iter().all(|other| !square.meets(*other));
        near.into_iter().find(is_free).unwrap_or(at(x + 9, y - height / 2))
    }

    /// Returns the point of the box that is nearest to another point.
    fn nearest(self, (x, y): (i32, i32)) -> (i32, i32) {
        (x.clamp(self.x, self.x + self.width), y.clamp(self.y, self.y + self.height))
    }

    fn meets(self, other: LabelBox) -> bool {
        let apart = self.x + self.width <= other.x
            || other.x + other.width <= self.x
            || self.y + self.height <= other.y
            || other.y + other.height <= self.y;
        !apart
    }

    /// Returns whether the box is right of the axis, above it, and not in the legend.
    fn is_in_plot(self) -> bool {
        let (right, bottom) = ((SIZE.0 - LEGEND) as i32, SIZE.1 as i32 - 60);
        self.x > 80 && self.x + self.width < right && self.y > 44 && self.y + self.height < bottom
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure_line::line;

    #[test]
    fn labels_of_points_that_are_close_do_not_cover_each_other() {
        let places = [(300, 300), (304, 302), (308, 298)];
        let mut taken: Vec<LabelBox> = places.iter().map(|place| LabelBox::around(*place)).collect();
        for place in places {
            let label = LabelBox::beside(place, "adaptive on thread", &taken);
            assert!(taken.iter().all(|other| !label.meets(*other)), "{label:?} covers one of {taken:?}");
            taken.push(label);
        }
    }

    #[test]
    fn a_variant_is_named_by_what_is_not_the_default() {
        let name = |system: &str, case: &str| {
            let line = line("lateness", system, case, "p50_us", 1.0);
            variant(&line).map(|variant| variant.name)
        };
        assert_eq!(name("tokio-multi", "tasks=1").as_deref(), Some("tokio-multi"));
        assert_eq!(name("libevent", "tasks=1,timer=precise").as_deref(), Some("libevent precise"));
        assert_eq!(
            name("tourbillon", "tasks=1,slack=exact,driver=default,rt=multi").as_deref(),
            Some("tourbillon exact")
        );
        assert_eq!(
            name("tourbillon", "tasks=1,slack=1ms,driver=thread,rt=multi").as_deref(),
            Some("tourbillon 1ms on thread")
        );
        assert_eq!(name("tourbillon", "tasks=1,slack=1ms,driver=default,rt=current"), None);
    }
}
