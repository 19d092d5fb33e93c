//! What each metric means in words, its unit, and whether lower or higher is better.

/// A metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Metric<'a> {
    /// A description for titles.
    pub(crate) words: &'a str,
    /// The unit after a value; may be empty.
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
}

/// The direction in which a metric is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Better {
    Lower,
    Higher,
    /// Neither: the metric is a detail.
    Neither,
}

type NamedMetric = (&'static str, &'static str, &'static str, Better);

const METRICS: &[NamedMetric] = &[
    ("ns_per_op", "time", "ns", Better::Lower),
    ("cpu_ns_per_op", "CPU time of all threads", "ns", Better::Lower),
    ("bytes_per_timer", "memory per timer", "B", Better::Lower),
    ("cpu_ns_per_fire", "CPU time per fire", "ns", Better::Lower),
    ("p10_us", "lateness, 10th percentile", "us", Better::Lower),
    ("p25_us", "lateness, 25th percentile", "us", Better::Lower),
    ("p50_us", "lateness, median", "us", Better::Lower),
    ("p75_us", "lateness, 75th percentile", "us", Better::Lower),
    ("p90_us", "lateness, 90th percentile", "us", Better::Lower),
    ("p95_us", "lateness, 95th percentile", "us", Better::Lower),
    ("p99_us", "lateness, 99th percentile", "us", Better::Lower),
    ("p99.9_us", "lateness, 99.9th percentile", "us", Better::Lower),
    ("max_us", "lateness, greatest", "us", Better::Lower),
    ("early_percent", "fires before the deadline", "%", Better::Lower),
    ("resident_bytes", "resident memory of each", "B", Better::Lower),
    ("size_of_sleep", "size of the sleep itself", "B", Better::Neither),
    ("requests_per_s", "requests per second", "/s", Better::Higher),
    ("cpu_ns_per_request", "CPU time per request", "ns", Better::Lower),
    ("rate_percent_of_untimed", "requests per second, compared with no timeouts", "%", Better::Higher),
    ("cpu_percent_of_untimed", "CPU time per request, compared with no timeouts", "%", Better::Lower),
    ("rate_percent_of_tokio", "requests per second, compared with Tokio", "%", Better::Higher),
    ("cpu_percent_of_tokio", "CPU time, compared with Tokio", "%", Better::Lower),
    ("p99_percent_of_tokio", "99th percentile of lateness, compared with Tokio", "%", Better::Lower),
    ("cpu_ns_per_reply", "CPU time per message and reply", "ns", Better::Lower),
    ("sleeps_per_reply", "times that a thread went to sleep, per reply", "", Better::Lower),
    ("wake_ups", "wake-ups", "", Better::Lower),
    ("cpu_us", "CPU time", "us", Better::Lower),
    ("churn_ns_per_op", "time to arm and cancel one sleep", "ns", Better::Lower),
    ("reset_ns_per_op", "time to push a deadline later", "ns", Better::Lower),
    ("times_churn", "time in multiples of arming and cancelling a sleep", "x", Better::Lower),
    ("bytes_beyond_key_and_closure", "memory of each, without key and closure", "B", Better::Lower),
    ("runs", "runs", "", Better::Neither),
    ("runs_due", "runs that were due", "", Better::Neither),
    ("cpu_ns_per_run", "CPU time per run", "ns", Better::Lower),
    ("cpu_percent", "CPU time, of one core", "%", Better::Lower),
    ("cancels_per_s", "cancels per second, callbacks included", "/s", Better::Higher),
    ("ns_per_sleep", "time per sleep", "ns", Better::Lower),
    ("webhooks_per_s", "webhooks delivered per second", "/s", Better::Higher),
    ("pulls_per_s", "timers pulled and acknowledged per second", "/s", Better::Higher),
    ("rate_percent_of_library", "rate, compared with the library in the same process", "%", Better::Higher),
    ("resident_mb", "resident memory", "MB", Better::Lower),
    ("page_kb", "size of the page", "kB", Better::Lower),
    ("times_tokio", "time in multiples of Tokio's", "x", Better::Lower),
    ("fdatasync_p50_us", "time of one fdatasync on the idle machine, median", "us", Better::Neither),
    (
        "fdatasync_beside_load_p50_us",
        "time of one fdatasync while all processors compute, median",
        "us",
        Better::Neither,
    ),
    ("creates_per_s", "creates per second", "/s", Better::Higher),
    (
        "share_of_fdatasync",
        "creates per second, as a share of one for each client in every fdatasync of the idle machine",
        "",
        Better::Higher,
    ),
    (
        "share_of_fdatasync_beside_load",
        "creates per second, as a share of one for each client in every fdatasync while all processors compute",
        "",
        Better::Higher,
    ),
    ("answer_p50_ms", "time until the answer, median", "ms", Better::Lower),
    ("answer_p99_ms", "time until the answer, 99th percentile", "ms", Better::Lower),
    (
        "answer_p99_times_fdatasync",
        "time until the answer, 99th percentile, in multiples of an fdatasync of the idle machine",
        "x",
        Better::Lower,
    ),
    (
        "answer_p99_times_fdatasync_beside_load",
        "time until the answer, 99th percentile, in multiples of an fdatasync while all processors compute",
        "x",
        Better::Lower,
    ),
    ("operations_per_s", "creates and cancels per second", "/s", Better::Higher),
    ("share_of_empty_store", "creates and cancels per second, as a share of the rate beside none", "", Better::Higher),
    ("commit_p50_us", "time until the answer to a create, median", "us", Better::Lower),
    ("commit_p99_us", "time until the answer to a create, 99th percentile", "us", Better::Lower),
    ("p99_beyond_commit_us", "lateness, 99th percentile, less the median answer to a create", "us", Better::Lower),
    ("delivered", "timers that were delivered", "", Better::Neither),
    ("expected", "timers that were due", "", Better::Neither),
    ("s_until_all_delivered", "time from the first due timer to the last delivery", "s", Better::Lower),
    ("s_to_create", "time to create all", "s", Better::Lower),
    ("s_to_open", "time to open the store after a kill, median", "s", Better::Lower),
    ("s_to_open_longest", "time to open the store after a kill, longest", "s", Better::Lower),
    ("resident_mb_after_creating", "resident memory of the process that created them", "MB", Better::Lower),
    ("resident_mb_after_opening", "resident memory of a process that opened the store", "MB", Better::Lower),
    ("disk_bytes_per_timer", "bytes of disk per timer", "B", Better::Lower),
    ("sleeps_per_s", "wake-ups per second", "/s", Better::Lower),
    ("queries_per_s", "statements that the server got, per second", "/s", Better::Lower),
    ("ms_until_answer", "time until the answer", "ms", Better::Lower),
    ("cancelled", "timers that the cancel counted as cancelled", "", Better::Neither),
    ("in_flight", "timers that the cancel counted as being delivered", "", Better::Neither),
    ("acknowledged", "operations that were acknowledged", "", Better::Neither),
    ("lost", "acknowledged timers that were lost", "", Better::Lower),
    ("cancelled_delivered", "timers that were delivered although a cancel had counted them", "", Better::Lower),
    ("unexplained_duplicates", "deliveries whose attempt does not say that they are repetitions", "", Better::Lower),
    ("early", "deliveries before the due time", "", Better::Lower),
    ("wrong", "pending timers with a due time that was not acknowledged", "", Better::Lower),
    ("timers", "timers", "", Better::Neither),
    ("repeated_deliveries", "deliveries after the first, each with a higher attempt", "", Better::Neither),
    ("repeating_timers", "repeating timers whose create was acknowledged", "", Better::Neither),
    ("cancelled_by_name", "timers that cancels by name have counted", "", Better::Neither),
    ("killed_while_opening", "processes that were killed while they opened the store", "", Better::Neither),
    ("s_for_all_kills", "time of the case", "s", Better::Neither),
    ("s_longest_wait", "lateness, greatest", "s", Better::Lower),
    ("s_of_lease", "lease of a node", "s", Better::Neither),
    ("delivered_by_the_killed_node", "timers that the killed node delivered before", "", Better::Neither),
];

impl Metric<'_> {
    /// Returns the metric of a name. One that is not known has its name as description.
    pub(crate) fn named(name: &str) -> Metric<'_> {
        let known = METRICS.iter().find(|(known, ..)| *known == name);
        match known {
            Some(&(_, words, unit, better)) => Metric { words, unit, better },
            None => Metric { words: name, unit: "", better: Better::Neither },
        }
    }

    /// Formats a value with the unit.
    pub(crate) fn value(&self, value: f64) -> String {
        format!("{} {}", number(value), self.unit).trim_end().to_owned()
    }

    /// Returns the description, and which direction is better.
    pub(crate) fn title(&self) -> String {
        format!("{}{}", self.words, self.better.words())
    }

    /// Returns the same with the unit, for tables whose values have none.
    pub(crate) fn title_with_unit(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" ({})", self.unit) };
        format!("{}{unit}{}", self.words, self.better.words())
    }
}

