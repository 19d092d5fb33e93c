//! The charts, as SVG that the server draws.

use std::time::Duration;

use maud::{Markup, html};

use super::format::{count, duration};
use crate::events::{Activity, LATENESS_BOUNDS, SecondCounts};

const WIDTH: usize = 540;
const HEIGHT: usize = 150;
const LEFT: usize = 34;
const BASE: usize = 126;
const TOP: usize = 12;

/// Draws how many timers fired in each second.
pub(super) fn fires_per_second(activity: &Activity) -> Markup {
    let seconds = &activity.seconds;
    let most = seconds.iter().map(SecondCounts::total).max().unwrap_or(0);
    let top = nice_top(most);
    let latest = seconds.iter().rev().skip(1).take(10).map(|second| second.fired).sum::<u64>() as f64 / 10.0;
    let step = (WIDTH - LEFT) as f64 / seconds.len().max(1) as f64;
    let height = |value: u64| value as f64 / top as f64 * (BASE - TOP) as f64;
    html! {
        figure.card.chart #chart-fires data-live {
            header {
                h2 { "Fires per second" }
                p.figures { span { "last 10 s " b { (format!("{latest:.1}")) "/s" } } span { "peak " b { (count(most)) "/s" } } }
            }
            div.body {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ "Timers that fired in each of the last " (seconds.len()) " seconds, at most " (most) } {
                    (grid(top))
                    @for (index, second) in seconds.iter().enumerate() {
                        @let x = LEFT as f64 + index as f64 * step;
                        @let (fired, failed) = (height(second.fired), height(second.failed));
                        @if second.fired > 0 {
                            rect.fires x=(short(x)) y=(short(BASE as f64 - fired)) width=(short((step - 0.8).max(0.8))) height=(short(fired)) {}
                        }
                        @if second.failed > 0 {
                            rect.fails x=(short(x)) y=(short(BASE as f64 - fired - failed)) width=(short((step - 0.8).max(0.8))) height=(short(failed)) {}
                        }
                    }
                    line.base x1=(LEFT) x2=(WIDTH) y1=(BASE) y2=(BASE) {}
                    text x=(LEFT) y=(HEIGHT - 6) { (seconds.len() / 60) " min ago" }
                    text x=((LEFT + WIDTH) / 2) y=(HEIGHT - 6) text-anchor="middle" { (seconds.len() / 120) " min" }
                    text x=(WIDTH) y=(HEIGHT - 6) text-anchor="end" { "now" }
                }
            }
        }
    }
}

/// Draws how late timers were delivered, in buckets that grow by about three.
pub(super) fn lateness(activity: &Activity) -> Markup {
    let buckets = &activity.lateness;
    let all: u64 = buckets.iter().sum();
    let most = buckets.iter().copied().max().unwrap_or(0);
    let top = nice_top(most);
    let step = (WIDTH - LEFT) as f64 / buckets.len() as f64;
    html! {
        figure.card.chart #chart-lateness data-live {
            header {
                h2 { "Lateness" span.faint.small { " up to" } }
                @if all > 0 {
                    p.figures {
                        span { "half under " b { (quantile(buckets, 0.5)) } }
                        span { "99 % under " b { (quantile(buckets, 0.99)) } }
                        span { b { (count(all)) } " fired" }
                    }
                } @else {
                    p.figures { span { "nothing has fired since the server was started" } }
                }
            }
            div.body {
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ "How late " (all) " timers were: half under " (quantile(buckets, 0.5)) ", 99 percent under " (quantile(buckets, 0.99)) } {
                    (grid(top))
                    @for (index, bucket) in buckets.iter().enumerate() {
                        @let height = *bucket as f64 / top as f64 * (BASE - TOP) as f64;
                        @let height = if *bucket > 0 { height.max(1.5) } else { 0.0 };
                        @let tone = match index { 0..=6 => "bar", 7..=8 => "bar slow", _ => "bar worst" };
                        @if *bucket > 0 {
                            rect class=(tone) rx="1.5" x=(short(LEFT as f64 + index as f64 * step + 2.0)) y=(short(BASE as f64 - height)) width=(short(step - 4.0)) height=(short(height)) {
                                title { (count(*bucket)) " timers " (bucket_name(index)) }
                            }
                        }
                        text.every-other[index % 2 == 1] x=(short(LEFT as f64 + (index as f64 + 0.5) * step)) y=(HEIGHT - 6) text-anchor="middle" { (bucket_label(index)) }
                    }
                    line.base x1=(LEFT) x2=(WIDTH) y1=(BASE) y2=(BASE) {}
                }
            }
        }
    }
}

