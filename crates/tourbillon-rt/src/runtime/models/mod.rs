//! Models of what the threads of a runtime owe each other.

mod calls;
mod event_loop;
mod guests;
mod monitor;
mod nested;
mod tasks;
mod virtual_time;

use std::sync::Arc;

use super::seat::{FallingAsleep, Seat};
use super::virtual_time::VirtualTime;
use super::worker::Spare;
use crate::reactor::Batch;
use crate::reactor::models::deaf_reactor;

/// One whose reactor hears nothing but calls.
fn seat() -> Arc<Seat> {
    Spare::new(deaf_reactor(), &VirtualTime::default()).seat
}

/// As `Worker::sleep` does, but for the list of sleepers.
fn sleep(seat: &Seat, has_something_to_do: impl Fn() -> bool) {
    if seat.fall_asleep() == FallingAsleep::Called {
        return;
    }
    if !has_something_to_do() {
        seat.reactor.wait(None, &mut Batch::default()).unwrap();
    }
    seat.wake_up();
}
