//! A connection that is closed is closed for its peer, too, whoever closes it and whatever its worker does.

mod backends;

use std::io::Read;
use std::net::{TcpListener as StdListener, TcpStream as StdStream};
use std::sync::mpsc;
use std::time::Duration;

use backends::{ms, on_each_backend_with};
use tourbillon_rt::net::{TcpListener, TcpStream};

/// A stream, and its peer that waits for no more than some seconds.
fn stream_and_peer() -> (TcpStream, StdStream) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let peer = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (TcpStream::from_std(listener.accept().unwrap().0).unwrap(), peer)
}

/// Has the runtime's worker watch it.
async fn register(stream: &TcpStream) {
    let read = stream.read(&mut [0; 1]).timeout(ms(1)).await;
    assert_eq!(read.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
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
        // The worker is as good as before.
        let (stream, mut peer) = stream_and_peer();
        runtime.block_on(runtime.spawn(async move { register(&stream).await })).unwrap();
        assert_eq!(peer.read_to_end(&mut Vec::new()).unwrap(), 0);
    });
}

/// On one thread: a listener that another thread watches is closed when that thread gets to it.
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
