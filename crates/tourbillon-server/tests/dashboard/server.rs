//! A server in this process, for one test.

use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tourbillon_client::{Client, NewTimer};
use tourbillon_server::{Server, ServerConfig};

/// A server with a store of its own, which ends with the value.
pub(crate) struct TestServer {
    pub(crate) address: String,
    _directory: TempDir,
    pub(crate) runtime: Runtime,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestServer {
    pub(crate) fn start() -> TestServer {
        TestServer::with(|_| {})
    }

    /// Starts a server after `change` has changed its options.
    pub(crate) fn with(change: impl FnOnce(&mut ServerConfig)) -> TestServer {
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = ServerConfig {
            listen: "127.0.0.1:0".parse().expect("an address"),
            store: directory.path().join("timers").display().to_string(),
            shutdown: Duration::from_secs(4),
            ..ServerConfig::default()
        };
        config.webhooks.allow_private = true;
        change(&mut config);
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, address) = std::sync::mpsc::channel();
        let serve = async move {
            let server = Server::bind(config).await.unwrap_or_else(|error| panic!("{error}"));
            sender.send(server.address().expect("an address")).expect("the test waits");
            let stopped = async move { _ = stopped.await };
            // A worker of a test may have gone away with timers that it has pulled.
            let _still_running = server.run(stopped).await;
        };
        let thread = std::thread::spawn(move || Runtime::new().expect("threads").block_on(serve));
        let address = address.recv_timeout(Duration::from_secs(60)).expect("the server starts");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        TestServer {
            address: format!("http://{address}"),
            _directory: directory,
            runtime: runtime.expect("threads"),
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.address).expect("an address")
    }

    /// Creates a timer, and returns its id.
    pub(crate) fn create(&self, timer: NewTimer) -> String {
        let created = self.runtime.block_on(self.client().create(&timer));
        created.unwrap_or_else(|error| panic!("{error}")).id
    }

    /// Sends a request of JSON, and returns the answer.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.runtime.block_on(async {
            let request = reqwest::Client::new().post(format!("{}{path}", self.address));
            let request = request.header("content-type", "application/json").body(body.to_string());
            let answer = request.send().await.expect("an answer");
            assert!(answer.status().is_success(), "{path}: {}", answer.status());
            serde_json::from_slice(&answer.bytes().await.expect("a body")).unwrap_or_default()
        })
    }

    /// Pulls timers from a queue until one comes, and acknowledges it.
    pub(crate) fn work(&self, queue: &str) {
        for _ in 0..10 {
            let wait = serde_json::json!({ "max": 10, "wait": "3s", "lease": "10s" });
            let pulled = self.post(&format!("/v1/queues/{queue}/pull"), &wait);
            if let Some(timer) = pulled["timers"].as_array().and_then(|timers| timers.first()) {
                let receipts = serde_json::json!({ "receipts": [timer["receipt"]] });
                self.post(&format!("/v1/queues/{queue}/ack"), &receipts);
                return;
            }
        }
        panic!("no timer came out of the queue {queue}");
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}
