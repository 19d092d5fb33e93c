//! smol, on one thread: a timeout is a race between the read and a timer.

use std::io;
use std::net::TcpListener;

use smol::future::or;
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::TcpStream;
use smol::{Async, LocalExecutor, Timer};

use super::super::lateness;
use super::{BUFFER, Service};

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let executor = LocalExecutor::new();
    smol::block_on(executor.run(async {
        let listener = smol::net::TcpListener::from(Async::new_nonblocking(listener)?);
        loop {
            let (stream, _) = listener.accept().await?;
            match service {
                Service::Delayed => executor.spawn(delayed(stream)).detach(),
                _ => executor.spawn(echo(stream, service)).detach(),
            };
        }
    }))
}

/// Until the connection is closed.
async fn echo(mut stream: TcpStream, service: Service) -> io::Result<()> {
    let mut buffer = [0; BUFFER];
    loop {
        let read = stream.read(&mut buffer);
        let length = match service.timeout() {
            None => read.await?,
            Some(time) => {
                let silence = async {
                    Timer::after(time).await;
                    Err(io::ErrorKind::TimedOut.into())
                };
                match or(read, silence).await {
                    Err(silent) if silent.kind() == io::ErrorKind::TimedOut => continue,
                    length => length?,
                }
            }
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
        Timer::at(due).await;
        lateness::reply(message, due);
        stream.write_all(&message).await?;
    }
}
