//! The thread that listens at an address, and a short-lived thread for each connection.
//!
//! A browser opens connections before it needs them, and a client may be slow. So one connection must not hold up another; more than
//! [`MOST`] at a time are closed at once.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
#[cfg(tourbillon_unix_sockets)]
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::inspect::http::{Stream, answer_one};
#[cfg(tourbillon_unix_sockets)]
use crate::inspect::unix_path::{self, FileId};
use crate::inspect::{Address, InspectError, Inspected};

/// A listening thread. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    address: Address,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// The process that has the thread: a child of a fork has not.
    pid: u32,
    /// The file of a Unix socket: another process may have put its own in its place.
    #[cfg(tourbillon_unix_sockets)]
    file: Option<FileId>,
}

/// A bound socket.
enum Socket {
    Tcp(TcpListener),
    #[cfg(tourbillon_unix_sockets)]
    Unix(UnixListener),
}

/// What the threads share.
struct View {
    address: Address,
    inspected: Inspected,
    connections: AtomicUsize,
}

/// Counts a connection until it is dropped.
struct Connection(Arc<View>);

/// Most connections at a time.
const MOST: usize = 16;
/// Pause after a failed `accept`, which fails again at once if the process has no file descriptor left.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a drop waits for the thread.
const FAREWELL: Duration = Duration::from_secs(1);

impl Listener {
    /// Binds the address and starts the thread.
    pub(crate) fn start(address: Address, inspected: Inspected) -> Result<Listener, InspectError> {
        let (socket, address) = bind(address)?;
        #[cfg(tourbillon_unix_sockets)]
        let file = if let Address::Unix(path) = &address { unix_path::file_id(path) } else { None };
        let is_over = Arc::new(AtomicBool::new(false));
        let view = Arc::new(View { address: address.clone(), inspected, connections: AtomicUsize::new(0) });
        let thread = thread::Builder::new().name("tourbillon-insp".into()).spawn({
            let is_over = Arc::clone(&is_over);
            move || accept_all(&socket, &view, &is_over)
        });
        let thread = thread.map_err(|error| InspectError::Refused(address.clone(), error))?;
        Ok(Listener {
            address,
            is_over,
            thread: Some(thread),
            pid: std::process::id(),
            #[cfg(tourbillon_unix_sockets)]
            file,
        })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Wakes the thread up by a connection, and waits until it has ended. Another process may have taken over the path of a Unix socket:
    /// then the connection does not reach the thread, which is left behind.
    fn end_thread(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let woken = connect(&self.address);
        let Some(thread) = self.thread.take() else { return };
        let mut waited = Duration::ZERO;
        while woken.is_ok() && !thread.is_finished() && waited < FAREWELL {
            thread::sleep(Duration::from_millis(1));
            waited += Duration::from_millis(1);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // The thread, and the file, are the parent's. A handle of a thread that is not there must not be dropped.
            std::mem::forget(self.thread.take());
            return;
        }
        self.end_thread();
        #[cfg(tourbillon_unix_sockets)]
        if let (Address::Unix(path), Some(file)) = (&self.address, self.file)
            && unix_path::file_id(path) == Some(file)
        {
            // An error means that the file is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept_all(socket: &Socket, view: &Arc<View>, is_over: &AtomicBool) {
    loop {
        let accepted = match socket {
            Socket::Tcp(listener) => listener.accept().map(|(stream, _)| answer_apart(stream, view, is_over)),
            #[cfg(tourbillon_unix_sockets)]
            Socket::Unix(listener) => listener.accept().map(|(stream, _)| answer_apart(stream, view, is_over)),
        };
        if is_over.load(Ordering::Acquire) {
            return;
        }
        if accepted.is_err() {
            thread::sleep(PAUSE);
        }
    }
}

/// Answers on a thread of its own. Without one the connection is closed.
fn answer_apart(mut stream: impl Stream + Send + 'static, view: &Arc<View>, is_over: &AtomicBool) {
    let connection = Connection(Arc::clone(view));
    let others = view.connections.fetch_add(1, Ordering::Relaxed);
    if others >= MOST || is_over.load(Ordering::Acquire) {
        return;
    }
    let thread = thread::Builder::new().name("tourbillon-look".into());
    let _refused = thread.spawn(move || {
        let Connection(view) = &connection;
        let _gone = answer_one(&mut stream, &view.address, &view.inspected);
    });
}

fn bind(address: Address) -> Result<(Socket, Address), InspectError> {
    let refused = |error: io::Error, address: Address| match error.kind() {
        io::ErrorKind::AddrInUse => InspectError::InUse(address),
        _ => InspectError::Refused(address, error),
    };
    match &address {
        Address::Tcp(wanted) => match TcpListener::bind(wanted).and_then(|socket| Ok((socket.local_addr()?, socket))) {
            Ok((bound, socket)) => Ok((Socket::Tcp(socket), Address::Tcp(bound))),
            Err(error) => Err(refused(error, address)),
        },
        #[cfg(tourbillon_unix_sockets)]
        Address::Unix(path) => {
            unix_path::remove_stale(path)?;
            match unix_path::bind(path) {
                Ok(socket) => Ok((Socket::Unix(socket), address)),
                Err(error) => Err(refused(error, address)),
            }
        }
        #[cfg(not(tourbillon_unix_sockets))]
        Address::Unix(_) => Err(InspectError::NoUnixSockets),
    }
}

fn connect(address: &Address) -> io::Result<()> {
    match address {
        Address::Tcp(address) => TcpStream::connect_timeout(address, FAREWELL).map(drop),
        #[cfg(tourbillon_unix_sockets)]
        Address::Unix(path) => UnixStream::connect(path).map(drop),
        #[cfg(not(tourbillon_unix_sockets))]
        Address::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

impl Stream for TcpStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

#[cfg(tourbillon_unix_sockets)]
impl Stream for UnixStream {
    fn limit(&self, time: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(time))?;
        self.set_write_timeout(Some(time))
    }

    fn finish(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}
