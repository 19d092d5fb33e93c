//! Webhooks: signed requests to the hosts that timers name (V2).
//!
//! A delivery takes a place of its namespace and one of its host, asks whether the host's rate and circuit allow it, and sends one request.
//! A delivery that gets no place in time is given back to the store and does not count as an attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use reqwest::Client;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use tourbillon_durable::{Ack, Delivery};
use url::Url;

use super::addresses::AddressRules;
use super::hosts::{Admission, Hosts};
use super::namespaces::DeliveryPlaces;
use super::signature::Secret;
use super::target::WebhookTarget;
use crate::config::{BadConfig, ServerConfig};
use crate::durations::format_time;

/// The longest time after which a delivery that was given back comes again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The longest wait that a host can ask for.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(24 * 3600);

/// The most bytes of an answer that are read, so that its connection can be used again.
const LONGEST_ANSWER: usize = 16 << 10;

/// Sends webhooks.
#[derive(Clone)]
pub(crate) struct Webhooks(Arc<WebhooksInner>);

struct WebhooksInner {
    config: ServerConfig,
    rules: AddressRules,
    /// For hosts that anybody may name.
    filtered: Client,
    /// For hosts that the configuration names.
    trusted: Client,
    hosts: Hosts,
    places: DeliveryPlaces,
    counts: WebhookCounts,
}

/// What became of deliveries.
#[derive(Debug, Default)]
pub(crate) struct WebhookCounts {
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) short_circuited: AtomicU64,
    pub(crate) postponed: AtomicU64,
}

impl Webhooks {
    pub(crate) fn new(config: &ServerConfig, places: DeliveryPlaces) -> Result<Webhooks, BadConfig> {
        let rules = AddressRules::new(&config.webhooks);
        let secrets =
            config.namespaces.values().chain([&config.namespace_defaults]).map(|limits| &limits.webhook_secret);
        for secret in secrets.chain([&config.webhooks.secret]).flatten() {
            Secret::parse(secret).map_err(BadConfig::new)?;
        }
        let filtered = client(Some(rules.clone())).map_err(BadConfig::new)?;
        let trusted = client(None).map_err(BadConfig::new)?;
        let (hosts, counts) = (Hosts::new(&config.webhooks), WebhookCounts::default());
        let config = config.clone();
        Ok(Webhooks(Arc::new(WebhooksInner { config, rules, filtered, trusted, hosts, places, counts })))
    }

    pub(crate) fn counts(&self) -> &WebhookCounts {
        &self.0.counts
    }

    pub(crate) fn open_circuits(&self) -> usize {
        self.0.hosts.open_circuits(Instant::now())
    }

