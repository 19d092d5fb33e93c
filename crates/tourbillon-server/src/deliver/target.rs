//! Where a timer is delivered, as it is stored.
//!
//! The store knows kinds and payloads. A timer for a queue has the kind `queue:NAMESPACE/QUEUE` and the user's payload. A timer for a webhook has
//! the kind `webhook`, and its payload begins with the target: four bytes of length, the target as JSON, and then the user's payload.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tourbillon_durable::spec::TimerSpec;
use url::Url;

use super::signature::Secret;

/// The kind of all timers that are delivered by webhooks.
pub(crate) const WEBHOOK_KIND: &str = "webhook";

/// The beginning of the kind of a queue.
const QUEUE_KIND: &str = "queue:";

/// The most bytes of the name of a queue. With a namespace it must fit into a kind.
const LONGEST_QUEUE: usize = 60;

/// The most bytes of a namespace that has queues.
const LONGEST_NAMESPACE: usize = 60;

const LONGEST_URL: usize = 2_048;
const MOST_HEADERS: usize = 32;
const LONGEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Headers that are the server's to set.
const RESERVED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where a timer is delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// To workers that pull from a queue.
    Queue(String),
    /// To a host.
    Webhook(WebhookTarget),
}

/// The request that delivers a timer, as it is stored.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct WebhookTarget {
    pub(crate) url: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) timeout: Option<Duration>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) success: Vec<u16>,
}

impl Target {
    /// Returns the target of a queue.
    ///
    /// # Errors
    /// The name cannot be that of a queue.
    pub(crate) fn queue(name: String) -> Result<Target, String> {
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        if name.is_empty() || name.len() > LONGEST_QUEUE || !name.chars().all(is_allowed) {
            return Err(format!("a queue is named by 1 to {LONGEST_QUEUE} letters, digits and `. _ -`"));
        }
        Ok(Target::Queue(name))
    }

    /// Returns the kind of the timer.
    ///
    /// # Errors
    /// The namespace is too long for a queue.
    pub(crate) fn kind(&self, namespace: &str) -> Result<String, String> {
        match self {
            Target::Webhook(_) => Ok(WEBHOOK_KIND.to_owned()),
            Target::Queue(_) if namespace.len() > LONGEST_NAMESPACE => {
                Err(format!("the namespace is longer than {LONGEST_NAMESPACE} bytes"))
            }
            Target::Queue(queue) => Ok(format!("{QUEUE_KIND}{namespace}/{queue}")),
        }
    }

    /// Returns what is stored as the payload.
    pub(crate) fn wrap(&self, payload: Vec<u8>) -> Vec<u8> {
        let Target::Webhook(target) = self else { return payload };
        let head = serde_json::to_vec(target).unwrap_or_default();
        let length = u32::try_from(head.len()).unwrap_or(u32::MAX).to_be_bytes();
        [&length[..], &head, &payload].concat()
    }

    /// Returns where a timer goes and the user's payload; no target if another program has created it.
    pub(crate) fn of(spec: &TimerSpec) -> (Option<Target>, &[u8]) {
        if spec.kind == WEBHOOK_KIND
            && let Some((target, payload)) = WebhookTarget::unwrap(&spec.payload)
        {
            return (Some(Target::Webhook(target)), payload);
        }
        let queue = spec.kind.strip_prefix(QUEUE_KIND).and_then(|rest| rest.rsplit_once('/'));
        (queue.map(|(_, queue)| Target::Queue(queue.to_owned())), &spec.payload)
    }
}

impl WebhookTarget {
    /// Reads the target and the user's payload from what is stored.
    pub(crate) fn unwrap(stored: &[u8]) -> Option<(WebhookTarget, &[u8])> {
        let (length, rest) = stored.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let (head, payload) = rest.split_at_checked(length)?;
        Some((serde_json::from_slice(head).ok()?, payload))
    }

    /// Checks what can be checked before the delivery. Whether the host may be called is decided when its address is known.
    ///
    /// # Errors
    /// The text says what is wrong and what is allowed.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.url.len() > LONGEST_URL {
            return Err(format!("the URL is longer than {LONGEST_URL} bytes"));
        }
        let url = Url::parse(&self.url).map_err(|error| format!("{:?} is not a URL: {error}", self.url))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err("a webhook has a URL with `http` or `https` and a host".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a user or a password is refused: put credentials into `headers`".to_owned());
        }
        if self.headers.len() > MOST_HEADERS {
            return Err(format!("a webhook has at most {MOST_HEADERS} headers of its own"));
        }
        for (name, value) in &self.headers {
            let parsed: http::HeaderName =
                name.parse().map_err(|_| format!("{name:?} cannot be the name of a header"))?;
            if RESERVED_HEADERS.contains(&parsed.as_str()) || parsed.as_str().starts_with("webhook-") {
                return Err(format!("the header {name:?} is set by the server"));
            }
            if http::HeaderValue::from_str(value).is_err() {
                return Err(format!("the header {name:?} has a value that no header can have"));
            }
        }
        if let Some(secret) = &self.secret {
            Secret::parse(secret)?;
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero() || timeout > LONGEST_TIMEOUT) {
            return Err("the timeout of a webhook is longer than zero and at most 5 minutes".to_owned());
        }
        if self.success.iter().any(|code| !(100..=599).contains(code)) || self.success.len() > 64 {
            return Err("`success` has at most 64 status codes from 100 to 599".to_owned());
        }
        Ok(())
    }

    /// Returns whether a status code acknowledges the delivery.
    pub(crate) fn is_success(&self, status: u16) -> bool {
        if self.success.is_empty() { (200..300).contains(&status) } else { self.success.contains(&status) }
    }
}
