//! The routes of the server, and the layers around them.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use http::{Method, StatusCode, Uri};
use tower_http::catch_panic::CatchPanicLayer;

use crate::layers::{admit, authenticate};
use crate::problem::Problem;
use crate::state::AppState;
use crate::{api, dashboard};

/// Returns the service for all paths. This is the one place where its parts are put together.
pub(crate) fn router(state: &AppState) -> Router {
    Router::new()
        .merge(api::router(state.clone()))
        .merge(dashboard::router(state.clone()))
        .fallback(nothing)
        .method_not_allowed_fallback(not_allowed)
        .layer(from_fn_with_state(state.clone(), authenticate))
        .layer(CatchPanicLayer::custom(|_| panicked().into_response()))
        .layer(from_fn_with_state(state.clone(), admit))
}

async fn nothing(uri: Uri) -> Problem {
    Problem::not_found(format!("there is nothing at {}: /docs lists all paths", uri.path()))
}

async fn not_allowed(method: Method, uri: Uri) -> Problem {
    let detail = format!("{} does not take {method}: /docs lists what it takes", uri.path());
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "/problems/method-not-allowed",
        "The method is not allowed here",
        detail,
    )
}

fn panicked() -> Problem {
    let detail = "the server has a fault, and goes on: please report what you sent";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "/problems/internal", "The server has a fault", detail)
}
