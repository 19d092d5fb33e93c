//! What a user asks for: [`NewTimer`], and the checked form of it that stores keep, [`TimerSpec`].

mod invalid;
mod policy;
mod recurrence;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub use self::invalid::{InvalidText, InvalidTimer};
pub use self::policy::{MissedFires, OnConflict, RetryPolicy};
pub(crate) use self::recurrence::RecurrenceTimes;
pub use self::recurrence::{FirstDue, Recurrence};
use crate::time::StoreTime;

/// The namespace of a timer that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The most bytes of a payload, unless the limit was [raised](Limits::payload).
pub const DEFAULT_PAYLOAD_LIMIT: usize = 64 * 1024;

/// The most bytes of a payload that any limit allows.
pub const HIGHEST_PAYLOAD_LIMIT: usize = 1024 * 1024;

/// A timer to be created.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::NewTimer;
///
/// let expiry = NewTimer::after("expire-order", Duration::from_secs(15 * 60)).key("order 4711").payload(b"4711");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct NewTimer {
    namespace: String,
    key: Option<String>,
    name: Option<String>,
    kind: String,
    payload: Vec<u8>,
    content_type: Option<String>,
    first: Result<FirstDue, InvalidTimer>,
    recurrence: Recurrence,
    times: Option<u64>,
    until: Option<SystemTime>,
    missed: MissedFires,
    retry: RetryPolicy,
    on_conflict: OnConflict,
}

/// A timer as it was asked for, checked. Two requests for a key are the same request if these are equal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TimerSpec {
    /// The namespace, in which keys are unique.
    pub namespace: String,
    /// The key, which at most one pending timer of the namespace has.
    pub key: Option<String>,
    /// The name, which many timers can have.
    pub name: Option<String>,
    /// The kind, for which a handler is registered.
    pub kind: String,
    /// The bytes that the handler gets.
    #[serde(with = "payload_text")]
    pub payload: Arc<[u8]>,
    /// What the bytes are, as a media type.
    pub content_type: Option<String>,
    /// When the first occurrence is due.
    pub first: FirstDue,
    /// When the other occurrences are due.
    pub recurrence: Recurrence,
    /// How many occurrences there are; `None` for no limit.
    pub times: Option<u64>,
    /// No occurrence is due after this time.
    pub until: Option<StoreTime>,
    /// What happens to occurrences that were missed.
    pub missed: MissedFires,
    /// What happens after a delivery that failed.
    pub retry: RetryPolicy,
}

/// Checks that a text can be the kind of a timer.
///
/// # Errors
/// It is empty, too long, or has other characters than letters, digits and `. _ - : /`.
pub fn check_kind(kind: &str) -> Result<(), InvalidTimer> {
    invalid::check_word("kind", kind)
}

/// Limits that a new timer is checked against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The most bytes of a payload.
    pub payload: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { payload: DEFAULT_PAYLOAD_LIMIT }
    }
}

impl NewTimer {
    fn new(kind: impl Into<String>, first: Result<FirstDue, InvalidTimer>, recurrence: Recurrence) -> NewTimer {
        NewTimer {
            namespace: DEFAULT_NAMESPACE.to_owned(),
            key: None,
            name: None,
            kind: kind.into(),
            payload: Vec::new(),
            content_type: None,
            first,
            recurrence,
            times: None,
            until: None,
            missed: MissedFires::default(),
            retry: RetryPolicy::default(),
            on_conflict: OnConflict::default(),
        }
    }

    /// Describes a timer of this kind that is due once, at `when`. A time in the past is due at once. A time before 1970 or after
    /// [`StoreTime::MAX`] is [`InvalidTimer::Time`].
    pub fn at(kind: impl Into<String>, when: SystemTime) -> NewTimer {
        let first = StoreTime::try_from(when).map(FirstDue::At).map_err(InvalidTimer::from);
        NewTimer::new(kind, first, Recurrence::Once)
    }

    /// Describes a timer of this kind that is due once, `delay` after the store has accepted it. If that is after [`StoreTime::MAX`], as for
    /// [`Duration::MAX`], the create fails with [`InvalidTimer::NeverDue`].
    pub fn after(kind: impl Into<String>, delay: Duration) -> NewTimer {
        NewTimer::new(kind, Ok(FirstDue::After(delay)), Recurrence::Once)
    }

    /// Describes a timer of this kind that is due each `interval`, for the first time one interval after the store has accepted it.
    /// If that is after [`StoreTime::MAX`], the create fails with [`InvalidTimer::NeverDue`].
    pub fn every(kind: impl Into<String>, interval: Duration) -> NewTimer {
        NewTimer::new(kind, Ok(FirstDue::After(interval)), Recurrence::Every(interval))
    }

    /// Describes a timer of this kind that is due at the times of a cron line in a zone of the IANA time zone database. A zone that the
    /// line itself names (`CRON_TZ=`) has precedence. [`tourbillon::Cron`] describes the lines, and what they mean when clocks are changed for summer.
    pub fn cron(kind: impl Into<String>, line: impl Into<String>, zone: impl Into<String>) -> NewTimer {
        let recurrence = Recurrence::Cron { line: line.into(), zone: zone.into() };
        NewTimer::new(kind, Ok(FirstDue::Next), recurrence)
    }

    /// Sets the namespace, in which keys are unique and names are looked up.
    pub fn namespace(mut self, namespace: impl Into<String>) -> NewTimer {
        self.namespace = namespace.into();
        self
    }

