//! Datagrams.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};

use crate::io::{Attempts, Io, Operation};
use crate::reactor::{Direction, IoProgress, IoSource};

type Std = std::net::UdpSocket;

/// A UDP socket. To share it between tasks, put it into an `Arc`.
///
/// ```
/// use tourbillon_rt::net::UdpSocket;
///
/// let runtime = tourbillon_rt::Runtime::new()?;
/// runtime.block_on(async {
///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
///     a.send_to(b"hello", b.local_addr()?).await?;
///     let mut datagram = [0; 64];
///     let (length, from) = b.recv_from(&mut datagram).await?;
///     assert_eq!((&datagram[..length], from), (&b"hello"[..], a.local_addr()?));
///     std::io::Result::Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UdpSocket {
    source: IoSource<Std>,
}

impl UdpSocket {
    /// Binds a socket to an address; port zero takes one that is free. If the address is a name, this blocks until it is resolved.
    ///
    /// # Errors
    /// The address is taken, or not one of this machine's; there are no file descriptors left.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<UdpSocket> {
        UdpSocket::from_std(Std::bind(address)?)
    }

    /// Wraps a socket of the standard library.
    ///
    /// # Errors
    /// It cannot be put into non-blocking mode.
    pub fn from_std(socket: Std) -> io::Result<UdpSocket> {
        socket.set_nonblocking(true)?;
        Ok(UdpSocket { source: IoSource::new(socket) })
    }

    /// Sets the peer: from now on [`send`](UdpSocket::send) sends to it, and only its datagrams are received. If the address is a name,
    /// this blocks until it is resolved.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn connect(&self, address: impl ToSocketAddrs) -> io::Result<()> {
        self.source.io().connect(address)
    }

    /// Sends a datagram to the peer that the socket is connected to.
    pub fn send<'a>(&'a self, datagram: &'a [u8]) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Write, |socket: &Std| socket.send(datagram).map(IoProgress::of)))
    }

    /// Sends a datagram to an address.
    pub fn send_to<'a>(&'a self, datagram: &'a [u8], to: SocketAddr) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Write, move |socket: &Std| {
            socket.send_to(datagram, to).map(IoProgress::of)
        }))
    }

    /// Receives a datagram. Bytes that do not fit into the buffer are lost.
    pub fn recv<'a>(&'a self, buffer: &'a mut [u8]) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |socket: &Std| socket.recv(buffer).map(IoProgress::of)))
    }

    /// Receives a datagram and returns its sender.
    pub fn recv_from<'a>(&'a self, buffer: &'a mut [u8]) -> Io<impl Operation<Output = (usize, SocketAddr)> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |socket: &Std| {
            socket.recv_from(buffer).map(IoProgress::of)
        }))
    }

    /// Reads the next datagram without removing it.
    pub fn peek_from<'a>(&'a self, buffer: &'a mut [u8]) -> Io<impl Operation<Output = (usize, SocketAddr)> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |socket: &Std| {
            socket.peek_from(buffer).map(IoProgress::of)
        }))
    }

    /// Returns the socket's address.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.io().local_addr()
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.io().peer_addr()
    }

    /// Sets whether the socket may send to broadcast addresses.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_broadcast(&self, yes: bool) -> io::Result<()> {
        self.source.io().set_broadcast(yes)
    }

    /// Sets the time to live of the socket's packets.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.source.io().set_ttl(ttl)
    }

    /// Returns the time to live of the socket's packets.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn ttl(&self) -> io::Result<u32> {
        self.source.io().ttl()
    }

    /// Joins a multicast group, on one of this machine's interfaces.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.source.io().join_multicast_v4(&group, &interface)
    }

    /// Joins a multicast group, on one of this machine's interfaces.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn join_multicast_v6(&self, group: Ipv6Addr, interface: u32) -> io::Result<()> {
        self.source.io().join_multicast_v6(&group, interface)
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}
