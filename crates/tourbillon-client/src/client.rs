//! Requests to a server.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use url::Url;

use crate::error::{ClientError, Problem};
use crate::events::EventStream;
use crate::model::{CancelCounts, Created, EventFilter, ListFilter, NewTimer, Rescheduled, TimerDetail, TimerPage};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer may take; events have no limit.
const ANSWER: Duration = Duration::from_secs(60);

/// A client of one server. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    key: Option<String>,
}

impl Client {
    /// Returns a client of the server at an address such as `http://127.0.0.1:7117`.
    ///
    /// # Errors
    /// The address is not one of a server.
    pub fn new(server: &str) -> Result<Client, ClientError> {
        // An error means that the program has chosen a provider already.
        let _already = rustls::crypto::ring::default_provider().install_default();
        let server = Url::parse(server).map_err(|error| ClientError::Address(format!("{server}: {error}")))?;
        if !matches!(server.scheme(), "http" | "https") {
            return Err(ClientError::Address(format!("{server}: it must begin with http:// or https://")));
        }
        let http = reqwest::Client::builder().connect_timeout(CONNECT).redirect(reqwest::redirect::Policy::none());
        Ok(Client { http: http.build()?, server, key: None })
    }

    /// Sets the API key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Client {
        self.key = Some(key.into());
        self
    }

    /// Creates a timer. It is durable when this returns.
    ///
    /// # Errors
    /// The server refused it or cannot be reached.
    pub async fn create(&self, timer: &NewTimer) -> Result<Created, ClientError> {
        let answer = self.send(self.with_json(Method::POST, "/v1/timers", &json!(timer))?).await?;
        let is_new = answer.status() == StatusCode::CREATED;
        let created: Created = read(answer).await?;
        Ok(Created { is_new, ..created })
    }

    /// Returns all that the server knows of a timer.
    ///
    /// # Errors
    /// There is no such timer, or the server cannot be reached.
    pub async fn get(&self, id: &str) -> Result<TimerDetail, ClientError> {
        read(self.send(self.request(Method::GET, &timer_path(id))?).await?).await
    }

    /// Returns a page of timers.
    ///
    /// # Errors
    /// The server refused the filter or cannot be reached.
    pub async fn list(&self, filter: &ListFilter) -> Result<TimerPage, ClientError> {
        let path = format!("/v1/timers{}", query_of(&json!(filter)));
        read(self.send(self.request(Method::GET, &path)?).await?).await
    }

    /// Gives a pending timer another due time: `{"at": …}` or `{"after": …}`, with `if_version` only if nobody else has changed it.
    ///
    /// # Errors
    /// The timer is not pending, has another version, or the server cannot be reached.
    pub async fn reschedule(&self, id: &str, when: &Value) -> Result<Rescheduled, ClientError> {
        read(self.send(self.with_json(Method::PATCH, &timer_path(id), when)?).await?).await
    }

    /// Cancels a timer by its id.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn cancel(&self, id: &str) -> Result<CancelCounts, ClientError> {
        read(self.send(self.request(Method::DELETE, &timer_path(id))?).await?).await
    }

    /// Cancels the timer that has a key.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn cancel_key(&self, namespace: &str, key: &str) -> Result<CancelCounts, ClientError> {
        self.cancel_by(&json!({ "namespace": namespace, "key": key })).await
    }

    /// Cancels all timers that have a name.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub async fn cancel_name(&self, namespace: &str, name: &str) -> Result<CancelCounts, ClientError> {
        self.cancel_by(&json!({ "namespace": namespace, "name": name })).await
    }

    async fn cancel_by(&self, target: &Value) -> Result<CancelCounts, ClientError> {
        read(self.send(self.with_json(Method::POST, "/v1/cancel", target)?).await?).await
    }

    /// Listens to what happens to timers, from now on or after the event with the id `last_seen`.
    ///
    /// # Errors
    /// The server refused it or cannot be reached.
    pub async fn events(&self, filter: &EventFilter, last_seen: Option<&str>) -> Result<EventStream, ClientError> {
        let path = format!("/v1/events{}", query_of(&json!(filter)));
        let mut request = self.builder(Method::GET, &path)?.header(header::ACCEPT, "text/event-stream");
        if let Some(id) = last_seen {
            request = request.header("last-event-id", id);
        }
        Ok(EventStream::new(self.send(request).await?))
    }

    fn builder(&self, method: Method, path: &str) -> Result<RequestBuilder, ClientError> {
        let url = self.server.join(path).map_err(|error| ClientError::Address(error.to_string()))?;
        let request = self.http.request(method, url);
        Ok(match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        })
    }

    fn request(&self, method: Method, path: &str) -> Result<RequestBuilder, ClientError> {
        Ok(self.builder(method, path)?.timeout(ANSWER))
    }

    fn with_json(&self, method: Method, path: &str, body: &Value) -> Result<RequestBuilder, ClientError> {
        let request = self.request(method, path)?.header(header::CONTENT_TYPE, "application/json");
        Ok(request.body(body.to_string()))
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let answer = request.send().await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let retry_after = answer.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = answer.bytes().await?;
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => Err(ClientError::Refused(Box::new(Problem { retry_after, ..problem }))),
            Err(_) => Err(ClientError::Answer(format!("status {status}"))),
        }
    }
}

async fn read<T: DeserializeOwned>(answer: Response) -> Result<T, ClientError> {
    let body = answer.bytes().await?;
    serde_json::from_slice(&body).map_err(|error| ClientError::Answer(error.to_string()))
}

fn timer_path(id: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("/v1/timers/{}", id.replace('+', "%20"))
}

/// Returns the fields of an object that are set, as a query.
fn query_of(fields: &Value) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields.as_object().into_iter().flatten() {
        match value {
            Value::Null => {}
            Value::String(text) => _ = query.append_pair(name, text),
            other => _ = query.append_pair(name, &other.to_string()),
        }
    }
    match query.finish() {
        query if query.is_empty() => query,
        query => format!("?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u4_a_query_has_what_is_set_and_escapes_it() {
        let filter = ListFilter { name: Some("a&b c".into()), limit: Some(7), ..ListFilter::default() };
        assert_eq!(query_of(&json!(filter)), "?limit=7&name=a%26b+c");
        assert_eq!(query_of(&json!(ListFilter::default())), "");
        assert_eq!(timer_path("../x y"), "/v1/timers/..%2Fx%20y");
    }

    #[test]
    fn an_address_must_be_one_of_a_web_server() {
        assert!(Client::new("http://127.0.0.1:7117").is_ok());
        for bad in ["127.0.0.1:7117", "ftp://x", "", "localhost"] {
            assert!(matches!(Client::new(bad), Err(ClientError::Address(_))), "{bad}");
        }
    }
}
