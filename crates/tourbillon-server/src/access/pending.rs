//! How many pending timers a namespace may have (O3).
//!
//! The store has no count by namespace. For a namespace with a limit the server counts its rows, adds what it creates itself, and counts anew
//! when the limit is reached or the count is old. Other nodes may create meanwhile: the limit is exact on one node, and may be exceeded by what the
//! others create within half a minute.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tourbillon_durable::store::{ListFilter, RowState};
use tourbillon_durable::{Timers, TimersError};

/// How long a count is used.
const FRESH: Duration = Duration::from_secs(30);

/// How many times as long as a count takes the server waits before it counts anew.
const REST: u32 = 20;

/// How many rows are read at a time.
const PAGE: usize = 1_000;

/// The counts of namespaces that have a limit.
#[derive(Default)]
pub(crate) struct PendingLimits(Mutex<HashMap<String, PendingCount>>);

struct PendingCount {
    count: u64,
    counted: Instant,
    took: Duration,
}

impl PendingLimits {
    /// Makes room for `new` timers in a namespace. Returns whether the limit allows them.
    ///
    /// # Errors
    /// The store failed.
    pub(crate) async fn reserve(
        &self,
        timers: &Timers,
        namespace: &str,
        limit: Option<u64>,
        new: u64,
    ) -> Result<bool, TimersError> {
        let Some(limit) = limit else { return Ok(true) };
        let mut counts = self.0.lock().await;
        let is_full = |known: &PendingCount| known.count + new > limit;
        let is_fresh = |known: &PendingCount| {
            let age = known.counted.elapsed();
            age < FRESH && !(is_full(known) && age > known.took * REST)
        };
        let known = match counts.get_mut(namespace) {
            Some(known) if is_fresh(known) => known,
            _ => {
                let began = Instant::now();
                let count = count(timers, namespace, limit).await?;
                let known = PendingCount { count, counted: Instant::now(), took: began.elapsed() };
                counts.entry(namespace.to_owned()).insert_entry(known).into_mut()
            }
        };
        if is_full(known) {
            return Ok(false);
        }
        known.count += new;
        Ok(true)
    }
}

/// Counts the pending rows of a namespace, as far as the limit.
async fn count(timers: &Timers, namespace: &str, limit: u64) -> Result<u64, TimersError> {
    let filter =
        ListFilter { namespace: Some(namespace.to_owned()), state: Some(RowState::Armed), ..ListFilter::default() };
    let (mut count, mut cursor) = (0, None);
    loop {
        let page = timers.list(filter.clone(), cursor, PAGE).await?;
        count += page.rows.len() as u64;
        cursor = page.next;
        if cursor.is_none() || count >= limit {
            return Ok(count);
        }
    }
}