impl Better {
    fn words(self) -> &'static str {
        match self {
            Better::Lower => ", lower is better",
            Better::Higher => ", higher is better",
            Better::Neither => "",
        }
    }
}

/// Formats a number with about three digits, and with commas between thousands.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        1000.0.. => thousands(value.round() as u64),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a whole number with commas between thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, rest) = digits.split_at(first);
    let groups = rest.as_bytes().chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let parts: Vec<String> = (!head.is_empty()).then(|| head.to_owned()).into_iter().chain(groups).collect();
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_commas_and_few_digits() {
        assert_eq!([0, 12, 999, 1_000, 12_345_678].map(thousands), ["0", "12", "999", "1,000", "12,345,678"]);
        assert_eq!([0.0, 1.234, 12.34, 123.4, 1234.5].map(number), ["0.00", "1.23", "12.3", "123", "1,235"]);
        assert_eq!(number(999.7), "1000");
    }

    #[test]
    fn a_metric_has_words_a_unit_and_a_direction() {
        assert_eq!(Metric::named("p50_us").value(61.23), "61.2 us");
        assert_eq!(Metric::named("requests_per_s").title(), "requests per second, higher is better");
        assert_eq!(Metric::named("ns_per_op").title_with_unit(), "time (ns), lower is better");
        assert_eq!(Metric::named("something_new").title(), "something_new");
        assert_eq!(Metric::named("wake_ups").value(3.0), "3.00");
    }
}
