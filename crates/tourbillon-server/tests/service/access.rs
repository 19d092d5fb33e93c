//! Keys, namespaces, limits, TLS.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tempfile::tempdir;
use tourbillon_server::{KeyStore, NewKey, Server, ServerConfig, key_store};

use crate::support::{TestServer, answer, until};

async fn make_key(keys: &dyn KeyStore, namespaces: Option<&[&str]>, read_only: bool) -> String {
    let namespaces = namespaces.map(|all| all.iter().map(|one| (*one).to_owned()).collect());
    keys.create(NewKey { name: "test".to_owned(), namespaces, read_only }).await.unwrap()
}

fn key_file(directory: &std::path::Path) -> (Arc<dyn KeyStore>, PathBuf) {
    let path = directory.join("keys.json");
    (key_store(&ServerConfig { keys_file: Some(path.clone()), ..ServerConfig::default() }).unwrap(), path)
}

#[tokio::test]
async fn o3_without_a_key_nothing_is_told_and_a_revoked_key_ends() {
    let directory = tempdir().unwrap();
    let (keys, file) = key_file(directory.path());
    let key = make_key(&*keys, None, false).await;
    let mut server = TestServer::start(directory.path(), |config| config.keys_file = Some(file)).await;
    let timer = json!({"after": "1h", "deliver": {"queue": "q"}});
    for wrong in [None, Some("tbk_0000_guess"), Some("Bearer"), Some(&key[..key.len() - 1])] {
        server.set_key(wrong);
        assert_eq!(server.post("/v1/timers", timer.clone()).await.0, 401);
        for path in ["/v1/timers", "/metrics", "/v1/nothing"] {
            assert_eq!(answer(server.request(Method::GET, path)).await.0, 401, "{path}");
        }
        let page = server.request(Method::GET, "/").send().await.unwrap();
        assert_eq!(page.url().path(), "/login", "a page asks for the key");
        for path in ["/healthz", "/readyz", "/docs", "/openapi.json"] {
            assert_eq!(answer(server.request(Method::GET, path)).await.0, 200, "{path}");
        }
    }
    let server = server.with_key(&key);
    server.create(timer.clone()).await;
    let page = reqwest::Client::new().get(format!("{}/", server.base)).basic_auth("any", Some(&key));
    assert_eq!(page.send().await.unwrap().status(), 200, "a browser presents the key as its password");
    assert!(keys.revoke(&key[4..20]).await.unwrap());
    until(async || server.post("/v1/timers", timer.clone()).await.0 == 401).await;
    server.stop().await;
}

#[tokio::test]
async fn o3_a_key_sees_and_changes_only_its_own_namespaces() {
    let directory = tempdir().unwrap();
    let (keys, file) = key_file(directory.path());
    let all = make_key(&*keys, None, false).await;
    let shop = make_key(&*keys, Some(&["shop"]), false).await;
    let reader = make_key(&*keys, Some(&["bank"]), true).await;
    let mut server = TestServer::start(directory.path(), |config| config.keys_file = Some(file)).await;
    server.set_key(Some(&all));
    let of_bank = json!({"namespace": "bank", "key": "k", "after": "0s", "deliver": {"queue": "q"}});
    let id = server.create(of_bank.clone()).await;
    server.set_key(Some(&shop));
    assert_eq!(server.post("/v1/timers", of_bank.clone()).await.0, 403);
    let path = format!("/v1/timers/{id}");
    assert_eq!(server.get(&path).await.0, 404, "a foreign timer does not even exist");
    assert_eq!(server.patch(&path, json!({"after": "1s"})).await.0, 404);
    assert_eq!(server.delete(&path).await.1, json!({"cancelled": 0, "in_flight": 0, "gone": 1}));
    assert_eq!(server.post("/v1/cancel", json!({"namespace": "bank", "key": "k"})).await.0, 403);
    assert_eq!(server.post("/v1/queues/q/pull", json!({"namespace": "bank"})).await.0, 403);
    assert_eq!(server.get("/v1/timers?namespace=bank").await.0, 403);
    assert_eq!(server.get("/v1/timers").await.1["timers"], json!([]), "its own namespace is meant");
    assert_eq!(server.get("/metrics").await.0, 403);
    let (_, own) = server.post("/v1/timers", json!({"after": "1h", "deliver": {"queue": "q"}})).await;
    assert_eq!(own["namespace"], "shop");
    server.set_key(Some(&reader));
    assert_eq!(server.get(&path).await.0, 200);
    assert_eq!(server.delete(&path).await.0, 403);
    assert_eq!(server.post("/v1/timers", of_bank).await.0, 403);
    assert_eq!(server.post("/v1/queues/q/pull", json!({})).await.0, 403);
    server.set_key(Some(&all));
    let pulled = server.pull("q", json!({"namespace": "bank"})).await;
    assert_eq!(pulled.len(), 1, "it is still there");
    server.stop().await;
}

