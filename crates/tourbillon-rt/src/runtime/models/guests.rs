//! Guests that come and go, and what becomes of their sockets.

use std::sync::Arc;

use loom::thread;

use super::seat;
use crate::models::explore;
use crate::reactor::models::{deaf_reactor, end, registered};
use crate::runtime::guests::Guests;
use crate::runtime::virtual_time::VirtualTime;
use crate::runtime::worker::Spare;

/// Fails if who stands up looks whether others work before it leaves its seat among the empty ones, or under another lock; or if who
/// sits down looks for empty seats before it is there.
#[test]
fn no_socket_stays_on_an_empty_seat_while_somebody_works() {
    explore(|| {
        let guests = Arc::<Guests>::default();
        let leaving = Spare::new(deaf_reactor(), &VirtualTime::default());
        let left = Arc::clone(&leaving.seat);
        guests.sit_down(&left);
        let socket = registered(&left.reactor);
        let theirs = Arc::clone(&guests);
        let comes = thread::spawn(move || theirs.sit_down(&seat()));
        guests.stand_up(&left, Some(leaving), false);
        comes.join().unwrap();
        assert!(!socket.see().is_registered(), "nobody looks after it");
        end(&socket);
    });
}
