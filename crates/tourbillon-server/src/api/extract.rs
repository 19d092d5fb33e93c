//! Parts of requests, with errors that say what to do.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::access::Identity;
use crate::problem::Problem;
use crate::state::AppState;

/// The body of a request, from JSON.
pub(super) struct JsonBody<T>(pub(super) T);

/// The text of a body that is JSON, for a handler that parses it itself.
pub(super) struct JsonText(Bytes);

/// The query of a request.
pub(super) struct Parameters<T>(pub(super) T);

/// The parts of a path that are not fixed.
pub(super) struct Segments<T>(pub(super) T);

/// The caller of a request.
pub(super) struct Caller(pub(super) Identity);

impl<T: DeserializeOwned> FromRequest<AppState> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<JsonBody<T>, Problem> {
        JsonText::from_request(request, state).await?.parse().map(JsonBody)
    }
}

impl FromRequest<AppState> for JsonText {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<JsonText, Problem> {
        check_media_type(request.headers())?;
        let limits = &state.config().limits;
        read_body(request.into_body(), limits.body, limits.body_time).await.map(JsonText)
    }
}

impl JsonText {
    /// Parses the text.
    ///
    /// # Errors
    /// It is not JSON, or not what the description of the API has.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Problem> {
        // Structures can also be read from lists, which the description does not allow.
        if self.0.trim_ascii_start().first() == Some(&b'[') {
            return Err(Problem::invalid("the body is a list, and must be an object"));
        }
        serde_json::from_slice(&self.0).map_err(|error| {
            let detail = format!("the body is not what /docs describes: {error}");
            if error.is_data() { Problem::invalid(detail) } else { Problem::bad_request(detail) }
        })
    }
}

/// Another media type is refused also because a web page can send it to any address without asking.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    if media.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "send the body as JSON, with the header `Content-Type: application/json`";
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "/problems/unsupported-media-type",
        "The body is not JSON",
        detail,
    ))
}

async fn read_body(body: Body, limit: usize, time: Duration) -> Result<Bytes, Problem> {
    let collected = tokio::time::timeout(time, Limited::new(body, limit).collect()).await;
    match collected {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail =
                format!("the body has more than {limit} bytes: send several requests, or store payloads elsewhere");
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "/problems/too-large", "The body is too large", detail))
        }
        Ok(Err(_)) => Err(Problem::bad_request("the body ended before it was complete")),
        Err(_) => {
            let detail = format!("the body took longer than {time:?}");
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "/problems/timeout", "The request took too long", detail))
        }
    }
}

impl<T: DeserializeOwned> FromRequestParts<AppState> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Parameters<T>, Problem> {
        let query = axum::extract::Query::<T>::try_from_uri(&parts.uri);
        query.map(|query| Parameters(query.0)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Segments<T>, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Segments(path.0)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Caller, Problem> {
        let identity = parts.extensions.get::<Identity>().cloned();
        identity.map(Caller).ok_or_else(|| Problem::forbidden("this path needs an API key"))
    }
}
