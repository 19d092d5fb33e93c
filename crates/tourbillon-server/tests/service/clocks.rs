//! Clocks that are set while the service runs (O1, Q4): no timer is early by the store's clock, and none is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::tempdir;
use tourbillon_durable::store::EmbeddedStore;
use tourbillon_durable::{StoreTime, Timers};
#[cfg(unix)]
use tourbillon_server::ServerConfig;

#[cfg(unix)]
use crate::postgres::{connect, database, node};
use crate::support::{TestServer, until};

const HOUR: i64 = 3_600;

/// A clock that can be set, in seconds from the system's.
#[derive(Clone, Default)]
struct SteppedClock(Arc<AtomicI64>);

impl SteppedClock {
    fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    fn now(&self) -> SystemTime {
        let seconds = self.0.load(Ordering::SeqCst);
        let span = Duration::from_secs(seconds.unsigned_abs());
        if seconds < 0 { SystemTime::now() - span } else { SystemTime::now() + span }
    }
}

fn time(text: &Value) -> SystemTime {
    SystemTime::from(text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap())
}

fn timer(key: &str, after: &str) -> Value {
    json!({"key": key, "after": after, "deliver": {"queue": "q"}})
}

/// Pulls and acknowledges what is due, and returns the keys. Nothing may be early by the store's clock.
async fn work(server: &TestServer, now: impl AsyncFn() -> SystemTime) -> Vec<String> {
    let pulled = server.pull("q", json!({"max": 100, "lease": "10m"})).await;
    let now = now().await;
    for timer in &pulled {
        assert!(time(&timer["due"]) <= now, "{timer} is early at {now:?}");
    }
    let receipts: Vec<&Value> = pulled.iter().map(|timer| &timer["receipt"]).collect();
    if !receipts.is_empty() {
        let (_, answer) = server.post("/v1/queues/q/ack", json!({"receipts": receipts})).await;
        assert_eq!(answer["accepted"], receipts.len());
    }
    pulled.iter().map(|timer| timer["key"].as_str().unwrap().to_owned()).collect()
}

/// Works until timers with all these keys have come, and nothing else.
async fn work_until(server: &TestServer, keys: &[&str], now: impl AsyncFn() -> SystemTime) {
    let mut come = Vec::new();
    until(async || {
        come.extend(work(server, &now).await);
        come.len() >= keys.len()
    })
    .await;
    come.sort();
    assert_eq!(come, keys);
}

