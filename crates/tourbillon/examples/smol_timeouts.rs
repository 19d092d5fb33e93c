//! Timeouts and intervals on smol. Compare `tokio_timeouts.rs`: the timers are the same, the executor is another.
//!
//!     cargo run -p tourbillon --example smol_timeouts

use std::time::Duration;

use smol::channel;
use smol::future::or;
use tourbillon::time::{FutureExt, Instant, interval, sleep, timeout};

const MS: Duration = Duration::from_millis(1);

/// Asks a server that takes this long to answer.
async fn ask(server: &'static str, needs: Duration) -> &'static str {
    sleep(needs).await;
    server
}

fn main() {
    smol::block_on(async {
        let start = Instant::now();

        // A timeout that is met, and one that is not.
        let answer = timeout(500 * MS, ask("quick", 10 * MS)).await;
        println!("{:>4} ms  quick server: {answer:?}", start.elapsed().as_millis());
        assert_eq!(answer, Ok("quick"));

        let asked = Instant::now();
        let answer = ask("slow", 60_000 * MS).timeout(50 * MS).await;
        println!("{:>4} ms  slow server: {answer:?}", start.elapsed().as_millis());
        assert!(answer.is_err() && asked.elapsed() >= 50 * MS);

        // The first of two answers; the other is cancelled by being dropped.
        let first = or(ask("near", 20 * MS), ask("far", 60_000 * MS)).await;
        println!("{:>4} ms  first of two: {first}", start.elapsed().as_millis());
        assert_eq!(first, "near");

        // Messages from a task on smol's own threads, until it has been silent for too long.
        let (sender, messages) = channel::bounded(8);
        let _task = smol::spawn(async move {
            let mut every = interval(10 * MS);
            for number in 1..=5 {
                every.tick().await;
                sender.send(number).await.unwrap();
            }
            // The sender stays connected, but sends no more messages.
            sleep(60_000 * MS).await;
        });
        let mut received = 0;
        while let Ok(message) = messages.recv().timeout(500 * MS).await {
            received += message.unwrap();
        }
        println!("{:>4} ms  five messages, then silence", start.elapsed().as_millis());
        assert_eq!(received, 1 + 2 + 3 + 4 + 5);
    });
}
