//! Percentiles of lateness.

use hdrhistogram::Histogram;

/// The reported percentiles and their metrics.
const REPORTED: [(&str, f64); 8] = [
    ("p10_us", 0.1),
    ("p25_us", 0.25),
    ("p50_us", 0.5),
    ("p75_us", 0.75),
    ("p90_us", 0.9),
    ("p95_us", 0.95),
    ("p99_us", 0.99),
    ("p99.9_us", 0.999),
];

/// The percentiles that are also in tables. The others are for plots.
const IN_TABLES: [&str; 2] = ["p50_us", "p99_us"];

/// Returns whether a metric is a percentile that tables leave out.
pub(crate) fn is_detail(metric: &str) -> bool {
    quantile(metric).is_some() && !IN_TABLES.contains(&metric)
}

/// Returns the quantile of a metric, if it is a percentile.
pub(crate) fn quantile(metric: &str) -> Option<f64> {
    REPORTED.iter().find(|(name, _)| *name == metric).map(|(_, quantile)| *quantile)
}

/// Returns the percentiles that are known: at least one value must lie above a percentile.
pub(crate) fn known(histogram: &Histogram<u64>) -> impl Iterator<Item = (&'static str, f64)> + use<> {
    // A small addition compensates for rounding.
    let values = histogram.len() as f64 + 1e-6;
    REPORTED.into_iter().filter(move |(metric, quantile)| !is_detail(metric) || values * (1.0 - quantile) >= 1.0)
}

pub(crate) fn histogram(nanos: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).expect("three digits can be kept");
    for &nanos in nanos {
        histogram.record(nanos).expect("it grows by itself");
    }
    histogram
}

/// Returns a quantile in microseconds.
pub(crate) fn micros(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_percentiles_that_the_values_can_tell_are_reported() {
        let names = |values| known(&histogram(&vec![7; values])).map(|(name, _)| name).collect::<Vec<_>>();
        assert!(names(10).contains(&"p90_us") && !names(10).contains(&"p95_us"));
        assert!(names(10).contains(&"p99_us"), "tables have it in any case");
        assert!(names(1_000).contains(&"p99.9_us"));
    }
}
