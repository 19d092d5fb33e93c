//! How many requests a namespace may make in a second (O3).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most namespaces that are remembered.
const MOST: usize = 10_000;

/// The requests of namespaces that have a limit. For each of them, the time at which all that it has asked for would be paid off at its rate.
#[derive(Debug, Default)]
pub(crate) struct Rates(Mutex<HashMap<String, Instant>>);

impl Rates {
    /// Counts `requests` requests of a namespace.
    ///
    /// # Errors
    /// There were too many: the time after which there is room again.
    pub(crate) fn count(
        &self,
        namespace: &str,
        per_second: Option<u32>,
        requests: u32,
        now: Instant,
    ) -> Result<(), Duration> {
        let Some(per_second) = per_second else { return Ok(()) };
        let cost = Duration::from_secs(1) / per_second.max(1) * requests;
        let mut paid_off = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if paid_off.len() >= MOST {
            paid_off.retain(|_, until| *until > now);
        }
        let until = paid_off.get(namespace).map_or(now, |until| (*until).max(now));
        // A second's worth may be asked for at once; a batch that is larger than that, when nothing else was.
        let debt = until - now;
        if debt + cost > Duration::from_secs(1) && !debt.is_zero() {
            return Err(debt + cost - Duration::from_secs(1));
        }
        paid_off.insert(namespace.to_owned(), until + cost);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o3_a_namespace_has_its_rate_and_no_other_is_concerned() {
        let (rates, now) = (Rates::default(), Instant::now());
        let allowed =
            |namespace: &str, now| (0..100).filter(|_| rates.count(namespace, Some(10), 1, now).is_ok()).count();
        assert_eq!((allowed("a", now), allowed("b", now)), (10, 10));
        assert_eq!(allowed("a", now + Duration::from_millis(500)), 5);
        assert!(rates.count("a", None, 1, now).is_ok());
        assert!(rates.count("c", Some(10), 50, now).is_ok(), "a large batch is possible, and pays for itself");
        let wait = rates.count("c", Some(10), 1, now).unwrap_err();
        assert!(wait > Duration::from_secs(4) && wait < Duration::from_secs(5), "{wait:?}");
    }
}
