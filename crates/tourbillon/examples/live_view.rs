//! A server whose timers can be watched while it runs, in a terminal and in a browser.
//!
//!     cargo run -p tourbillon --features inspect --example live_view -- 127.0.0.1:7669 60
//!     tourbillon top 127.0.0.1:7669        # or: cargo run --release -- top 127.0.0.1:7669
//!
//! and in a browser http://127.0.0.1:7669/. The arguments are the address, a loopback address or the path of a Unix socket, and for how many
//! seconds to run. Without arguments it runs for a moment at an address that the system chooses.

use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::{block_on, zip};
use tourbillon::Engine;
use tourbillon::time::{interval, sleep, timeout};

/// How long a request may take. Nearly all are answered in time, so nearly all of these timers are cancelled.
const LIMIT: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let seconds = arguments.next().map_or(Ok(0.3), |text| text.parse())?;

    // This is the one line. The view ends when the inspector is dropped.
    let inspector = tourbillon::inspect::serve(&address)?;
    println!("tourbillon top {}", inspector.address());

    let ends = Instant::now() + Duration::from_secs_f64(seconds);
    let workers: Vec<_> = (0..2).map(|worker| thread::spawn(move || block_on(serve_requests(worker, ends)))).collect();
    for worker in workers {
        worker.join().map_err(|_| "a worker has panicked")?;
    }

    // The same numbers, without a viewer.
    let stats = Engine::global().stats();
    println!(
        "{} timers armed, {} fired, {} cancelled, {:?}",
        stats.armed, stats.fired, stats.cancelled, stats.lateness
    );
    assert!(stats.fired > 0 && stats.cancelled > 0);
    assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.pending);
    Ok(())
}

/// Answers requests, a batch each few milliseconds, until `ends`.
async fn serve_requests(worker: u64, ends: Instant) {
    let mut batches = interval(Duration::from_millis(5 + 2 * worker));
    let mut number = worker;
    while Instant::now() < ends {
        batches.tick().await;
        for _ in 0..50 {
            number += 1;
            // One request in five hundred gets no answer.
            let takes = if number.is_multiple_of(500) { 10 * LIMIT } else { Duration::from_micros(50) };
            let (first, second) = (timeout(LIMIT, answer(takes)), timeout(LIMIT, answer(takes / 2)));
            let _too_late = zip(first, second).await;
        }
    }
}

async fn answer(takes: Duration) {
    sleep(takes).await;
}
