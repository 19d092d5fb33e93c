//! `Exporter` with schedulers: what Prometheus would scrape, and the dashboard for it.
#![cfg(all(feature = "metrics", feature = "test-util"))]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use metrics::with_local_recorder;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use serde_json::Value;
use support::{manual, ms};
use tourbillon::Engine;
use tourbillon::adapters::metrics::Exporter;
use tourbillon::scheduler::{Backoff, Plan, Run, Scheduler};

/// A scheduler, an exporter of it and of each job, and the recorder that Prometheus scrapes.
struct Scraped {
    engine: Engine,
    scheduler: Scheduler<&'static str>,
    exporter: Exporter,
    recorder: PrometheusRecorder,
    handle: PrometheusHandle,
}

impl Scraped {
    fn new() -> Scraped {
        let engine = manual();
        let builder = Scheduler::<&'static str>::builder().engine(&engine).wall_engine(&manual());
        let scheduler = builder.threads(0).build().unwrap();
        let exporter = Exporter::new(&engine).jobs("jobs", &scheduler, |key| (*key).to_owned());
        let buckets = [0.001, 0.01, 0.1, 1.0, 10.0];
        let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &buckets);
        let recorder = builder.unwrap().build_recorder();
        let handle = recorder.handle();
        Scraped { engine, scheduler, exporter, recorder, handle }
    }

    /// Exports, and returns the scraped values by their names with labels.
    fn scrape(&mut self) -> BTreeMap<String, f64> {
        with_local_recorder(&self.recorder, || self.exporter.export());
        let text = self.handle.render();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').expect("a name and a value");
                (name.to_owned(), value.parse().expect("a number"))
            })
            .collect()
    }
}

fn of_job(name: &str, job: &str) -> String {
    format!("tourbillon_job_{name}{{scheduler=\"jobs\",job_key=\"{job}\"}}")
}

fn of_scheduler(name: &str) -> String {
    format!("tourbillon_scheduler_{name}{{scheduler=\"jobs\"}}")
}

/// Returns a scrape in which every metric has a value.
fn scrape_of_everything() -> BTreeMap<String, f64> {
    let mut scraped = Scraped::new();
    scraped.scheduler.schedule("tick", ms(10), |_| ()).unwrap();
    scraped.engine.advance(ms(100));
    scraped.scrape()
}

#[test]
fn e5_b5_runs_failures_and_retries_are_counted_for_the_scheduler_and_for_each_job() {
    let mut scraped = Scraped::new();
    scraped.scheduler.schedule("good", ms(10), |_| ()).unwrap();
    let fails = |run: &Run<_>| if run.attempt() == 1 { Err("once") } else { Ok(()) };
    let plan = Plan::every(ms(50)).retry(1, Backoff::fixed(ms(5)));
    scraped.scheduler.schedule("bad", plan, fails).unwrap();
    scraped.engine.advance(ms(100));
    let values = scraped.scrape();
    assert_eq!(values[&of_job("runs_total", "good")], 10.0);
    assert_eq!(values[&of_job("failed_total", "good")], 0.0);
    assert_eq!(values[&of_job("runs_total", "bad")], 3.0);
    assert_eq!(values[&of_job("failed_total", "bad")], 2.0);
    assert_eq!(values[&of_job("retried_total", "bad")], 1.0);
    assert_eq!(values[&of_scheduler("runs_total")], 13.0);
    assert_eq!(values[&of_scheduler("failed_total")], 2.0);
    assert_eq!(values[&of_scheduler("jobs")], 2.0);
    scraped.engine.advance(ms(100));
    let values = scraped.scrape();
    assert_eq!(values[&of_job("runs_total", "good")], 20.0);
    assert_eq!(values[&of_job("runs_total", "bad")], 7.0);
}

#[test]
fn e5_b5_the_counts_of_a_key_go_on_when_another_job_gets_it() {
    let mut scraped = Scraped::new();
    for expected in [5.0, 10.0, 15.0] {
        scraped.scheduler.schedule("key", ms(10), |_| ()).unwrap();
        scraped.engine.advance(ms(50));
        assert_eq!(scraped.scrape()[&of_job("runs_total", "key")], expected);
        assert!(scraped.scheduler.remove("key"));
        let _without = scraped.scrape();
    }
}

