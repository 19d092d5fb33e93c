//! Time limits of I/O operations on each available back end: reads from peers that write from time to time.
//!
//! A read times out, not early, or it returns bytes. Every byte that was written arrives once and in order, whatever timed out in
//! between.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::{Backend, Runtime, spawn_local};

use super::audit::Findings;
use super::check_run::CheckRun;
use super::promise::Promise;
use super::tally::SurfaceTally;
use crate::clock::{monotonic, nanos};

const CONNECTIONS: usize = 32;
const LONGEST: Duration = Duration::from_millis(20);

/// Runs as long as the load does, on one back end.
pub(crate) fn run(check: &Arc<CheckRun>, backend: Backend) -> Findings {
    let mut findings = Findings::default();
    let runtime = match Runtime::builder().backend(backend).workers(0).build() {
        Ok(runtime) => runtime,
        Err(error) => {
            findings.skipped.push(format!("I/O timeouts on {backend}: {error}"));
            return findings;
        }
    };
    let used = runtime.backend();
    if used != backend {
        findings.skipped.push(format!("I/O timeouts on {backend}: TOURBILLON_BACKEND says {used}"));
        return findings;
    }
    let surface = format!("I/O on {backend}");
    let tally = Rc::new(RefCell::new(SurfaceTally::new(surface)));
    match runtime.block_on(connections(check, &tally)) {
        Ok(()) => findings.backends.push(backend.to_string()),
        Err(error) => findings.skipped.push(format!("I/O timeouts on {backend}: {error}")),
    }
    let mut tally = tally.borrow().clone();
    tally.balance();
    findings.tallies.push(tally);
    findings
}

async fn connections(check: &Arc<CheckRun>, tally: &Rc<RefCell<SurfaceTally>>) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut tasks = Vec::new();
    for connection in 0..CONNECTIONS {
        let limit = Duration::from_secs(5);
        let writer = TcpStream::connect(listener.local_addr()?).timeout(limit).await?;
        let (reader, _) = listener.accept().timeout(limit).await?;
        tasks.push(spawn_local(write(Arc::clone(check), connection, writer)));
        tasks.push(spawn_local(read(Arc::clone(check), connection, reader, Rc::clone(tally))));
    }
    for task in tasks {
        task.await.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Writes counting bytes, a few at a time.
async fn write(check: Arc<CheckRun>, connection: usize, stream: TcpStream) -> io::Result<()> {
    let mut random = check.random("writers", connection);
    let mut next = 0_u8;
    while check.is_under_load() {
        tourbillon_rt::time::sleep(random.duration(LONGEST)).await;
        let bytes: Vec<u8> = (0..1 + random.below(4)).map(|step| next.wrapping_add(step as u8)).collect();
        stream.write_all(&bytes).timeout(Duration::from_secs(5)).await?;
        next = next.wrapping_add(bytes.len() as u8);
    }
    Ok(())
}

/// Reads until the peer closes the connection, with a limit on each read.
async fn read(
    check: Arc<CheckRun>,
    connection: usize,
    stream: TcpStream,
    tally: Rc<RefCell<SurfaceTally>>,
) -> io::Result<()> {
    let mut random = check.random("readers", connection);
    let (mut next, mut buffer) = (0_u8, [0; 16]);
    loop {
        let limit = random.duration(LONGEST);
        let due = monotonic() + nanos(limit);
        let result = stream.read(&mut buffer).timeout(limit).await;
        let seen = monotonic();
        let mut tally = tally.borrow_mut();
        tally.armed += 1;
        match result {
            Ok(0) => {
                tally.cancelled += 1;
                return Ok(());
            }
            Ok(length) => {
                tally.cancelled += 1;
                let in_order = buffer[..length].iter().all(|byte| {
                    let is_next = *byte == next;
                    next = next.wrapping_add(1);
                    is_next
                });
                if !in_order {
                    let what = format!("{}: a byte was lost or came twice after a timeout", tally.surface);
                    tally.complain(Promise::P2, what);
                    return Ok(());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                tally.check(due, seen);
                tally.fired += 1;
            }
            Err(error) => {
                tally.cancelled += 1;
                return Err(error);
            }
        }
    }
}
