//! Metrics in the text format of Prometheus.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header;
use tourbillon_durable::NamespaceLateness;

use super::extract::Caller;
use crate::access::Access;
use crate::problem::Problem;
use crate::state::AppState;

/// The upper bounds of the lateness, in microseconds.
const BUCKETS: &[u64] =
    &[1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000, 30_000_000, 300_000_000];

const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Metrics for Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "operations",
    responses(
        (status = 200, description = "What the server counts.", body = String, content_type = "text/plain; version=0.0.4; charset=utf-8"),
        super::docs::Problems,
    ),
)]
pub(super) async fn metrics(
    State(state): State<AppState>,
    Caller(caller): Caller,
) -> Result<impl IntoResponse, Problem> {
    caller.check_access(Access::Read)?;
    if !caller.sees_all() {
        return Err(Problem::forbidden("metrics tell of all namespaces: use an API key that allows all"));
    }
    let text = render(&state).await;
    Ok(([(header::CONTENT_TYPE, MEDIA_TYPE)], text))
}

async fn render(state: &AppState) -> String {
    let mut page = Page(String::with_capacity(8 << 10));
    let counters = state.counters();
    page.head("tourbillon_http_answers_total", "counter", "Answers by the class of their status.");
    for class in 1..=5 {
        page.line("tourbillon_http_answers_total", &[("class", &format!("{class}xx"))], counters.answers(class));
    }
    page.counter("tourbillon_http_refused_total", "Requests that found no place.", counters.refused());
    page.counter("tourbillon_timers_created_total", "Timers that this server created.", counters.created());
    page.counter("tourbillon_timers_cancelled_total", "Timers that this server cancelled.", counters.cancelled());
    page.counter("tourbillon_timers_pulled_total", "Timers that workers pulled here.", counters.pulled());
    store(&mut page, state).await;
    deliveries(&mut page, state);
    page.0
}

async fn store(page: &mut Page, state: &AppState) {
    let counts = state.overview().counts(state.timers()).await;
    page.gauge("tourbillon_store_up", "Whether the store answers.", u64::from(counts.is_ok()));
    let Ok(counts) = counts else { return };
    page.head("tourbillon_timers", "gauge", "Timers in the store by state.");
    for (state, count) in [("armed", counts.armed), ("claimed", counts.claimed), ("dead", counts.dead)] {
        page.line("tourbillon_timers", &[("state", state)], count);
    }
    let overdue = counts.overdue.iter().map(|(_, count)| count).sum();
    page.gauge("tourbillon_timers_overdue", "Timers that are due and not delivered yet.", overdue);
}

fn deliveries(page: &mut Page, state: &AppState) {
    let stats = state.timers().stats();
    page.gauge("tourbillon_node_is_owner", "Whether this node delivers timers.", u64::from(stats.is_owner));
    page.head("tourbillon_clock_skew_seconds", "gauge", "How far this machine's clock is off from the store's.");
    page.line("tourbillon_clock_skew_seconds", &[], stats.clock_skew.as_secs_f64());
    let help = "Whether this node delivers no timers because its clock is off.";
    page.gauge("tourbillon_node_clock_is_off", help, u64::from(stats.is_clock_off));
    let failing = stats.store_failing.and_then(|failing| failing.since.elapsed().ok()).unwrap_or_default();
    page.head("tourbillon_store_failing_seconds", "gauge", "For how long the store has failed a request of this node.");
    page.line("tourbillon_store_failing_seconds", &[], failing.as_secs_f64());
    page.gauge("tourbillon_rows_in_memory", "Timers in memory, due soon.", stats.rows_in_memory as u64);
    page.gauge("tourbillon_deliveries_running", "Deliveries under way.", stats.running as u64);
    page.gauge("tourbillon_workers_waiting", "Workers that wait in a pull.", state.queues().waiting() as u64);
    page.counter("tourbillon_deliveries_begun_total", "Deliveries that were begun.", stats.begun);
    page.head("tourbillon_deliveries_total", "counter", "Deliveries by how they ended.");
    let ended = [
        ("done", stats.done),
        ("retried", stats.retried),
        ("postponed", stats.postponed),
        ("given_up", stats.given_up),
    ];
    for (result, count) in ended {
        page.line("tourbillon_deliveries_total", &[("result", result)], count);
    }
    let webhooks = state.webhooks().counts();
    page.head("tourbillon_webhooks_total", "counter", "Webhooks by what became of them.");
    for (result, count) in [
        ("succeeded", &webhooks.succeeded),
        ("failed", &webhooks.failed),
        ("refused", &webhooks.refused),
        ("circuit_open", &webhooks.short_circuited),
        ("postponed", &webhooks.postponed),
    ] {
        page.line("tourbillon_webhooks_total", &[("result", result)], count.load(Ordering::Relaxed));
    }
    let open = state.webhooks().open_circuits() as u64;
    page.gauge("tourbillon_webhook_circuits_open", "Hosts that are not called, because they failed.", open);
    page.head("tourbillon_lateness_seconds", "histogram", "How late timers are, by the stage of their delivery.");
    for (namespace, lateness) in &stats.lateness {
        page.lateness(namespace, lateness);
    }
}

/// A page of metrics.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _infallible = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.line(name, &[], value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "gauge", help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _infallible = write!(self.0, "{}{label}=\"{text}\"", if index == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _infallible = writeln!(self.0, "{end} {value}");
    }

    fn lateness(&mut self, namespace: &str, lateness: &NamespaceLateness) {
        const NAME: &str = "tourbillon_lateness_seconds";
        let stages = [("claim", &lateness.claim), ("queue", &lateness.queue), ("delivery", &lateness.delivery)];
        for (stage, histogram) in stages {
            let labels = [("namespace", namespace), ("stage", stage)];
            let (mut below, mut from) = (0, 0);
            for bound in BUCKETS {
                below += histogram.count_between(from, *bound);
                from = histogram.highest_equivalent(*bound) + 1;
                let seconds = (*bound as f64 / 1e6).to_string();
                let bucket = format!("{NAME}_bucket");
                self.line(&bucket, &[labels[0], labels[1], ("le", &seconds)], below);
            }
            self.line(&format!("{NAME}_bucket"), &[labels[0], labels[1], ("le", "+Inf")], histogram.len());
            let sum = histogram.mean() * histogram.len() as f64 / 1e6;
            self.line(&format!("{NAME}_sum"), &labels, sum);
            self.line(&format!("{NAME}_count"), &labels, histogram.len());
        }
    }
}
