//! The disk: how long an `fdatasync` takes, which every durable answer has to wait for.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::percentiles::{histogram, micros};

/// Bytes that are appended before each `fdatasync`.
const APPENDED: [u8; 4096] = [7; 4096];

/// Returns the median of an `fdatasync` of 4 KiB, appended to a file in a directory, over some time.
pub(super) fn fdatasync(directory: &Path, time: Duration) -> Duration {
    let mut file = tempfile::tempfile_in(directory).expect("the directory can be written");
    let start = Instant::now();
    let mut nanos = Vec::new();
    while start.elapsed() < time || nanos.len() < 10 {
        nanos.push(append(&mut file).as_nanos() as u64);
    }
    Duration::from_secs_f64(micros(&histogram(&nanos), 0.5) / 1e6)
}

fn append(file: &mut File) -> Duration {
    let start = Instant::now();
    file.write_all(&APPENDED).and_then(|()| file.sync_data()).expect("the file can be written");
    start.elapsed()
}
