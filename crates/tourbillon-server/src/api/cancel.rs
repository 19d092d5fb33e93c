//! Cancels by key and by name.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tourbillon_durable::Target as TimerTarget;
use utoipa::ToSchema;

use super::docs::Problems;
use super::extract::{Caller, JsonBody};
use super::timers::{CancelAnswer, count_request};
use crate::access::Access;
use crate::problem::Problem;
use crate::state::AppState;

/// Which timers to cancel: exactly one of `key` and `name`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelRequest {
    /// The namespace; `default` if it is not given, or the namespace of the API key if that has exactly one.
    namespace: Option<String>,
    /// The timer with this key.
    key: Option<String>,
    /// All timers with this name.
    name: Option<String>,
}

/// Cancel timers by key or name
///
/// All timers of a name are cancelled in one transaction.
#[utoipa::path(
    post, path = "/v1/cancel", tag = "timers", request_body = CancelRequest,
    responses((status = 200, description = "What was cancelled.", body = CancelAnswer), Problems),
)]
pub(super) async fn cancel(
    State(state): State<AppState>,
    Caller(caller): Caller,
    JsonBody(request): JsonBody<CancelRequest>,
) -> Result<Json<CancelAnswer>, Problem> {
    let namespace = request.namespace.unwrap_or_else(|| caller.default_namespace().to_owned());
    caller.check(&namespace, Access::Write)?;
    count_request(&state, &namespace, 1)?;
    let target = match (request.key, request.name) {
        (Some(key), None) => TimerTarget::Key { namespace, key },
        (None, Some(name)) => TimerTarget::Name { namespace, name },
        _ => return Err(Problem::invalid("give exactly one of `key` and `name`")),
    };
    let counts = state.timers().cancel_target(target).await?;
    state.counters().count_cancelled(counts.cancelled);
    Ok(Json(counts.into()))
}
