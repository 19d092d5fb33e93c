//! The servers, one file per system: each reads, writes, waits and times out in its own way. The services are in `connection.rs`;
//! only monoio, which passes its buffers to the kernel, has its own.

mod connection;
mod monoio;
mod smol;
mod tokio;
mod tourbillon_rt;

use std::net::TcpListener;

use super::OURS;
use super::server_process::IoService;
use crate::systems;

/// Larger than any message.
const BUFFER: usize = 1024;

/// Serves on a system with one thread; does not return.
pub(super) fn serve(system: &str, listener: TcpListener, service: IoService) {
    let served = match system {
        ours if OURS.contains(&ours) => tourbillon_rt::serve(ours, listener, service),
        systems::tokio::CURRENT => tokio::serve(listener, service),
        systems::monoio::NAME => monoio::serve(listener, service),
        systems::smol::NAME => smol::serve(listener, service),
        _ => return,
    };
    served.expect("a server accepts connections");
}
