//! `Timers`, from the outside, on the store in memory.

mod basic;
mod batches;
mod events;
mod extremes;
mod faults;
mod panics;
mod pause;
mod pull;
mod queue;
mod shutdown;
mod typed;

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tourbillon_durable::{Ack, Delivery, MemoryStore, Timers};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn hour() -> Duration {
    Duration::from_secs(3600)
}

pub(crate) fn open() -> Timers {
    Timers::builder().build(MemoryStore::new()).unwrap()
}

/// Registers a handler that sends what it gets and answers what `ack` says.
pub(crate) fn record(
    timers: &Timers,
    kind: &str,
    ack: impl Fn(&Delivery) -> Ack + Send + Sync + 'static,
) -> Receiver<Delivery> {
    let (sender, receiver) = channel();
    let handler = move |delivery: Delivery| {
        let ack = ack(&delivery);
        sender.send(delivery).unwrap();
        async move { ack }
    };
    timers.on(kind, handler).unwrap();
    receiver
}

pub(crate) fn next(received: &Receiver<Delivery>) -> Delivery {
    received.recv_timeout(PATIENCE).expect("a timer is delivered")
}

pub(crate) fn end(timers: &Timers) {
    timers.blocking().shutdown(PATIENCE).unwrap();
}

pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(ms(2));
    }
}
