//! Tokio, current-thread: a timeout is a future around the read.

use std::io;
use std::net::TcpListener;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use super::super::lateness;
use super::{BUFFER, Service};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                Service::Delayed => tokio::spawn(delayed(stream)),
                _ => tokio::spawn(echo(stream, service)),
            };
        }
    })
}

/// Until the connection is closed.
async fn echo(mut stream: TcpStream, service: Service) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let read = stream.read(&mut buffer);
        let length = match service.timeout() {
            None => read.await?,
            Some(time) => match timeout(time, read).await {
                Ok(length) => length?,
                Err(_silent) => continue,
            },
        };
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn delayed(mut stream: TcpStream) -> io::Result<()> {
    loop {
        let mut message = [0; 8];
        stream.read_exact(&mut message).await?;
        let due = lateness::due(message);
        sleep_until(due.into()).await;
        lateness::reply(message, due);
        stream.write_all(&message).await?;
    }
}
