//! The body of a create.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tourbillon_durable::spec::DEFAULT_NAMESPACE;
use tourbillon_durable::{InvalidTimer, MissedFires, NewTimer, OnConflict, RetryPolicy, TimerId};
use utoipa::ToSchema;

use super::payload::CanonicalJson;
use super::text::{DurationText, TimeText};
use crate::deliver::{Target, WebhookTarget};

/// A timer to be created. Exactly one of `at`, `after`, `every` and `cron` says when it is due; `at` may stand beside `every` for the first
/// time.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateTimer {
    /// The namespace, in which keys are unique; `default` if it is not given, or the namespace of the API key if that has exactly one.
    #[schema(pattern = "^[A-Za-z0-9._:/-]{1,64}$")]
    pub(crate) namespace: Option<String>,
    /// The key: at most one pending timer of the namespace has it, so that a create can be repeated without harm.
    #[schema(pattern = "^[ -~]{1,100}$")]
    pub(crate) key: Option<String>,
    /// The name, under which many timers can be cancelled together.
    #[schema(pattern = "^[ -~]{1,100}$")]
    pub(crate) name: Option<String>,
    /// Due once, at this time. A time in the past is due at once.
    pub(crate) at: Option<TimeText>,
    /// Due once, so long after the store has accepted the timer.
    pub(crate) after: Option<DurationText>,
    /// Due again and again, with this interval.
    pub(crate) every: Option<DurationText>,
    /// Due at the times of a cron line.
    #[schema(example = "30 2 * * *")]
    pub(crate) cron: Option<String>,
    /// The time zone of the cron line; UTC if it is not given.
    #[schema(example = "Europe/Berlin")]
    pub(crate) zone: Option<String>,
    /// Ends a repeating timer after so many occurrences.
    #[schema(minimum = 1)]
    pub(crate) times: Option<u64>,
    /// Ends a repeating timer at this time.
    pub(crate) until: Option<TimeText>,
    /// What the receiver gets, as any JSON value.
    #[schema(value_type = Option<serde_json::Value>)]
    pub(crate) payload: Option<CanonicalJson>,
    /// What the receiver gets, as bytes in base64, instead of `payload`.
    pub(crate) payload_base64: Option<String>,
    /// What the bytes of `payload_base64` are, as a media type; `application/octet-stream` if it is not given.
    pub(crate) content_type: Option<String>,
    /// Where it is delivered.
    pub(crate) deliver: Deliver,
    /// What happens after a delivery that failed.
    pub(crate) retry: Option<Retry>,
    /// What happens to occurrences that were not delivered in time, because no server was running.
    pub(crate) missed: Option<Missed>,
    /// What happens if a pending timer has the key and was asked for differently; 409 if it is not given.
    pub(crate) on_conflict: Option<Conflict>,
}

/// Where a timer is delivered.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Deliver {
    /// The server sends a signed POST request.
    Webhook(Webhook),
    /// Workers pull it from the queue of this name.
    Queue(QueueName),
}

/// The name of a queue.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(pattern = "^[A-Za-z0-9._-]{1,60}$")]
pub(crate) struct QueueName(pub(crate) String);

/// The request that delivers a timer.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    /// Where it is sent, `http` or `https`.
    #[schema(example = "https://example.com/hooks/timers")]
    pub(crate) url: String,
    /// Headers of the request besides those of the signature.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    /// The secret that signs the request (`whsec_…`), instead of that of the namespace or the server. It is never shown.
    #[serde(skip_serializing)]
    pub(crate) secret: Option<String>,
    /// How long the host may take to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<DurationText>,
    /// The status codes that acknowledge the delivery; 200 to 299 if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) success: Vec<u16>,
}

/// What happens after a delivery that failed. What is not given is as by default: ten deliveries, one second apart at first and twice as
/// long each time up to five minutes, each wait shortened by up to a half.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Retry {
    /// The most deliveries, the first included.
    #[schema(minimum = 1)]
    pub(crate) attempts: Option<u32>,
    /// How long to wait before the second delivery.
    pub(crate) first: Option<DurationText>,
    /// By how much each wait is longer than the one before it.
    #[schema(minimum = 1)]
    pub(crate) factor: Option<u32>,
    /// The longest wait.
    pub(crate) longest: Option<DurationText>,
    /// By how many percent of itself a wait may be shortened.
    #[schema(maximum = 100)]
    pub(crate) jitter_percent: Option<u8>,
    /// No delivery is repeated later than this after the timer was due, or after its dead letter was replayed. How late the first one may be
    /// is said by `missed`.
    pub(crate) give_up_after: Option<DurationText>,
}

/// What happens to occurrences that were not delivered in time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Missed {
    /// One delivery stands for all that were missed.
    Once,
    /// Occurrences that are late by more than `older_than` are skipped.
    Skip {
        /// How late an occurrence may be and still be delivered: longer than zero, and far longer than deliveries are usually late.
        older_than: DurationText,
    },
    /// Each is delivered, but at most this many of the newest.
    All {
        /// The most missed occurrences that are delivered.
        #[schema(minimum = 1)]
        at_most: u64,
    },
    /// Occurrences that are late by more than this, which is longer than zero, become dead letters.
    DeadAfter(DurationText),
}

