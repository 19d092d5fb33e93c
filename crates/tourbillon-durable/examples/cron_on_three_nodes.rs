//! A cron job on three nodes: each of its times is delivered by one of them, also after one has ended.
//!
//! `TOURBILLON_TEST_POSTGRES=postgres://user:password@host/database` names a server; otherwise the example starts one of its own, from the Debian package
//! `postgresql`. Without either it says so and ends.

use std::collections::BTreeMap;
use std::time::Duration;

use tourbillon_durable::store::PostgresOptions;
use tourbillon_durable::{Delivery, NewTimer, OnConflict, Timers};

type Error = Box<dyn std::error::Error>;

/// What a node has delivered: its number, the number of the occurrence, and that of the attempt.
type Sent = tokio::sync::mpsc::UnboundedSender<(usize, u64, u32)>;

/// Starts a node. In production each is a process of its own.
async fn start(number: usize, options: PostgresOptions, sent: Sent) -> Result<Timers, Error> {
    let timers = Timers::builder().node_lease(Duration::from_secs(2)).connect_with(options).await?;
    timers.on("report", move |delivery: Delivery| {
        let sent = sent.clone();
        async move {
            println!("node {number} makes report {}", delivery.occurrence());
            sent.send((number, delivery.occurrence(), delivery.attempt())).map_err(|error| error.to_string())
        }
    })?;
    // Every node asks for the same job when it starts. The first creates it, the others find it.
    let job = NewTimer::cron("report", "* * * * * *", "Europe/Berlin").key("the report").on_conflict(OnConflict::Keep);
    timers.create(job).await?;
    Ok(timers)
}

async fn run(url: &str) -> Result<(), Error> {
    let options = PostgresOptions::new(url)?.schema(format!("example_{}", std::process::id()))?;
    let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let mut nodes = Vec::new();
    for number in 1..=3 {
        nodes.push(start(number, options.clone(), sender.clone()).await?);
    }
    let mut seen = BTreeMap::new();
    while seen.len() < 4 {
        let (node, occurrence, attempt) = reports.recv().await.ok_or("the nodes have ended")?;
        // At least once: a node that stood still for longer than its lease may see a report repeated, and its attempt says so.
        let is_first = seen.insert(occurrence, node).is_none();
        assert!(is_first || attempt > 1, "report {occurrence} was made once");
        if seen.len() == 2 {
            // The node that made the last report goes away: another one makes the next.
            nodes[node - 1].shutdown(Duration::from_secs(5)).await?;
        }
    }
    nodes[0].cancel("the report").await.or(nodes[1].cancel("the report").await)?;
    for node in &nodes {
        // One of them has ended already.
        let _ = node.shutdown(Duration::from_secs(5)).await;
    }
    println!("reports by node: {seen:?}");
    Ok(())
}

#[cfg(unix)]
fn main() -> Result<(), Error> {
    let Some(url) = tourbillon_tools::postgres::url() else { return Ok(()) };
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(url))
}

#[cfg(not(unix))]
fn main() -> Result<(), Error> {
    match std::env::var("TOURBILLON_TEST_POSTGRES") {
        Ok(url) => tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(run(&url)),
        Err(_) => Ok(println!("NOT TESTED ON POSTGRESQL: TOURBILLON_TEST_POSTGRES is not set")),
    }
}
