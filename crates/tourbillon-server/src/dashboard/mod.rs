//! The dashboard: pages for a browser.

use axum::Router;
use axum::response::Html;
use axum::routing::get;

use crate::state::AppState;

/// Returns the routes of the dashboard.
pub(crate) fn router(state: AppState) -> Router {
    Router::new().route("/", get(page)).with_state(state)
}

async fn page() -> Html<&'static str> {
    Html("<!doctype html><html lang=en><title>Tourbillon</title><h1>Tourbillon</h1>")
}
