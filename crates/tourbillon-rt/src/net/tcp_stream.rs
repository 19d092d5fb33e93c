//! TCP connections.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
#[cfg(any(feature = "futures-io", feature = "hyper"))]
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sockopt};

use super::connect::Connect;
use super::lookup::ToSocketAddrs;
use crate::io::{Attempt, Attempts, Incomplete, Io, Operation};
#[cfg(any(feature = "futures-io", feature = "hyper"))]
use crate::reactor::WaiterId;
use crate::reactor::{Direction, IoProgress, IoSource};

type Std = std::net::TcpStream;

/// The most buffers that the kernel takes at a time (`UIO_MAXIOV`).
const VECTORS: usize = 1024;

/// A TCP connection.
///
/// Clones share the connection, for two tasks of which one reads and one writes; it is closed with the last.
///
/// ```no_run
/// # async fn example() -> std::io::Result<()> {
/// use std::time::Duration;
/// use tourbillon_rt::net::TcpStream;
///
/// let stream = TcpStream::connect("127.0.0.1:8080").timeout(Duration::from_secs(3)).await?;
/// stream.write_all(b"ping").await?;
/// let mut answer = [0; 64];
/// let length = stream.read(&mut answer).timeout(Duration::from_secs(1)).await?;
/// # let _ = length; Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TcpStream {
    source: Arc<IoSource<Std>>,
}

impl TcpStream {
    pub(super) fn of(source: IoSource<Std>) -> TcpStream {
        TcpStream { source: Arc::new(source) }
    }

    /// Connects to the first of a peer's addresses that accepts, and returns the error of the last one if none does.
    ///
    /// It takes what the function of the standard library takes: an address, several, a host and a port, or a string; an address, also one
    /// in a string, needs no lookup. If the operation is dropped or times out, its socket is closed.
    ///
    /// A time limit covers the lookup of a name and the attempts at all its addresses, one after the other: an address that does not answer
    /// at all can use up the whole limit. To give each a share, look the addresses up yourself and connect to each with a limit of its own,
    /// as the example `client_deadlines` does.
    ///
    /// A name is looked up on a thread of the crate `blocking`, of which there are at most 500 (or as many as the environment variable
    /// `BLOCKING_MAX_THREADS` says); [`spawn_blocking`](crate::spawn_blocking) uses the same. If the operation is dropped, a lookup that
    /// has begun goes on to its end, and one that waits for a thread is skipped.
    ///
    /// ```no_run
    /// use std::time::Duration;
    /// use tourbillon_rt::net::TcpStream;
    ///
    /// # async fn example(host: &str) -> std::io::Result<()> {
    /// let database = TcpStream::connect((host, 5432)).timeout(Duration::from_secs(3)).await?;
    /// let cache = TcpStream::connect("127.0.0.1:6379").await?;
    /// # drop((database, cache)); Ok(())
    /// # }
    /// ```
    pub fn connect(peer: impl ToSocketAddrs) -> Io<Connect> {
        Io::new(Connect::new(peer.to_lookup()))
    }

    /// Wraps a stream of the standard library.
    ///
    /// # Errors
    /// It cannot be put into non-blocking mode.
    pub fn from_std(stream: Std) -> io::Result<TcpStream> {
        stream.set_nonblocking(true)?;
        Ok(TcpStream::of(IoSource::new(stream)))
    }