#[tokio::test]
async fn o3_v7_a_namespace_has_limits_of_its_own() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        let limits = config.namespaces.entry("small".to_owned()).or_default();
        (limits.pending, limits.deliveries) = (Some(3), Some(2));
        config.namespaces.entry("slow".to_owned()).or_default().requests_per_second = Some(2);
    })
    .await;
    let timer = |namespace: &str| json!({"namespace": namespace, "after": "0s", "deliver": {"queue": "q"}});
    for _ in 0..3 {
        server.create(timer("small")).await;
    }
    let (status, problem) = server.post("/v1/timers", timer("small")).await;
    assert_eq!((status, problem["detail"].as_str().unwrap().contains("pending")), (429, true));
    server.create(timer("large")).await;
    let held = server.pull("q", json!({"namespace": "small", "max": 10})).await;
    assert_eq!(held.len(), 2, "as many as may be in flight");
    let (status, _) = server.post("/v1/queues/q/pull", json!({"namespace": "small"})).await;
    assert_eq!(status, 429);
    let receipts: Vec<_> = held.iter().map(|timer| &timer["receipt"]).collect();
    server.post("/v1/queues/q/ack", json!({"namespace": "small", "receipts": receipts})).await;
    assert_eq!(server.pull("q", json!({"namespace": "small"})).await.len(), 1);
    until(async || server.post("/v1/timers", timer("small")).await.0 == 201).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(server.post("/v1/timers", timer("slow")).await.0);
    }
    assert!(statuses.starts_with(&[201, 201]) && statuses.contains(&429), "{statuses:?}");
    server.create(timer("large")).await;
    server.stop().await;
}

#[tokio::test]
async fn o3_an_address_that_others_can_reach_needs_a_key_or_an_explicit_word() {
    let directory = tempdir().unwrap();
    let open = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig {
            listen: ([0, 0, 0, 0], 0).into(),
            store: directory.path().join("store").to_string_lossy().into_owned(),
            ..ServerConfig::default()
        };
        change(&mut config);
        Server::bind(config)
    };
    let refused = open(&|_| {}).await.err().unwrap().to_string();
    assert!(refused.contains("tourbillon key create") && refused.contains("--allow-unauthenticated"), "{refused}");
    drop(open(&|config| config.allow_unauthenticated = true).await.unwrap());
    let only_cert = open(&|config| config.tls_cert = Some("cert.pem".into())).await.err().unwrap().to_string();
    assert!(only_cert.contains("--tls-key"), "{only_cert}");
}

#[tokio::test]
async fn o3_a_foreign_web_page_cannot_use_a_server_without_keys() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let rebound = server.request(Method::GET, "/v1/timers").header("host", "evil.test:7117");
    assert_eq!(answer(rebound).await.0, 403);
    let json =
        |request: reqwest::RequestBuilder| request.header("content-type", "application/json").body("{\"key\": \"a\"}");
    let across = json(server.request(Method::POST, "/v1/cancel")).header("sec-fetch-site", "cross-site");
    assert_eq!(answer(across).await.0, 403);
    // A page can send this type to any address without asking.
    let simple =
        server.request(Method::POST, "/v1/cancel").header("content-type", "text/plain").body("{\"key\": \"a\"}");
    assert_eq!(answer(simple).await.0, 415);
    assert_eq!(answer(json(server.request(Method::POST, "/v1/cancel"))).await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn o3_requests_are_served_over_tls() {
    let directory = tempdir().unwrap();
    let pem = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/service").join(name);
    let server = TestServer::start(directory.path(), |config| {
        (config.tls_cert, config.tls_key) = (Some(pem("cert.pem")), Some(pem("key.pem")));
    })
    .await;
    let root = reqwest::Certificate::from_pem(&std::fs::read(pem("cert.pem")).unwrap()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([root]).build().unwrap();
    let url = format!("{}/healthz", server.base.replace("http://", "https://"));
    let answer = client.get(&url).timeout(Duration::from_secs(20)).send().await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "ok\n");
    let plain =
        reqwest::Client::new().get(format!("{}/healthz", server.base)).timeout(Duration::from_secs(20)).send().await;
    assert!(plain.is_err(), "plain HTTP is not answered");
    server.stop().await;
}