/// What happens if a pending timer has the key and was asked for differently, or, unless the answer is `refuse` or `keep`, for another time. A timer
/// that is being delivered is pending too.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Conflict {
    /// The create is answered with 409.
    Refuse,
    /// The pending timer stays.
    Keep,
    /// The pending timer is cancelled, and the new one takes its key. If it is being delivered, that delivery goes on, and the new one comes after it.
    Replace,
    /// The one that is due earlier stays.
    Earlier,
    /// The one that is due later stays.
    Later,
}

/// The answer to a create.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Created {
    /// The timer's id.
    #[schema(value_type = String)]
    pub(crate) id: TimerId,
    /// The namespace.
    #[schema(value_type = String)]
    pub(crate) namespace: Arc<str>,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    /// When it is due.
    pub(crate) due: TimeText,
    /// The version, for `if_version`.
    pub(crate) version: u64,
}

impl CreateTimer {
    /// Turns the request into a timer of a namespace in the form that the store takes, and returns it with its kind.
    ///
    /// # Errors
    /// The text says what contradicts itself or is not allowed.
    pub(crate) fn into_timer(
        self,
        namespace: &str,
        payload_limit: usize,
        kinds: &mut SharedText,
    ) -> Result<(NewTimer, Arc<str>), String> {
        let target = self.deliver.into_target()?;
        let (payload, content_type) = stored_payload(self.payload, self.payload_base64, self.content_type)?;
        if payload.len() > payload_limit {
            let size = payload.len();
            return Err(InvalidTimer::PayloadTooLarge { size, limit: payload_limit }.to_string());
        }
        check_most("times", self.times, INT64)?;
        let retry = self.retry.as_ref().map(Retry::policy).transpose()?;
        let missed = self.missed.as_ref().map(Missed::policy).transpose()?;
        let kind = target.kind(namespace)?;
        let shared = kinds.share(&kind);
        let when = When { at: self.at, after: self.after, every: self.every, cron: self.cron, zone: self.zone };
        let mut timer = when.into_timer(kind)?.payload(target.wrap(payload));
        if namespace != DEFAULT_NAMESPACE {
            timer = timer.namespace(namespace);
        }
        let timer = option(timer, content_type, NewTimer::content_type);
        let timer = option(timer, self.key, NewTimer::key);
        let timer = option(timer, self.name, NewTimer::name);
        let timer = option(timer, self.times, NewTimer::times);
        let timer = option(timer, self.until.map(|until| until.0), NewTimer::until);
        let timer = option(timer, retry, NewTimer::retry);
        let timer = option(timer, missed, NewTimer::missed);
        Ok((option(timer, self.on_conflict.map(Conflict::policy), NewTimer::on_conflict), shared))
    }

    /// Returns the namespace, if none is given that which the caller has by default.
    pub(crate) fn namespace<'a>(&'a self, default: &'a str) -> &'a str {
        self.namespace.as_deref().unwrap_or(default)
    }

    /// Returns where a webhook is sent.
    pub(crate) fn webhook_url(&self) -> Option<&str> {
        match &self.deliver {
            Deliver::Webhook(webhook) => Some(&webhook.url),
            Deliver::Queue(_) => None,
        }
    }

    /// Returns whether the timer is for a queue.
    pub(crate) fn is_for_queue(&self) -> bool {
        matches!(self.deliver, Deliver::Queue(_))
    }
}

/// When a timer is due, as the request says it.
struct When {
    at: Option<TimeText>,
    after: Option<DurationText>,
    every: Option<DurationText>,
    cron: Option<String>,
    zone: Option<String>,
}

impl When {
    fn into_timer(self, kind: String) -> Result<NewTimer, String> {
        if self.zone.is_some() && self.cron.is_none() {
            return Err("`zone` is for `cron`: times have an offset of their own".to_owned());
        }
        match (self.at, self.after, self.every, self.cron) {
            (Some(at), None, None, None) => Ok(NewTimer::at(kind, at.0)),
            (None, Some(after), None, None) => Ok(NewTimer::after(kind, after.0)),
            (None, None, Some(every), None) => Ok(NewTimer::every(kind, every.0)),
            (Some(at), None, Some(every), None) => Ok(NewTimer::every(kind, every.0).first_at(at.0)),
            (None, None, None, Some(line)) => {
                Ok(NewTimer::cron(kind, line, self.zone.unwrap_or_else(|| "UTC".to_owned())))
            }
            _ => Err("say when the timer is due with exactly one of `at`, `after`, `every` and `cron`".to_owned()),
        }
    }
}

