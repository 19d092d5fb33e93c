//! Dead letters: timers that were given up (V4).

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use tourbillon_durable::store::{RowId, RowState};

use super::docs::Problems;
use super::extract::{Caller, Parameters, Segments};
use super::list::{ListQuery, page};
use super::timers::{announce, count_request, parse_id};
use crate::access::{Access, Identity};
use crate::model::TimerPage;
use crate::problem::Problem;
use crate::state::AppState;

/// List dead letters
#[utoipa::path(
    get, path = "/v1/dead-letters", tag = "dead letters", params(ListQuery),
    responses((status = 200, description = "A page of dead letters. The parameter `state` has no effect.", body = TimerPage), Problems),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Json<TimerPage>, Problem> {
    page(&state, &caller, query, Some(RowState::Dead)).await
}

/// Replay a dead letter
///
/// It is delivered once more at once, or as often as its policy still allows.
#[utoipa::path(
    post, path = "/v1/dead-letters/{id}/{occurrence}/replay", tag = "dead letters",
    params(
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
        ("occurrence" = u64, Path, description = "The number of the occurrence."),
    ),
    responses(
        (status = 204, description = "It is armed again."),
        (status = 404, description = "There is no such dead letter.", body = Problem, content_type = "application/problem+json"),
        Problems,
    ),
)]
pub(super) async fn replay(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments((id, occurrence)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (id, kind) = own_letter(&state, &caller, &id, &occurrence).await?;
    if !state.timers().replay(id).await? {
        return Err(no_such_letter());
    }
    announce(&state, Some(&kind), std::time::SystemTime::UNIX_EPOCH);
    Ok(StatusCode::NO_CONTENT)
}

/// Discard a dead letter
#[utoipa::path(
    delete, path = "/v1/dead-letters/{id}/{occurrence}", tag = "dead letters",
    params(
        ("id" = String, Path, description = "The timer's id.", format = "uuid"),
        ("occurrence" = u64, Path, description = "The number of the occurrence."),
    ),
    responses(
        (status = 204, description = "It has ended."),
        (status = 404, description = "There is no such dead letter.", body = Problem, content_type = "application/problem+json"),
        Problems,
    ),
)]
pub(super) async fn discard(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments((id, occurrence)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (id, _) = own_letter(&state, &caller, &id, &occurrence).await?;
    if state.timers().discard(id).await? { Ok(StatusCode::NO_CONTENT) } else { Err(no_such_letter()) }
}

/// Returns a dead letter that the caller may change, and its kind.
async fn own_letter(
    state: &AppState,
    caller: &Identity,
    id: &str,
    occurrence: &str,
) -> Result<(RowId, String), Problem> {
    let timer = parse_id(id)?;
    let occurrence = occurrence
        .parse()
        .map_err(|_| Problem::bad_request("the occurrence is a whole number, as lists of dead letters show it"))?;
    let id = RowId { timer, occurrence };
    let rows = state.timers().get(timer).await?;
    let row = rows.into_iter().find(|row| row.id == id && row.state == RowState::Dead);
    let row = row.filter(|row| caller.has_namespace(&row.spec.namespace)).ok_or_else(no_such_letter)?;
    caller.check(&row.spec.namespace, Access::Write)?;
    count_request(state, &row.spec.namespace, 1)?;
    Ok((id, row.spec.kind.clone()))
}

fn no_such_letter() -> Problem {
    Problem::not_found("there is no such dead letter: it was replayed or discarded, or it never existed")
}
