//! Webhooks: what receivers get, and what they cannot make the server do.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::routing::post;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::tempdir;
use tourbillon::adapters::server::HttpServer;
use tourbillon_server::ServerConfig;

use crate::support::{TestServer, until};

/// A host that answers as the path says, and remembers what it got.
#[derive(Clone, Default)]
pub(crate) struct Sink {
    received: Arc<Mutex<Vec<Received>>>,
}

#[derive(Clone)]
pub(crate) struct Received {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Sink {
    pub(crate) async fn start() -> (Sink, SocketAddr) {
        let sink = Sink::default();
        let app = Router::new().route("/{path}", post(receive)).with_state(sink.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { HttpServer::new().serve(listener, app, std::future::pending()).await });
        (sink, address)
    }

    pub(crate) fn received(&self, path: &str) -> Vec<Received> {
        self.received.lock().unwrap().iter().filter(|one| one.path == path).cloned().collect()
    }
}

async fn receive(
    State(sink): State<Sink>,
    Path(path): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, HeaderMap) {
    let count = {
        let mut received = sink.received.lock().unwrap();
        received.push(Received { path: path.clone(), headers, body });
        received.iter().filter(|one| one.path == path).count()
    };
    let mut answer = HeaderMap::new();
    match path.as_str() {
        "hang" => tokio::time::sleep(Duration::from_secs(600)).await,
        "slow" => tokio::time::sleep(Duration::from_secs(2)).await,
        "flaky" if count == 1 => return (StatusCode::INTERNAL_SERVER_ERROR, answer),
        "busy" if count == 1 => {
            answer.insert("retry-after", "1".parse().unwrap());
            return (StatusCode::TOO_MANY_REQUESTS, answer);
        }
        "moved" => {
            answer.insert("location", "/stolen".parse().unwrap());
            return (StatusCode::TEMPORARY_REDIRECT, answer);
        }
        "gone" => return (StatusCode::GONE, answer),
        "down" => return (StatusCode::BAD_GATEWAY, answer),
        "teapot" => return (StatusCode::IM_A_TEAPOT, answer),
        _ => {}
    }
    (StatusCode::OK, answer)
}

fn allow(config: &mut ServerConfig, address: SocketAddr) {
    config.webhooks.allow_hosts.push(address.to_string());
}

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[tokio::test]
async fn v2_a_receiver_gets_the_payload_with_a_signature_that_it_can_verify() {
    let (sink, address) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        allow(config, address);
        config.webhooks.secret = Some(SECRET.to_owned());
    })
    .await;
    let webhook = json!({"url": format!("http://{address}/ok"), "headers": {"x-tenant": "7"}});
    let timer = json!({"key": "k", "after": "10ms", "payload": {"order": 4711}, "deliver": {"webhook": webhook}});
    let id = server.create(timer).await;
    until(async || !sink.received("ok").is_empty()).await;
    let got = sink.received("ok").remove(0);
    let header = |name: &str| got.headers[name].to_str().unwrap().to_owned();
    assert_eq!(&got.body[..], br#"{"order":4711}"#);
    assert_eq!((header("content-type"), header("x-tenant")), ("application/json".to_owned(), "7".to_owned()));
    assert_eq!((header("webhook-id"), header("tourbillon-attempt")), (format!("{id}-1"), "1".to_owned()));
    let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(&SECRET[6..]).unwrap()).unwrap();
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&got.body);
    let (version, signature) =
        header("webhook-signature").split_once(',').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(version, "v1");
    mac.verify_slice(&STANDARD.decode(signature).unwrap()).unwrap();
    until(async || server.get(&format!("/v1/timers/{id}")).await.1["state"] == "fired").await;
    server.stop().await;
}

#[tokio::test]
async fn v4_a_failed_delivery_is_repeated_under_the_same_id_and_a_host_can_ask_for_more_time() {
    let (sink, address) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| allow(config, address)).await;
    let began = std::time::Instant::now();
    for path in ["flaky", "busy"] {
        let webhook = json!({"url": format!("http://{address}/{path}")});
        let retry = json!({"first": "1ms", "longest": "1ms"});
        server.create(json!({"after": "0s", "deliver": {"webhook": webhook}, "retry": retry})).await;
    }
    until(async || sink.received("flaky").len() == 2 && sink.received("busy").len() == 2).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "the busy host was asked again too early");
    let attempts = sink.received("flaky");
    assert_eq!(attempts[0].headers["webhook-id"], attempts[1].headers["webhook-id"]);
    assert_eq!(attempts[1].headers["tourbillon-attempt"], "2");
    let body: serde_json::Value = serde_json::from_slice(&attempts[0].body).unwrap();
    assert_eq!(body["namespace"], "default", "without a payload the body says which timer it is");
    server.stop().await;
}

