//! Timeouts, intervals and `select!` on Tokio. Moving from Tokio's timers to these took one changed line.
//!
//!     cargo run -p tourbillon --example tokio_timeouts

use std::pin::pin;
use std::time::Duration;

use tokio::select;
use tokio::sync::mpsc;
// The line that was changed. It was:
// use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tourbillon::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

/// Asks a server that takes this long to answer.
async fn ask(server: &'static str, needs: Duration) -> &'static str {
    sleep(needs).await;
    server
}

#[tokio::main]
async fn main() {
    let start = Instant::now();

    // A timeout that is met, and one that is not.
    let answer = timeout(500 * MS, ask("quick", 10 * MS)).await;
    println!("{:>4} ms  quick server: {answer:?}", start.elapsed().as_millis());
    assert_eq!(answer, Ok("quick"));

    let asked = Instant::now();
    let answer = timeout(50 * MS, ask("slow", 60_000 * MS)).await;
    println!("{:>4} ms  slow server: {answer:?}", start.elapsed().as_millis());
    assert!(answer.is_err() && asked.elapsed() >= 50 * MS);

    // The first of two answers; the other is cancelled by being dropped.
    let first = select! {
        answer = ask("near", 20 * MS) => answer,
        answer = ask("far", 60_000 * MS) => answer,
    };
    println!("{:>4} ms  first of two: {first}", start.elapsed().as_millis());
    assert_eq!(first, "near");

    // Messages until the sender has been silent for too long, and a heartbeat at the same time.
    let (sender, mut messages) = mpsc::channel(8);
    tokio::spawn(async move {
        for number in 1..=5 {
            sender.send(number).await.unwrap();
            sleep(10 * MS).await;
        }
        // The sender stays connected, but sends no more messages.
        sleep(60_000 * MS).await;
    });
    let mut heartbeat = interval(100 * MS);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silence = pin!(sleep(500 * MS));
    let (mut received, mut beats) = (0, 0);
    loop {
        select! {
            Some(number) = messages.recv() => {
                received += number;
                silence.as_mut().reset(Instant::now() + 500 * MS);
            }
            _ = heartbeat.tick() => beats += 1,
            () = &mut silence => break,
        }
    }
    println!("{:>4} ms  five messages, {beats} heartbeats, then silence", start.elapsed().as_millis());
    assert_eq!(received, 1 + 2 + 3 + 4 + 5);
    assert!(beats > 1);

    let stats = tourbillon::Engine::global().stats();
    println!("armed {}, fired {}, cancelled {}", stats.armed, stats.fired, stats.cancelled);
    assert!(stats.cancelled > 0 && stats.armed == stats.fired + stats.cancelled + stats.pending);
}
