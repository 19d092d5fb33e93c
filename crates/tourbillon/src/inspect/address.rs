//! The addresses that a live view can have: loopback, or a Unix socket.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use crate::inspect::InspectError;
#[cfg(tourbillon_unix_sockets)]
use crate::inspect::unix_path;

/// An address of a live view.
///
/// ```
/// use tourbillon::inspect::Address;
///
/// assert!(matches!("127.0.0.1:7669".parse()?, Address::Tcp(_)));
/// assert!(matches!("localhost:7669".parse()?, Address::Tcp(_)));
/// assert!(matches!("http://[::1]:7669/".parse()?, Address::Tcp(_)));
/// # #[cfg(tourbillon_unix_sockets)]
/// assert!(matches!("/run/user/1000/shop.sock".parse()?, Address::Unix(_)));
/// assert!("192.168.0.1:7669".parse::<Address>().is_err());
/// assert!("https://localhost:7669".parse::<Address>().is_err());
/// # Ok::<(), tourbillon::inspect::InspectError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Address {
    /// A loopback address and a port.
    Tcp(SocketAddr),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = InspectError;

    /// Parses a loopback address with a port, `localhost` with a port, the same as a URL, or a path, which has a `/` in it. No name is looked
    /// up.
    fn from_str(text: &str) -> Result<Address, InspectError> {
        let (host, is_url) = match text.strip_prefix("http://") {
            Some(rest) => (rest.strip_suffix('/').unwrap_or(rest), true),
            None => (text, false),
        };
        if !is_url && host.contains("://") {
            return Err(InspectError::NoAddress(text.to_owned()));
        }
        if !is_url && host.contains('/') {
            return unix(host.into());
        }
        let address = match host.strip_prefix("localhost:").map(str::parse) {
            Some(Ok(port)) => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port),
            Some(Err(_)) => return Err(InspectError::NoAddress(text.to_owned())),
            None => host.parse().map_err(|_| InspectError::NoAddress(text.to_owned()))?,
        };
        if address.ip().to_canonical().is_loopback() {
            return Ok(Address::Tcp(address));
        }
        Err(InspectError::NotLoopback(address))
    }
}

#[cfg(tourbillon_unix_sockets)]
fn unix(path: PathBuf) -> Result<Address, InspectError> {
    unix_path::check_length(&path).map(|()| Address::Unix(path))
}

#[cfg(not(tourbillon_unix_sockets))]
fn unix(_: PathBuf) -> Result<Address, InspectError> {
    Err(InspectError::NoUnixSockets)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}