    /// Reads the bytes that there are, up to the length of the buffer; waits if there are none. Zero is the end: the peer writes no more.
    pub fn read<'a>(&'a self, buffer: &'a mut [u8]) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |stream: &Std| receive(stream, buffer)))
    }

    /// Reads into several buffers, one after the other: see [`read`](TcpStream::read).
    pub fn read_vectored<'a>(
        &'a self,
        buffers: &'a mut [IoSliceMut<'a>],
    ) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |stream: &Std| receive_vectored(stream, buffers)))
    }

    /// Reads until the buffer is full.
    ///
    /// The end of the stream before that is [`UnexpectedEof`](io::ErrorKind::UnexpectedEof). An error, also
    /// [`TimedOut`](io::ErrorKind::TimedOut), says how many bytes are in the buffer: [`Incomplete`].
    pub fn read_exact<'a>(&'a self, buffer: &'a mut [u8]) -> Io<impl Operation<Output = ()> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, ReadExact { buffer, done: 0 }))
    }

    /// Reads without removing the bytes from the stream.
    pub fn peek<'a>(&'a self, buffer: &'a mut [u8]) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Read, |stream: &Std| stream.peek(buffer).map(IoProgress::of)))
    }

    /// Writes as many bytes as there is room for; waits if there is none.
    pub fn write<'a>(&'a self, bytes: &'a [u8]) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Write, |stream: &Std| send(stream, bytes)))
    }

    /// Writes from several buffers, one after the other: see [`write`](TcpStream::write).
    pub fn write_vectored<'a>(&'a self, buffers: &'a [IoSlice<'a>]) -> Io<impl Operation<Output = usize> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Write, |stream: &Std| send_vectored(stream, buffers)))
    }

    /// Writes all bytes. An error, also [`TimedOut`](io::ErrorKind::TimedOut), says how many have been written: [`Incomplete`].
    pub fn write_all<'a>(&'a self, bytes: &'a [u8]) -> Io<impl Operation<Output = ()> + use<'a>> {
        Io::new(Attempts::new(&self.source, Direction::Write, WriteAll { bytes, done: 0 }))
    }

    /// Closes the connection in one direction or both, for all its clones: reads get the end, writes an error. The peer sees the end of
    /// what was written.
    ///
    /// # Errors
    /// The stream is not connected any more.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.source.io().shutdown(how)
    }

    /// Returns the address of the peer.
    ///
    /// # Errors
    /// The stream is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.io().peer_addr()
    }

    /// Returns the connection's address on this machine.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.io().local_addr()
    }

    /// Sets whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_nodelay(&self, yes: bool) -> io::Result<()> {
        self.source.io().set_nodelay(yes)
    }

    /// Returns whether small writes are sent at once.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.source.io().nodelay()
    }

    /// Sets the time to live of the connection's packets.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.source.io().set_ttl(ttl)
    }

    /// Returns the time to live of the connection's packets.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn ttl(&self) -> io::Result<u32> {
        self.source.io().ttl()
    }

    /// Sets what happens to unsent bytes when the connection is closed: `None` sends them in the background, zero drops them and resets
    /// the connection.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self.source.io(), linger)?)
    }

    /// Sets whether the system sends probes now and then while the connection is silent.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_keepalive(&self, yes: bool) -> io::Result<()> {
        Ok(sockopt::set_socket_keepalive(self.source.io(), yes)?)
    }

    /// Sets how many bytes the system takes before the peer does.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        Ok(sockopt::set_socket_send_buffer_size(self.source.io(), bytes)?)
    }

    /// Sets how many bytes the system keeps until they are read.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        Ok(sockopt::set_socket_recv_buffer_size(self.source.io(), bytes)?)
    }

    /// Reads for the traits of other crates that poll: the task that polled last is woken.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub(crate) fn poll_read<T>(
        &self,
        context: &mut Context<'_>,
        attempt: impl FnMut(&Std) -> io::Result<IoProgress<T>>,
    ) -> Poll<io::Result<T>> {
        self.source.poll(context, Direction::Read, &mut { WaiterId::LAST_POLL }, attempt)
    }

    /// Writes for the traits of other crates that poll: the task that polled last is woken.
    #[cfg(any(feature = "futures-io", feature = "hyper"))]
    pub(crate) fn poll_write<T>(
        &self,
        context: &mut Context<'_>,
        attempt: impl FnMut(&Std) -> io::Result<IoProgress<T>>,
    ) -> Poll<io::Result<T>> {
        self.source.poll(context, Direction::Write, &mut { WaiterId::LAST_POLL }, attempt)
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.source.as_fd()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

struct ReadExact<'a> {
    buffer: &'a mut [u8],
    done: usize,
}

