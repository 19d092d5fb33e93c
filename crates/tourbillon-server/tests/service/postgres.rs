//! Several nodes on one PostgreSQL.

use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::config::Host;
use tourbillon_server::{NewKey, ServerConfig, key_store};
use tourbillon_tools::postgres::url;

use crate::support::{TestServer, until};

/// Returns a database of its own for a test; `None` on a machine without PostgreSQL, after saying so.
pub(crate) async fn database() -> Option<(String, tokio_postgres::Client)> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let url = tokio::task::spawn_blocking(url).await.unwrap()?;
    let name = format!("service_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let client = connect(url).await;
    client.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    Some((url.replace("dbname=postgres", &format!("dbname={name}")), client))
}

/// Connects to a database of a test.
pub(crate) async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) async fn node(directory: &std::path::Path, url: &str) -> TestServer {
    TestServer::start(directory, |config| config.store = url.to_owned()).await
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

/// A way to the database that a test can block.
struct Proxy {
    port: u16,
    is_open: tokio::sync::watch::Sender<bool>,
}

impl Proxy {
    async fn start(url: &str) -> Proxy {
        let server: tokio_postgres::Config = url.parse().unwrap();
        let (host, port) = (server.get_hosts()[0].clone(), server.get_ports().first().copied().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy =
            Proxy { port: listener.local_addr().unwrap().port(), is_open: tokio::sync::watch::Sender::new(true) };
        let is_open = proxy.is_open.subscribe();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(forward(stream, host.clone(), port, is_open.clone()));
            }
        });
        proxy
    }

    /// Returns the address of the database by this way.
    fn url(&self, url: &str) -> String {
        let server: tokio_postgres::Config = url.parse().unwrap();
        let (user, name) = (server.get_user().unwrap_or("postgres"), server.get_dbname().unwrap());
        format!("host=127.0.0.1 port={} user={user} dbname={name}", self.port)
    }
}

/// Passes bytes on until the way is blocked; then the connection ends.
async fn forward(mut client: TcpStream, host: Host, port: u16, mut is_open: tokio::sync::watch::Receiver<bool>) {
    if !*is_open.borrow() {
        return;
    }
    let passed = async {
        match host {
            Host::Unix(folder) => {
                let mut server = UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await?;
                copy_bidirectional(&mut client, &mut server).await
            }
            Host::Tcp(name) => {
                let mut server = TcpStream::connect((name, port)).await?;
                copy_bidirectional(&mut client, &mut server).await
            }
        }
    };
    tokio::select! {
        _ = passed => {}
        _ = is_open.wait_for(|is_open| !is_open) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn o2_a_database_that_is_gone_is_503_with_a_time_to_try_again_and_comes_back() {
    let Some((url, _client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let proxy = Proxy::start(&url).await;
    let node = node(directory.path(), &proxy.url(&url)).await;
    node.create(due("before")).await;
    proxy.is_open.send_replace(false);
    until(async || node.get("/readyz").await.0 == 503).await;
    for (method, path, body) in [
        (Method::POST, "/v1/timers", due("during")),
        (Method::POST, "/v1/timers/batch", json!({"timers": [due("batch")]})),
        (Method::POST, "/v1/cancel", json!({"key": "before"})),
        (Method::POST, "/v1/queues/q/pull", json!({})),
        (Method::GET, "/v1/timers", Value::Null),
    ] {
        let request = node.request(method, path).header("content-type", "application/json").body(body.to_string());
        let response = request.send().await.unwrap();
        let (status, wait) = (response.status().as_u16(), response.headers().get("retry-after").cloned());
        let problem: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        // A batch has a status for each of its timers.
        if status == 200 {
            assert_eq!(problem["results"][0]["status"], 503, "{path}: {problem}");
            continue;
        }
        assert_eq!((status, problem["type"].as_str().unwrap()), (503, "/problems/unavailable"), "{path}");
        assert!(wait.is_some_and(|wait| wait.to_str().unwrap().parse::<u64>().is_ok()), "{path}");
    }
    assert_eq!(node.get("/healthz").await.0, 200, "the process lives");
    let (_, metrics) = node.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("tourbillon_store_up 0"));
    proxy.is_open.send_replace(true);
    until(async || node.get("/readyz").await.0 == 200).await;
    let mut keys = Vec::new();
    until(async || {
        let (status, answer) = node.post("/v1/queues/q/pull", json!({"max": 10, "lease": "10m"})).await;
        let pulled = answer["timers"].as_array().filter(|_| status == 200).cloned().unwrap_or_default();
        keys.extend(pulled.iter().map(|timer| timer["key"].clone()));
        keys.contains(&json!("before"))
    })
    .await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o3_o9_keys_in_the_database_are_those_of_all_nodes_at_once() {
    let Some((url, _client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let config = ServerConfig { store: url.clone(), ..ServerConfig::default() };
    let keys = key_store(&config).unwrap();
    assert!(keys.list().await.unwrap().is_empty(), "there is no table yet");
    assert!(!keys.revoke("nobody").await.unwrap());
    let new = |namespaces: Option<&str>, read_only| {
        let namespaces = namespaces.map(|one| vec![one.to_owned()]);
        NewKey { name: "O'Hara; \u{1f511}".to_owned(), namespaces, read_only }
    };
    // The first key is made before the first node has made the schema.
    let admin = keys.create(new(None, false)).await.unwrap();
    let reader = keys.create(new(Some("shop"), true)).await.unwrap();
    let listed = keys.list().await.unwrap();
    assert_eq!(listed.iter().map(|key| key.id.as_str()).collect::<Vec<_>>(), [&admin[4..20], &reader[4..20]]);
    assert_eq!(
        (listed[1].name.as_str(), listed[1].namespaces.as_deref()),
        ("O'Hara; \u{1f511}", Some(&["shop".to_owned()][..]))
    );
    assert!(listed[1].created.ends_with('Z'), "{}", listed[1].created);
    let stored: String = connect(&url)
        .await
        .query_one("SELECT string_agg(k::text, ' ') FROM tourbillon.api_keys k", &[])
        .await
        .unwrap()
        .get(0);
    assert!(!stored.contains(&admin[21..]) && !stored.contains(&reader[21..]), "secrets are not stored");

    let mut nodes = [node(directory.path(), &url).await, node(directory.path(), &url).await];
    let timer = json!({"namespace": "shop", "after": "1h", "deliver": {"queue": "q"}});
    for node in &mut nodes {
        assert_eq!(node.post("/v1/timers", timer.clone()).await.0, 401);
        node.set_key(Some(&reader));
        assert_eq!(node.get("/v1/timers?namespace=shop").await.0, 200);
        assert_eq!(node.post("/v1/timers", timer.clone()).await.0, 403);
        node.set_key(Some(&admin));
        assert_eq!(node.post("/v1/timers", timer.clone()).await.0, 201);
    }
    assert!(keys.revoke(&admin[4..20]).await.unwrap() && !keys.revoke(&admin[4..20]).await.unwrap());
    for node in &nodes {
        until(async || node.post("/v1/timers", timer.clone()).await.0 == 401).await;
    }
    for node in nodes {
        node.stop().await;
    }
    // An address that others can reach is allowed, because there is a key.
    let exposed = ServerConfig { listen: ([0, 0, 0, 0], 0).into(), ..config };
    drop(tourbillon_server::Server::bind(exposed).await.unwrap());
}
