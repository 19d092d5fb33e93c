//! Lists of timers, page by page (U4).

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use tourbillon_durable::store::{Cursor, ListFilter, RowId, RowState};
use tourbillon_durable::{StoreTime, TimerId};
use utoipa::{IntoParams, ToSchema};

use super::docs::Problems;
use super::extract::{Caller, Parameters};
use crate::access::Identity;
use crate::model::{TimeText, TimerPage, TimerView};
use crate::problem::Problem;
use crate::state::AppState;

/// How many timers a page has, if the request does not say.
const USUAL_PAGE: usize = 100;

/// The state of timers in a list.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ListedState {
    /// Waiting for their time.
    Armed,
    /// Being delivered.
    Claimed,
    /// Given up.
    Dead,
}

/// Which timers a list has. Every parameter that is given must match.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    /// The namespace; all that the API key allows if it is not given.
    namespace: Option<String>,
    /// The key.
    key: Option<String>,
    /// The name.
    name: Option<String>,
    /// What the key or the name begins with.
    prefix: Option<String>,
    /// The state.
    state: Option<ListedState>,
    /// Due at this time or later.
    due_after: Option<TimeText>,
    /// Due before this time.
    due_before: Option<TimeText>,
    /// The `next` of the page before.
    cursor: Option<String>,
    /// The most timers of the page; 100 if it is not given.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// List timers
///
/// In the order of their ids, which is about that of their creation. A cursor stays valid whatever happens to the timers.
#[utoipa::path(
    get, path = "/v1/timers", tag = "timers", params(ListQuery),
    responses((status = 200, description = "A page of timers.", body = TimerPage), Problems),
)]
pub(super) async fn list(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Parameters(query): Parameters<ListQuery>,
) -> Result<Json<TimerPage>, Problem> {
    let wanted = query.state.map(|state| match state {
        ListedState::Armed => RowState::Armed,
        ListedState::Claimed => RowState::Claimed,
        ListedState::Dead => RowState::Dead,
    });
    page(&state, &caller, query, wanted).await
}

/// Returns a page of rows in a state.
pub(super) async fn page(
    state: &AppState,
    caller: &Identity,
    query: ListQuery,
    wanted: Option<RowState>,
) -> Result<Json<TimerPage>, Problem> {
    let most = state.config().limits.page;
    let limit = query.limit.unwrap_or(USUAL_PAGE.min(most));
    if !(1..=most).contains(&limit) {
        return Err(Problem::invalid(format!("a page has 1 to {most} timers: follow `next` for more")));
    }
    let time = |time: Option<TimeText>| {
        let time = time.map(|time| StoreTime::try_from(time.0)).transpose();
        time.map_err(|error| Problem::invalid(error.to_string()))
    };
    let namespace = caller.listed_namespace(query.namespace)?;
    if let Some(namespace) = &namespace {
        super::timers::count_request(state, namespace, 1)?;
    }
    let filter = ListFilter {
        namespace,
        key: query.key,
        name: query.name,
        prefix: query.prefix,
        state: wanted,
        due_from: time(query.due_after)?,
        due_before: time(query.due_before)?,
        ..ListFilter::default()
    };
    let cursor = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let page = state.timers().list(filter, cursor, limit).await?;
    let next = page.next.map(|Cursor(id)| format!("{}.{}", id.timer, id.occurrence));
    Ok(Json(TimerPage { timers: page.rows.iter().map(TimerView::from).collect(), next }))
}

fn parse_cursor(text: &str) -> Result<Cursor, Problem> {
    let bad = || Problem::bad_request("the cursor is not the `next` of a page: begin without one");
    let (timer, occurrence) = text.split_once('.').ok_or_else(bad)?;
    let timer: TimerId = timer.parse().map_err(|_| bad())?;
    let occurrence = occurrence.parse().map_err(|_| bad())?;
    Ok(Cursor(RowId { timer, occurrence }))
}
