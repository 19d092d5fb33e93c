//! Layers around all requests: the caller's identity, and a place to be served.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, Method, header};

use crate::access::{Identity, KEY_COOKIE, Urgency};
use crate::problem::Problem;
use crate::state::AppState;

/// Paths that need no key.
const OPEN_PATHS: &[&str] = &["/healthz", "/readyz", "/docs", "/openapi.json", "/login", "/logout"];

/// Where the files of the pages are, which need no key either.
const OPEN_FOLDER: &str = "/assets/";

/// Identifies the caller, and refuses callers without access. Handlers find an [`Identity`] among the extensions of the request.
pub(crate) async fn authenticate(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    if let Err(problem) = check_site(&request) {
        return problem.into_response();
    }
    let keys = state.keys().fresh().await;
    if !keys.is_required() {
        if let Err(problem) = check_local(&state, &request) {
            return problem.into_response();
        }
        request.extensions_mut().insert(Identity::anybody());
        return next.run(request).await;
    }
    if OPEN_PATHS.contains(&request.uri().path()) || request.uri().path().starts_with(OPEN_FOLDER) {
        return next.run(request).await;
    }
    let key = presented_key(request.headers()).or_else(|| cookie_key(&request));
    match key.and_then(|key| keys.find(&key)) {
        Some(identity) => {
            request.extensions_mut().insert(identity);
            next.run(request).await
        }
        None => unauthorized(&request),
    }
}

/// Returns the key of a request: a bearer token, or the password of a basic authentication.
fn presented_key(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, value) = text.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(value.trim().to_owned());
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = String::from_utf8(STANDARD.decode(value.trim()).ok()?).ok()?;
    decoded.split_once(':').map(|(_, password)| password.to_owned())
}

/// Returns the key in the cookie of the dashboard. It counts for pages and their forms, which know where they come from, and for what only
/// reads: a request of the API that changes something needs the header.
fn cookie_key(request: &Request) -> Option<String> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD);
    if is_api(request.uri().path()) && !is_safe {
        return None;
    }
    let cookies = request.headers().get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == KEY_COOKIE).map(|(_, value)| value.to_owned())
}

fn is_api(path: &str) -> bool {
    path.starts_with("/v1/") || path == "/metrics"
}

/// Sends a browser that wants a page to the login; everybody else is told what is missing.
fn unauthorized(request: &Request) -> Response {
    if !is_api(request.uri().path()) && *request.method() == Method::GET {
        return Redirect::to("/login").into_response();
    }
    let detail = "an API key is needed: send `Authorization: Bearer tbk_…`. `tourbillon key create` makes one";
    let problem =
        Problem::new(http::StatusCode::UNAUTHORIZED, "/problems/unauthorized", "There is no valid API key", detail);
    let mut response = problem.into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    response
}

/// Refuses changes that the page of another web site makes through the browser of somebody who can reach the server.
fn check_site(request: &Request) -> Result<(), Problem> {
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    let site = request.headers().get("sec-fetch-site").and_then(|site| site.to_str().ok());
    if !is_safe && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return Err(Problem::forbidden("another web site made this request"));
    }
    Ok(())
}

/// Refuses requests to a server without keys under another name than those of this machine, as a web page can make them by DNS rebinding.
fn check_local(state: &AppState, request: &Request) -> Result<(), Problem> {
    if state.config().allow_unauthenticated {
        return Ok(());
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().host());
    if host.is_some_and(|host| !is_local_name(host)) {
        let detail = "without API keys the server answers only to `localhost` and loopback addresses as its host";
        return Err(Problem::forbidden(detail));
    }
    Ok(())
}

fn is_local_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Serves a request if there is a place for it, and answers 429 otherwise (O2).
pub(crate) async fn admit(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let urgency = Urgency::of(request.method(), request.uri().path());
    let Some(_place) = state.gate().enter(urgency) else {
        state.counters().count_refused();
        let detail = "the server has too many requests at the moment: try again after the time in `Retry-After`";
        return Problem::too_many(detail, 1).into_response();
    };
    let response = next.run(request).await;
    state.counters().count_answer(response.status());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn o3_only_names_of_this_machine_are_local() {
        for local in ["localhost", "localhost:7117", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:7117", "LocalHost:1"]
        {
            assert!(is_local_name(local), "{local}");
        }
        for foreign in ["evil.test", "localhost.evil.test", "10.0.0.1:7117", "127.0.0.1.evil.test", ""] {
            assert!(!is_local_name(foreign), "{foreign}");
        }
    }
}
