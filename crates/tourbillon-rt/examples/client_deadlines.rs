//! A client with a limit on every step, on the whole, and retries in between; and a server that gives it reason to.
//!
//! Each step has a limit of its own, so that one that hangs leaves time for another try; all of them together have a deadline, after
//! which the answer would be of no use.
//!
//!     cargo run -p tourbillon-rt --example client_deadlines

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tourbillon_rt::net::{ListenOptions, TcpListener, TcpStream};
use tourbillon_rt::time::{Instant, sleep};
use tourbillon_rt::{Runtime, spawn};

const MS: Duration = Duration::from_millis(1);

/// The time limits of a client.
struct Limits {
    connect: Duration,
    /// For the whole answer.
    read: Duration,
    /// For everything.
    overall: Duration,
    /// The first pause between two tries; each is twice as long as the last.
    pause: Duration,
}

const LIMITS: Limits = Limits {
    connect: Duration::from_millis(150),
    read: Duration::from_millis(200),
    overall: Duration::from_secs(10),
    pause: Duration::from_millis(20),
};

const QUESTION: &[u8; 4] = b"time";
const ANSWER: &[u8; 4] = b"noon";

/// Asks one address after the other, round and round, until one answers or the time is over. Returns how many tries it took.
///
/// # Errors
/// The error of the last try.
async fn ask(addresses: &[SocketAddr], limits: &Limits) -> io::Result<usize> {
    let (start, mut pause) = (Instant::now(), limits.pause);
    let overall = start + limits.overall;
    for (number, &address) in (1..).zip(addresses.iter().cycle()) {
        let error = match try_once(address, limits, overall).await {
            Ok(()) => return Ok(number),
            Err(error) => error,
        };
        println!("{:>6} ms  try {number}: {:?}", start.elapsed().as_millis(), error.kind());
        if Instant::now() + pause >= overall {
            return Err(error);
        }
        sleep(pause).await;
        pause *= 2;
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to ask"))
}

/// Asks once. The first of the step's own limit and the deadline of the whole counts.
async fn try_once(address: SocketAddr, limits: &Limits, overall: Instant) -> io::Result<()> {
    let stream = TcpStream::connect(address).timeout(limits.connect).deadline(overall).await?;
    stream.write_all(QUESTION).deadline(overall).await?;
    let mut answer = [0; ANSWER.len()];
    stream.read_exact(&mut answer).timeout(limits.read).deadline(overall).await?;
    if &answer == ANSWER { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Treats its first clients badly, each in another way, and answers the fourth.
async fn be_flaky(listener: TcpListener) -> io::Result<()> {
    let mut kept = Vec::new();
    let mut asked = 0;
    loop {
        let (stream, _) = listener.accept().await?;
        if stream.read_exact(&mut [0; QUESTION.len()]).await.is_err() {
            // The client has given up already.
            continue;
        }
        asked += 1;
        let half = ANSWER.split_at(2).0;
        let (says, stays) = match asked {
            1 => (&[][..], true),
            2 => (half, false),
            3 => (half, true),
            _ => (&ANSWER[..], true),
        };
        // A client that does not listen any more is not an error.
        let _ = stream.write_all(says).await;
        kept.extend(stays.then_some(stream));
    }
}

/// Returns a listener that accepts no connection and has no room left: a client that connects now waits.
async fn full() -> io::Result<(TcpListener, Vec<TcpStream>)> {
    let listener = ListenOptions::new().backlog(0).bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let mut waiting = Vec::new();
    while let Ok(stream) = TcpStream::connect(address).timeout(100 * MS).await {
        waiting.push(stream);
    }
    Ok((listener, waiting))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().workers(1).build()?;
    println!("on {}", runtime.backend());
    runtime.block_on(async {
        let (crowded, _waiting) = full().await?;
        let flaky = TcpListener::bind("127.0.0.1:0")?;
        let addresses = [crowded.local_addr()?, flaky.local_addr()?];
        spawn(be_flaky(flaky));

        println!("a server that is full, and one that is flaky:");
        let tries = ask(&addresses, &LIMITS).await?;
        println!("           try {tries}: answered");
        // Every other try goes to the server that is full, and the other server answers when it is asked for the fourth time.
        assert!(tries >= 8 && tries % 2 == 0);

        println!("no server that ever answers, and half a second for all:");
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let (start, limits) = (Instant::now(), Limits { overall: 500 * MS, ..LIMITS });
        let given_up = ask(&[silent.local_addr()?], &limits).await;
        println!("{:>6} ms  given up", start.elapsed().as_millis());
        assert_eq!(given_up.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        assert!(start.elapsed() >= limits.read, "it has been asked at least once");
        Ok(())
    })
}
