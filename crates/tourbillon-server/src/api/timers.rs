//! Timers: create, get, cancel.

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tourbillon_durable::{NewTimer, Target, TimerId};

use crate::durations::{format_time, parse_duration};
use crate::problem::Problem;
use crate::state::AppState;

#[derive(Deserialize)]
pub(super) struct CreateRequest {
    key: Option<String>,
    after: String,
    queue: String,
}

#[derive(Serialize)]
pub(super) struct CreatedTimer {
    id: String,
    due: String,
    version: u64,
}

pub(super) async fn create(
    State(state): State<AppState>,
    Json(request): Json<CreateRequest>,
) -> Result<(StatusCode, Json<CreatedTimer>), Problem> {
    let after = parse_duration(&request.after).map_err(Problem::invalid)?;
    let mut timer = NewTimer::after(request.queue, after);
    if let Some(key) = request.key {
        timer = timer.key(key);
    }
    let created = state.timers().create(timer).await?;
    let status = if created.is_new { StatusCode::CREATED } else { StatusCode::OK };
    let answer = CreatedTimer { id: created.id.to_string(), due: format_time(created.due), version: created.version };
    Ok((status, Json(answer)))
}

pub(super) async fn get(State(state): State<AppState>, Path(id): Path<String>) -> Result<Json<CreatedTimer>, Problem> {
    let id: TimerId = id.parse().map_err(|_| Problem::bad_request("not an id"))?;
    let rows = state.timers().get(id).await?;
    let row = rows.first().ok_or_else(|| Problem::not_found("no such timer is pending"))?;
    Ok(Json(CreatedTimer { id: row.id.timer.to_string(), due: format_time(row.due.to_system()), version: row.version }))
}

pub(super) async fn cancel(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<tourbillon_durable::CancelCounts>, Problem> {
    let id: TimerId = id.parse().map_err(|_| Problem::bad_request("not an id"))?;
    Ok(Json(state.timers().cancel_target(Target::Id(id)).await?))
}