    /// Checks whether a target can be called at all, as far as that is known before its name is resolved.
    ///
    /// # Errors
    /// The text says why it is refused.
    pub(crate) fn check(&self, url: &str) -> Result<(), String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        self.0.rules.check_url(&url)
    }

    /// Delivers one timer.
    pub(crate) async fn deliver(self, delivery: Delivery) -> Ack {
        let Some((target, payload)) = WebhookTarget::unwrap(delivery.payload()) else {
            return Ack::GiveUp("its payload does not say where to send it: another program created it".to_owned());
        };
        let Ok(url) = Url::parse(&target.url) else { return Ack::GiveUp("its URL cannot be read".to_owned()) };
        if let Err(refused) = self.0.rules.check_url(&url) {
            self.0.counts.refused.fetch_add(1, Ordering::Relaxed);
            return Ack::GiveUp(refused);
        }
        let host =
            format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
        let Some(_namespace_place) = self.0.places.take(delivery.namespace()).await else {
            return self.postpone(&delivery, Duration::ZERO);
        };
        let Some(_host_place) = self.0.hosts.places(&host).take().await else {
            return self.postpone(&delivery, Duration::ZERO);
        };
        match self.0.hosts.begin(&host, Instant::now()) {
            Admission::Begin => {}
            Admission::After(pause) => return self.postpone(&delivery, pause),
            Admission::Open(pause) => {
                self.0.counts.short_circuited.fetch_add(1, Ordering::Relaxed);
                let error = "its host has failed several times in a row: it was not called".to_owned();
                return Ack::RetryAfter(delivery.retry_delay().max(pause), error);
            }
        }
        let mut running = RunningCall { hosts: &self.0.hosts, host: &host, has_failed: true };
        let sent = self.send(&delivery, &target, url, payload).await;
        running.has_failed = matches!(&sent, Err(_) | Ok((500.., _)));
        drop(running);
        self.judge(&delivery, &target, sent)
    }

    /// Returns what the answer of a host means.
    fn judge(&self, delivery: &Delivery, target: &WebhookTarget, sent: Result<(u16, Option<Duration>), String>) -> Ack {
        let counts = &self.0.counts;
        if let Ok((status, _)) = sent
            && target.is_success(status)
        {
            counts.succeeded.fetch_add(1, Ordering::Relaxed);
            return Ack::Done;
        }
        counts.failed.fetch_add(1, Ordering::Relaxed);
        match sent {
            Ok((410, _)) => Ack::GiveUp("its host answered 410: the address is gone for good".to_owned()),
            Ok((status, retry_after)) => {
                let hint = if (300..400).contains(&status) { " (redirects are not followed)" } else { "" };
                let wait = delivery.retry_delay().max(retry_after.unwrap_or_default());
                Ack::RetryAfter(wait, format!("its host answered {status}{hint}"))
            }
            Err(error) => Ack::RetryAfter(delivery.retry_delay(), error),
        }
    }

    /// Gives a delivery back that cannot be tried now: for longer each time, and not for all of them at the same time.
    fn postpone(&self, delivery: &Delivery, at_least: Duration) -> Ack {
        self.0.counts.postponed.fetch_add(1, Ordering::Relaxed);
        let pause = Duration::from_millis(500) * 2u32.saturating_pow(delivery.postponed().min(6));
        let jitter = u64::from(uuid::Uuid::new_v4().as_bytes()[0]);
        let pause = pause.min(LONGEST_PAUSE).mul_f64(0.5 + jitter as f64 / 255.0);
        Ack::Postpone(pause.max(at_least))
    }

    /// Sends the request, and returns the status and the time after which the host wants to be asked again.
    async fn send(
        &self,
        delivery: &Delivery,
        target: &WebhookTarget,
        url: Url,
        payload: &[u8],
    ) -> Result<(u16, Option<Duration>), String> {
        let config = &self.0.config;
        let trusted = config.webhooks.allow_private || self.0.rules.is_allowed_host(&url);
        let client = if trusted { &self.0.trusted } else { &self.0.filtered };
        let (body, headers) = message(delivery, target, payload, self.secret_of(delivery.namespace(), target));
        let timeout = target.timeout.unwrap_or(config.webhooks.timeout);
        let exchange = async {
            let mut response =
                client.post(url).headers(headers).body(body).send().await.map_err(|error| why(&error))?;
            let (status, retry_after) = (response.status().as_u16(), retry_after(response.headers()));
            let mut read = 0;
            while let Ok(Some(part)) = response.chunk().await {
                read += part.len();
                if read > LONGEST_ANSWER {
                    break;
                }
            }
            Ok((status, retry_after))
        };
        match tokio::time::timeout(timeout, exchange).await {
            Ok(result) => result,
            Err(_) => Err(format!("its host did not answer within {timeout:?}")),
        }
    }

    fn secret_of(&self, namespace: &str, target: &WebhookTarget) -> Option<Secret> {
        let config = &self.0.config;
        let of_namespace = &config.namespace(namespace).webhook_secret;
        let text = target.secret.as_ref().or(of_namespace.as_ref()).or(config.webhooks.secret.as_ref())?;
        Secret::parse(text).ok()
    }
}