fn grid(top: u64) -> Markup {
    let half = TOP + (BASE - TOP) / 2;
    html! {
        line.axis x1=(LEFT) x2=(WIDTH) y1=(TOP) y2=(TOP) {}
        line.axis x1=(LEFT) x2=(WIDTH) y1=(half) y2=(half) {}
        text x=(LEFT - 6) y=(TOP + 4) text-anchor="end" { (compact(top)) }
        text x=(LEFT - 6) y=(half + 4) text-anchor="end" { @if top.is_multiple_of(2) { (compact(top / 2)) } }
        text x=(LEFT - 6) y=(BASE + 4) text-anchor="end" { "0" }
    }
}

/// Returns a round number that is not smaller.
fn nice_top(most: u64) -> u64 {
    let mut size = 1;
    loop {
        for factor in [1, 2, 4, 6, 8] {
            if most.max(4) <= factor * size {
                return factor * size;
            }
        }
        size = size.saturating_mul(10);
    }
}

/// Returns a number in few characters: `1.2k`.
fn compact(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", number as f64 / 1e3),
        _ => format!("{}M", number as f64 / 1e6),
    }
}

fn short(number: f64) -> String {
    format!("{number:.1}")
}

fn bucket_label(index: usize) -> String {
    match LATENESS_BOUNDS.get(index) {
        Some(bound) => duration(*bound).replace(".0", "").replace(' ', ""),
        None => "more".to_owned(),
    }
}

fn bucket_name(index: usize) -> String {
    match LATENESS_BOUNDS.get(index) {
        Some(bound) => format!("late by up to {}", duration(*bound).replace(".0", "")),
        None => format!("late by more than {}", duration(LATENESS_BOUNDS.last().copied().unwrap_or(Duration::ZERO))),
    }
}

/// Returns the bound of the bucket in which this part of the timers ends.
fn quantile(buckets: &[u64], part: f64) -> String {
    let all: u64 = buckets.iter().sum();
    let wanted = (all as f64 * part).ceil() as u64;
    let mut seen = 0;
    let index = buckets.iter().position(|bucket| {
        seen += bucket;
        seen >= wanted.max(1)
    });
    match index.and_then(|index| LATENESS_BOUNDS.get(index)) {
        Some(bound) => duration(*bound).replace(".0", ""),
        None if all == 0 => "0 s".to_owned(),
        None => "more than 10 s".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        assert_eq!([0, 4, 5, 61, 99, 101, 8_001].map(nice_top), [4, 4, 6, 80, 100, 200, 10_000]);
        assert_eq!([7, 1_500, 2_000_000].map(compact), ["7", "1.5k", "2M"]);
    }

    #[test]
    fn o6_quantiles_are_bounds_of_buckets() {
        let mut buckets = vec![0; LATENESS_BOUNDS.len() + 1];
        assert_eq!(quantile(&buckets, 0.5), "0 s");
        (buckets[2], buckets[5]) = (99, 1);
        assert_eq!((quantile(&buckets, 0.5), quantile(&buckets, 0.995)), ("1 ms".into(), "30 ms".into()));
        *buckets.last_mut().unwrap() = 100_000;
        assert_eq!(quantile(&buckets, 0.99), "more than 10 s");
    }
}
