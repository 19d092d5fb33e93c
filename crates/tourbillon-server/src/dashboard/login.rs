//! The login: an API key, kept in a cookie that scripts and other sites cannot use.

use axum::extract::{Form, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::html;
use serde::Deserialize;

use super::page::{Page, Place, message, problem_page};
use super::viewer::is_same_origin;
use crate::access::KEY_COOKIE;
use crate::state::AppState;

/// The field of the form.
#[derive(Deserialize)]
pub(super) struct LoginForm {
    key: String,
}

pub(super) async fn page() -> Response {
    show(None, StatusCode::OK)
}

pub(super) async fn login(State(state): State<AppState>, headers: HeaderMap, Form(form): Form<LoginForm>) -> Response {
    if !is_same_origin(&headers) {
        let detail = "It was not sent by a page of this server.";
        return problem_page(None, StatusCode::FORBIDDEN, "The form was refused", detail);
    }
    let key = form.key.trim();
    if state.keys().fresh().await.find(key).is_none() {
        return show(
            Some("This key is not valid. It was mistyped, revoked, or belongs to another server."),
            StatusCode::FORBIDDEN,
        );
    }
    with_cookie(&state, key, 30 * 24 * 3600, "/")
}

pub(super) async fn logout(State(state): State<AppState>, headers: HeaderMap) -> Response {
    match is_same_origin(&headers) {
        true => with_cookie(&state, "", 0, "/login"),
        false => Redirect::to("/").into_response(),
    }
}

/// Goes on to a page with another cookie.
fn with_cookie(state: &AppState, key: &str, seconds: u32, to: &str) -> Response {
    let secure = if state.config().tls_cert.is_some() { "; Secure" } else { "" };
    let cookie = format!("{KEY_COOKIE}={key}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let mut response = Redirect::to(to).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn show(error: Option<&str>, status: StatusCode) -> Response {
    let body = html! {
        div.login {
            section.card {
                header { h1 { "Sign in" } }
                form.form.body method="post" action="/login" {
                    @if let Some(error) = error { (message(error, true)) }
                    div {
                        label for="login-key" { "API key" }
                        input #login-key type="password" name="key" required autofocus autocomplete="current-password" spellcheck="false";
                        p.hint { "The command " code { "tourbillon key create" } " makes one." }
                    }
                    div.actions { button.button.main type="submit" { "Sign in" } }
                }
            }
        }
    };
    Page { title: "Sign in", place: Place::Elsewhere, viewer: None, status, body }.into_response()
}
