//! Connection attempts.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use super::TcpStream;
use super::lookup::{BlockingLookup, Lookup, LookupSource};
use super::tcp_listener::stream_socket;
use crate::executor::spawn_blocking;
use crate::io::{Operation, sealed};
use crate::reactor::{Direction, IoProgress, IoSource, WaiterId};
use crate::task::JoinHandle;

type Std = std::net::TcpStream;

/// A connection attempt to the addresses of a peer, one after the other: see [`TcpStream::connect`].
pub struct Connect {
    addresses: Addresses,
    attempt: Option<ConnectAttempt>,
    /// The error of the last address.
    error: Option<io::Error>,
}

/// Where the next address comes from.
enum Addresses {
    One(Option<SocketAddr>),
    Many(std::vec::IntoIter<SocketAddr>),
    /// A name that has not been looked up; `None` only while the lookup is being started.
    Named(Option<BlockingLookup>),
    Awaited(PendingLookup),
}

/// A lookup on a thread that may block.
struct PendingLookup {
    found: JoinHandle<io::Result<Vec<SocketAddr>>>,
    /// The lookup has a weak reference: it does nothing if it begins after this was dropped.
    _awaited: Arc<()>,
}

/// An attempt to connect to one address.
struct ConnectAttempt {
    address: SocketAddr,
    source: Option<IoSource<Std>>,
    waiter: WaiterId,
}

impl PendingLookup {
    fn start(lookup: BlockingLookup) -> PendingLookup {
        let awaited = Arc::new(());
        let is_awaited = Arc::downgrade(&awaited);
        let found = spawn_blocking(move || match is_awaited.strong_count() {
            0 => Err(io::ErrorKind::Interrupted.into()),
            _ => lookup(),
        });
        PendingLookup { found, _awaited: awaited }
    }
}

impl Addresses {
    /// Returns whether the last address has been taken.
    fn is_exhausted(&self) -> bool {
        match self {
            Addresses::One(address) => address.is_none(),
            Addresses::Many(left) => left.as_slice().is_empty(),
            Addresses::Named(_) | Addresses::Awaited(_) => false,
        }
    }
}

impl Connect {
    pub(super) fn new(lookup: Lookup) -> Connect {
        let addresses = match lookup.into_source() {
            LookupSource::One(address) => Addresses::One(Some(address)),
            LookupSource::Many(addresses) => Addresses::Many(addresses.into_iter()),
            LookupSource::Blocking(lookup) => Addresses::Named(Some(lookup)),
        };
        Connect { addresses, attempt: None, error: None }
    }

    /// Returns the next address, if there is one.
    fn poll_address(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<SocketAddr>>> {
        loop {
            self.addresses = match &mut self.addresses {
                Addresses::One(address) => return Poll::Ready(Ok(address.take())),
                Addresses::Many(left) => return Poll::Ready(Ok(left.next())),
                Addresses::Named(lookup) => match lookup.take() {
                    Some(lookup) => Addresses::Awaited(PendingLookup::start(lookup)),
                    None => Addresses::One(None),
                },
                Addresses::Awaited(lookup) => {
                    let found = ready!(Pin::new(&mut lookup.found).poll(context)).map_err(io::Error::from)??;
                    Addresses::Many(found.into_iter())
                }
            };
        }
    }

    fn failed(&mut self) -> io::Error {
        let nowhere = || io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
        self.error.take().unwrap_or_else(nowhere)
    }
}

impl Operation for Connect {
    type Output = TcpStream;

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<TcpStream>> {
        loop {
            if let Some(attempt) = &mut self.attempt {
                match ready!(attempt.poll(context)) {
                    Ok(stream) => return Poll::Ready(Ok(stream)),
                    Err(error) => self.error = Some(error),
                }
                self.attempt = None;
            }
            match ready!(self.poll_address(context))? {
                Some(address) => self.attempt = Some(ConnectAttempt::new(address)),
                None => return Poll::Ready(Err(self.failed())),
            }
        }
    }

    /// Tries only the attempt that is under way: there is no time for another.
    fn last_try(&mut self) -> Option<io::Result<TcpStream>> {
        match self.attempt.as_mut()?.last_try()? {
            Ok(stream) => Some(Ok(stream)),
            // With another address left, the time was too short for it.
            Err(error) => self.addresses.is_exhausted().then_some(Err(error)),
        }
    }
}

impl sealed::Sealed for Connect {}

impl fmt::Debug for Connect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.attempt.as_ref().map(|attempt| attempt.address);
        f.debug_struct("Connect").field("address", &address).finish_non_exhaustive()
    }
}

impl ConnectAttempt {
    fn new(address: SocketAddr) -> ConnectAttempt {
        ConnectAttempt { address, source: None, waiter: WaiterId::NONE }
    }

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

    fn connected(&mut self) -> io::Result<TcpStream> {
        self.source.take().map(TcpStream::of).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

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
