//! Requests and answers. The page `/docs` of a server describes every field.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A timer to be created.
#[derive(Clone, Debug, Serialize)]
#[must_use]
pub struct NewTimer(Map<String, Value>);

/// A timer that the server has accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Created {
    /// Its id.
    pub id: String,
    /// Its namespace.
    #[serde(default)]
    pub namespace: String,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it is due.
    pub due: String,
    /// The version of it, to change it if nobody else has.
    pub version: u64,
    /// Whether it was created now: not if the same timer was pending.
    #[serde(skip_deserializing)]
    pub is_new: bool,
}

/// What a cancel found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CancelCounts {
    /// How many were cancelled: none of them is delivered afterwards.
    pub cancelled: u64,
    /// How many are being delivered.
    pub in_flight: u64,
    /// How many had ended before.
    pub gone: u64,
}

/// A timer with another due time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Rescheduled {
    /// When it is due.
    pub due: String,
    /// The new version of it.
    pub version: u64,
}

/// One occurrence of a timer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timer {
    /// The timer's id.
    pub id: String,
    /// The number of the occurrence.
    pub occurrence: u64,
    /// The namespace.
    pub namespace: String,
    /// The key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `armed`, `claimed` or `dead`.
    pub state: String,
    /// When it is or was due.
    pub due: String,
    /// How many deliveries there were.
    #[serde(default)]
    pub attempt: u32,
    /// Why the last delivery failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Everything else that the server says.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// A page of timers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TimerPage {
    /// The timers.
    pub timers: Vec<Timer>,
    /// Where the next page begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// All that the server knows of a timer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TimerDetail {
    /// Its id.
    pub id: String,
    /// Its namespace.
    pub namespace: String,
    /// The state of its latest occurrence: also `fired`, `cancelled` or `skipped`.
    pub state: String,
    /// When its latest occurrence is or was due.
    pub due: String,
    /// Its occurrences that have not ended.
    #[serde(default)]
    pub occurrences: Vec<Timer>,
    /// Everything else that the server says, the history for example.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Which timers a list has. Every field that is set must match.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ListFilter {
    /// The namespace.
    pub namespace: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// The name.
    pub name: Option<String>,
    /// What the key or the name begins with.
    pub prefix: Option<String>,
    /// `armed`, `claimed` or `dead`.
    pub state: Option<String>,
    /// Due at this time or later.
    pub due_after: Option<String>,
    /// Due before this time.
    pub due_before: Option<String>,
    /// Where the page begins.
    pub cursor: Option<String>,
    /// The most timers of the page.
    pub limit: Option<usize>,
}

/// Which events are wanted. Every field that is set must match.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventFilter {
    /// The namespace.
    pub namespace: Option<String>,
    /// The timer's id.
    pub id: Option<String>,
    /// The key.
    pub key: Option<String>,
    /// The name.
    pub name: Option<String>,
    /// What happened: `fired`, for example, or several separated by commas.
    #[serde(rename = "type")]
    pub types: Option<String>,
}

impl NewTimer {
    fn due(field: &str, text: impl Into<String>) -> NewTimer {
        NewTimer(Map::from_iter([(field.to_owned(), Value::String(text.into()))]))
    }

    /// Describes a timer that is due once, at a time such as `2026-11-18T08:00:00Z`.
    pub fn at(time: impl Into<String>) -> NewTimer {
        NewTimer::due("at", time)
    }

    /// Describes a timer that is due once, after a duration such as `15m`.
    pub fn after(duration: impl Into<String>) -> NewTimer {
        NewTimer::due("after", duration)
    }

    /// Describes a timer that is due again and again.
    pub fn every(duration: impl Into<String>) -> NewTimer {
        NewTimer::due("every", duration)
    }

    /// Describes a timer that is due at the times of a cron line.
    pub fn cron(line: impl Into<String>) -> NewTimer {
        NewTimer::due("cron", line)
    }

    /// Sets any field of the request.
    pub fn set(mut self, field: &str, value: impl Into<Value>) -> NewTimer {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// Sets the key, which at most one pending timer of the namespace has.
    pub fn key(self, key: impl Into<String>) -> NewTimer {
        self.set("key", key.into())
    }

    /// Sets the name, which many timers can have.
    pub fn name(self, name: impl Into<String>) -> NewTimer {
        self.set("name", name.into())
    }

    /// Sets the namespace.
    pub fn namespace(self, namespace: impl Into<String>) -> NewTimer {
        self.set("namespace", namespace.into())
    }

    /// Sets what the receiver gets.
    pub fn payload(self, payload: impl Into<Value>) -> NewTimer {
        self.set("payload", payload)
    }

    /// Has workers pull the timer from a queue.
    pub fn queue(self, queue: impl Into<String>) -> NewTimer {
        self.set("deliver", serde_json::json!({ "queue": queue.into() }))
    }

    /// Has the server call a webhook.
    pub fn webhook(self, url: impl Into<String>) -> NewTimer {
        self.set("deliver", serde_json::json!({ "webhook": { "url": url.into() } }))
    }
}
