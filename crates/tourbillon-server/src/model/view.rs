//! Timers as answers show them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::value::RawValue;
use tourbillon_durable::spec::Recurrence;
use tourbillon_durable::store::{EndedAs, HistoryEntry, RowState, TimerRow};
use utoipa::ToSchema;

use super::create::{Deliver, Missed, QueueName, Retry, Webhook};
use super::text::{DurationText, TimeText};
use crate::deliver::Target;

/// What has become of an occurrence of a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimerState {
    /// It waits for its time, or for its next attempt.
    Armed,
    /// It is being delivered.
    Claimed,
    /// It was given up: a dead letter.
    Dead,
    /// It was delivered.
    Fired,
    /// It was cancelled or replaced.
    Cancelled,
    /// It was missed, and its policy skips missed occurrences.
    Skipped,
}

/// The payload of a timer: JSON as it is, other bytes in base64.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Payload {
    /// The payload, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// What the payload is, as a media type.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<String>,
}

/// One occurrence of a timer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TimerView {
    /// The timer's id, which all its occurrences have.
    pub(crate) id: String,
    /// The number of the occurrence, of which the first is 1.
    pub(crate) occurrence: u64,
    /// The namespace.
    pub(crate) namespace: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// What has become of it.
    pub(crate) state: TimerState,
    /// When it is or was due.
    pub(crate) due: TimeText,
    /// When it is delivered next, or until when the present delivery may take.
    pub(crate) wake: TimeText,
    /// The version, for `if_version`.
    pub(crate) version: u64,
    /// How many deliveries there were, the present one included.
    pub(crate) attempt: u32,
    /// When the store accepted the timer.
    pub(crate) created: TimeText,
    /// The interval of a repeating timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<DurationText>,
    /// The cron line of a repeating timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// The time zone of the cron line.
    #[serde(skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// How many occurrences are left, this one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    times_left: Option<u64>,
    /// The end of a repeating timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<TimeText>,
    /// Where it is delivered; missing for a timer of another program in the same store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deliver: Option<Deliver>,
    #[serde(flatten)]
    payload: Payload,
    /// What happens after a delivery that failed.
    retry: Retry,
    /// What happens to missed occurrences.
    missed: Missed,
    /// Why the last delivery failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<String>,
}

/// How an occurrence of a timer ended.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct HistoryView {
    /// The number of the occurrence.
    pub(crate) occurrence: u64,
    /// How it ended.
    pub(crate) state: TimerState,
    /// When it was due.
    pub(crate) due: TimeText,
    /// When it ended.
    pub(crate) ended: TimeText,
    /// How many deliveries there were.
    pub(crate) attempts: u32,
    /// Why its last failed delivery failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A timer with all that the store knows of it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TimerDetail {
    /// The id.
    pub(crate) id: String,
    /// The namespace.
    pub(crate) namespace: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The state of its latest occurrence.
    pub(crate) state: TimerState,
    /// When its latest occurrence is or was due.
    pub(crate) due: TimeText,
    /// The version of its latest occurrence, for `if_version`; missing if the timer has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    /// The occurrences that have not ended, the latest first.
    pub(crate) occurrences: Vec<TimerView>,
    /// How occurrences ended, as long as the store remembers it, the latest first.
    pub(crate) history: Vec<HistoryView>,
}

/// A page of timers.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TimerPage {
    /// The timers, in the order of their ids, which is about that of their creation.
    pub(crate) timers: Vec<TimerView>,
    /// The `cursor` of the next page; missing on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// A timer that a worker has pulled.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PulledTimer {
    /// The timer's id.
    pub(crate) id: String,
    /// The number of the occurrence: with the id it is the same for every attempt.
    pub(crate) occurrence: u64,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// The name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// When it was due.
    pub(crate) due: TimeText,
    /// The number of this delivery, of which the first is 1.
    pub(crate) attempt: u32,
    /// How many missed occurrences this one stands for, besides itself.
    pub(crate) stands_for: u64,
    /// Until when it must be acknowledged or extended: it is delivered again afterwards.
    pub(crate) lease_until: TimeText,
    /// What `ack`, `nack` and `extend` take.
    pub(crate) receipt: String,
    #[serde(flatten)]
    payload: Payload,
}

impl Payload {
    fn new(bytes: &[u8], content_type: Option<&str>) -> Payload {
        let is_json = content_type == Some("application/json");
        let json = is_json.then(|| str::from_utf8(bytes).ok()).flatten();
        let json = json.and_then(|text| RawValue::from_string(text.to_owned()).ok());
        let is_other = json.is_none() && !bytes.is_empty();
        Payload {
            payload: json,
            payload_base64: is_other.then(|| STANDARD.encode(bytes)),
            content_type: content_type.map(str::to_owned),
        }
    }
}

