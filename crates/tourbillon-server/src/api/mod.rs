//! The HTTP API under `/v1`.

mod health;
mod timers;

use axum::Router;
use axum::routing::{get, post};

use crate::state::AppState;

/// Returns the routes of the API.
pub(crate) fn router(state: AppState) -> Router {
    Router::new()
        .route("/v1/timers", post(timers::create))
        .route("/v1/timers/{id}", get(timers::get).delete(timers::cancel))
        .route("/healthz", get(health::healthz))
        .with_state(state)
}
