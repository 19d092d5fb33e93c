//! The servers, one file a system: how each reads, writes, waits and gives up waiting is its own way. What they do with it is in
//! `connection.rs`; only monoio, whose buffers are the kernel's meanwhile, says so itself.

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

/// Serves for ever on that system, which has one thread for it.
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
