//! A server's process, as the load uses it.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use super::server_process::IoService;
use crate::child_process::ChildProcess;
use crate::process_usage::ProcessUsage;

pub(super) struct ServerClient {
    process: ChildProcess,
    address: SocketAddr,
}

impl ServerClient {
    /// Starts a process and waits until it listens.
    pub(super) fn start(system: &'static str, service: IoService) -> ServerClient {
        let mut process = ChildProcess::again(system, ["io-of", system, service.name()]);
        let port = process.answer().first().map_or(0, |port| *port as u16);
        ServerClient { process, address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
    }

    /// Returns the resources that it has used so far.
    pub(super) fn usage(&self) -> ProcessUsage {
        self.process.usage()
    }

    /// Connects to the server. A closed connection frees its port at once.
    pub(super) fn connect(&self) -> TcpStream {
        let connect = || {
            let stream = TcpStream::connect(self.address)?;
            set_socket_linger(&stream, Some(Duration::ZERO))?;
            std::io::Result::Ok(stream)
        };
        connect().unwrap_or_else(|error| self.process.fail(&error.to_string()))
    }

    /// Returns the median and the 99th percentile of the lateness of its replies, in microseconds.
    pub(super) fn lateness(&mut self) -> (f64, f64) {
        match self.process.ask()[..] {
            [p50, p99] => (p50, p99),
            _ => self.process.fail("it did not report its lateness"),
        }
    }
}
