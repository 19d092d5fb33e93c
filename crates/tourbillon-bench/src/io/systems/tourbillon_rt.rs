//! Ours, with one worker: a timeout is a property of the read.

use std::io;
use std::net::TcpListener;

use tourbillon_rt::net::TcpStream;
use tourbillon_rt::time::{Instant, sleep_until};

use super::super::lateness;
use super::{BUFFER, Service};
use crate::systems::tourbillon_rt::TourbillonRt;

pub(super) fn serve(system: &str, listener: TcpListener, service: Service) -> io::Result<()> {
    TourbillonRt::named(system).on_worker(async move {
        let listener = tourbillon_rt::net::TcpListener::from_std(listener)?;
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                Service::Delayed => tourbillon_rt::spawn(delayed(stream)),
                _ => tourbillon_rt::spawn(echo(stream, service)),
            };
        }
    })
}

/// Until the connection is closed.
async fn echo(stream: TcpStream, service: Service) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let read = stream.read(&mut buffer);
        let length = match service.timeout() {
            None => read.await?,
            Some(time) => match read.timeout(time).await {
                Err(silent) if silent.kind() == io::ErrorKind::TimedOut => continue,
                length => length?,
            },
        };
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length]).await?;
    }
}

async fn delayed(stream: TcpStream) -> io::Result<()> {
    loop {
        let mut message = [0; 8];
        stream.read_exact(&mut message).await?;
        let due = lateness::due(message);
        sleep_until(Instant::from_std(due)).await;
        lateness::reply(message, due);
        stream.write_all(&message).await?;
    }
}