impl From<&TimerRow> for TimerView {
    fn from(row: &TimerRow) -> TimerView {
        let spec = &*row.spec;
        let (every, cron, zone) = match &spec.recurrence {
            Recurrence::Once => (None, None, None),
            Recurrence::Every(interval) => (Some(DurationText(*interval)), None, None),
            Recurrence::Cron { line, zone } => (None, Some(line.clone()), Some(zone.clone())),
        };
        let (target, payload) = Target::of(spec);
        TimerView {
            id: row.id.timer.to_string(),
            occurrence: row.id.occurrence,
            namespace: spec.namespace.clone(),
            key: spec.key.clone(),
            name: spec.name.clone(),
            state: row.state.into(),
            due: TimeText(row.due.to_system()),
            wake: TimeText(row.wake.to_system()),
            version: row.version,
            attempt: row.attempt,
            created: TimeText(row.created.to_system()),
            every,
            cron,
            zone,
            times_left: row.left,
            until: spec.until.map(|until| TimeText(until.to_system())),
            deliver: target.as_ref().map(Deliver::from),
            payload: Payload::new(payload, spec.content_type.as_deref()),
            retry: Retry::from(&spec.retry),
            missed: Missed::from(spec.missed),
            last_error: row.last_error.clone(),
        }
    }
}

impl From<&Target> for Deliver {
    fn from(target: &Target) -> Deliver {
        match target {
            Target::Queue(queue) => Deliver::Queue(QueueName(queue.clone())),
            Target::Webhook(webhook) => Deliver::Webhook(Webhook::from(webhook)),
        }
    }
}

impl From<RowState> for TimerState {
    fn from(state: RowState) -> TimerState {
        match state {
            RowState::Armed => TimerState::Armed,
            RowState::Claimed => TimerState::Claimed,
            RowState::Dead => TimerState::Dead,
        }
    }
}

impl From<EndedAs> for TimerState {
    fn from(ended: EndedAs) -> TimerState {
        match ended {
            EndedAs::Fired => TimerState::Fired,
            EndedAs::Cancelled => TimerState::Cancelled,
            EndedAs::Dead => TimerState::Dead,
            EndedAs::Skipped => TimerState::Skipped,
        }
    }
}

impl From<&HistoryEntry> for HistoryView {
    fn from(entry: &HistoryEntry) -> HistoryView {
        HistoryView {
            occurrence: entry.id.occurrence,
            state: entry.ended_as.into(),
            due: TimeText(entry.due.to_system()),
            ended: TimeText(entry.at.to_system()),
            attempts: entry.attempts,
            error: entry.error.clone(),
        }
    }
}

impl TimerDetail {
    /// Returns what is known of a timer; `None` if there is neither a row nor a memory of one.
    pub(crate) fn new(rows: &[TimerRow], history: &[HistoryEntry]) -> Option<TimerDetail> {
        let occurrences: Vec<TimerView> = rows.iter().map(TimerView::from).collect();
        let history_views = history.iter().map(HistoryView::from).collect();
        if let Some(latest) = occurrences.first().cloned() {
            return Some(TimerDetail {
                id: latest.id,
                namespace: latest.namespace,
                key: latest.key,
                name: latest.name,
                state: latest.state,
                due: latest.due,
                version: Some(latest.version),
                occurrences,
                history: history_views,
            });
        }
        let latest = history.first()?;
        Some(TimerDetail {
            id: latest.id.timer.to_string(),
            namespace: latest.namespace.clone(),
            key: latest.key.clone(),
            name: latest.name.clone(),
            state: latest.ended_as.into(),
            due: TimeText(latest.due.to_system()),
            version: None,
            occurrences,
            history: history_views,
        })
    }
}

impl PulledTimer {
    pub(crate) fn new(row: &TimerRow, receipt: String) -> PulledTimer {
        let (_, payload) = Target::of(&row.spec);
        PulledTimer {
            id: row.id.timer.to_string(),
            occurrence: row.id.occurrence,
            key: row.spec.key.clone(),
            name: row.spec.name.clone(),
            due: TimeText(row.due.to_system()),
            attempt: row.attempt,
            stands_for: row.stands_for,
            lease_until: TimeText(row.wake.to_system()),
            receipt,
            payload: Payload::new(payload, row.spec.content_type.as_deref()),
        }
    }
}
