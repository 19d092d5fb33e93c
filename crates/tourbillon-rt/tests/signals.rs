//! Writes to closed connections with the default disposition of SIGPIPE, which ends a process (D72).
//!
//! Rust's start-up code ignores the signal, so each test runs in a child process that restores the default first: a program with a C
//! `main`, or one that resets the disposition as command line tools do, has it that way.

mod support;

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::{Pin, pin};

use futures_lite::AsyncWriteExt;
use hyper::rt::Write as _;
use support::{everywhere, in_a_child, ms, pair};
use tourbillon_rt::net::{TcpStream, UdpSocket};
use tourbillon_rt::time;

/// Restores the disposition that the kernel gives a new process.
fn restore_default_disposition() {
    // SAFETY: no handler is installed, so no code of ours runs in signal context.
    let before = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

/// Returns a connection whose peer has closed and reset it: a write fails with EPIPE.
async fn broken() -> TcpStream {
    let (ours, theirs) = pair().await;
    theirs.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(theirs);
    // Takes the reset out of the socket: from now on a write is a broken pipe.
    let _ = ours.read(&mut [0; 1]).timeout(ms(1000)).await;
    ours
}

/// Fails unless the result says that the pipe is broken (or the connection was reset). A signal would have ended the process.
fn is_broken<T: std::fmt::Debug>(what: &str, result: io::Result<T>) {
    let kind = result.expect_err(what).kind();
    assert!(matches!(kind, io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset), "{what}: {kind:?}");
}

async fn writes_of_a_stream(stream: &TcpStream) {
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    is_broken("write", stream.write(b"x").await);
    is_broken("write_all", stream.write_all(b"x").await);
    is_broken("write_vectored", stream.write_vectored(&slices).await);
    is_broken("write_vectored with a limit", stream.write_vectored(&slices).timeout(ms(100)).await);
    let mut adapted = stream;
    is_broken("futures-io write", AsyncWriteExt::write(&mut adapted, b"x").await);
    is_broken("futures-io write_all", AsyncWriteExt::write_all(&mut adapted, b"x").await);
    is_broken("futures-io write_vectored", AsyncWriteExt::write_vectored(&mut adapted, &slices).await);
    let _ = AsyncWriteExt::flush(&mut adapted).await;
    let _ = AsyncWriteExt::close(&mut adapted).await;
    let mut adapted = stream.clone();
    let write = std::future::poll_fn(|context| Pin::new(&mut adapted).poll_write(context, b"x")).await;
    is_broken("hyper write", write);
    let write = std::future::poll_fn(|context| Pin::new(&mut adapted).poll_write_vectored(context, &slices)).await;
    is_broken("hyper write_vectored", write);
    let mut adapted = pin!(adapted);
    let _ = std::future::poll_fn(|context| adapted.as_mut().poll_flush(context)).await;
    let _ = std::future::poll_fn(|context| adapted.as_mut().poll_shutdown(context)).await;
    let _ = stream.shutdown(Shutdown::Both);
    is_broken("write_vectored after shutdown", stream.write_vectored(&slices).await);
    is_broken("write after shutdown", stream.write(b"x").await);
}

#[test]
fn d72_no_write_to_a_connection_that_the_peer_has_closed_raises_a_signal() {
    in_a_child("d72_no_write_to_a_connection_that_the_peer_has_closed_raises_a_signal", &[], || {
        restore_default_disposition();
        everywhere(|| async { writes_of_a_stream(&broken().await).await });
    });
}

#[test]
fn d72_no_write_to_a_connection_that_was_shut_down_here_raises_a_signal() {
    in_a_child("d72_no_write_to_a_connection_that_was_shut_down_here_raises_a_signal", &[], || {
        restore_default_disposition();
        everywhere(|| async {
            let (ours, _theirs) = pair().await;
            ours.shutdown(Shutdown::Write).unwrap();
            writes_of_a_stream(&ours).await;
        });
    });
}

#[test]
fn d72_a_write_that_waits_when_the_connection_breaks_raises_no_signal() {
    in_a_child("d72_a_write_that_waits_when_the_connection_breaks_raises_no_signal", &[], || {
        restore_default_disposition();
        everywhere(|| async {
            let (ours, theirs) = pair().await;
            let block = vec![0; 1 << 20];
            let writes = async {
                loop {
                    if let Err(error) = ours.write_vectored(&[IoSlice::new(&block), IoSlice::new(&block)]).await {
                        return is_broken::<()>("write_vectored", Err(error));
                    }
                }
            };
            let closes = async {
                time::sleep(ms(5)).await;
                drop(theirs);
            };
            futures_lite::future::zip(writes, closes).await;
        });
    });
}

#[test]
fn d72_no_datagram_raises_a_signal() {
    in_a_child("d72_no_datagram_raises_a_signal", &[], || {
        restore_default_disposition();
        everywhere(|| async {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let closed = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            for _ in 0..3 {
                let _ = socket.send_to(b"x", closed).await;
            }
            socket.connect(closed).unwrap();
            for _ in 0..3 {
                let _ = socket.send(b"x").await;
            }
        });
    });
}
