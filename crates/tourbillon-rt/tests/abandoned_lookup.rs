//! Lookups of names that no operation awaits any more.

mod support;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use support::in_a_child;
use tourbillon_rt::net::{Lookup, TcpStream, ToSocketAddrs};
use tourbillon_rt::{Runtime, spawn_blocking};

/// A name that counts its lookups.
struct Counted(Arc<AtomicUsize>);

impl ToSocketAddrs for Counted {
    fn to_lookup(&self) -> Lookup {
        let count = Arc::clone(&self.0);
        Lookup::blocking(move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        })
    }
}

#[test]
fn f8_a_lookup_whose_connect_was_abandoned_before_it_began_is_skipped() {
    // The pool reads its size once in a process.
    let name = "f8_a_lookup_whose_connect_was_abandoned_before_it_began_is_skipped";
    in_a_child(name, &[("BLOCKING_MAX_THREADS", "1")], skips_abandoned_lookups);
}

fn skips_abandoned_lookups() {
    let lookups = Arc::new(AtomicUsize::new(0));
    let peer = || Counted(Arc::clone(&lookups));
    Runtime::new().unwrap().block_on(async {
        let (release, released) = mpsc::channel::<()>();
        let busy = spawn_blocking(move || released.recv());
        for _ in 0..10 {
            let connect = TcpStream::connect(peer()).timeout(Duration::from_millis(1));
            assert_eq!(connect.await.unwrap_err().kind(), ErrorKind::TimedOut);
        }
        drop(release);
        assert!(busy.await.unwrap().is_err());
        // The pool has one thread and runs functions in their order.
        assert_eq!(TcpStream::connect(peer()).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(lookups.load(Ordering::Relaxed), 1, "only the one that is awaited");
    });
}
