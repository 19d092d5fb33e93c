//! Queues and dead letters.

use std::time::Duration;

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::support::{TestServer, until};

fn due(key: &str) -> Value {
    json!({"key": key, "after": "0s", "payload": key, "deliver": {"queue": "q"}})
}

#[tokio::test]
async fn v3_v5_a_pulled_timer_is_acknowledged_once_and_only_with_its_receipt() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    for key in ["a", "b", "c"] {
        server.create(due(key)).await;
    }
    let first = server.pull("q", json!({"max": 2})).await;
    let rest = server.pull("q", json!({"max": 100})).await;
    assert_eq!((first.len(), rest.len()), (2, 1));
    let receipts: Vec<&Value> = first.iter().chain(&rest).map(|timer| &timer["receipt"]).collect();
    let (status, answer) = server.post("/v1/queues/other/ack", json!({"receipts": receipts})).await;
    assert_eq!((status, &answer["accepted"]), (200, &json!(0)), "another queue's receipts count for nothing");
    let (_, answer) = server.post("/v1/queues/q/extend", json!({"receipts": receipts, "lease": "1m"})).await;
    assert_eq!(answer, json!({"accepted": 3, "stale": []}));
    let (_, answer) = server.post("/v1/queues/q/ack", json!({"receipts": receipts})).await;
    assert_eq!(answer, json!({"accepted": 3, "stale": []}));
    let (_, answer) = server.post("/v1/queues/q/ack", json!({"receipts": receipts})).await;
    assert_eq!((&answer["accepted"], answer["stale"].as_array().unwrap().len()), (&json!(0), 3));
    for bad in [json!({"receipts": []}), json!({})] {
        assert_eq!(server.post("/v1/queues/q/ack", bad).await.0, 422);
    }
    for bad in [json!({"max": 0}), json!({"max": 100_000}), json!({"wait": "2h"}), json!({"lease": "1ms"})] {
        assert_eq!(server.post("/v1/queues/q/pull", bad).await.0, 422);
    }
    server.stop().await;
}

#[tokio::test]
async fn v3_a_long_poll_ends_when_a_timer_is_due_and_not_before() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    assert!(server.pull("q", json!({"wait": "50ms"})).await.is_empty());
    let waiting = server.pull("q", json!({"wait": "30s", "max": 5}));
    let create = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.create(json!({"key": "soon", "after": "100ms", "deliver": {"queue": "q"}})).await;
    };
    let (pulled, ()) = tokio::join!(waiting, create);
    assert_eq!(pulled[0]["key"], "soon");
    server.stop().await;
}

#[tokio::test]
async fn v3_what_was_claimed_for_a_worker_that_went_away_is_given_to_another() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    // The client ends its request while the server waits for the timer.
    let gone =
        tokio::time::timeout(Duration::from_millis(100), server.pull("q", json!({"wait": "30s", "lease": "10m"})))
            .await;
    assert!(gone.is_err());
    server.create(due("a")).await;
    let pulled = server.pull("q", json!({"wait": "30s"})).await;
    assert_eq!(pulled[0]["key"], "a");
    server.stop().await;
}

#[tokio::test]
async fn v4_a_refused_timer_comes_again_and_a_hopeless_one_becomes_a_dead_letter_that_can_be_replayed() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let id = server.create(due("a")).await;
    let first = server.pull("q", json!({"wait": "10s"})).await.remove(0);
    let nack = json!({"receipts": [first["receipt"]], "after": "1ms", "error": "busy\r\nnow"});
    assert_eq!(server.post("/v1/queues/q/nack", nack).await.1["accepted"], 1);
    let second = server.pull("q", json!({"wait": "10s"})).await.remove(0);
    assert_eq!(second["attempt"], 2);
    let (_, shown) = server.get(&format!("/v1/timers/{id}")).await;
    assert_eq!(shown["occurrences"][0]["last_error"], "busynow", "no control characters are kept");
    let nack = json!({"receipts": [second["receipt"]], "give_up": true, "error": "hopeless"});
    assert_eq!(server.post("/v1/queues/q/nack", nack).await.1["accepted"], 1);
    let (_, dead) = server.get("/v1/dead-letters").await;
    assert_eq!((&dead["timers"][0]["id"], &dead["timers"][0]["last_error"]), (&json!(id), &json!("hopeless")));
    let path = format!("/v1/dead-letters/{id}/1");
    assert_eq!(server.post(&format!("{path}/replay"), json!({})).await.0, 204);
    assert_eq!(server.post(&format!("{path}/replay"), json!({})).await.0, 404);
    let third = server.pull("q", json!({"wait": "10s"})).await.remove(0);
    let nack = json!({"receipts": [third["receipt"]], "give_up": true});
    server.post("/v1/queues/q/nack", nack).await;
    assert_eq!(server.delete(&path).await.0, 204);
    assert_eq!(server.delete(&path).await.0, 404);
    let (_, dead) = server.get("/v1/dead-letters").await;
    assert_eq!(dead["timers"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn v3_many_workers_share_a_queue_and_no_timer_is_handed_out_twice() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let timers: Vec<Value> = (0..300).map(|number| due(&format!("k{number}"))).collect();
    server.post("/v1/timers/batch", json!({"timers": timers})).await;
    let workers = (0..10).map(|_| async {
        let mut keys = Vec::new();
        loop {
            let pulled = server.pull("q", json!({"max": 7, "wait": "200ms"})).await;
            if pulled.is_empty() {
                return keys;
            }
            keys.extend(pulled.iter().map(|timer| timer["key"].as_str().unwrap().to_owned()));
        }
    });
    let mut all: Vec<String> = futures_util::future::join_all(workers).await.concat();
    assert_eq!(all.len(), 300);
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 300);
    until(async || server.state.timers().counts().await.unwrap().claimed == 300).await;
    server.stop().await;
}
