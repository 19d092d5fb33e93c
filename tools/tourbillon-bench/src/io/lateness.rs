//! The lateness of a server's replies by its own clock: from when a reply is due to when it is written.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::percentiles::{histogram, micros};

static LATE: Mutex<Vec<u64>> = Mutex::new(Vec::new());

/// Returns when the reply to a message is due that has just been read. The message contains the delay in microseconds.
pub(super) fn due(message: [u8; 8]) -> Instant {
    Instant::now() + Duration::from_micros(u64::from_le_bytes(message))
}

/// Records the lateness of a reply that is about to be written. A reply without a delay used no timer.
pub(super) fn reply(message: [u8; 8], due: Instant) {
    if message != [0; 8] {
        let late = Instant::now().saturating_duration_since(due).as_nanos() as u64;
        LATE.lock().unwrap_or_else(PoisonError::into_inner).push(late);
    }
}

/// Returns the median and the 99th percentile of the replies so far, in microseconds.
pub(super) fn percentiles() -> (f64, f64) {
    let histogram = histogram(&LATE.lock().unwrap_or_else(PoisonError::into_inner));
    (micros(&histogram, 0.5), micros(&histogram, 0.99))
}
