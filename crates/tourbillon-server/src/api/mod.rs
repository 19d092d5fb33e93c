//! The HTTP API under `/v1`, and what describes it.

mod cancel;
mod dead_letters;
mod docs;
mod events;
mod extract;
mod health;
mod list;
mod metrics;
mod queues;
mod receipt;
mod timers;

use axum::Router;
use axum::routing::get;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Description;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

/// Returns the routes of the API.
pub(crate) fn router(state: AppState) -> Router {
    let (routes, description) = described();
    let description = docs::Documents::new(&description);
    routes
        .route("/openapi.json", get(docs::openapi))
        .route("/docs", get(docs::page))
        .layer(axum::Extension(description))
        .with_state(state)
}

/// Returns the routes together with their description.
fn described() -> (Router<AppState>, Description) {
    OpenApiRouter::with_openapi(docs::ApiDescription::openapi())
        .routes(routes!(timers::create, list::list))
        .routes(routes!(timers::create_batch))
        .routes(routes!(timers::get, timers::reschedule, timers::cancel))
        .routes(routes!(cancel::cancel))
        .routes(routes!(queues::pull))
        .routes(routes!(queues::ack))
        .routes(routes!(queues::nack))
        .routes(routes!(queues::extend))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::replay))
        .routes(routes!(dead_letters::discard))
        .routes(routes!(events::stream))
        .routes(routes!(metrics::metrics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .split_for_parts()
}
