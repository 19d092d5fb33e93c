//! Reminders that are tried again when the mail server is busy, and wait for an operator when they are broken.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc::channel};
use std::time::Duration;

use tourbillon_durable::store::{ListFilter, RowState};
use tourbillon_durable::{Ack, Delivery, Event, NewTimer, RetryPolicy, Timers};

/// A mail server that is busy at first.
#[derive(Default)]
struct MailServer {
    calls: AtomicU32,
}

impl MailServer {
    fn send(&self, address: &str) -> Result<(), &'static str> {
        match self.calls.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err("451 try again later"),
            _ if !address.contains('@') => Err("553 no such address"),
            _ => Ok(()),
        }
    }
}

fn remind(server: &MailServer, delivery: &Delivery) -> Ack {
    let address = delivery.text().unwrap_or_default();
    match server.send(address) {
        Ok(()) => Ack::Done,
        Err(error) if error.starts_with('4') => Ack::Retry(error.to_owned()),
        Err(error) => Ack::GiveUp(error.to_owned()),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let timers = smol::block_on(Timers::open(directory.path()))?;
    let mut events = timers.events(100)?;
    let (sender, repaired) = channel();
    let server = Arc::new(MailServer::default());
    timers.on("reminder", move |delivery| {
        let ack = remind(&server, &delivery);
        if ack == Ack::Done {
            let _ = sender.send(delivery.attempt());
        }
        async move { ack }
    })?;

    let retry = RetryPolicy {
        first: Duration::from_millis(10),
        longest: Duration::from_secs(1),
        give_up_after: Some(Duration::from_secs(86_400)),
        ..RetryPolicy::attempts(5)
    };
    let reminder = |address: &str| NewTimer::after("reminder", Duration::from_millis(10)).payload(address).retry(retry);
    let calls = timers.blocking();
    calls.create(reminder("ada@example.org"))?;
    assert_eq!(repaired.recv_timeout(Duration::from_secs(30))?, 3, "the third attempt succeeds");

    calls.create(reminder("not an address"))?;
    while let Some(event) = events.next_blocking() {
        match event {
            Event::Failed { error, .. } => println!("tried again: {error}"),
            Event::Delivered { .. } => println!("delivered"),
            Event::Dead { error, .. } => {
                println!("dead letter: {error}");
                break;
            }
            _ => {}
        }
    }
    // An operator looks at the dead letters, and ends them or has them delivered once more.
    let filter = ListFilter { state: Some(RowState::Dead), ..ListFilter::default() };
    let letters = calls.list(filter, None, 10)?.rows;
    assert_eq!(letters.len(), 1);
    assert!(calls.discard(letters[0].id)?);
    calls.shutdown(Duration::from_secs(5))?;
    Ok(())
}