/// Returns the bytes of a payload, and what they are.
fn stored_payload(
    json: Option<CanonicalJson>,
    base64: Option<String>,
    content_type: Option<String>,
) -> Result<(Vec<u8>, Option<String>), String> {
    match (json, base64) {
        (Some(_), Some(_)) => Err("give `payload` or `payload_base64`, not both".to_owned()),
        (_, None) if content_type.is_some() => {
            Err("`content_type` is for `payload_base64`: a `payload` is JSON".to_owned())
        }
        (Some(json), None) => Ok((json.0, Some("application/json".to_owned()))),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text).map_err(|error| format!("`payload_base64` is not base64: {error}"))?;
            let media = content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            if http::HeaderValue::from_str(&media).is_err() {
                return Err("`content_type` has characters that no header can have".to_owned());
            }
            Ok((bytes, Some(media)))
        }
        (None, None) => Ok((Vec::new(), None)),
    }
}

/// Shares one copy of a text among timers that follow each other and have the same.
#[derive(Default)]
pub(crate) struct SharedText(Option<Arc<str>>);

impl SharedText {
    pub(crate) fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(last) = self.0.as_ref().filter(|last| &***last == text) {
            return Arc::clone(last);
        }
        let shared = Arc::from(text);
        self.0 = Some(Arc::clone(&shared));
        shared
    }
}

/// The largest number of the format `int32`, which the description of the API gives for a `u32`.
const INT32: u64 = i32::MAX as u64;
/// The largest number of the format `int64`, which the description of the API gives for a `u64`.
pub(crate) const INT64: u64 = i64::MAX as u64;

/// Refuses a number that its format in the description of the API does not have.
pub(crate) fn check_most(field: &str, value: Option<impl Into<u64>>, most: u64) -> Result<(), String> {
    match value.map(Into::into) {
        Some(value) if value > most => Err(format!("`{field}` is at most {most}")),
        _ => Ok(()),
    }
}

fn option<T>(timer: NewTimer, value: Option<T>, set: impl FnOnce(NewTimer, T) -> NewTimer) -> NewTimer {
    match value {
        Some(value) => set(timer, value),
        None => timer,
    }
}

impl Deliver {
    fn into_target(self) -> Result<Target, String> {
        match self {
            Deliver::Queue(queue) => Target::queue(queue.0),
            Deliver::Webhook(webhook) => {
                let target = WebhookTarget {
                    url: webhook.url,
                    headers: webhook.headers,
                    secret: webhook.secret,
                    timeout: webhook.timeout.map(|timeout| timeout.0),
                    success: webhook.success,
                };
                target.check().map(|()| Target::Webhook(target))
            }
        }
    }
}

impl From<&WebhookTarget> for Webhook {
    fn from(target: &WebhookTarget) -> Webhook {
        Webhook {
            url: target.url.clone(),
            headers: target.headers.clone(),
            secret: None,
            timeout: target.timeout.map(DurationText),
            success: target.success.clone(),
        }
    }
}

impl Retry {
    fn policy(&self) -> Result<RetryPolicy, String> {
        check_most("retry.attempts", self.attempts, INT32)?;
        check_most("retry.factor", self.factor, INT32)?;
        let defaults = RetryPolicy::default();
        let first = self.first.map_or(defaults.first, |first| first.0);
        Ok(RetryPolicy {
            attempts: self.attempts.unwrap_or(defaults.attempts),
            first,
            factor: self.factor.unwrap_or(defaults.factor),
            longest: self.longest.map_or(defaults.longest.max(first), |longest| longest.0),
            jitter_percent: self.jitter_percent.unwrap_or(defaults.jitter_percent),
            give_up_after: self.give_up_after.map(|limit| limit.0),
        })
    }
}

impl From<&RetryPolicy> for Retry {
    fn from(policy: &RetryPolicy) -> Retry {
        Retry {
            attempts: Some(policy.attempts),
            first: Some(DurationText(policy.first)),
            factor: Some(policy.factor),
            longest: Some(DurationText(policy.longest)),
            jitter_percent: Some(policy.jitter_percent),
            give_up_after: policy.give_up_after.map(DurationText),
        }
    }
}

impl Missed {
    fn policy(&self) -> Result<MissedFires, String> {
        Ok(match self {
            Missed::Once => MissedFires::Once,
            Missed::Skip { older_than } => MissedFires::Skip { older_than: older_than.0 },
            Missed::All { at_most } => {
                check_most("missed.all.at_most", Some(*at_most), INT64)?;
                MissedFires::All { at_most: *at_most }
            }
            Missed::DeadAfter(age) => MissedFires::DeadAfter(age.0),
        })
    }
}

impl From<MissedFires> for Missed {
    fn from(policy: MissedFires) -> Missed {
        match policy {
            MissedFires::Once => Missed::Once,
            MissedFires::Skip { older_than } => Missed::Skip { older_than: DurationText(older_than) },
            MissedFires::All { at_most } => Missed::All { at_most },
            MissedFires::DeadAfter(age) => Missed::DeadAfter(DurationText(age)),
        }
    }
}

impl Conflict {
    fn policy(self) -> OnConflict {
        match self {
            Conflict::Refuse => OnConflict::Refuse,
            Conflict::Keep => OnConflict::Keep,
            Conflict::Replace => OnConflict::Replace,
            Conflict::Earlier => OnConflict::Earlier,
            Conflict::Later => OnConflict::Later,
        }
    }
}
