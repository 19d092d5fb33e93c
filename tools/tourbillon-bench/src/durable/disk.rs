//! The disk: how long an `fdatasync` takes, which every durable answer has to wait for.
//!
//! It depends on the processors as much as on the disk: one that has halted learns of a finished write later than one that computes. So there
//! are two figures: of a machine that has nothing else to do, and of one whose processors all compute.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::percentiles::{histogram, micros};

/// Bytes that are appended before each `fdatasync`.
const APPENDED: [u8; 4096] = [7; 4096];

/// How long the machine has nothing to do before each `fdatasync` of [`idle`]: several ticks of the kernel.
const PAUSE: Duration = Duration::from_millis(20);

/// The fewest samples of a median.
const FEWEST: usize = 10;

/// Returns the median of an `fdatasync` of 4 KiB, appended to a file in a directory, while the machine has nothing else to do.
pub(super) fn idle(directory: &Path, time: Duration) -> Duration {
    median(directory, time, || thread::sleep(PAUSE))
}

/// Returns the median of an `fdatasync` of 4 KiB, appended to a file in a directory, one after the other while as many threads compute as there
/// are processors.
pub(super) fn beside_load(directory: &Path, time: Duration) -> Duration {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let median = median(directory, time, || {});
        is_over.store(true, Ordering::Relaxed);
        median
    })
}

fn median(directory: &Path, time: Duration, before_each: impl Fn()) -> Duration {
    let mut file = tempfile::tempfile_in(directory).expect("the directory can be written");
    let start = Instant::now();
    let mut nanos = Vec::new();
    while start.elapsed() < time || nanos.len() < FEWEST {
        before_each();
        nanos.push(append(&mut file).as_nanos() as u64);
    }
    Duration::from_secs_f64(micros(&histogram(&nanos), 0.5) / 1e6)
}

fn append(file: &mut File) -> Duration {
    let start = Instant::now();
    file.write_all(&APPENDED).and_then(|()| file.sync_data()).expect("the file can be written");
    start.elapsed()
}
