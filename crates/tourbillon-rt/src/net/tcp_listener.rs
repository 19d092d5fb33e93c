//! Listeners: sockets that accept connections.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

use super::{TcpStream, first_that_works};
use crate::io::{Attempts, Io, Operation};
use crate::reactor::{Direction, IoProgress, IoSource};

/// A socket that accepts connections.
///
/// ```
/// use tourbillon_rt::net::{TcpListener, TcpStream};
///
/// let runtime = tourbillon_rt::Runtime::new()?;
/// runtime.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0")?;
///     let client = TcpStream::connect(listener.local_addr()?).await?;
///     let (server, peer) = listener.accept().await?;
///     assert_eq!(peer, client.local_addr()?);
///     server.write_all(b"hello").await?;
///     let mut greeting = [0; 5];
///     client.read_exact(&mut greeting).await?;
///     assert_eq!(&greeting, b"hello");
///     Ok(())
/// })
/// # as Result<(), std::io::Error>;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpListener {
    source: IoSource<std::net::TcpListener>,
}

/// The options of a listener.
///
/// ```
/// use tourbillon_rt::net::ListenOptions;
///
/// let listener = ListenOptions::new().backlog(4096).reuse_port(true).bind("127.0.0.1:0")?;
/// println!("at {}", listener.local_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct ListenOptions {
    backlog: i32,
    reuse_address: bool,
    reuse_port: bool,
}

impl TcpListener {
    /// Listens at an address; port zero takes one that is free. If the address is a name, this blocks until it is resolved.
    ///
    /// # Errors
    /// The address is taken, or not one of this machine's; there are no file descriptors left.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        ListenOptions::new().bind(address)
    }

    /// Wraps a listener of the standard library.
    ///
    /// # Errors
    /// It cannot be put into non-blocking mode.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        listener.set_nonblocking(true)?;
        Ok(TcpListener { source: IoSource::new(listener) })
    }

    /// Waits for a connection. Several tasks may do so.
    ///
    /// A connection that was ended before it could be accepted is skipped. Out of file descriptors (`EMFILE`, `ENFILE`) is an error; the
    /// connection waits, so try again after a while.
    pub fn accept(&self) -> Io<impl Operation<Output = (TcpStream, SocketAddr)> + use<'_>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |listener: &std::net::TcpListener| {
            accept(listener).map(IoProgress::of)
        }))
    }

    /// Returns the address that it listens at.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.io().local_addr()
    }

    /// Sets the time to live of the packets of accepted connections.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.source.io().set_ttl(ttl)
    }

    /// Returns the time to live of the packets of accepted connections.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn ttl(&self) -> io::Result<u32> {
        self.source.io().ttl()
    }
}

impl ListenOptions {
    /// Returns the options of [`TcpListener::bind`]: an address can be used again soon after a restart, 1024 connections may wait.
    pub fn new() -> ListenOptions {
        ListenOptions { backlog: 1024, reuse_address: true, reuse_port: false }
    }

    /// Sets how many connections may wait to be accepted.
    pub fn backlog(mut self, backlog: u32) -> ListenOptions {
        self.backlog = backlog.try_into().unwrap_or(i32::MAX);
        self
    }

    /// Sets whether the address can be used while connections of its last user linger.
    pub fn reuse_address(mut self, yes: bool) -> ListenOptions {
        self.reuse_address = yes;
        self
    }

    /// Sets whether several sockets may listen at the same address; the kernel distributes the connections.
    pub fn reuse_port(mut self, yes: bool) -> ListenOptions {
        self.reuse_port = yes;
        self
    }

    /// Listens at an address.
    ///
    /// # Errors
    /// As for [`TcpListener::bind`].
    pub fn bind(self, address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        first_that_works(address, |address| self.bind_at(address))
    }

    fn bind_at(self, address: SocketAddr) -> io::Result<TcpListener> {
        let socket = stream_socket(address)?;
        sockopt::set_socket_reuseaddr(&socket, self.reuse_address)?;
        sockopt::set_socket_reuseport(&socket, self.reuse_port)?;
        net::bind(&socket, &address)?;
        net::listen(&socket, self.backlog)?;
        Ok(TcpListener { source: IoSource::new(socket.into()) })
    }
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions::new()
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Returns a socket for streams to or from such an address, in non-blocking mode.
pub(super) fn stream_socket(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(net::socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?)
}

fn accept(listener: &std::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        match net::acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Ok((socket, address)) => {
                let address = address.and_then(|address| address.try_into().ok());
                let stream = std::net::TcpStream::from(socket);
                let address = address.map_or_else(|| stream.peer_addr(), Ok)?;
                return Ok((TcpStream::of(IoSource::new(stream)), address));
            }
            // The peer has ended the connection already.
            Err(Errno::CONNABORTED | Errno::PROTO | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
