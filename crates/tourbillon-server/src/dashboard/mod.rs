//! The dashboard: pages for a browser, drawn by the server.
//!
//! Every page works without a script. The script listens to `/v1/events` and fetches the page again when something has happened. Forms go
//! through the API of this process, with the viewer's key.

mod actions;
mod assets;
mod charts;
mod create;
mod format;
mod list;
mod login;
mod page;
mod rows;
mod timer;
mod viewer;

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;

use crate::state::AppState;

/// How long a page may take, and a form to arrive.
const LONGEST: Duration = Duration::from_secs(30);

/// Returns the routes of the dashboard.
pub(crate) fn router(state: AppState) -> Router {
    Router::new()
        .route("/", get(list::page))
        .route("/new", get(create::page).post(create::create))
        .route("/timers/{id}", get(timer::page))
        .route("/timers/{id}/cancel", post(actions::cancel))
        .route("/timers/{id}/reschedule", post(actions::reschedule))
        .route("/timers/{id}/{occurrence}/replay", post(actions::replay))
        .route("/timers/{id}/{occurrence}/discard", post(actions::discard))
        .route("/cancel-name", post(actions::cancel_name))
        .route("/login", get(login::page).post(login::login))
        .route("/logout", post(login::logout))
        .route("/assets/{name}", get(assets::serve))
        .layer(from_fn(in_time))
        .with_state(state)
}

/// Gives up a request that takes too long: a form that never ends, or a store that does not answer.
async fn in_time(request: Request, next: Next) -> Response {
    let page = tokio::time::timeout(LONGEST, next.run(request)).await;
    page.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}
