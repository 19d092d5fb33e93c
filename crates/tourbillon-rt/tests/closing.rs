//! A connection that is closed is closed for its peer, too, whichever thread closes it and whatever its worker does.

mod support;

use std::io::{ErrorKind, Read};
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::sync::mpsc;
use std::time::Duration;

use support::{everywhere, kind, ms, on_each_backend_with, pair};
use tourbillon_rt::net::{TcpListener, TcpStream};
use tourbillon_rt::spawn;

/// Returns a stream, and its peer, which waits for no more than some seconds.
fn stream_and_peer() -> (TcpStream, StdStream) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let peer = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (TcpStream::from_std(listener.accept().unwrap().0).unwrap(), peer)
}

/// Registers the stream with the runtime's worker.
async fn register(stream: &TcpStream) {
    let read = stream.read(&mut [0; 1]).timeout(ms(1)).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_stream_that_another_thread_drops_is_closed_though_its_worker_sleeps() {
    on_each_backend_with(1, |runtime| {
        for _ in 0..20 {
            let (stream, mut peer) = stream_and_peer();
            let its_clone = stream.clone();
            runtime.block_on(runtime.spawn(async move { register(&its_clone).await })).unwrap();
            drop(stream);
            assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
    });
}

#[test]
fn a_dropped_stream_is_closed_for_its_peer_at_once() {
    everywhere(|| async {
        for _ in 0..200 {
            let (a, b) = pair().await;
            let reader = spawn(async move { a.read(&mut [0; 1]).await });
            // The stream is registered, and its poll keeps it open in the kernel until that is removed.
            assert!(b.read(&mut [0; 1]).timeout(Duration::from_micros(100)).await.is_err());
            drop(b);
            assert_eq!(reader.await.unwrap().unwrap(), 0);
        }
    });
}

#[test]
fn a_stream_dropped_just_when_something_happens_to_it_is_closed_for_its_peer() {
    everywhere(|| async {
        for _ in 0..100 {
            let mut pairs = Vec::new();
            for _ in 0..10 {
                let (a, b) = pair().await;
                // The stream is registered from here on.
                assert!(a.read(&mut [0; 1]).timeout(Duration::ZERO).await.is_err());
                pairs.push((a, b));
            }
            let tasks: Vec<_> = pairs
                .into_iter()
                .map(|(a, b)| {
                    spawn(async move { drop(a) });
                    spawn(async move {
                        let _ = b.write(b"something").await;
                        // The end, or a reset: the bytes that were written have not been read.
                        let end = b.read(&mut [0; 1]).timeout(Duration::from_secs(20)).await;
                        assert!(end.as_ref().is_ok_and(|count| *count == 0) || kind(end) == ErrorKind::ConnectionReset);
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
    });
}

#[test]
fn p11_a_stream_that_another_thread_drops_is_closed_though_its_worker_is_blocked() {
    on_each_backend_with(1, |runtime| {
        let (stream, mut peer) = stream_and_peer();
        let its_clone = stream.clone();
        runtime.block_on(runtime.spawn(async move { register(&its_clone).await })).unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let blocked = runtime.spawn(async move {
            begun.send(()).unwrap();
            let _ = released.recv();
        });
        has_begun.recv().unwrap();
        drop(stream);
        let end = peer.read_to_end(&mut Vec::new());
        drop(release);
        assert_eq!(end.unwrap(), 0);
        runtime.block_on(blocked).unwrap();
        // The worker works as before.
        let (stream, mut peer) = stream_and_peer();
        runtime.block_on(runtime.spawn(async move { register(&stream).await })).unwrap();
        assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
}

/// On one thread: a listener that another thread watches is closed when that thread removes it.
#[test]
fn the_port_of_a_listener_that_was_dropped_is_free_at_once() {
    async fn test() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        assert!(listener.accept().timeout(ms(1)).await.is_err());
        drop(listener);
        TcpListener::bind(address).unwrap();
    }
    on_each_backend_with(1, |runtime| {
        runtime.block_on(test());
        runtime.block_on(runtime.spawn(test())).unwrap();
    });
}
