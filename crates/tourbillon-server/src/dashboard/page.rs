//! What all pages have in common.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::assets::address;
use super::viewer::Viewer;

/// Scripts, styles and images come from files of this server only, and nothing is sent anywhere else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// A page of the dashboard.
pub(super) struct Page<'a> {
    pub(super) title: &'a str,
    /// Which entry of the navigation it is.
    pub(super) place: Place,
    pub(super) viewer: Option<&'a Viewer>,
    pub(super) status: StatusCode,
    pub(super) body: Markup,
}

/// An entry of the navigation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Timers,
    New,
    Elsewhere,
}

impl IntoResponse for Page<'_> {
    fn into_response(self) -> Response {
        let headers: [(HeaderName, HeaderValue); 6] = [
            (header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            // Not `no-referrer`: browsers would send forms with the origin `null`.
            (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        ];
        (self.status, headers, self.markup().into_string()).into_response()
    }
}

impl Page<'_> {
    fn markup(&self) -> Markup {
        let current = |place| (self.place == place).then_some("page");
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Tourbillon" }
                    link rel="icon" href=(address("icon.svg")) type="image/svg+xml";
                    link rel="stylesheet" href=(address("style.css"));
                    script src=(address("app.js")) defer {}
                }
                body {
                    a.skip href="#main" { "Skip to the content" }
                    header.top {
                        div {
                            a.brand href="/" { img src=(address("icon.svg")) alt="" width="26" height="26"; "Tourbillon" }
                            @if let Some(viewer) = self.viewer {
                                nav aria-label="Pages" {
                                    a href="/" aria-current=[current(Place::Timers)] { "Timers" }
                                    @if viewer.can_write {
                                        a #new-timer href="/new" aria-current=[current(Place::New)] { "New timer" }
                                    }
                                    a href="/docs" { "API" }
                                }
                                button.live type="button" hidden title="Stops or resumes live updates" { "Live" }
                                @if viewer.is_signed_in {
                                    form method="post" action="/logout" {
                                        button.button.slim type="submit" { "Sign out" }
                                    }
                                }
                            }
                        }
                    }
                    main #main { (self.body) }
                }
            }
        }
    }
}

/// Returns a page that says what went wrong.
pub(super) fn problem_page(viewer: Option<&Viewer>, status: StatusCode, title: &str, detail: &str) -> Response {
    let body = html! {
        section.card {
            div.empty {
                b { (title) }
                p { (detail) }
                a.button href="/" { "Back to the timers" }
            }
        }
    };
    Page { title, place: Place::Elsewhere, viewer, status, body }.into_response()
}

/// Returns a message about something that was done or refused.
pub(super) fn message(text: &str, is_error: bool) -> Markup {
    match is_error {
        false => html! { p.notice role="status" { (text) } },
        true => html! { p.alert role="alert" { (text) } },
    }
}

/// Returns nothing.
pub(super) fn nothing() -> Markup {
    PreEscaped(String::new())
}
