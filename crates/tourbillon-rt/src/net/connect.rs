//! Connection attempts.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use super::TcpStream;
use super::tcp_listener::stream_socket;
use crate::executor::spawn_blocking;
use crate::io::{Operation, sealed};
use crate::reactor::{Direction, IoProgress, IoSource, WaiterId};
use crate::task::JoinHandle;

type Std = std::net::TcpStream;

/// An attempt to connect to one address.
pub(super) struct Connect {
    address: SocketAddr,
    source: Option<IoSource<Std>>,
    waiter: WaiterId,
}

impl Operation for Connect {
    type Output = TcpStream;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        let source = match &self.source {
            Some(source) => source,
            None => self.source.insert(start_connecting(self.address)?),
        };
        let poll = source.poll(context, Direction::Write, &mut self.waiter, finish_connecting);
        poll.map(|result| result.and_then(|()| self.connected()))
    }

    fn last_try(&mut self) -> Option<io::Result<TcpStream>> {
        let connected = self.source.as_ref()?.try_now(finish_connecting)?;
        Some(connected.and_then(|()| self.connected()))
    }
}

impl Connect {
    pub(super) fn new(address: SocketAddr) -> Connect {
        Connect { address, source: None, waiter: WaiterId::NONE }
    }

    fn connected(&mut self) -> io::Result<TcpStream> {
        self.source.take().map(TcpStream::of).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl sealed::Sealed for Connect {}

/// An attempt to connect to the addresses of a name, one after the other.
pub(super) struct ConnectTo<A> {
    addresses: Addresses<A>,
    attempt: Option<Connect>,
    /// The error of the last address, or of the lookup.
    error: Option<io::Error>,
}

enum Addresses<A> {
    /// A name that has not been looked up.
    Named(Option<A>),
    Awaited(JoinHandle<io::Result<Vec<SocketAddr>>>),
    PendingRemovals(std::vec::IntoIter<SocketAddr>),
}

impl<A: ToSocketAddrs + Send + 'static> ConnectTo<A> {
    pub(super) fn new(name: A) -> ConnectTo<A> {
        ConnectTo { addresses: Addresses::Named(Some(name)), attempt: None, error: None }
    }

    /// Returns the next address, if there is one.
    fn poll_address(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<SocketAddr>>> {
        loop {
            self.addresses = match &mut self.addresses {
                Addresses::Named(name) => {
                    let name = name.take();
                    let resolve = || name.map_or_else(|| Ok(Vec::new()), |name| Ok(name.to_socket_addrs()?.collect()));
                    Addresses::Awaited(spawn_blocking(resolve))
                }
                Addresses::Awaited(resolved) => {
                    let resolved = ready!(Pin::new(resolved).poll(context)).map_err(io::Error::from)??;
                    Addresses::PendingRemovals(resolved.into_iter())
                }
                Addresses::PendingRemovals(left) => return Poll::Ready(Ok(left.next())),
            };
        }
    }

    fn failed(&mut self) -> io::Error {
        let nowhere = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        self.error.take().unwrap_or_else(nowhere)
    }
}

impl<A: ToSocketAddrs + Send + 'static> Operation for ConnectTo<A> {
    type Output = TcpStream;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        loop {
            if let Some(attempt) = &mut self.attempt {
                match ready!(attempt.poll(context)) {
                    Ok(stream) => return Poll::Ready(Ok(stream)),
                    Err(error) => self.error = Some(error),
                }
            }
            match ready!(self.poll_address(context))? {
                Some(address) => self.attempt = Some(Connect::new(address)),
                None => return Poll::Ready(Err(self.failed())),
            }
        }
    }

    /// Tries only the attempt that is under way: there is no time for another.
    fn last_try(&mut self) -> Option<io::Result<TcpStream>> {
        self.attempt.as_mut()?.last_try()?.ok().map(Ok)
    }
}

impl<A> sealed::Sealed for ConnectTo<A> {}

fn start_connecting(address: SocketAddr) -> io::Result<IoSource<Std>> {
    let socket = stream_socket(address)?;
    match rustix::net::connect(&socket, &address) {
        // The attempt goes on in the kernel.
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(IoSource::new(socket.into())),
        Err(error) => Err(error.into()),
    }
}

fn finish_connecting(stream: &Std) -> io::Result<IoProgress<()>> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    match stream.peer_addr() {
        Ok(_) => Ok(IoProgress::of(())),
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Err(io::ErrorKind::WouldBlock.into()),
        Err(error) => Err(error),
    }
}
