//! What the server counts of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

/// What the server counts of requests.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Answers by the first digit of their status: 1 to 5.
    answers: [AtomicU64; 5],
    refused: AtomicU64,
    created: AtomicU64,
    cancelled: AtomicU64,
    pulled: AtomicU64,
}

impl Counters {
    pub(crate) fn count_answer(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).clamp(1, 5) - 1;
        self.answers[class].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_created(&self, count: u64) {
        self.created.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count_cancelled(&self, count: u64) {
        self.cancelled.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn count_pulled(&self, count: u64) {
        self.pulled.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the answers of a class: 2 for those from 200 to 299.
    pub(crate) fn answers(&self, class: usize) -> u64 {
        self.answers[class.clamp(1, 5) - 1].load(Ordering::Relaxed)
    }

    /// Returns how many requests found no place.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(crate) fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
    }

    pub(crate) fn cancelled(&self) -> u64 {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn pulled(&self) -> u64 {
        self.pulled.load(Ordering::Relaxed)
    }
}
