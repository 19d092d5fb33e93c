//! Measures how late timers are, beside the waits of the standard library.
//!
//! On Windows an ordinary wait may end with the tick of the system, which comes each 15.6 ms; the timers of an engine do not depend on it.
//! The durations are no multiples of that tick. No timer may be early, and the program fails if one is.
//!
//!     cargo run --release -p tourbillon --example lateness

use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use futures_lite::future::block_on;
use tourbillon::{Driver, Engine, Slack};

const WAITS: usize = 40;
const DURATIONS: [Duration; 5] = [
    Duration::from_micros(300),
    Duration::from_millis(1),
    Duration::from_millis(3),
    Duration::from_millis(7),
    Duration::from_millis(19),
];

/// Returns how late each of some waits was, the least late first.
fn lateness(duration: Duration, wait: impl Fn(Duration)) -> Vec<Duration> {
    let mut late: Vec<_> = (0..WAITS)
        .map(|_| {
            let begin = Instant::now();
            wait(duration);
            let waited = begin.elapsed();
            assert!(waited >= duration, "a wait of {duration:?} was early: it took {waited:?}");
            waited - duration
        })
        .collect();
    late.sort_unstable();
    late
}

/// Waits for a condition that nothing brings about, until the time is over.
fn wait_on_condvar(duration: Duration) {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let guard = mutex.lock().expect("no thread has panicked with it");
    drop(condvar.wait_timeout_while(guard, duration, |()| true));
}

fn print(name: &str, duration: Duration, late: &[Duration]) {
    let micros = |index: usize| late[index].as_secs_f64() * 1e6;
    println!("| {name} | {duration:?} | {:.0} | {:.0} | {:.0} |", micros(0), micros(WAITS / 2), micros(WAITS - 1));
}

fn main() -> Result<(), tourbillon::BuildError> {
    let engine = Engine::builder().driver(Driver::thread()).build()?;
    println!("| wait | for | least late, us | median | most |\n|---|---|---|---|---|");
    for duration in DURATIONS {
        let sleep = |duration| block_on(engine.sleep(duration).slack(Slack::exact()));
        print("`Engine::sleep`, exact", duration, &lateness(duration, sleep));
        print("`thread::sleep`", duration, &lateness(duration, thread::sleep));
        print("`Condvar::wait_timeout`", duration, &lateness(duration, wait_on_condvar));
    }
    Ok(())
}