/// Steps the clock of a store forth and back by an hour. `set` sets it, in seconds from where it is now; `now` reads it.
async fn step_forth_and_back(server: &TestServer, set: impl AsyncFn(i64), now: impl AsyncFn() -> SystemTime) {
    server.create(timer("a hour", "1h")).await;
    server.create(timer("two hours", "2h")).await;
    server.create(timer("z soon", "1s")).await;
    work_until(server, &["z soon"], &now).await;

    // An hour forth: what was due within it is due now, and nothing else is.
    set(HOUR + 1).await;
    work_until(server, &["a hour"], &now).await;
    server.create(timer("b of then", "1s")).await;
    work_until(server, &["b of then"], &now).await;
    server.create(timer("c across", "2s")).await;

    // An hour back: a timer that was due in two seconds is due in an hour and two seconds, as the store's clock has it, and new ones go before it.
    set(0).await;
    server.create(timer("d after", "1s")).await;
    work_until(server, &["d after"], &now).await;
    assert!(work(server, &now).await.is_empty());

    // Another hour back, and forth again: nothing is lost, and nothing comes twice.
    set(-HOUR).await;
    server.create(timer("e before", "1s")).await;
    work_until(server, &["e before"], &now).await;
    assert!(work(server, &now).await.is_empty());
    set(HOUR + 3).await;
    work_until(server, &["c across"], &now).await;
    set(2 * HOUR + 1).await;
    work_until(server, &["two hours"], &now).await;
    let (_, left) = server.get("/v1/timers").await;
    assert_eq!(left["timers"], json!([]), "all have ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn o1_q4_steps_of_the_clock_of_an_embedded_store_make_no_timer_early_and_lose_none() {
    let directory = tempdir().unwrap();
    let clock = SteppedClock::default();
    // The node reads the system's clock: that of the store is set to times before it, so that all its looks find something and only the store
    // can tell whether it is due.
    let begin = -3 * HOUR;
    clock.set(begin);
    let of_store = clock.clone();
    let open = EmbeddedStore::options()
        .reserve(0)
        .clock(move || StoreTime::try_from(of_store.now()).unwrap())
        .open(directory.path().join("store"));
    let timers = Timers::builder().build(open.unwrap()).unwrap();
    let server = TestServer::start_with(directory.path(), timers).await;
    step_forth_and_back(&server, async |seconds| clock.set(begin + seconds), async || clock.now()).await;
    server.stop().await;
}

/// Sets the clock of a store in PostgreSQL: all its statements read it by one function.
#[cfg(unix)]
async fn set_database_clock(database: &tokio_postgres::Client, seconds: i64) {
    let function = format!(
        "CREATE OR REPLACE FUNCTION tourbillon.now_micros() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE AS $$ \
         SELECT tourbillon.micros(clock_timestamp() + interval '{seconds} s') $$"
    );
    database.batch_execute(&function).await.unwrap();
}

#[cfg(unix)]
async fn database_clock(database: &tokio_postgres::Client) -> SystemTime {
    let micros: i64 = database.query_one("SELECT tourbillon.now_micros()", &[]).await.unwrap().get(0);
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs())
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn o1_q4_steps_of_the_database_s_clock_make_no_timer_early_and_lose_none() {
    let Some((url, _client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let server = node(directory.path(), &url).await;
    let database = connect(&url).await;
    let set = async |seconds| set_database_clock(&database, seconds).await;
    step_forth_and_back(&server, set, async || database_clock(&database).await).await;
    server.stop().await;
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn o1_a_node_whose_clock_is_off_delivers_nothing_says_so_and_goes_on_when_it_is_right_again() {
    let Some((url, _client)) = database().await else { return };
    let directory = tempdir().unwrap();
    let (sink, address) = crate::webhooks::Sink::start().await;
    let server = TestServer::start(directory.path(), |config: &mut ServerConfig| {
        config.store = url.clone();
        config.webhooks.allow_hosts = vec![address.to_string()];
    })
    .await;
    let metric = async |line: &str| server.get("/metrics").await.1.as_str().unwrap().lines().any(|one| one == line);
    until(async || metric("tourbillon_node_is_owner 1").await).await;
    assert!(metric("tourbillon_node_clock_is_off 0").await);
    let database = connect(&url).await;
    set_database_clock(&database, HOUR).await;
    until(async || metric("tourbillon_node_clock_is_off 1").await && metric("tourbillon_node_is_owner 0").await).await;
    let (status, text) = server.get("/readyz").await;
    assert!(status == 200 && text.as_str().unwrap().contains("clock is off"), "it still takes requests: {text}");
    // By the database's clock it is due; another node, whose clock is right, would deliver it.
    server.create(json!({"after": "0s", "deliver": {"webhook": {"url": format!("http://{address}/ok")}}})).await;
    assert_eq!(server.pull("q", json!({"wait": "3s"})).await.len(), 0, "time passes");
    assert!(sink.received("ok").is_empty());
    set_database_clock(&database, 1).await;
    until(async || server.get("/readyz").await.1 == "ready\n").await;
    // It was created an hour later, by the clock of the store: it is due then, and not before.
    assert_eq!(server.pull("q", json!({"wait": "2s"})).await.len(), 0, "time passes");
    assert!(sink.received("ok").is_empty());
    server.create(json!({"after": "0s", "deliver": {"webhook": {"url": format!("http://{address}/ok")}}})).await;
    until(async || sink.received("ok").len() == 1).await;
    server.stop().await;
}
