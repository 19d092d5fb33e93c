//! Tourbillon's runtime with one worker: a timeout is a property of the read.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use tourbillon_rt::net::TcpStream;
use tourbillon_rt::time::{Instant, sleep_until};

use super::IoService;
use super::connection::{Connection, delayed, echo};
use crate::systems::tourbillon_rt::TourbillonRt;

pub(super) fn serve(system: &str, listener: TcpListener, service: IoService) -> io::Result<()> {
    TourbillonRt::named(system).on_worker(async move {
        let listener = tourbillon_rt::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                IoService::Delayed => tourbillon_rt::spawn(delayed(stream)),
                _ => tourbillon_rt::spawn(echo(stream, service)),
            };
        }
    })
}

impl Connection for TcpStream {
    async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        TcpStream::read(self, buffer).await
    }

    async fn read_timed(&mut self, buffer: &mut [u8], time: Duration) -> io::Result<Option<usize>> {
        match TcpStream::read(self, buffer).timeout(time).await {
            Err(silent) if silent.kind() == io::ErrorKind::TimedOut => Ok(None),
            length => length.map(Some),
        }
    }

    async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        TcpStream::read_exact(self, buffer).await
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        TcpStream::write_all(self, bytes).await
    }

    async fn sleep_until(deadline: std::time::Instant) {
        sleep_until(Instant::from_std(deadline)).await;
    }
}
