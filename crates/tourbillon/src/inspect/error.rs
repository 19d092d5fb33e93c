//! The errors of a live view.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::{fmt, io};

use crate::inspect::Address;

/// The reason why a live view cannot be served.
#[derive(Debug)]
#[non_exhaustive]
pub enum InspectError {
    /// The text is neither an IP address with a port nor a path, or is a URL of another scheme than `http`.
    NoAddress(String),
    /// Other machines could reach this address.
    NotLoopback(SocketAddr),
    /// This system has no Unix sockets.
    NoUnixSockets,
    /// The path of a Unix socket has more bytes than the address of a socket has room for.
    PathTooLong {
        /// The path.
        path: PathBuf,
        /// The most bytes that a path can have on this system.
        longest: usize,
    },
    /// A process listens there already.
    InUse(Address),
    /// There is a file with this name that is not a socket.
    NotASocket(PathBuf),
    /// The system refused the address or the thread that listens.
    Refused(Address, io::Error),
}

impl fmt::Display for InspectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InspectError::NoAddress(text) => {
                write!(
                    f,
                    "{text:?} is no address: use a loopback address with a port, 127.0.0.1:7669, the same as a URL with \
                     http://, or a path with a /"
                )
            }
            InspectError::NotLoopback(address) => write!(
                f,
                "other machines could reach {address}: use a loopback address, 127.0.0.1:{}, or the path of a Unix socket",
                address.port()
            ),
            InspectError::NoUnixSockets => {
                f.write_str("this system has no Unix sockets: use a loopback address, 127.0.0.1:7669")
            }
            InspectError::PathTooLong { path, longest } => write!(
                f,
                "{} has {} bytes, and the path of a socket can have {longest}: choose a shorter one, or a loopback address, \
                 127.0.0.1:7669",
                path.display(),
                path.as_os_str().len()
            ),
            InspectError::InUse(address) => {
                write!(f, "a process listens at {address} already: choose another address, or port 0")
            }
            InspectError::NotASocket(path) => {
                write!(f, "{} is a file and not a socket: choose another path, or remove it", path.display())
            }
            InspectError::Refused(address, error) => write!(f, "the system refused to listen at {address}: {error}"),
        }
    }
}

impl Error for InspectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            InspectError::Refused(_, error) => Some(error),
            _ => None,
        }
    }
}
