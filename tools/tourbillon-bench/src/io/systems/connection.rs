//! The services on a connection, written once for all systems that read into the caller's buffer.

use std::io;
use std::time::{Duration, Instant};

use super::super::lateness;
use super::{BUFFER, IoService};

/// A connection of a system.
pub(super) trait Connection {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reads, or returns `None` if nothing arrives within `time`.
    async fn read_timed(&mut self, buffer: &mut [u8], time: Duration) -> io::Result<Option<usize>>;

    async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()>;

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;

    async fn sleep_until(deadline: Instant);
}

/// Sends back what it receives, until the connection is closed.
pub(super) async fn echo(mut connection: impl Connection, service: IoService) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let length = match service.timeout() {
            None => connection.read(&mut buffer).await?,
            Some(time) => match connection.read_timed(&mut buffer, time).await? {
                Some(length) => length,
                None => continue,
            },
        };
        if length == 0 {
            return Ok(());
        }
        connection.write_all(&buffer[..length]).await?;
    }
}

/// Sends back each message when it is due.
pub(super) async fn delayed<C: Connection>(mut connection: C) -> io::Result<()> {
    loop {
        let mut message = [0; 8];
        connection.read_exact(&mut message).await?;
        let due = lateness::due(message);
        C::sleep_until(due).await;
        lateness::reply(message, due);
        connection.write_all(&message).await?;
    }
}
