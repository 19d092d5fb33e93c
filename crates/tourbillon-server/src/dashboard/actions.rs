//! What the buttons do: each is a request to the API, in this process and with the viewer's key, so that the same rules hold for it.

use axum::extract::{Form, Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde::Deserialize;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::page::problem_page;
use super::viewer::{Sender, Viewer};
use crate::state::AppState;

/// The most bytes of an answer that are read.
const LONGEST_ANSWER: usize = 1 << 20;

/// Why the API refused a request.
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) title: String,
    pub(super) detail: String,
}

/// Sends a request to the API of this process.
pub(super) async fn call(
    state: &AppState,
    viewer: &Viewer,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> Result<Value, Refusal> {
    let mut request = Request::builder().method(method).uri(path).extension(viewer.identity.clone());
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let internal = |detail: String| Refusal {
        status: StatusCode::INTERNAL_SERVER_ERROR,
        title: "The request failed".to_owned(),
        detail,
    };
    let request = request.body(axum::body::Body::from(body)).map_err(|error| internal(error.to_string()))?;
    let answer = match crate::api::router(state.clone()).oneshot(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let status = answer.status();
    let body = http_body_util::Limited::new(answer.into_body(), LONGEST_ANSWER).collect().await;
    let bytes = body.map_err(|error| internal(error.to_string()))?.to_bytes();
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    if status.is_success() {
        return Ok(value);
    }
    let text = |name: &str, default: &str| value[name].as_str().unwrap_or(default).to_owned();
    let title = text("title", status.canonical_reason().unwrap_or("The request failed"));
    Err(Refusal { status, title, detail: text("detail", "The server gave no reason.") })
}

/// Returns the sentence about something that was done, by the name that the address of a page has for it.
pub(super) fn done_message(done: &str, count: u64) -> Option<String> {
    Some(match (done, count) {
        ("created", _) => "The timer was created.".to_owned(),
        ("existing", _) => "The same timer was pending already.".to_owned(),
        ("cancelled", 0) => "Nothing was cancelled: it has fired or ended before.".to_owned(),
        ("cancelled", 1) => "The timer was cancelled. It will not be delivered.".to_owned(),
        ("cancelled", count) => format!("{count} timers were cancelled. They will not be delivered."),
        ("in-flight", _) => "The timer is being delivered and was not cancelled.".to_owned(),
        ("rescheduled", _) => "The timer has another due time.".to_owned(),
        ("replayed", _) => "The dead letter is delivered once more.".to_owned(),
        ("discarded", _) => "The dead letter was discarded.".to_owned(),
        ("gone", _) => "It was not there any more.".to_owned(),
        _ => return None,
    })
}

/// Goes on to a page, or shows why the request was refused.
fn finish(viewer: &Viewer, result: Result<String, Refusal>) -> Response {
    match result {
        Ok(address) => Redirect::to(&address).into_response(),
        Err(refusal) => problem_page(Some(viewer), refusal.status, &refusal.title, &refusal.detail),
    }
}

/// Returns the address of a page that says what a cancel has done.
fn after_cancel(page: &str, counts: &Value) -> String {
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    match (count("cancelled"), count("in_flight")) {
        (0, 1..) => format!("{page}?done=in-flight"),
        (cancelled, _) => format!("{page}?done=cancelled&n={cancelled}"),
    }
}

pub(super) async fn cancel(State(state): State<AppState>, Sender(viewer): Sender, Path(id): Path<String>) -> Response {
    let page = format!("/timers/{}", segment(&id));
    let result = call(&state, &viewer, Method::DELETE, &format!("/v1{page}"), None).await;
    finish(&viewer, result.map(|counts| after_cancel(&page, &counts)))
}

/// The fields of the form that cancels all timers of a name.
#[derive(Deserialize)]
pub(super) struct CancelName {
    namespace: String,
    name: String,
}

pub(super) async fn cancel_name(
    State(state): State<AppState>,
    Sender(viewer): Sender,
    Form(form): Form<CancelName>,
) -> Response {
    let body = json!({ "namespace": form.namespace, "name": form.name });
    let result = call(&state, &viewer, Method::POST, "/v1/cancel", Some(body)).await;
    finish(&viewer, result.map(|counts| after_cancel("/", &counts)))
}

/// The fields of the form that reschedules a timer.
#[derive(Deserialize)]
pub(super) struct Reschedule {
    when: String,
    #[serde(default)]
    after: String,
    #[serde(default)]
    at: String,
    version: Option<u64>,
}

pub(super) async fn reschedule(
    State(state): State<AppState>,
    Sender(viewer): Sender,
    Path(id): Path<String>,
    Form(form): Form<Reschedule>,
) -> Response {
    let page = format!("/timers/{}", segment(&id));
    let mut body = match form.when.as_str() {
        "at" => json!({ "at": utc_time(&form.at) }),
        _ => json!({ "after": form.after }),
    };
    if let Some(version) = form.version {
        body["if_version"] = version.into();
    }
    let result = call(&state, &viewer, Method::PATCH, &format!("/v1{page}"), Some(body)).await;
    finish(&viewer, result.map(|_| format!("{page}?done=rescheduled")))
}

pub(super) async fn replay(
    State(state): State<AppState>,
    Sender(viewer): Sender,
    Path((id, occurrence)): Path<(String, u64)>,
) -> Response {
    let path = format!("/v1/dead-letters/{}/{occurrence}/replay", segment(&id));
    let result = call(&state, &viewer, Method::POST, &path, None).await;
    finish(&viewer, result.map(|_| format!("/timers/{}?done=replayed", segment(&id))))
}

pub(super) async fn discard(
    State(state): State<AppState>,
    Sender(viewer): Sender,
    Path((id, occurrence)): Path<(String, u64)>,
) -> Response {
    let path = format!("/v1/dead-letters/{}/{occurrence}", segment(&id));
    let result = call(&state, &viewer, Method::DELETE, &path, None).await;
    finish(&viewer, result.map(|_| format!("/timers/{}?done=discarded", segment(&id))))
}

/// Returns a text as one segment of a path.
fn segment(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// Returns the value of an input for a local time as RFC 3339 has it, in UTC. Other texts are left to the API to refuse.
pub(super) fn utc_time(text: &str) -> String {
    let text = text.trim();
    match text.len() {
        // 2026-11-18T08:00, and with seconds.
        16 if text.is_ascii() => format!("{text}:00Z"),
        17..=23 if text.is_ascii() && !text.ends_with(['Z', 'z']) && text.contains('T') => format!("{text}Z"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_times_of_a_form_are_in_utc() {
        assert_eq!(utc_time("2026-11-18T08:00"), "2026-11-18T08:00:00Z");
        assert_eq!(utc_time("2026-11-18T08:00:30"), "2026-11-18T08:00:30Z");
        assert_eq!(utc_time("2026-11-18T08:00:30.250"), "2026-11-18T08:00:30.250Z");
        for other in ["2026-11-18T08:00:00Z", "2026-11-18T08:00:00+01:00", "tomorrow", ""] {
            assert_eq!(utc_time(other), other);
        }
    }

    #[test]
    fn only_known_messages_are_shown() {
        assert_eq!(done_message("<script>", 1), None);
        assert_eq!(
            done_message("cancelled", 3).as_deref(),
            Some("3 timers were cancelled. They will not be delivered.")
        );
    }

    #[test]
    fn an_id_of_a_path_stays_one_segment() {
        assert_eq!(segment("../../x y"), "..%2F..%2Fx%20y");
    }
}
