//! Tokio, current-thread: a timeout is a future around the read.

use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep_until, timeout};

use super::IoService;
use super::connection::{Connection, delayed, echo};

pub(super) fn serve(listener: TcpListener, service: IoService) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                IoService::Delayed => tokio::spawn(delayed(stream)),
                _ => tokio::spawn(echo(stream, service)),
            };
        }
    })
}

impl Connection for TcpStream {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }

    async fn read_timed(&mut self, buffer: &mut [u8], time: Duration) -> io::Result<Option<usize>> {
        match timeout(time, AsyncReadExt::read(self, buffer)).await {
            Ok(length) => length.map(Some),
            Err(_silent) => Ok(None),
        }
    }

    async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        AsyncReadExt::read_exact(self, buffer).await.map(drop)
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }

    async fn sleep_until(deadline: Instant) {
        sleep_until(deadline.into()).await;
    }
}