    /// Sets the key: at most one pending timer of the namespace has it, so that a repeated create makes no second timer. A timer is pending until its
    /// delivery was acknowledged, so a handler that creates a timer with the key of the one that it handles says
    /// [`on_conflict(OnConflict::Replace)`](NewTimer::on_conflict).
    pub fn key(mut self, key: impl Into<String>) -> NewTimer {
        self.key = Some(key.into());
        self
    }

    /// Sets the name, under which many timers can be cancelled together.
    pub fn name(mut self, name: impl Into<String>) -> NewTimer {
        self.name = Some(name.into());
        self
    }

    /// Sets the bytes that the handler gets.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> NewTimer {
        self.payload = payload.into();
        self
    }

    /// Sets the payload to `value` as JSON.
    ///
    /// # Errors
    /// The value cannot be written as JSON.
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<NewTimer, serde_json::Error> {
        Ok(self.payload(serde_json::to_vec(value)?).content_type("application/json"))
    }

    /// Sets what the payload is, as a media type such as `application/json`.
    pub fn content_type(mut self, content_type: impl Into<String>) -> NewTimer {
        self.content_type = Some(content_type.into());
        self
    }

    /// Sets when the first occurrence of a repeating timer is due.
    pub fn first_at(mut self, when: SystemTime) -> NewTimer {
        self.first = StoreTime::try_from(when).map(FirstDue::At).map_err(InvalidTimer::from);
        self
    }

    /// Ends a repeating timer after so many occurrences.
    pub fn times(mut self, times: u64) -> NewTimer {
        self.times = Some(times);
        self
    }

    /// Ends a repeating timer at this time: no occurrence is due later.
    pub fn until(mut self, end: SystemTime) -> NewTimer {
        self.until = Some(end);
        self
    }

    /// Sets what happens to fires that were missed, because no process was there to deliver them.
    pub fn missed(mut self, missed: MissedFires) -> NewTimer {
        self.missed = missed;
        self
    }

    /// Sets what happens after a delivery that failed.
    pub fn retry(mut self, retry: RetryPolicy) -> NewTimer {
        self.retry = retry;
        self
    }

    /// Sets what happens if a pending timer has the same key and was asked for differently, or for another time: see [`OnConflict`].
    pub fn on_conflict(mut self, on_conflict: OnConflict) -> NewTimer {
        self.on_conflict = on_conflict;
        self
    }

    /// Checks the timer, and returns it in the form that stores take.
    ///
    /// # Errors
    /// An [`InvalidTimer`] says what is wrong and what is allowed.
    pub fn check(self, limits: Limits) -> Result<(TimerSpec, OnConflict), InvalidTimer> {
        let until = self.until.map(StoreTime::try_from).transpose()?;
        let spec = TimerSpec {
            namespace: self.namespace,
            key: self.key,
            name: self.name,
            kind: self.kind,
            payload: self.payload.into(),
            content_type: self.content_type,
            first: self.first?,
            recurrence: self.recurrence,
            times: self.times,
            until,
            missed: self.missed,
            retry: self.retry,
        };
        spec.check(limits)?;
        Ok((spec, self.on_conflict))
    }
}

impl TimerSpec {
    /// Checks what a store is asked to keep.
    ///
    /// # Errors
    /// An [`InvalidTimer`] says what is wrong and what is allowed.
    pub fn check(&self, limits: Limits) -> Result<(), InvalidTimer> {
        invalid::check_word("namespace", &self.namespace)?;
        check_kind(&self.kind)?;
        self.key.as_deref().map_or(Ok(()), |key| invalid::check_text("key", key))?;
        self.name.as_deref().map_or(Ok(()), |name| invalid::check_text("name", name))?;
        self.content_type.as_deref().map_or(Ok(()), |media| invalid::check_text("content type", media))?;
        let limit = limits.payload.min(HIGHEST_PAYLOAD_LIMIT);
        if self.payload.len() > limit {
            return Err(InvalidTimer::PayloadTooLarge { size: self.payload.len(), limit });
        }
        self.retry.check()?;
        self.recurrence.check(self.times, self.until.is_some())?;
        self.missed.check()
    }

    /// Returns whether the timer has more than one occurrence.
    #[must_use]
    pub fn is_repeating(&self) -> bool {
        self.recurrence != Recurrence::Once
    }

    /// Returns when the first occurrence is due for a timer that a store accepts at `now`; `None` if it never is.
    #[must_use]
    pub fn first_due(&self, now: StoreTime) -> Option<StoreTime> {
        let due = match self.first {
            FirstDue::At(due) => due,
            FirstDue::After(delay) => now.checked_add(delay)?,
            FirstDue::Next => self.recurrence.next_after(now)?,
        };
        self.in_time(due)
    }

    /// Returns the first time of the recurrence that is later than `after`; `None` if there is none.
    #[must_use]
    pub fn next_due(&self, after: StoreTime) -> Option<StoreTime> {
        self.recurrence.next_after(after).and_then(|due| self.in_time(due))
    }

    /// Returns `due` unless it is later than the end of the timer.
    pub(crate) fn in_time(&self, due: StoreTime) -> Option<StoreTime> {
        self.until.is_none_or(|until| due <= until).then_some(due)
    }
}

/// Payloads as text, in the alphabet of base 64.
mod payload_text {
    use std::sync::Arc;

    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(payload: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(payload))
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Arc<[u8]>, D::Error> {
        let text = String::deserialize(from)?;
        BASE64_STANDARD.decode(text).map(Arc::from).map_err(serde::de::Error::custom)
    }
}
