//! A job runner: cron and intervals, retries with backoff, time limits, a run on demand, and metrics as Prometheus scrapes them.
//!
//!     cargo run -p tourbillon --all-features --example job_runner

use std::error::Error;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusBuilder;
use tourbillon::adapters::metrics::Exporter;
use tourbillon::scheduler::{Backoff, Plan, RunStatus, Scheduler, Shutdown};
use tourbillon::time::{self, Instant};
use tourbillon::{Cron, Engine};

const MS: Duration = Duration::from_millis(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A server would also call `with_http_listener`, a feature of that crate.
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let jobs = Scheduler::builder().threads(2).on_tokio().on_failure(|failure| println!("{failure}")).build()?;
    let exporter = Exporter::new(&Engine::current()).jobs("runner", &jobs, |key: &&str| (*key).to_owned());
    let exports = tokio::spawn(exporter.run(50 * MS));

    // Each second of the wall clock.
    let each_second = Plan::cron(Cron::utc("* * * * * *")?);
    jobs.schedule("heartbeat", each_second, |run| println!("heartbeat, due {:?}", run.due_wall()))?;

    // Answers at the third attempt: after about 20 and 40 ms, in good time before its next regular run.
    let backoff = Backoff::exponential(20 * MS).up_to(Duration::from_secs(1));
    let sync = Plan::every(Duration::from_secs(60)).first_at_once().retry(5, backoff);
    jobs.schedule_async("sync", sync, |run| async move {
        tokio::time::sleep(5 * MS).await; // Tokio's timer: the job runs on its runtime
        if run.attempt() < 3 { Err(format!("attempt {}: no answer", run.attempt())) } else { Ok(()) }
    })?;

    // Hangs, and is cancelled by its limit each time.
    let hangs = Plan::every(200 * MS).time_limit(50 * MS).until(Instant::now() + Duration::from_secs(1));
    jobs.schedule_async("hangs", hangs, |_| std::future::pending::<()>())?;

    // Runs at night, and now because somebody asks for it.
    jobs.schedule("report", Cron::parse("30 2 * * *")?.in_zone("Europe/Berlin")?, |_| println!("the report"))?;
    println!("the next report is at {:?}", jobs.next_run_wall("report"));
    jobs.run_now("report")?;

    time::sleep(1500 * MS).await;
    let sync = jobs.report("sync").and_then(|report| report.last_run).ok_or("it has run")?;
    println!("sync: {:?} at attempt {}, after {:?}", sync.status, sync.attempt, sync.duration);
    assert_eq!((sync.status, sync.attempt), (RunStatus::Succeeded, 3));
    assert!(!jobs.contains("hangs"), "its plan has ended");
    assert_eq!(jobs.report("report").ok_or("it is there")?.runs, 1);
    let stats = jobs.stats();
    assert!(stats.over_limit > 0 && stats.retried == 2, "{stats:?}");

    time::sleep(100 * MS).await;
    let scrape = metrics.render();
    for line in scrape.lines().filter(|line| line.starts_with("tourbillon_job_") && line.contains("_total")) {
        println!("{line}");
    }
    assert!(scrape.contains(r#"tourbillon_job_failed_total{scheduler="runner",job_key="sync"} 2"#));

    exports.abort();
    jobs.shutdown(Shutdown::Drain).await;
    Ok(())
}
