//! A server without `async`: threads, sockets and timers with callbacks, as with asio.
//!
//! A line in, a line out, on loopback. Two deadlines watch each connection: one for the next request, one for the answer. What
//! they do when they come, they do in a callback; what they are told when they do not come, `Cancelled`, is as sure.
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
/// A connection on which nobody asks for so long is closed.
const IDLE: Duration = Duration::from_millis(500);
/// An answer that takes longer is not waited for.
const REPLY: Duration = Duration::from_millis(300);

/// How the waits ended, for the sake of the example: each callback is called once, with one of these.
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
            _ => &self.stopped,
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }

    fn get(&self) -> [usize; 4] {
        [&self.begun, &self.fired, &self.cancelled, &self.stopped].map(|count| count.load(Ordering::SeqCst))
    }
}

/// One connection: what its thread and its timers share.
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

    /// Reads requests until the client, or the idle timer, ends it.
    fn serve(self: &Arc<Self>) -> io::Result<()> {
        let mut requests = BufReader::new(&self.stream).lines();
        loop {
            // Setting it again ends the wait that was there: its callback is told `Cancelled`.
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
            let _nobody_waits = sender.send(());
        });
        let answer = handle(request);
        if self.reply.cancel() == 1 {
            // The callback is told so, and does not answer.
            self.answer(&answer)
        } else {
            // It was too late: the callback answers, and what we say next must not overtake it.
            let _answered = is_answered.recv();
            Ok(())
        }
    }

    fn answer(&self, answer: &str) -> io::Result<()> {
        writeln!(&self.stream, "{answer}")
    }

    /// Begins a wait that does something if it fires. It must not keep the connection alive, which owns the timer.
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

/// What the server is for. `slow` takes longer than a client is made to wait.
fn handle(request: &str) -> String {
    if request == "slow" {
        thread::sleep(2 * REPLY);
    }
    request.to_uppercase()
}

/// Serves so many connections, each on a thread, and returns when all have ended.
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
        // So that a fault of the server's fails this example, rather than keeping it.
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

    // A client that asks, once for something slow, and goes: neither timer closes its connection.
    let mut lively = Client::connect(address)?;
    for request in ["one", "two", "slow", "three"] {
        let answer = lively.ask(request)?;
        println!("{request}: {answer}");
        let expected = if request == "slow" { "sorry, that takes too long".to_owned() } else { request.to_uppercase() };
        assert_eq!(answer, expected);
    }
    drop(lively);

    // A client that asks once and falls silent.
    let mut silent = Client::connect(address)?;
    println!("anybody there: {}", silent.ask("anybody there")?);
    let end = silent.read();
    println!("silence: {end:?}");
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionAborted, "the idle timer has closed it");

    server.join().expect("the server does not panic")?;
    // The callbacks have a thread of their own: the last of them may still be on its way.
    let all_told = (0..1000).any(|_| {
        thread::sleep(MS);
        let [begun, fired, cancelled, stopped] = outcomes.get();
        begun == fired + cancelled + stopped
    });
    let [begun, fired, cancelled, stopped] = outcomes.get();
    println!("{begun} waits: {fired} fired, {cancelled} cancelled, {stopped} stopped");
    assert!(all_told, "each wait has its one outcome");
    assert_eq!((begun, fired, stopped), (12, 2, 0));
    Ok(())
}