impl Attempt<Std> for ReadExact<'_> {
    type Output = ();

    fn attempt(&mut self, stream: &Std) -> io::Result<IoProgress<()>> {
        let of = self.buffer.len();
        let received = receive(stream, &mut self.buffer[self.done..]);
        go_on(received, &mut self.done, of, io::ErrorKind::UnexpectedEof)
    }

    fn without_trying(&self) -> Option<()> {
        self.buffer.is_empty().then_some(())
    }

    fn timed_out(&self) -> io::Error {
        Incomplete::error(self.done, self.buffer.len(), io::ErrorKind::TimedOut.into())
    }
}

struct WriteAll<'a> {
    bytes: &'a [u8],
    done: usize,
}

impl Attempt<Std> for WriteAll<'_> {
    type Output = ();

    fn attempt(&mut self, stream: &Std) -> io::Result<IoProgress<()>> {
        let sent = send(stream, &self.bytes[self.done..]);
        go_on(sent, &mut self.done, self.bytes.len(), io::ErrorKind::WriteZero)
    }

    fn without_trying(&self) -> Option<()> {
        self.bytes.is_empty().then_some(())
    }

    fn timed_out(&self) -> io::Error {
        Incomplete::error(self.done, self.bytes.len(), io::ErrorKind::TimedOut.into())
    }
}

/// Reads as the standard library does, but without libc, whose call is a cancellation point.
pub(crate) fn receive(stream: &Std, buffer: &mut [u8]) -> io::Result<IoProgress<usize>> {
    let room = buffer.len();
    Ok(IoProgress::bytes(rustix::net::recv(stream, buffer, RecvFlags::empty())?.0, room))
}

/// Reads into several buffers.
pub(crate) fn receive_vectored(mut stream: &Std, buffers: &mut [IoSliceMut<'_>]) -> io::Result<IoProgress<usize>> {
    let room = buffers.iter().take(VECTORS).map(|buffer| buffer.len()).sum();
    stream.read_vectored(buffers).map(|count| IoProgress::bytes(count, room))
}

/// Writes as the standard library does.
pub(crate) fn send(stream: &Std, bytes: &[u8]) -> io::Result<IoProgress<usize>> {
    Ok(IoProgress::bytes(rustix::net::send(stream, bytes, SendFlags::NOSIGNAL)?, bytes.len()))
}

/// Writes from several buffers. Not by `writev`, as the standard library does: with that a SIGPIPE cannot be suppressed (D72).
pub(crate) fn send_vectored(stream: &Std, buffers: &[IoSlice<'_>]) -> io::Result<IoProgress<usize>> {
    let buffers = &buffers[..buffers.len().min(VECTORS)];
    let length = buffers.iter().map(|buffer| buffer.len()).sum();
    let sent = rustix::net::sendmsg(stream, buffers, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?;
    Ok(IoProgress::bytes(sent, length))
}

/// Translates one step of an operation that is to move `of` bytes. Until it is done the result is "interrupted": then the operation is
/// tried again, unless the task's budget is spent. The error that ends it says how far it came.
fn go_on(
    step: io::Result<IoProgress<usize>>,
    done: &mut usize,
    of: usize,
    at_the_end: io::ErrorKind,
) -> io::Result<IoProgress<()>> {
    match step {
        Ok(IoProgress { value: 0, .. }) => Err(Incomplete::error(*done, of, at_the_end.into())),
        Ok(IoProgress { value: count, .. }) => {
            *done += count;
            if *done < of { Err(io::ErrorKind::Interrupted.into()) } else { Ok(IoProgress::of(())) }
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Err(error),
        Err(error) => Err(Incomplete::error(*done, of, error)),
    }
}
