//! A pool of connections on Tokio: at most so many, and those that are not used for a while are closed.
//!
//! One task owns the idle connections, in a `DelayQueue`, and answers messages. So nothing is shared and no lock is needed, and a connection
//! is either idle, and can expire, or in use, and cannot. To keep expiring entries of another kind, replace `Connection`.
//!
//!     cargo run -p tourbillon --example connection_pool

use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tourbillon::delay_queue::{DelayQueue, Key};
use tourbillon::time::{Instant, sleep};

/// An idle connection is closed after this time.
const KEPT: Duration = Duration::from_secs(60);

/// The most connections at a time.
const MOST: usize = 3;

/// Stands for a connection to a database.
struct Connection {
    number: usize,
}

/// The handle of the pool. The pool ends when all handles and connections in use are dropped.
#[derive(Clone)]
struct Pool {
    messages: mpsc::UnboundedSender<Message>,
}

enum Message {
    Get(oneshot::Sender<Connection>),
    /// A connection that was returned. `None` for one that broke.
    PutBack(Option<Connection>),
    Report(oneshot::Sender<Report>),
}

#[derive(PartialEq, Eq, Debug)]
struct Report {
    idle: usize,
    open: usize,
    opened_ever: usize,
}

/// A connection in use. Dropping it returns it to the pool.
struct Lease {
    connection: Option<Connection>,
    messages: mpsc::UnboundedSender<Message>,
}

impl Pool {
    fn new() -> Pool {
        let (messages, inbox) = mpsc::unbounded_channel();
        tokio::spawn(PoolTask::default().run(inbox));
        Pool { messages }
    }

    /// Returns a connection, and waits while all are in use. To wait no longer than a limit, put a `timeout` around it.
    async fn get(&self) -> Lease {
        let connection = self.ask(Message::Get).await;
        Lease { connection: Some(connection), messages: self.messages.clone() }
    }

    async fn report(&self) -> Report {
        self.ask(Message::Report).await
    }

    async fn ask<T>(&self, message: impl FnOnce(oneshot::Sender<T>) -> Message) -> T {
        let (reply, answer) = oneshot::channel();
        self.messages.send(message(reply)).expect("the task runs as long as there is a handle");
        answer.await.expect("the task answers each message")
    }
}

impl Lease {
    fn number(&self) -> usize {
        self.connection.as_ref().expect("it is there until the lease ends").number
    }

    /// Closes the connection, which is not to be used again.
    fn close(mut self) {
        self.connection = None;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // An error says that the pool has ended: then the connection is closed here.
        let _ = self.messages.send(Message::PutBack(self.connection.take()));
    }
}

/// What the task of the pool owns.
#[derive(Default)]
struct PoolTask {
    idle: DelayQueue<Connection>,
    /// The keys of idle connections, the one that was used last at the end.
    by_use: VecDeque<Key>,
    /// Requests that wait for a connection, in order.
    waiting: VecDeque<oneshot::Sender<Connection>>,
    open: usize,
    opened_ever: usize,
}

impl PoolTask {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        loop {
            tokio::select! {
                message = inbox.recv() => match message {
                    Some(Message::Get(reply)) => self.waiting.push_back(reply),
                    Some(Message::PutBack(connection)) => self.put_back(connection),
                    Some(Message::Report(reply)) => _ = reply.send(self.report()),
                    None => return,
                },
                // `None` says that no connection is idle, and disables this branch until the next turn of the loop.
                Some(expired) = self.idle.next() => {
                    self.by_use.pop_front();
                    self.open -= 1;
                    println!("connection {} has expired", expired.into_inner().number);
                }
            }
            self.serve_waiting();
        }
    }

    fn put_back(&mut self, connection: Option<Connection>) {
        match connection {
            Some(connection) => self.by_use.push_back(self.idle.insert(connection, KEPT)),
            None => self.open -= 1,
        }
    }

    /// Gives connections to requests that wait: the one that was used last, so that others can expire, or a new one.
    fn serve_waiting(&mut self) {
        while !self.waiting.is_empty() {
            let connection = match self.by_use.pop_back() {
                Some(key) => self.idle.remove(&key).into_inner(),
                None if self.open < MOST => self.open_one(),
                None => return,
            };
            let Some(request) = self.waiting.pop_front() else { return };
            if let Err(connection) = request.send(connection) {
                // The request was given up.
                self.put_back(Some(connection));
            }
        }
    }

    fn open_one(&mut self) -> Connection {
        self.open += 1;
        self.opened_ever += 1;
        Connection { number: self.opened_ever }
    }

    fn report(&self) -> Report {
        Report { idle: self.idle.len(), open: self.open, opened_ever: self.opened_ever }
    }
}

/// The clock is paused, so that this takes no time and is exact. A service leaves `start_paused` away, and has it in its tests.
#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() {
    let pool = Pool::new();
    let (first, second, third) = (pool.get().await, pool.get().await, pool.get().await);
    let other = pool.clone();
    let fourth = tokio::spawn(async move { other.get().await.number() });
    sleep(KEPT * 2).await;
    assert_eq!(pool.report().await, Report { idle: 0, open: 3, opened_ever: 3 }, "connections in use do not expire");
    assert!(!fourth.is_finished(), "it waits");

    second.close();
    assert_eq!(fourth.await.ok(), Some(4), "a new connection instead of the one that was closed");

    // Two more become idle, one 40 seconds after the other.
    let start = Instant::now();
    drop(first);
    sleep(KEPT / 3 * 2).await;
    drop(third);
    assert_eq!(pool.get().await.number(), 3, "the one that was used last");
    sleep(KEPT / 2).await;
    assert_eq!(pool.report().await, Report { idle: 1, open: 1, opened_ever: 4 }, "two have expired");
    assert_eq!(pool.get().await.number(), 3, "its time began anew when it was returned");
    sleep(KEPT * 2).await;
    assert_eq!(pool.report().await, Report { idle: 0, open: 0, opened_ever: 4 });
    println!("{:?} later there is none", start.elapsed());
}
