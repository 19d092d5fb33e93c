//! Faults: overload, slow and broken clients, a full disk, the death of the process.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tourbillon_server::{Server, ServerConfig};

use crate::support::{TestServer, answer, until};

/// Names the store of a server that runs in a process of its own.
const STORE: &str = "TOURBILLON_TEST_SERVER_STORE";

async fn raw(server: &TestServer, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://")).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

/// Returns what the server sends until it closes the connection, or the beginning of it.
async fn read_all(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    loop {
        let limit = Duration::from_secs(if text.is_empty() { 30 } else { 1 });
        match tokio::time::timeout(limit, stream.read_buf(&mut text)).await {
            Ok(Ok(1..)) => {}
            _ => return String::from_utf8_lossy(&text).into_owned(),
        }
    }
}

#[tokio::test]
async fn o2_a_full_server_answers_429_and_still_cancels() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        (config.limits.concurrent, config.limits.concurrent_reserve) = (2, 2);
        config.limits.body_time = Duration::from_secs(60);
    })
    .await;
    // Two clients that never end their bodies have all places.
    let head =
        "POST /v1/timers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    let _slow = (raw(&server, head.as_bytes()).await, raw(&server, head.as_bytes()).await);
    let timer = json!({"after": "1h", "deliver": {"queue": "q"}});
    until(async || server.post("/v1/timers", timer.clone()).await.0 == 429).await;
    let refused = server.request(Method::GET, "/v1/timers").send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    assert_eq!(server.post("/v1/cancel", json!({"key": "a"})).await.0, 200);
    assert_eq!(server.get("/healthz").await.0, 200);
    let (status, _) = server.post("/v1/queues/q/pull", json!({})).await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn slow_oversized_and_broken_requests_end_without_harm() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |config| {
        (config.limits.body, config.limits.body_time) = (1_000, Duration::from_millis(200));
    })
    .await;
    let head = |length: usize| {
        format!(
            "POST /v1/timers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let slow = raw(&server, format!("{}{{", head(100)).as_bytes()).await;
    assert!(read_all(slow).await.starts_with("HTTP/1.1 408"), "a body that does not come");
    let silent = raw(&server, b"GET /healthz HTT").await;
    let ended = read_all(silent).await;
    assert!(!ended.contains("200"), "a head that does not come: {ended}");
    let big = format!("{}{}", head(5_000), " ".repeat(5_000));
    assert!(read_all(raw(&server, big.as_bytes()).await).await.starts_with("HTTP/1.1 413"));
    let smuggled = "POST /v1/timers HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    let answered = read_all(raw(&server, smuggled.as_bytes()).await).await;
    assert!(!answered.contains("200 OK"), "{answered}");
    for garbage in [&b"\x16\x03\x01\x02\x00"[..], b"\0\0\0\0", b"GET / HTTP/9.9\r\n\r\n", b"DELETE"] {
        drop(raw(&server, garbage).await);
    }
    let json = |body: &'static str| {
        server.request(Method::POST, "/v1/timers").header("content-type", "application/json").body(body)
    };
    for (body, expected) in
        [("{", 400), ("", 400), ("nonsense", 400), ("[]", 422), ("{}", 422), ("null", 422), ("\u{feff}{}", 400)]
    {
        assert_eq!(answer(json(body)).await.0, expected, "{body}");
    }
    let invalid = server
        .request(Method::POST, "/v1/timers")
        .header("content-type", "application/json")
        .body(vec![b'"', 0xff, b'"']);
    assert_eq!(answer(invalid).await.0, 400);
    let nested: &'static str = "[".repeat(900).leak();
    assert!(matches!(answer(json(nested)).await.0, 400 | 422));
    for path in
        ["/v1/timers/x", "/v1/timers/%ff", "/v1/timers/%00", "/v1/timers/..%2f..", "/v1/dead-letters/x/1/replay"]
    {
        let method = if path.contains("dead") { Method::POST } else { Method::GET };
        assert!(matches!(answer(server.request(method, path)).await.0, 400 | 404), "{path}");
    }
    assert_eq!(answer(server.request(Method::PUT, "/v1/timers")).await.0, 405);
    assert_eq!(answer(server.request(Method::GET, "/v2")).await.0, 404);
    assert_eq!(
        server.post("/v1/timers", json!({"after": "1h", "deliver": {"queue": "q"}})).await.0,
        201,
        "it still works"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_hangs_up_during_a_create_can_ask_again_with_its_key() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let body = json!({"key": "once", "after": "1h", "deliver": {"queue": "q"}}).to_string();
    let request = format!(
        "POST /v1/timers HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..20 {
        drop(raw(&server, request.as_bytes()).await);
    }
    let (status, _) = server.post("/v1/timers", serde_json::from_str(&body).unwrap()).await;
    assert!(matches!(status, 200 | 201));
    let (_, list) = server.get("/v1/timers?key=once").await;
    assert_eq!(list["timers"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn o2_a_full_disk_refuses_creates_and_nothing_else() {
    let directory = tempdir().unwrap();
    let timer = json!({"key": "a", "after": "0s", "deliver": {"queue": "q"}});
    let server = TestServer::start(directory.path(), |_| {}).await;
    server.create(timer.clone()).await;
    server.create(json!({"key": "far", "after": "1h", "deliver": {"queue": "q"}})).await;
    server.stop().await;
    let server = TestServer::start(directory.path(), |config| config.disk_reserve = u64::MAX).await;
    let (status, problem) = server.post("/v1/timers", json!({"after": "1h", "deliver": {"queue": "q"}})).await;
    assert_eq!((status, &problem["type"]), (507, &json!("/problems/store-full")));
    assert!(problem["detail"].as_str().unwrap().contains("free some space"), "{problem}");
    let create = server.request(Method::POST, "/v1/timers").header("content-type", "application/json");
    let refused = create.body(json!({"after": "1h", "deliver": {"queue": "q"}}).to_string()).send().await.unwrap();
    assert!(refused.headers()["retry-after"].to_str().unwrap().parse::<u64>().is_ok());
    let batch = json!({"timers": [{"after": "1h", "deliver": {"queue": "q"}}]});
    let (_, answer) = server.post("/v1/timers/batch", batch).await;
    assert_eq!(answer["results"][0]["status"], 507, "{answer}");
    let pulled = server.pull("q", json!({"wait": "10s"})).await;
    let (_, acked) = server.post("/v1/queues/q/ack", json!({"receipts": [pulled[0]["receipt"]]})).await;
    assert_eq!(acked["accepted"], 1);
    assert_eq!(server.post("/v1/cancel", json!({"key": "far"})).await.1["cancelled"], 1);
    server.stop().await;
}

/// Not a test of its own: the server of the next one, in a process that can be killed.
#[tokio::test]
async fn server_process() {
    let Ok(store) = std::env::var(STORE) else { return };
    let listen = ([127, 0, 0, 1], 0).into();
    let server = Server::bind(ServerConfig { store, listen, ..ServerConfig::default() }).await.unwrap();
    println!("listening on {}", server.address().unwrap());
    server.run(std::future::pending()).await.unwrap();
}

/// Starts a server in a process of its own, and returns its address. What it writes as errors can be read.
fn start_process(store: &std::path::Path) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::server_process", "--nocapture"])
        .env(STORE, store)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.map_while(Result::ok).find_map(|line| Some(line.split_once("listening on ")?.1.to_owned()));
    (child, address.expect("the server starts"))
}

#[tokio::test]
async fn header_and_log_injection_find_no_way_out_of_a_request() {
    let directory = tempdir().unwrap();
    let (mut child, address) = start_process(&directory.path().join("store"));
    let send = async |request: String| {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        read_all(stream).await
    };
    let close = "host: localhost\r\nconnection: close";
    for path in
        ["/v1/timers/%0d%0ax-evil:%201", "/%0d%0ax-evil:%201", "/v1/timers?key=%0d%0ax-evil:1", "/v1/evil%1b[31m"]
    {
        let answer = send(format!("GET {path} HTTP/1.1\r\n{close}\r\nuser-agent: evil \u{1b}[31m\r\n\r\n")).await;
        let (head, _) = answer.split_once("\r\n\r\n").unwrap();
        assert!(!head.to_ascii_lowercase().contains("evil"), "{head}");
    }
    let post = async |body: Value| {
        let body = body.to_string();
        let head = format!("POST /v1/timers HTTP/1.1\r\n{close}\r\ncontent-type: application/json");
        send(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len())).await
    };
    for (name, value) in
        [("x-a", "1\r\nx-evil: 1"), ("x-evil\r\nx-b", "1"), ("x-evil: 1", "1"), ("webhook-signature", "evil")]
    {
        let webhook = json!({"url": "https://example.com/", "headers": {name: value}});
        let answer = post(json!({"after": "1h", "deliver": {"webhook": webhook}})).await;
        assert!(answer.starts_with("HTTP/1.1 422"), "{answer}");
    }
    for url in ["https://example.com/\r\nx-evil: 1", "https://evil\n.test/"] {
        // What a URL cannot have is removed or escaped by its parser, or the URL is refused: it is never sent as it is.
        let answer = post(json!({"after": "1h", "deliver": {"webhook": {"url": url}}})).await;
        assert!(answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    for key in ["evil\u{1b}[31m", "evil\nsecond line"] {
        assert!(post(json!({"key": key, "after": "1h", "deliver": {"queue": "q"}})).await.starts_with("HTTP/1.1 422"));
    }
    child.kill().unwrap();
    let written = child.wait_with_output().unwrap().stderr;
    let written = String::from_utf8_lossy(&written);
    assert!(!written.contains("evil"), "the log has what a client sent: {written:?}");
}

#[tokio::test]
async fn q1_what_was_acknowledged_before_a_kill_is_there_afterwards() {
    let directory = tempdir().unwrap();
    let store = directory.path().join("store");
    let mut acknowledged = Vec::new();
    for round in 0..2 {
        let (mut child, address) = start_process(&store);
        let url = format!("http://{address}/v1/timers");
        let client = reqwest::Client::new();
        let writers = (0..16).map(|writer| {
            let (client, url) = (client.clone(), url.clone());
            async move {
                let mut done = Vec::new();
                for number in 0.. {
                    let key = format!("r{round}w{writer}n{number}");
                    let body = json!({"key": key, "after": "1h", "deliver": {"queue": "q"}}).to_string();
                    let sent = client.post(&url).header("content-type", "application/json").body(body).send().await;
                    match sent {
                        Ok(answer) if answer.status() == 201 => done.push(key),
                        Ok(answer) => panic!("{}", answer.status()),
                        Err(_) => break,
                    }
                }
                done
            }
        });
        let kill = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            child.kill().unwrap();
            child.wait().unwrap();
        };
        let (done, ()) = tokio::join!(futures_util::future::join_all(writers), kill);
        acknowledged.extend(done.concat());
    }
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    let server = TestServer::start(directory.path(), |_| {}).await;
    for key in &acknowledged {
        let found = server.state.timers().get_key("default", key.clone()).await.unwrap();
        assert!(found.is_some(), "{key} was acknowledged and is gone");
    }
    server.stop().await;
}

#[tokio::test]
async fn names_with_scripts_and_line_ends_stay_data() {
    let directory = tempdir().unwrap();
    let server = TestServer::start(directory.path(), |_| {}).await;
    let script = "<script>alert(1)</script>'\"&\u{2028}";
    server.create(json!({"key": script, "name": script, "after": "1h", "deliver": {"queue": "q"}})).await;
    let response = server.request(Method::GET, "/v1/timers").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    let list: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
    assert_eq!(list["timers"][0]["key"], script);
    for header_breaker in ["a\r\nx-evil: 1", "a\nb", "\u{7f}", "\0"] {
        let timer = json!({"key": header_breaker, "after": "1h", "deliver": {"queue": "q"}});
        assert_eq!(server.post("/v1/timers", timer).await.0, 422);
    }
    let (_, metrics) = server.get("/metrics").await;
    assert!(!metrics.as_str().unwrap().contains("<script>"));
    server.stop().await;
}
