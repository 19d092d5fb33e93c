//! Orders that expire unless they are paid in time, even if the process is started again in between.
//!
//! Each order has a timer with the order's number as its key. Payment cancels it, and the answer of the cancel decides: an order that has
//! expired cannot be paid any more, and one that was paid never expires.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tourbillon_durable::{Delivery, NewTimer, Timers};

#[derive(Serialize, Deserialize)]
struct Expiry {
    order: u64,
    total_cents: u64,
}

/// Opens the timers of the shop, and says what happens to an order that expires.
async fn open(directory: &std::path::Path, expired: Sender<u64>) -> Result<Timers, Box<dyn std::error::Error>> {
    let timers = Timers::open(directory).await?;
    timers.on_json("expire-order", move |delivery: Delivery, expiry: Expiry| {
        let expired = expired.clone();
        async move {
            // At least once: in a database this would be UPDATE ... SET state = 'expired' WHERE state = 'open'.
            println!(
                "order {} over {} cents has expired, attempt {}",
                expiry.order,
                expiry.total_cents,
                delivery.attempt()
            );
            expired.send(expiry.order).map_err(|error| error.to_string())
        }
    })?;
    Ok(timers)
}

async fn place(timers: &Timers, order: u64, limit: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let expiry = NewTimer::after("expire-order", limit).key(format!("order {order}"));
    // The same order placed twice, because an answer was lost, makes no second timer.
    timers.create(expiry.json(&Expiry { order, total_cents: 990 })?).await?;
    Ok(())
}

/// Returns whether the order could still be paid.
async fn pay(timers: &Timers, order: u64) -> Result<bool, Box<dyn std::error::Error>> {
    Ok(timers.cancel(format!("order {order}")).await?.cancelled == 1)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    smol::block_on(async {
        let directory = tempfile::tempdir()?;
        let (sender, expired) = channel();
        let timers = open(directory.path(), sender.clone()).await?;
        place(&timers, 1, Duration::from_secs(900)).await?;
        place(&timers, 2, Duration::from_millis(100)).await?;
        place(&timers, 3, Duration::from_secs(900)).await?;
        assert!(pay(&timers, 1).await?, "it is paid in time");
        timers.shutdown(Duration::from_secs(5)).await?;

        // The next process finds what the last one was told.
        let timers = open(directory.path(), sender).await?;
        assert_eq!(expired.recv_timeout(Duration::from_secs(30))?, 2);
        assert!(!pay(&timers, 2).await?, "it is too late");
        assert!(pay(&timers, 3).await?);
        timers.shutdown(Duration::from_secs(5)).await?;
        assert!(expired.try_recv().is_err(), "a paid order never expires");
        println!("orders 1 and 3 were paid, order 2 has expired");
        Ok(())
    })
}