#[test]
fn e5_b5_each_run_is_once_in_the_histograms_of_duration_and_lateness() {
    let mut scraped = Scraped::new();
    let sleeps = |_| tourbillon::time::sleep(ms(20));
    scraped.scheduler.schedule_async("slow", Plan::every(ms(100)), sleeps).unwrap();
    scraped.engine.advance(ms(350));
    for _ in 0..2 {
        let values = scraped.scrape();
        assert_eq!(values[&of_job("run_seconds_count", "slow")], 3.0);
        assert_eq!(values[&of_scheduler("run_seconds_count")], 3.0);
        let sum = values[&of_job("run_seconds_sum", "slow")];
        assert!((0.06..0.06 * 1.125).contains(&sum), "three runs of 20 ms: {sum}");
        assert_eq!(values[&of_job("lateness_seconds_count", "slow")], 3.0);
        assert_eq!(values[&of_job("lateness_seconds_sum", "slow")], 0.0, "they were on time");
    }
    // The engine is not driven for 450 ms: the run that is due at 400 is 400 late.
    scraped.engine.clock().advance(ms(450));
    while scraped.engine.turn().more {}
    scraped.engine.advance(ms(50));
    let late = scraped.scrape()[&of_job("lateness_seconds_sum", "slow")];
    assert!((0.4..0.4 * 1.125).contains(&late), "{late}");
}

#[test]
fn e5_b5_the_engine_behind_cron_plans_is_exported_too() {
    let mut scraped = Scraped::new();
    let wall = r#"tourbillon_timers_armed_total{clock="wall"}"#;
    assert!(!scraped.scrape().contains_key(wall));
    let cron = tourbillon::Cron::parse("@hourly").unwrap();
    scraped.scheduler.schedule("hourly", cron, |_| ()).unwrap();
    assert_eq!(scraped.scrape()[wall], 1.0);
    assert!(scraped.scrape().contains_key("tourbillon_timers_armed_total"));
}

