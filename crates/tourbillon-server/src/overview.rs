//! The counts of the store, asked for at most once in a while: PostgreSQL reads its whole table for them.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tourbillon_durable::store::StoreCounts;
use tourbillon_durable::{Timers, TimersError};

/// How much longer counts are shown than it took to get them, so that watching costs a small part of the store.
const PATIENCE: u32 = 20;

/// The shortest time that counts are shown.
const SHORTEST: Duration = Duration::from_millis(200);

/// The counts that were read last.
#[derive(Default)]
pub(crate) struct Overview(Mutex<Option<Known>>);

struct Known {
    counts: StoreCounts,
    until: Instant,
}

impl Overview {
    /// Returns how many timers there are, as of a short time ago. One caller asks the store, others wait for its answer.
    pub(crate) async fn counts(&self, timers: &Timers) -> Result<StoreCounts, TimersError> {
        let mut known = self.0.lock().await;
        if let Some(known) = &*known
            && known.until > Instant::now()
        {
            return Ok(known.counts.clone());
        }
        let begin = Instant::now();
        let counts = timers.counts().await?;
        let until = Instant::now() + (begin.elapsed() * PATIENCE).max(SHORTEST);
        *known = Some(Known { counts: counts.clone(), until });
        Ok(counts)
    }
}
