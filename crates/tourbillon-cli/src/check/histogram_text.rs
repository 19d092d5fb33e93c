//! Draws a histogram as text, one line for each power of two.

use hdrhistogram::Histogram;

use crate::text::{Paint, count, time};

/// One line: the values from the end of the line before up to `up_to`.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct HistogramBucket {
    pub(crate) up_to: u64,
    pub(crate) count: u64,
}

const WIDTH: u64 = 48;

/// Returns powers of two of microseconds, from the first to the last that is not empty.
pub(crate) fn buckets(histogram: &Histogram<u64>) -> Vec<HistogramBucket> {
    let mut buckets = Vec::new();
    let (mut from, mut up_to) = (0, 1_000);
    while from <= histogram.max() && !histogram.is_empty() {
        let count = histogram.iter_recorded().filter(|step| (from..up_to).contains(&step.value_iterated_to()));
        let count = count.map(|step| step.count_at_value()).sum();
        if count > 0 || !buckets.is_empty() {
            buckets.push(HistogramBucket { up_to, count });
        }
        (from, up_to) = (up_to, 2 * up_to);
    }
    buckets
}

/// Returns the lines; the largest bucket has a full bar.
pub(crate) fn lines(histogram: &Histogram<u64>, paint: Paint) -> Vec<String> {
    let buckets = buckets(histogram);
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0).max(1);
    let line = |bucket: &HistogramBucket| {
        // A bucket that is not empty has a bar of at least one character.
        let length = (bucket.count * WIDTH).div_ceil(most) as usize;
        let bar = format!("{:1$}", "#".repeat(length), WIDTH as usize);
        format!("  < {:>8}  {}  {}", time(bucket.up_to), paint.good(&bar), count(bucket.count))
    };
    buckets.iter().map(line).collect()
}

/// Formats quantiles: `p50 61.0 us, p99 ..., p99.9 ..., max ...`.
pub(crate) fn quantiles(histogram: &Histogram<u64>) -> String {
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| time(histogram.value_at_quantile(quantile)));
    format!("p50 {p50}, p99 {p99}, p99.9 {p999}, max {}", time(histogram.max()))
}

#[cfg(test)]
mod tests {
    use super::super::tally::histogram;
    use super::*;

    #[test]
    fn every_value_is_in_one_line() {
        let mut values = histogram();
        for value in [500, 1_500, 1_600, 9_000] {
            values.record(value).unwrap();
        }
        let bucket = |up_to, count| HistogramBucket { up_to, count };
        assert_eq!(
            buckets(&values),
            [bucket(1_000, 1), bucket(2_000, 2), bucket(4_000, 0), bucket(8_000, 0), bucket(16_000, 1)]
        );
        let lines = lines(&values, Paint::none());
        assert!(lines[1].contains(&"#".repeat(48)) && lines[0].contains(&"#".repeat(24)));
    }

    #[test]
    fn nothing_is_no_line() {
        assert!(lines(&histogram(), Paint::none()).is_empty());
    }
}
