//! Several nodes on one PostgreSQL.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::tempdir;
use tourbillon_tools::postgres::url;

use crate::support::{TestServer, until};

/// Returns a database of its own for a test; `None` on a machine without PostgreSQL, after saying so.
async fn database() -> Option<(String, tokio_postgres::Client)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let url = tokio::task::spawn_blocking(url).await.unwrap()?;
    let name = format!("service_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    Some((url.replace("dbname=postgres", &format!("dbname={name}")), client))
}

async fn node(directory: &std::path::Path, url: &str) -> TestServer {
    TestServer::start(directory, |config| {
        config.store = url.to_owned();
        config.keys_file = Some(directory.join("none.json"));
    })
    .await
}

fn due(key: &str) -> Value {
    json!({"key": key, "after": "0s", "deliver": {"queue": "q"}})
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_o9_every_node_hands_out_every_due_timer_and_takes_every_receipt() {
    let Some((url, _client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let (first, second) = (node(directory.path(), &url).await, node(directory.path(), &url).await);
    // Their names put them into many shards, of which each node owns some.
    let timers: Vec<Value> = (0..40).map(|number| due(&format!("k{number}"))).collect();
    first.post("/v1/timers/batch", json!({"timers": timers})).await;
    let pulled = second.pull("q", json!({"max": 100, "wait": "10s"})).await;
    assert_eq!(pulled.len(), 40, "one node reaches the timers of all shards");
    assert!(first.pull("q", json!({"max": 100})).await.is_empty());
    second.stop().await;
    let receipts: Vec<&Value> = pulled.iter().map(|timer| &timer["receipt"]).collect();
    let (_, answer) = first.post("/v1/queues/q/ack", json!({"receipts": receipts})).await;
    assert_eq!(answer["accepted"], 40, "the worker's rows outlive the node that handed them out");
    // A worker that waits at one node gets what is created at another.
    let second = node(directory.path(), &url).await;
    let create = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        first.create(due("late")).await;
    };
    let (pulled, ()) = tokio::join!(second.pull("q", json!({"wait": "20s"})), create);
    assert_eq!(pulled[0]["key"], "late");
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o9_a_rolling_restart_of_three_nodes_loses_no_acknowledged_timer() {
    let Some((url, _client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(node(directory.path(), &url).await);
    }
    let mut acknowledged = Vec::new();
    let mut pulled = Vec::new();
    for round in 0..3 {
        for (index, node) in nodes.iter().enumerate() {
            for number in 0..10 {
                let key = format!("r{round}n{index}k{number}");
                node.create(due(&key)).await;
                acknowledged.push(key);
            }
        }
        pulled.extend(nodes[0].pull("q", json!({"max": 5, "lease": "10m"})).await);
        let old = nodes.remove(0);
        nodes.push(node(directory.path(), &url).await);
        old.stop().await;
    }
    while pulled.len() < acknowledged.len() {
        let more = nodes[0].pull("q", json!({"max": 100, "lease": "10m", "wait": "20s"})).await;
        assert!(!more.is_empty(), "{} of {} timers were found", pulled.len(), acknowledged.len());
        pulled.extend(more);
    }
    let mut found: Vec<String> = pulled.iter().map(|timer| timer["key"].as_str().unwrap().to_owned()).collect();
    found.sort();
    acknowledged.sort();
    assert_eq!(found, acknowledged);
    let receipts: Vec<&Value> = pulled.iter().map(|timer| &timer["receipt"]).collect();
    let (_, answer) = nodes[1].post("/v1/queues/q/ack", json!({"receipts": receipts})).await;
    assert_eq!(answer["accepted"], pulled.len());
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_connection_to_the_database_is_503_at_most_and_passes() {
    let Some((url, client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let node = node(directory.path(), &url).await;
    node.create(due("before")).await;
    let name = url.rsplit_once("dbname=").unwrap().1;
    for round in 0..5 {
        let kill = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        client.batch_execute(&kill).await.unwrap();
        let (status, _) = node.post("/v1/timers", due(&format!("k{round}"))).await;
        assert!(matches!(status, 200 | 201 | 503), "{status}");
    }
    until(async || matches!(node.post("/v1/timers", due("after")).await.0, 200 | 201)).await;
    until(async || node.get("/readyz").await.0 == 200).await;
    // A pull takes what is due at that moment: the last timer may come with the next one.
    let mut keys: Vec<Value> = Vec::new();
    while !(keys.contains(&json!("before")) && keys.contains(&json!("after"))) {
        let pulled = node.pull("q", json!({"max": 100, "wait": "20s", "lease": "10m"})).await;
        assert!(!pulled.is_empty(), "{keys:?}");
        keys.extend(pulled.iter().map(|timer| timer["key"].clone()));
    }
    node.stop().await;
}
