//! TCP and UDP.
//!
//! Every operation is an [`Io`](crate::Io): a future with [`timeout`](crate::Io::timeout) and [`deadline`](crate::Io::deadline).
//!
//! A socket can be made on any thread. An operation that has to wait needs a runtime on the thread that polls it, and returns
//! [`NoRuntime`](crate::NoRuntime) without one. Which runtime, or which worker, does not matter, and may change.
//!
//! All operations take `&self`: a stream can be read and written at the same time, and so by two tasks that share it ([`TcpStream`] is
//! `Clone`).

mod connect;
mod lookup;
mod tcp_listener;
pub(crate) mod tcp_stream;
mod udp_socket;

use std::io;
use std::net::SocketAddr;

pub use self::connect::Connect;
pub use self::lookup::{Lookup, ToSocketAddrs};
pub use self::tcp_listener::{ListenOptions, TcpListener};
pub use self::tcp_stream::TcpStream;
pub use self::udp_socket::UdpSocket;

/// Calls `attempt` with each address until it succeeds.
fn first_that_works<T>(
    addresses: impl std::net::ToSocketAddrs,
    mut attempt: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in addresses.to_socket_addrs()? {
        match attempt(address) {
            Ok(value) => return Ok(value),
            Err(error) => last = error,
        }
    }
    Err(last)
}
