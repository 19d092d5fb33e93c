//! A server and its client in virtual time: a day of heartbeats, and a silent client that is disconnected, over real sockets and on
//! several workers. It takes less than a second, and to the nanosecond a day.
//!
//! ```text
//!     cargo run -p tourbillon-rt --example paused_server --features test-util
//! ```

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::time::{Instant, interval};
use tourbillon_rt::{Runtime, spawn, spawn_blocking};

const MINUTE: Duration = Duration::from_secs(60);

/// Answers each byte, and closes a connection that is silent for two minutes.
async fn serve(listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        spawn(async move {
            let mut byte = [0; 1];
            while let Ok(1) = stream.read(&mut byte).timeout(2 * MINUTE).await {
                stream.write_all(&byte).await?;
            }
            io::Result::Ok(())
        });
    }
}

/// A heartbeat a minute, each answered within a second.
async fn beat(address: SocketAddr, times: u32) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    let mut ticks = interval(MINUTE);
    for _ in 0..times {
        ticks.tick().await;
        stream.write_all(b"!").await?;
        stream.read_exact(&mut [0; 1]).timeout(Duration::from_secs(1)).await?;
    }
    Ok(stream)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let real = std::time::Instant::now();
    let runtime = Runtime::builder().workers(4).start_paused(true).build()?;
    runtime.block_on(async {
        let start = Instant::now();
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        spawn(serve(listener));

        // The server waits in `accept` all the time: that does not hold time still.
        let stream = beat(address, 24 * 60).await?;
        assert_eq!(start.elapsed(), (24 * 60 - 1) * MINUTE);

        // The server disconnects a silent client, two minutes after its last byte.
        let silent = Instant::now();
        assert_eq!(stream.read(&mut [0; 1]).await?, 0);
        assert_eq!(silent.elapsed(), 2 * MINUTE);

        // Blocking work takes no virtual time, however long it takes.
        let before = Instant::now();
        spawn_blocking(|| std::thread::sleep(Duration::from_millis(20))).await?;
        assert_eq!(before.elapsed(), Duration::ZERO);
        println!("{:?} of virtual time in {:?}", start.elapsed(), real.elapsed());
        Ok::<_, Box<dyn std::error::Error>>(())
    })
}
