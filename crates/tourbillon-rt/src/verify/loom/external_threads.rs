//! External threads that come and go, and their sockets.

use std::sync::Arc;

use loom::thread;

use super::new_worker;
use crate::executor::external_threads::ExternalThreads;
use crate::executor::virtual_time::VirtualTime;
use crate::executor::worker::IdleSlot;
use crate::verify::loom::explore;
use crate::verify::loom::reactor::{end, registered, silent_reactor};

/// Fails if a thread that leaves checks whether others work before it puts its slot among the idle ones, or under another lock; or if a
/// thread that comes looks for idle slots before it is in the list.
#[test]
fn no_socket_stays_on_an_idle_slot_while_a_thread_works() {
    explore(|| {
        let external_threads = Arc::<ExternalThreads>::default();
        let leaving = IdleSlot::new(silent_reactor(), &VirtualTime::default());
        let left = Arc::clone(&leaving.worker);
        external_threads.attach(&left);
        let socket = registered(&left.reactor);
        let theirs = Arc::clone(&external_threads);
        let comes = thread::spawn(move || theirs.attach(&new_worker()));
        external_threads.detach(&left, Some(leaving), false);
        comes.join().unwrap();
        assert!(!socket.snapshot().is_registered(), "no thread serves it");
        end(&socket);
    });
}