/// A call that is under way: an end without an answer counts as a failure, also if the task is dropped.
struct RunningCall<'a> {
    hosts: &'a Hosts,
    host: &'a str,
    has_failed: bool,
}

impl Drop for RunningCall<'_> {
    fn drop(&mut self) {
        self.hosts.end(self.host, self.has_failed, Instant::now());
    }
}

/// Returns a client that trusts the certificates that the system trusts; none, where the system has none.
fn client(rules: Option<AddressRules>) -> Result<Client, String> {
    // Another provider that the process has chosen before is as good.
    let _chosen_before = rustls::crypto::ring::default_provider().install_default();
    let builder = || {
        let builder = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .connect_timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(64)
            .pool_idle_timeout(Duration::from_secs(30))
            .user_agent(concat!("tourbillon/", env!("CARGO_PKG_VERSION")));
        match &rules {
            Some(rules) => builder.dns_resolver(Arc::new(rules.clone())),
            None => builder,
        }
    };
    builder().build().or_else(|error| {
        eprintln!(
            "tourbillon: webhooks to https hosts will fail, because no certificates can be trusted: {}",
            why(&error)
        );
        let tls = rustls::ClientConfig::builder().with_root_certificates(rustls::RootCertStore::empty());
        builder().tls_backend_preconfigured(tls.with_no_client_auth()).build().map_err(|error| why(&error))
    })
}

/// Returns why a request failed, without its URL, which can hold secrets.
fn why(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let text: String = cause.to_string().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    format!("its host could not be called: {text}")
}

/// Returns the body and the headers of a delivery.
fn message(
    delivery: &Delivery,
    target: &WebhookTarget,
    payload: &[u8],
    secret: Option<Secret>,
) -> (Vec<u8>, HeaderMap) {
    let (body, content_type) = match payload {
        [] => (about(delivery), "application/json"),
        payload => (payload.to_vec(), delivery.content_type().unwrap_or("application/octet-stream")),
    };
    // The same for every attempt, so that a receiver recognises a repetition.
    let id = format!("{}-{}", delivery.id(), delivery.occurrence());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let timestamp = i64::try_from(now.as_secs()).unwrap_or_default();
    let mut headers = HeaderMap::new();
    let mut set = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    for (name, value) in &target.headers {
        if let Ok(name) = name.parse() {
            set(name, value);
        }
    }
    set(CONTENT_TYPE, content_type);
    if let Some(secret) = secret {
        set(HeaderName::from_static("webhook-signature"), &secret.sign(&id, timestamp, &body));
    }
    set(HeaderName::from_static("webhook-id"), &id);
    set(HeaderName::from_static("webhook-timestamp"), &timestamp.to_string());
    set(HeaderName::from_static("tourbillon-attempt"), &delivery.attempt().to_string());
    set(HeaderName::from_static("tourbillon-due"), &format_time(delivery.due()));
    (body, headers)
}

/// Returns the body of a timer that has no payload.
fn about(delivery: &Delivery) -> Vec<u8> {
    let about = serde_json::json!({
        "id": delivery.id().to_string(),
        "occurrence": delivery.occurrence(),
        "namespace": delivery.namespace(),
        "key": delivery.key(),
        "name": delivery.name(),
        "due": format_time(delivery.due()),
    });
    about.to_string().into_bytes()
}

/// Returns after which time a host wants to be asked again: seconds, or a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            SystemTime::from(date).duration_since(SystemTime::now()).ok()?
        }
    };
    Some(wait.min(LONGEST_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_a_host_says_in_seconds_or_by_a_date_when_to_come_again() {
        let after =
            |text: &'static str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static(text))]));
        assert_eq!(after("120"), Some(Duration::from_secs(120)));
        assert_eq!(after("999999999999"), Some(LONGEST_RETRY_AFTER));
        assert!(after("Fri, 31 Dec 2100 23:59:59 GMT").is_some());
        assert_eq!((after("Fri, 31 Dec 1999 23:59:59 GMT"), after("soon"), after("-1")), (None, None, None));
    }
}