#[tokio::test]
async fn v2_redirects_are_not_followed_and_hopeless_deliveries_become_dead_letters() {
    let (sink, address) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| allow(config, address)).await;
    for path in ["moved", "gone", "teapot"] {
        let webhook = json!({"url": format!("http://{address}/{path}"), "success": [418, 204]});
        let retry = json!({"attempts": 1});
        server.create(json!({"key": path, "after": "0s", "deliver": {"webhook": webhook}, "retry": retry})).await;
    }
    until(async || server.get("/v1/dead-letters").await.1["timers"].as_array().unwrap().len() == 2).await;
    let (_, dead) = server.get("/v1/dead-letters?key=moved").await;
    assert!(dead["timers"][0]["last_error"].as_str().unwrap().contains("redirects are not followed"), "{dead}");
    until(async || server.get("/v1/timers?key=teapot").await.1["timers"] == json!([])).await;
    assert!(sink.received("stolen").is_empty());
    server.stop().await;
}

#[tokio::test]
async fn v2_private_addresses_are_refused_in_urls_and_after_dns() {
    let (sink, address) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    for url in [
        format!("http://{address}/ok"),
        format!("http://[::ffff:127.0.0.1]:{}/ok", address.port()),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://2130706433/".to_owned(),
    ] {
        let timer = json!({"after": "0s", "deliver": {"webhook": {"url": url}}});
        let (status, problem) = server.post("/v1/timers", timer).await;
        assert_eq!((status, problem["detail"].as_str().unwrap().contains("allow")), (422, true), "{problem}");
    }
    // A name is known to be private only when it is resolved.
    let webhook = json!({"url": format!("http://localhost:{}/ok", address.port())});
    server.create(json!({"after": "0s", "deliver": {"webhook": webhook}, "retry": {"attempts": 1}})).await;
    until(async || server.get("/v1/dead-letters").await.1["timers"].as_array().unwrap().len() == 1).await;
    let (_, dead) = server.get("/v1/dead-letters").await;
    assert!(dead["timers"][0]["last_error"].as_str().unwrap().contains("private"), "{dead}");
    assert!(sink.received("ok").is_empty());
    server.stop().await;
}

#[tokio::test]
async fn v7_a_host_that_hangs_delays_nobody_else() {
    let (sink, hanging) = Sink::start().await;
    let (other_sink, other) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        allow(config, hanging);
        allow(config, other);
        // So few places that the hanging host alone would fill them.
        (config.webhooks.concurrency, config.webhooks.host_concurrency) = (32, 2);
        config.webhooks.timeout = Duration::from_secs(300);
        config.shutdown = Duration::from_millis(200);
    })
    .await;
    let blocked: Vec<_> = (0..200).map(|_| due_now_to(hanging, "hang")).collect();
    server.post("/v1/timers/batch", json!({"timers": blocked})).await;
    until(async || !sink.received("hang").is_empty()).await;
    let lively: Vec<_> = (0..50).map(|_| due_now_to(other, "ok")).collect();
    server.post("/v1/timers/batch", json!({"timers": lively})).await;
    until(async || other_sink.received("ok").len() == 50).await;
    assert_eq!(sink.received("hang").len(), 2, "no more than its places");
    let stopped = tokio::time::timeout(Duration::from_secs(20), server.stop_anyhow()).await;
    assert!(stopped.is_ok(), "the shutdown has a limit");
}

/// Returns the request for a timer that is due at once and delivered to a path of a host.
fn due_now_to(address: SocketAddr, path: &str) -> Value {
    json!({"after": "0s", "deliver": {"webhook": {"url": format!("http://{address}/{path}")}}})
}

#[tokio::test]
async fn v7_a_host_that_is_slow_delays_nobody_else() {
    let (slow_sink, slow) = Sink::start().await;
    let (other_sink, other) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        allow(config, slow);
        allow(config, other);
        (config.webhooks.concurrency, config.webhooks.host_concurrency) = (16, 2);
        config.shutdown = Duration::from_millis(200);
    })
    .await;
    // Two at a time, each of which takes two seconds: more than a minute in all. Those of the other host are due after them.
    let slow_ones: Vec<_> = (0..80).map(|_| due_now_to(slow, "slow")).collect();
    server.post("/v1/timers/batch", json!({"timers": slow_ones})).await;
    until(async || !slow_sink.received("slow").is_empty()).await;
    let quick_ones: Vec<_> = (0..40).map(|_| due_now_to(other, "ok")).collect();
    server.post("/v1/timers/batch", json!({"timers": quick_ones})).await;
    until(async || other_sink.received("ok").len() == 40).await;
    assert!(slow_sink.received("slow").len() < 80, "the slow host is not done yet");
    server.stop_anyhow().await;
}

#[tokio::test]
async fn v2_the_circuit_of_a_failing_host_opens_and_others_are_not_concerned() {
    let (sink, address) = Sink::start().await;
    let (other_sink, other) = Sink::start().await;
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        allow(config, address);
        allow(config, other);
        (config.webhooks.breaker_failures, config.webhooks.host_concurrency) = (3, 1);
    })
    .await;
    let timers: Vec<_> = (0..20).map(|_| due_now_to(address, "down")).chain([due_now_to(other, "ok")]).collect();
    server.post("/v1/timers/batch", json!({"timers": timers})).await;
    until(async || other_sink.received("ok").len() == 1 && server.state.timers().stats().retried >= 20).await;
    assert!(sink.received("down").len() <= 4, "{}", sink.received("down").len());
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.as_str().unwrap().contains("tourbillon_webhook_circuits_open 1"));
    server.stop().await;
}
