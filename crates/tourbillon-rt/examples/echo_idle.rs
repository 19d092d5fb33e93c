//! An echo server that disconnects silent clients. The timeout is a property of the read: it costs nothing while there is something to
//! read, and a few dozen nanoseconds when there is not.
//!
//!     cargo run -p tourbillon-rt --example echo_idle

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::time::{Instant, interval, sleep};
use tourbillon_rt::{Runtime, spawn};

/// The time after which a silent client is disconnected.
const IDLE: Duration = Duration::from_millis(300);

/// The time after which a client that does not read its echo is disconnected.
const STUCK: Duration = Duration::from_secs(5);

const MS: Duration = Duration::from_millis(1);

/// Accepts connections for ever.
async fn serve(listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                spawn(async move {
                    match echo(&stream).await {
                        Ok(bytes) => println!("         server: {peer} has left after {bytes} bytes"),
                        Err(error) => println!("         server: {peer} is disconnected: {error}"),
                    }
                });
            }
            // Out of file descriptors, perhaps: there will be some again.
            Err(error) => {
                eprintln!("cannot accept: {error}");
                sleep(100 * MS).await;
            }
        }
    }
}

/// Sends back all bytes, until the peer closes the connection or has been silent for too long. Returns how many bytes there were.
async fn echo(stream: &TcpStream) -> io::Result<usize> {
    let (mut buffer, mut bytes) = ([0; 4096], 0);
    loop {
        let length = stream.read(&mut buffer).timeout(IDLE).await?;
        if length == 0 {
            return Ok(bytes);
        }
        stream.write_all(&buffer[..length]).timeout(STUCK).await?;
        bytes += length;
    }
}

/// Sends some words and reads the echo.
async fn say(stream: &TcpStream, words: &str) -> io::Result<()> {
    stream.write_all(words.as_bytes()).await?;
    let mut echo = vec![0; words.len()];
    stream.read_exact(&mut echo).await?;
    assert_eq!(echo, words.as_bytes());
    Ok(())
}

/// Talks every so often, for longer than it may be silent, and closes the connection itself. Returns how often it talked.
async fn talk(address: SocketAddr) -> io::Result<usize> {
    let stream = TcpStream::connect(address).await?;
    let (start, mut every, mut times) = (Instant::now(), interval(IDLE / 6), 0);
    while start.elapsed() < 3 * IDLE {
        every.tick().await;
        say(&stream, "still here").await?;
        times += 1;
    }
    Ok(times)
}

/// Sends once and then nothing. Returns after how long it was disconnected.
async fn fall_silent(address: SocketAddr) -> io::Result<Duration> {
    let stream = TcpStream::connect(address).await?;
    let start = Instant::now();
    say(&stream, "hello").await?;
    let end = stream.read(&mut [0; 16]).timeout(20 * IDLE).await?;
    assert_eq!(end, 0, "the server hangs up, and says nothing before");
    Ok(start.elapsed())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().workers(2).build()?;
    println!("on {}", runtime.backend());
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        spawn(serve(listener));

        let start = Instant::now();
        let (talker, silent) = (spawn(talk(address)), spawn(fall_silent(address)));
        let after = silent.await??;
        println!("{:>4} ms  the silent one was disconnected after {after:?}", start.elapsed().as_millis());
        assert!(after >= IDLE);
        let times = talker.await??;
        println!("{:>4} ms  the other one talked {times} times and left by itself", start.elapsed().as_millis());
        assert!(start.elapsed() >= 3 * IDLE && times > 3);
        Ok(())
    })
}
