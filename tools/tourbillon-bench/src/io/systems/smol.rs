//! smol, on one thread: a timeout is a race between the read and a timer.

use std::io;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use smol::future::or;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::TcpStream;
use smol::{Async, LocalExecutor, Timer};

use super::IoService;
use super::connection::{Connection, delayed, echo};

pub(super) fn serve(listener: TcpListener, service: IoService) -> io::Result<()> {
    let executor = LocalExecutor::new();
    smol::block_on(executor.run(async {
        let listener = smol::net::TcpListener::from(Async::new_nonblocking(listener)?);
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                IoService::Delayed => executor.spawn(delayed(stream)).detach(),
                _ => executor.spawn(echo(stream, service)).detach(),
            };
        }
    }))
}

impl Connection for TcpStream {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        AsyncReadExt::read(self, buffer).await
    }

    async fn read_timed(&mut self, buffer: &mut [u8], time: Duration) -> io::Result<Option<usize>> {
        let read = async { AsyncReadExt::read(self, buffer).await.map(Some) };
        let silence = async {
            Timer::after(time).await;
            Ok(None)
        };
        or(read, silence).await
    }

    async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        AsyncReadExt::read_exact(self, buffer).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        AsyncWriteExt::write_all(self, bytes).await
    }

    async fn sleep_until(deadline: Instant) {
        Timer::at(deadline).await;
    }
}