#[test]
fn e5_b5_without_jobs_only_the_totals_of_a_scheduler_are_exported() {
    let mut scraped = Scraped::new();
    scraped.exporter = Exporter::new(&scraped.engine).label("service", "shop").scheduler("totals", &scraped.scheduler);
    scraped.scheduler.schedule("tick", ms(10), |_| ()).unwrap();
    scraped.engine.advance(ms(30));
    let values = scraped.scrape();
    assert_eq!(values[r#"tourbillon_scheduler_runs_total{service="shop",scheduler="totals"}"#], 3.0);
    assert!(values.keys().all(|name| !name.starts_with("tourbillon_job_")), "{values:?}");
}

#[test]
fn p7_an_exporter_does_not_keep_its_scheduler_running() {
    let Scraped { engine, scheduler, mut exporter, recorder, .. } = Scraped::new();
    scheduler.schedule("tick", ms(10), |_| ()).unwrap();
    engine.advance(ms(10));
    drop(scheduler);
    while engine.turn().more {}
    assert_eq!(engine.stats().pending, 0);
    with_local_recorder(&recorder, || exporter.export());
}

#[test]
fn e5_b5_the_gauges_of_a_scheduler_that_is_gone_are_zero() {
    let mut scraped = Scraped::new();
    scraped.scheduler.schedule("tick", ms(10), |_| ()).unwrap();
    scraped.engine.advance(ms(10));
    assert_eq!(scraped.scrape()[&of_scheduler("jobs")], 1.0);
    // Another scheduler takes the place of the one that is exported.
    scraped.scheduler = Scheduler::builder().engine(&scraped.engine).threads(0).build().unwrap();
    while scraped.engine.turn().more {}
    for _ in 0..2 {
        let values = scraped.scrape();
        for gauge in ["jobs", "runs_waiting", "runs_running"] {
            assert_eq!(values[&of_scheduler(gauge)], 0.0, "{gauge}");
        }
        assert_eq!(values[&of_scheduler("runs_total")], 1.0, "a counter keeps its value");
    }
}

#[test]
fn e5_b5_the_engines_of_two_wall_clocks_have_labels_of_their_own() {
    let mut scraped = Scraped::new();
    let hourly = || tourbillon::Cron::parse("@hourly").unwrap();
    let (wall, engine) = (manual(), scraped.engine.clone());
    let others = [1, 2].map(|_| {
        let builder = Scheduler::<&'static str>::builder().engine(&engine).wall_engine(&wall).threads(0);
        builder.build().unwrap()
    });
    scraped.exporter = others.iter().fold(scraped.exporter, |exporter, other| exporter.scheduler("other", other));
    scraped.scheduler.schedule("job", hourly(), |_| ()).unwrap();
    others.iter().for_each(|other| _ = other.schedule("job", hourly(), |_| ()).unwrap());
    let pending = |clock: &str| format!("tourbillon_timers_pending{{clock=\"{clock}\"}}");
    let values = scraped.scrape();
    assert_eq!((values[&pending("wall")], values[&pending("wall-2")]), (1.0, 2.0));
    assert!(!values.contains_key(&pending("wall-3")), "two schedulers share an engine");
}

#[test]
fn e5_b5_the_histograms_of_more_jobs_than_are_read_at_a_time_have_each_run_once() {
    const KEYS: usize = 300;
    let engine = manual();
    let scheduler: Scheduler<usize> = Scheduler::builder().engine(&engine).threads(0).build().unwrap();
    let mut scraped = Scraped::new();
    scraped.exporter = Exporter::new(&engine).jobs("jobs", &scheduler, usize::to_string);
    for key in 0..KEYS {
        scheduler.schedule(key, ms(10), |_| ()).unwrap();
    }
    for round in 1..=3 {
        engine.advance(ms(10));
        let values = scraped.scrape();
        for key in 0..KEYS {
            let count = values[&of_job("run_seconds_count", &key.to_string())];
            assert_eq!(count, f64::from(round), "job {key}");
        }
    }
}

// ---- the dashboard ----

fn dashboard() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/grafana-dashboard.json");
    serde_json::from_str(&std::fs::read_to_string(path).expect("the dashboard")).expect("it is JSON")
}

/// Returns all expressions of a dashboard's panels and variables.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "expr" || name == "query" => found.push(text.clone()),
                    _ => expressions(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

/// Returns the names of metrics in an expression.
fn metric_names(expression: &str) -> impl Iterator<Item = &str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("tourbillon_"))
}

#[test]
fn e5_b5_every_metric_of_the_dashboard_is_in_a_scrape_and_every_scraped_one_in_the_dashboard() {
    let mut found = Vec::new();
    expressions(&dashboard(), &mut found);
    let asked: BTreeSet<String> = found.iter().flat_map(|text| metric_names(text)).map(str::to_owned).collect();
    assert!(asked.len() > 20, "found {} metrics only", asked.len());
    let scraped = scrape_of_everything();
    let given: BTreeSet<String> = scraped.keys().filter_map(|name| name.split('{').next()).map(str::to_owned).collect();
    let missing: Vec<_> = asked.difference(&given).collect();
    assert!(missing.is_empty(), "not in a scrape: {missing:?}");
    let is_shown = |name: &String| {
        let base = name.trim_end_matches("_sum").trim_end_matches("_count").trim_end_matches("_bucket");
        asked.iter().any(|asked| asked == name || asked.strip_suffix("_bucket") == Some(base))
    };
    let unshown: Vec<_> = given.iter().filter(|name| !is_shown(name)).collect();
    assert!(unshown.is_empty(), "in no panel: {unshown:?}");
}

#[test]
fn b5_every_panel_of_the_dashboard_has_its_own_place_a_title_and_a_data_source() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("an id")), "{title}: its id is taken");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_u64().expect("a place"));
        assert!(x + w <= 24, "{title}: too wide");
        for place in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(place), "{title}: overlaps another panel at {place:?}");
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(!panel["targets"].as_array().expect("targets").is_empty(), "{title}");
        }
    }
}
