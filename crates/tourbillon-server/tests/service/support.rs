//! Servers and clients of the tests.

use std::time::Duration;

use reqwest::Method;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tourbillon_durable::Timers;
use tourbillon_server::{AppState, ServeError, Server, ServerConfig};

/// A server that runs in this process.
pub(crate) struct TestServer {
    pub(crate) base: String,
    pub(crate) state: AppState,
    client: reqwest::Client,
    key: Option<String>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

/// The status and the body of an answer.
pub(crate) type Answer = (u16, Value);

impl TestServer {
    /// Starts a server with a store in `directory`.
    pub(crate) async fn start(directory: &std::path::Path, change: impl FnOnce(&mut ServerConfig)) -> TestServer {
        let mut config = ServerConfig {
            store: directory.join("store").to_string_lossy().into_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            shutdown: Duration::from_secs(4),
            ..ServerConfig::default()
        };
        change(&mut config);
        TestServer::run(Server::bind(config).await.unwrap())
    }

    /// Starts a server for timers that the test has opened.
    pub(crate) async fn start_with(directory: &std::path::Path, timers: Timers) -> TestServer {
        let config = ServerConfig {
            store: directory.to_string_lossy().into_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            shutdown: Duration::from_secs(4),
            ..ServerConfig::default()
        };
        TestServer::run(Server::bind_with(config, timers).await.unwrap())
    }

    fn run(server: Server) -> TestServer {
        let base = format!("http://{}", server.address().unwrap());
        let state = server.state().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(server.run(async { _ = stopped.await }));
        TestServer { base, state, client: reqwest::Client::new(), key: None, stop, task }
    }

    /// Ends the server in an orderly way.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    /// Ends the server, whatever is still under way.
    pub(crate) async fn stop_anyhow(self) {
        self.stop.send(()).unwrap();
        let _still_running = self.task.await.unwrap();
    }

    /// Uses an API key for all further requests.
    pub(crate) fn with_key(mut self, key: &str) -> TestServer {
        self.key = Some(key.to_owned());
        self
    }

    pub(crate) fn set_key(&mut self, key: Option<&str>) {
        self.key = key.map(str::to_owned);
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base)).timeout(Duration::from_secs(60));
        match &self.key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        }
    }

    async fn send(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        let request = self.request(method, path);
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        answer(request).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, Some(body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, Some(body)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    /// Creates a timer that must be accepted, and returns its id.
    pub(crate) async fn create(&self, body: Value) -> String {
        let (status, answer) = self.post("/v1/timers", body).await;
        assert_eq!(status, 201, "{answer}");
        answer["id"].as_str().unwrap().to_owned()
    }

    /// Pulls from a queue, and returns the timers.
    pub(crate) async fn pull(&self, queue: &str, body: Value) -> Vec<Value> {
        let (status, answer) = self.post(&format!("/v1/queues/{queue}/pull"), body).await;
        assert_eq!(status, 200, "{answer}");
        answer["timers"].as_array().unwrap().clone()
    }
}

/// Sends a request, and returns its answer. A problem must have the media type of problems and say what to do.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let media = response.headers().get("content-type").map(|media| media.to_str().unwrap().to_owned());
    let text = response.text().await.unwrap();
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    if status >= 400 {
        assert_eq!(media.as_deref(), Some("application/problem+json"), "{body}");
        assert_eq!(body["status"], status, "{body}");
        assert!(body["detail"].as_str().is_some_and(|detail| detail.len() > 10), "{body}");
    }
    (status, body)
}

/// Waits until something is true.
pub(crate) async fn until(mut is_true: impl AsyncFnMut() -> bool) {
    for _ in 0..1_500 {
        if is_true().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not become true in half a minute");
}
