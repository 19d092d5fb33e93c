//! The addresses of a peer, from an address or a name.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _};

/// A value that names the addresses of a peer, for [`TcpStream::connect`](super::TcpStream::connect).
///
/// The types of the standard library that implement its trait of this name implement this one too: addresses, pairs of a host and a port,
/// and strings such as `"example.org:443"`. That trait cannot be used itself, because it looks up names on the thread that asks, and a worker of the
/// runtime must not wait. Types of your own can implement this one.
pub trait ToSocketAddrs {
    /// Returns the addresses, or how to look them up.
    fn to_lookup(&self) -> Lookup;
}

/// The addresses of a peer, or how to look them up.
///
/// ```
/// use std::net::SocketAddr;
/// use tourbillon_rt::net::{Lookup, ToSocketAddrs};
///
/// /// The machines of a cluster; the first that accepts will do.
/// struct Cluster(Vec<SocketAddr>);
///
/// impl ToSocketAddrs for Cluster {
///     fn to_lookup(&self) -> Lookup {
///         Lookup::known(self.0.clone())
///     }
/// }
/// ```
pub struct Lookup(LookupSource);

pub(super) type BlockingLookup = Box<dyn FnOnce() -> io::Result<Vec<SocketAddr>> + Send>;

pub(super) enum LookupSource {
    One(SocketAddr),
    Many(Vec<SocketAddr>),
    Blocking(BlockingLookup),
}

impl Lookup {
    /// Returns these addresses, in the order in which they are to be tried.
    #[must_use]
    pub fn known(addresses: Vec<SocketAddr>) -> Lookup {
        Lookup(LookupSource::Many(addresses))
    }

    /// Returns the addresses that a function finds. The function runs on a thread that may block. If the operation that needs it is dropped,
    /// a function that has begun runs to its end, and one that has not is dropped.
    #[must_use]
    pub fn blocking<I>(lookup: impl FnOnce() -> io::Result<I> + Send + 'static) -> Lookup
    where
        I: IntoIterator<Item = SocketAddr>,
    {
        Lookup(LookupSource::Blocking(Box::new(|| Ok(lookup()?.into_iter().collect()))))
    }

    /// Returns the addresses of a host, which may be an IP address.
    #[must_use]
    fn host(host: &str, port: u16) -> Lookup {
        match host.parse::<IpAddr>() {
            Ok(ip) => Lookup::one(SocketAddr::new(ip, port)),
            Err(_) => {
                let host = host.to_owned();
                Lookup::blocking(move || (host, port).to_socket_addrs())
            }
        }
    }

    fn one(address: SocketAddr) -> Lookup {
        Lookup(LookupSource::One(address))
    }

    pub(super) fn into_source(self) -> LookupSource {
        self.0
    }
}

impl fmt::Debug for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            LookupSource::One(address) => f.debug_tuple("Lookup").field(address).finish(),
            LookupSource::Many(addresses) => f.debug_tuple("Lookup").field(addresses).finish(),
            LookupSource::Blocking(_) => f.debug_tuple("Lookup").finish_non_exhaustive(),
        }
    }
}

impl ToSocketAddrs for SocketAddr {
    fn to_lookup(&self) -> Lookup {
        Lookup::one(*self)
    }
}

impl ToSocketAddrs for SocketAddrV4 {
    fn to_lookup(&self) -> Lookup {
        Lookup::one((*self).into())
    }
}

impl ToSocketAddrs for SocketAddrV6 {
    fn to_lookup(&self) -> Lookup {
        Lookup::one((*self).into())
    }
}

impl ToSocketAddrs for (IpAddr, u16) {
    fn to_lookup(&self) -> Lookup {
        Lookup::one((*self).into())
    }
}

impl ToSocketAddrs for (Ipv4Addr, u16) {
    fn to_lookup(&self) -> Lookup {
        Lookup::one((*self).into())
    }
}

impl ToSocketAddrs for (Ipv6Addr, u16) {
    fn to_lookup(&self) -> Lookup {
        Lookup::one((*self).into())
    }
}

impl ToSocketAddrs for [SocketAddr] {
    fn to_lookup(&self) -> Lookup {
        Lookup::known(self.to_vec())
    }
}

impl ToSocketAddrs for (&str, u16) {
    fn to_lookup(&self) -> Lookup {
        Lookup::host(self.0, self.1)
    }
}

impl ToSocketAddrs for (String, u16) {
    fn to_lookup(&self) -> Lookup {
        Lookup::host(&self.0, self.1)
    }
}

impl ToSocketAddrs for str {
    fn to_lookup(&self) -> Lookup {
        match self.parse() {
            Ok(address) => Lookup::one(address),
            Err(_) => {
                let name = self.to_owned();
                Lookup::blocking(move || name.to_socket_addrs())
            }
        }
    }
}

impl ToSocketAddrs for String {
    fn to_lookup(&self) -> Lookup {
        self.as_str().to_lookup()
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    fn to_lookup(&self) -> Lookup {
        (**self).to_lookup()
    }
}
