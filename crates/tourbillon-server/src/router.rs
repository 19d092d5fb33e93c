//! The routes of the server, and the layers around them.

use axum::Router;
use axum::extract::DefaultBodyLimit;

use crate::state::AppState;
use crate::{api, dashboard};

/// Returns the service for all paths. This is the one place where its parts are put together.
pub(crate) fn router(state: &AppState) -> Router {
    Router::new()
        .merge(api::router(state.clone()))
        .merge(dashboard::router(state.clone()))
        .layer(DefaultBodyLimit::max(state.config().limits.body))
}
