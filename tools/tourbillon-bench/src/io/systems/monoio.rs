//! monoio: the kernel owns a buffer while it reads into it. A timeout is a future around the read, and drops the buffer.

use std::io;
use std::net::TcpListener;

use monoio::io::{AsyncReadRent, AsyncReadRentExt, AsyncWriteRentExt};
use monoio::net::TcpStream;
use monoio::time::{Instant, sleep_until, timeout};
use monoio::{FusionDriver, RuntimeBuilder};

use super::super::lateness;
use super::{BUFFER, IoService};

pub(super) fn serve(listener: TcpListener, service: IoService) -> io::Result<()> {
    let mut runtime = RuntimeBuilder::<FusionDriver>::new().enable_timer().build()?;
    runtime.block_on(async {
        let listener = monoio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                IoService::Delayed => monoio::spawn(delayed(stream)),
                _ => monoio::spawn(echo(stream, service)),
            };
        }
    })
}

/// Sends back what it receives, until the connection is closed.
async fn echo(mut stream: TcpStream, service: IoService) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(BUFFER);
    loop {
        let read = stream.read(buffer);
        let (length, filled) = match service.timeout() {
            None => read.await,
            Some(time) => match timeout(time, read).await {
                Ok(read) => read,
                Err(_silent) => {
                    buffer = Vec::with_capacity(BUFFER);
                    continue;
                }
            },
        };
        if length? == 0 {
            return Ok(());
        }
        let (written, free) = stream.write_all(filled).await;
        written?;
        buffer = free;
    }
}

async fn delayed(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = Box::new([0; 8]);
    loop {
        let (read, filled) = stream.read_exact(buffer).await;
        read?;
        let due = lateness::due(*filled);
        sleep_until(Instant::from_std(due)).await;
        lateness::reply(*filled, due);
        let (written, free) = stream.write_all(filled).await;
        written?;
        buffer = free;
    }
}
