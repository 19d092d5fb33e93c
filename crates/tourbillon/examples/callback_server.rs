//! A server without `async`: threads, sockets and timers with callbacks, as with asio.
//!
//! A client sends a line and receives a line, on loopback. Two timers watch each connection: one for the next request, one for the
//! answer. Each wait calls its callback exactly once, with `Fired`, or with `Cancelled` if the timer was not needed.
//!
//!     cargo run -p tourbillon --example callback_server

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use tourbillon::{Outcome, Timer};

const MS: Duration = Duration::from_millis(1);
/// A connection without a request for this long is closed.
const IDLE: Duration = Duration::from_millis(500);
/// The longest time that a client waits for an answer.
const REPLY: Duration = Duration::from_millis(300);

/// Counts how the waits ended: each callback is called once, with one of these outcomes.
#[derive(Default)]
struct Outcomes {
    begun: AtomicUsize,
    fired: AtomicUsize,
    cancelled: AtomicUsize,
    stopped: AtomicUsize,
}

impl Outcomes {
    fn count(&self, outcome: Outcome) {
        let counter = match outcome {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            Outcome::Stopped => &self.stopped,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> [usize; 4] {
        [&self.begun, &self.fired, &self.cancelled, &self.stopped].map(|count| count.load(Ordering::SeqCst))
    }
}

/// One connection, which its thread and the callbacks of its timers share.
struct Connection {
    stream: TcpStream,
    idle: Timer,
    reply: Timer,
    outcomes: Arc<Outcomes>,
}

impl Connection {
    fn new(stream: TcpStream, outcomes: &Arc<Outcomes>) -> Arc<Connection> {
        let (idle, reply) = (Timer::new(), Timer::new());
        Arc::new(Connection { stream, idle, reply, outcomes: Arc::clone(outcomes) })
    }

    /// Reads requests until the client or the idle timer closes the connection.
    fn serve(self: &Arc<Self>) -> io::Result<()> {
        let mut requests = BufReader::new(&self.stream).lines();
        loop {
            // Setting the timer again cancels a pending wait: its callback receives `Cancelled`.
            self.idle.expires_after(IDLE);
            self.on_expiry(&self.idle, |connection| _ = connection.stream.shutdown(Shutdown::Both));
            let Some(request) = requests.next() else { break };
            let request = request?;
            self.idle.cancel();
            self.reply(&request)?;
        }
        self.idle.cancel();
        Ok(())
    }

    fn reply(self: &Arc<Self>, request: &str) -> io::Result<()> {
        let (sender, is_answered) = mpsc::channel();
        self.reply.expires_after(REPLY);
        self.on_expiry(&self.reply, move |connection| {
            let _the_client_has_gone = connection.answer("sorry, that takes too long");
            let _receiver_is_gone = sender.send(());
        });
        let answer = handle(request);
        if self.reply.cancel() == 1 {
            // The callback receives `Cancelled`, and does not answer.
            self.answer(&answer)
        } else {
            // Too late: the callback answers, and the next answer must not overtake that one.
            let _answered = is_answered.recv();
            Ok(())
        }
    }

    fn answer(&self, answer: &str) -> io::Result<()> {
        writeln!(&self.stream, "{answer}")
    }

    /// Begins a wait that calls `fired` when the timer expires. The callback must not own the connection, which owns the timer.
    fn on_expiry(self: &Arc<Self>, timer: &Timer, fired: impl FnOnce(&Connection) + Send + 'static) {
        let (outcomes, connection) = (Arc::clone(&self.outcomes), Arc::downgrade(self));
        outcomes.begun.fetch_add(1, Ordering::SeqCst);
        timer.on_expiry(move |outcome| {
            outcomes.count(outcome);
            if let (Outcome::Fired, Some(connection)) = (outcome, connection.upgrade()) {
                fired(&connection);
            }
        });
    }
}

/// Computes an answer. `slow` takes longer than a client waits.
fn handle(request: &str) -> String {
    if request == "slow" {
        thread::sleep(2 * REPLY);
    }
    request.to_uppercase()
}

/// Serves this many connections, each on a thread, and returns when all have ended.
fn serve(listener: &TcpListener, connections: usize, outcomes: &Arc<Outcomes>) -> io::Result<()> {
    thread::scope(|scope| {
        for stream in listener.incoming().take(connections) {
            let connection = Connection::new(stream?, outcomes);
            scope.spawn(move || connection.serve());
        }
        Ok(())
    })
}

struct Client {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Client {
    fn connect(address: SocketAddr) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        // So that an error in the server makes this example fail, not hang.
        stream.set_read_timeout(Some(5000 * MS))?;
        Ok(Client { answers: BufReader::new(stream.try_clone()?), stream })
    }

    fn ask(&mut self, request: &str) -> io::Result<String> {
        writeln!(self.stream, "{request}")?;
        self.read()
    }

    fn read(&mut self) -> io::Result<String> {
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        if answer.is_empty() { Err(ErrorKind::ConnectionAborted.into()) } else { Ok(answer.trim_end().to_owned()) }
    }
}

fn main() -> io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let outcomes = Arc::new(Outcomes::default());
    let server = thread::spawn({
        let outcomes = Arc::clone(&outcomes);
        move || serve(&listener, 2, &outcomes)
    });

    // This client sends requests, one of them slow, and leaves: neither timer closes its connection.
    let mut lively = Client::connect(address)?;
    for request in ["one", "two", "slow", "three"] {
        let answer = lively.ask(request)?;
        println!("{request}: {answer}");
        let expected = if request == "slow" { "sorry, that takes too long".to_owned() } else { request.to_uppercase() };
        assert_eq!(answer, expected);
    }
    drop(lively);

    // This client sends one request and then no more.
    let mut silent = Client::connect(address)?;
    println!("anybody there: {}", silent.ask("anybody there")?);
    let end = silent.read();
    println!("silence: {end:?}");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionAborted, "the idle timer has closed it");

    server.join().expect("the server does not panic")?;
    // The callbacks run on a thread of their own, which may not have called the last of them yet.
    let all_called = (0..1000).any(|_| {
        thread::sleep(MS);
        let [begun, fired, cancelled, stopped] = outcomes.get();
        begun == fired + cancelled + stopped
    });
    let [begun, fired, cancelled, stopped] = outcomes.get();
    println!("{begun} waits: {fired} fired, {cancelled} cancelled, {stopped} stopped");
    assert!(all_called, "each wait has exactly one outcome");
    assert_eq!((begun, fired, stopped), (12, 2, 0));
    Ok(())
}
