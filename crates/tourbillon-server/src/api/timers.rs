//! Timers: create, get, reschedule, cancel.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::{Deserialize, Serialize};
use tourbillon_durable::spec::{FirstDue, HIGHEST_PAYLOAD_LIMIT, Limits};
use tourbillon_durable::{CancelCounts, NewTimer, StoreTime, Target as TimerTarget, TimerId, TimersError};
use utoipa::ToSchema;

use super::docs::Problems;
use super::extract::{Caller, JsonBody, JsonText, Segments};
use crate::access::{Access, Identity};
use crate::model::{CreateTimer, Created, DurationText, INT64, SharedText, TimeText, TimerDetail, check_most};
use crate::problem::Problem;
use crate::state::AppState;

/// Timers to be created together.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateBatch {
    /// The timers. If one of them is invalid, none is created.
    #[schema(min_items = 1, max_items = 1000)]
    timers: Vec<CreateTimer>,
}

/// The answers to a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CreatedBatch {
    /// One for each timer, in their order.
    results: Vec<BatchResult>,
}

/// The answer to one timer of a batch.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BatchResult {
    /// 201 if it was created, 200 if it was there already, 409 for a conflict, 503 or 507 if the store failed.
    status: u16,
    /// The timer.
    #[serde(skip_serializing_if = "Option::is_none")]
    timer: Option<Created>,
    /// Why it was not created.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// Another time for a timer: exactly one of `at` and `after`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Reschedule {
    /// Due at this time.
    at: Option<TimeText>,
    /// Due so long after the store has accepted the change.
    after: Option<DurationText>,
    /// Only if the timer still has this version.
    if_version: Option<u64>,
}

/// A timer that has another due time.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RescheduledTimer {
    /// The timer's id.
    id: String,
    /// When it is due.
    due: TimeText,
    /// Its new version.
    version: u64,
}

/// What a cancel found. What is counted as cancelled is never delivered afterwards.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct CancelAnswer {
    /// Pending occurrences that were cancelled.
    cancelled: u64,
    /// Occurrences that are being delivered: their receiver may see them.
    in_flight: u64,
    /// Occurrences that had ended before, and 1 if there is no such timer.
    gone: u64,
}

impl From<CancelCounts> for CancelAnswer {
    fn from(counts: CancelCounts) -> CancelAnswer {
        CancelAnswer { cancelled: counts.cancelled, in_flight: counts.in_flight, gone: counts.gone }
    }
}

/// A timer that may be created.
struct Accepted {
    timer: NewTimer,
    about: AcceptedAbout,
}

/// What is needed of a timer after the store has taken it.
struct AcceptedAbout {
    namespace: Arc<str>,
    key: Option<String>,
    /// The kind, if it is for a queue.
    queue: Option<Arc<str>>,
}

/// Checks creates one after the other, and shares texts between them.
struct Acceptance<'a> {
    state: &'a AppState,
    caller: &'a Identity,
    namespaces: SharedText,
    kinds: SharedText,
}

/// Create a timer
///
/// The answer comes when the timer is durable. A create with a `key` can be repeated without harm.
#[utoipa::path(
    post, path = "/v1/timers", tag = "timers", request_body = CreateTimer,
    responses(
        (status = 201, description = "The timer was created.", body = Created),
        (status = 200, description = "A timer with the key is pending and stays: it was asked for in the same way, or `on_conflict` says so.", body = Created),
        (status = 409, description = "A pending timer has the key and was asked for differently.", body = Problem, content_type = "application/problem+json"),
        (status = 507, description = "The disk is nearly full. Cancels and deliveries go on.", body = Problem, content_type = "application/problem+json"),
        Problems,
    ),
)]
pub(super) async fn create(
    State(state): State<AppState>,
    Caller(caller): Caller,
    JsonBody(request): JsonBody<CreateTimer>,
) -> Result<(StatusCode, Json<Created>), Problem> {
    let Accepted { timer, about } = Acceptance::new(&state, &caller).accept(request)?;
    count_request(&state, &about.namespace, 1)?;
    reserve(&state, &about.namespace, 1).await?;
    let created = state.timers().create(timer).await?;
    announce(&state, about.queue.as_deref(), created.due);
    state.counters().count_created(u64::from(created.is_new));
    let status = if created.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(about.answer(&created))))
}

/// Create many timers
///
/// All are created in one durable write, as far as their keys allow it.
#[utoipa::path(
    post, path = "/v1/timers/batch", tag = "timers", request_body = CreateBatch,
    responses((status = 200, description = "What became of each timer.", body = CreatedBatch), Problems),
)]
pub(super) async fn create_batch(
    State(state): State<AppState>,
    Caller(caller): Caller,
    body: JsonText,
) -> Result<Response, Problem> {
    let CreateBatch { timers: requests } = body.parse()?;
    let limit = state.config().limits.batch;
    if requests.is_empty() || requests.len() > limit {
        return Err(Problem::invalid(format!("a batch has 1 to {limit} timers: send several batches")));
    }
    let (mut timers, mut about) = (Vec::with_capacity(requests.len()), Vec::with_capacity(requests.len()));
    let mut acceptance = Acceptance::new(&state, &caller);
    for (index, request) in requests.into_iter().enumerate() {
        let at = |problem: Problem| Problem { detail: format!("timers[{index}]: {}", problem.detail), ..problem };
        let accepted = acceptance.accept(request).map_err(at)?;
        timers.push(accepted.timer);
        about.push(accepted.about);
    }
    limit_namespaces(&state, &about).await?;
    let created = match state.timers().create_all(timers).await {
        Err(TimersError::Invalid(_)) => return Err(first_invalid(&state, &caller, &body)),
        created => created?,
    };
    announce_all(&state, &about, &created);
    let is_new = created.iter().flatten().filter(|created| created.is_new).count();
    state.counters().count_created(is_new as u64);
    let results = created.into_iter().zip(about).map(|(created, about)| match created {
        Ok(created) => {
            let status = if created.is_new { 201 } else { 200 };
            BatchResult { status, timer: Some(about.answer(&created)), problem: None }
        }
        Err(error) => {
            let problem = Problem::from(error);
            BatchResult { status: problem.status, timer: None, problem: Some(problem) }
        }
    });
    Ok(large_json(&CreatedBatch { results: results.collect() }))
}

/// Returns an answer that is written into one buffer of about the right size.
fn large_json(batch: &CreatedBatch) -> Response {
    const BYTES_EACH: usize = 192;
    let mut text = Vec::with_capacity(batch.results.len() * BYTES_EACH);
    match serde_json::to_writer(&mut text, batch) {
        Ok(()) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// Get a timer
///
/// With all that the store knows of it: the occurrences that are pending, being delivered or dead, and how others have ended.
#[utoipa::path(
    get, path = "/v1/timers/{id}", tag = "timers", params(("id" = String, Path, description = "The timer's id.", format = "uuid")),
    responses(
        (status = 200, description = "The timer.", body = TimerDetail),
        (status = 404, description = "There is no such timer.", body = Problem, content_type = "application/problem+json"),
        Problems,
    ),
)]
pub(super) async fn get(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(id): Segments<String>,
) -> Result<Json<TimerDetail>, Problem> {
    let id = parse_id(&id)?;
    let (rows, history) = (state.timers().get(id).await?, state.timers().history(id).await?);
    let detail = TimerDetail::new(&rows, &history).filter(|timer| caller.has_namespace(&timer.namespace));
    let detail = detail.ok_or_else(no_such_timer)?;
    caller.check(&detail.namespace, Access::Read)?;
    count_request(&state, &detail.namespace, 1)?;
    Ok(Json(detail))
}

/// Reschedule a timer
#[utoipa::path(
    patch, path = "/v1/timers/{id}", tag = "timers", request_body = Reschedule,
    params(("id" = String, Path, description = "The timer's id.", format = "uuid")),
    responses(
        (status = 200, description = "The timer has another due time.", body = RescheduledTimer),
        (status = 404, description = "No such timer is pending.", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "The timer is being delivered, or has another version.", body = Problem, content_type = "application/problem+json"),
        Problems,
    ),
)]
pub(super) async fn reschedule(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(id): Segments<String>,
    JsonBody(request): JsonBody<Reschedule>,
) -> Result<Json<RescheduledTimer>, Problem> {
    let id = parse_id(&id)?;
    check_most("if_version", request.if_version, INT64).map_err(Problem::invalid)?;
    let when = match (request.at, request.after) {
        (Some(at), None) => {
            let at = StoreTime::try_from(at.0).map_err(|error| Problem::invalid(error.to_string()))?;
            FirstDue::At(at)
        }
        (None, Some(after)) => FirstDue::After(after.0),
        _ => return Err(Problem::invalid("give exactly one of `at` and `after`")),
    };
    let kind = own_kind(&state, &caller, id).await?.ok_or_else(no_such_timer)?;
    let moved = state.timers().reschedule(TimerTarget::Id(id), when, request.if_version).await?;
    announce(&state, Some(&kind), moved.due);
    Ok(Json(RescheduledTimer { id: id.to_string(), due: TimeText(moved.due), version: moved.version }))
}

/// Cancel a timer
#[utoipa::path(
    delete, path = "/v1/timers/{id}", tag = "timers", params(("id" = String, Path, description = "The timer's id.", format = "uuid")),
    responses((status = 200, description = "What was cancelled.", body = CancelAnswer), Problems),
)]
pub(super) async fn cancel(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(id): Segments<String>,
) -> Result<Json<CancelAnswer>, Problem> {
    let id = parse_id(&id)?;
    // A key for all namespaces needs no look at the timer.
    if caller.sees_all() {
        caller.check_access(Access::Write)?;
    } else if own_kind(&state, &caller, id).await?.is_none() {
        return Ok(Json(CancelAnswer { cancelled: 0, in_flight: 0, gone: 1 }));
    }
    let counts = state.timers().cancel_target(TimerTarget::Id(id)).await?;
    state.counters().count_cancelled(counts.cancelled);
    Ok(Json(counts.into()))
}

impl<'a> Acceptance<'a> {
    fn new(state: &'a AppState, caller: &'a Identity) -> Acceptance<'a> {
        Acceptance { state, caller, namespaces: SharedText::default(), kinds: SharedText::default() }
    }

    /// Checks a create as far as that is possible without the store.
    fn accept(&mut self, request: CreateTimer) -> Result<Accepted, Problem> {
        let namespace = request.namespace(self.caller.default_namespace());
        self.caller.check(namespace, Access::Write)?;
        if let Some(url) = request.webhook_url() {
            self.state.webhooks().check(url).map_err(Problem::invalid)?;
        }
        let namespace = self.namespaces.share(namespace);
        let (key, is_for_queue) = (request.key.clone(), request.is_for_queue());
        let limit = self.state.config().limits.payload;
        let (timer, kind) = request.into_timer(&namespace, limit, &mut self.kinds).map_err(Problem::invalid)?;
        let queue = is_for_queue.then_some(kind);
        Ok(Accepted { timer, about: AcceptedAbout { namespace, key, queue } })
    }
}

impl AcceptedAbout {
    fn answer(self, created: &tourbillon_durable::Created) -> Created {
        let AcceptedAbout { namespace, key, .. } = self;
        Created { id: created.id, namespace, key, due: TimeText(created.due), version: created.version }
    }
}

/// Returns what is wrong with the first timer of a batch that the store refuses. The body is parsed again, because this is rare.
fn first_invalid(state: &AppState, caller: &Identity, body: &JsonText) -> Problem {
    let limits = Limits { payload: HIGHEST_PAYLOAD_LIMIT };
    let timers = body.parse().map_or_else(|_| Vec::new(), |batch: CreateBatch| batch.timers);
    let mut acceptance = Acceptance::new(state, caller);
    let wrong = timers.into_iter().enumerate().find_map(|(index, request)| {
        let error = acceptance.accept(request).ok()?.timer.check(limits).err()?;
        Some(format!("timers[{index}]: {error}"))
    });
    Problem::invalid(wrong.unwrap_or_else(|| "one of the timers cannot be created".to_owned()))
}

/// Counts requests of a namespace against its rate.
pub(super) fn count_request(state: &AppState, namespace: &str, requests: u32) -> Result<(), Problem> {
    let limit = state.config().namespace(namespace).requests_per_second;
    state.rates().count(namespace, limit, requests, Instant::now()).map_err(|wait| {
        let detail = format!("the namespace {namespace:?} may make {} requests a second", limit.unwrap_or_default());
        Problem::too_many(detail, wait.as_secs() + 1)
    })
}

async fn reserve(state: &AppState, namespace: &str, new: u64) -> Result<(), Problem> {
    let limit = state.config().namespace(namespace).pending;
    if state.pending().reserve(state.timers(), namespace, limit, new).await? {
        return Ok(());
    }
    let detail = format!(
        "the namespace {namespace:?} has its {} pending timers: cancel some, or wait until some have fired",
        limit.unwrap_or_default()
    );
    Err(Problem::too_many(detail, 5))
}

async fn limit_namespaces(state: &AppState, accepted: &[AcceptedAbout]) -> Result<(), Problem> {
    let mut counts = std::collections::BTreeMap::<&str, u32>::new();
    for run in accepted.chunk_by(|one, next| one.namespace == next.namespace) {
        *counts.entry(&run[0].namespace).or_default() += run.len() as u32;
    }
    for (namespace, count) in counts {
        count_request(state, namespace, count)?;
        reserve(state, namespace, u64::from(count)).await?;
    }
    Ok(())
}

/// Tells workers of the first due time of each queue that timers of a batch are for.
fn announce_all(
    state: &AppState,
    accepted: &[AcceptedAbout],
    created: &[Result<tourbillon_durable::Created, TimersError>],
) {
    let mut first_due = std::collections::BTreeMap::<&str, SystemTime>::new();
    for (about, created) in accepted.iter().zip(created) {
        if let (Some(queue), Ok(created)) = (&about.queue, created) {
            let due = first_due.entry(queue).or_insert(created.due);
            *due = created.due.min(*due);
        }
    }
    for (queue, due) in first_due {
        announce(state, Some(queue), due);
    }
}

/// Tells workers that wait for a queue that one of its timers is due at some time.
pub(super) fn announce(state: &AppState, kind: Option<&str>, due: SystemTime) {
    if let Some(kind) = kind {
        state.queues().notice(kind, due);
    }
}

/// Returns the kind of a timer that the caller may change; `None` if there is none that the caller may see.
async fn own_kind(state: &AppState, caller: &Identity, id: TimerId) -> Result<Option<String>, Problem> {
    let rows = state.timers().get(id).await?;
    let Some(row) = rows.first().filter(|row| caller.has_namespace(&row.spec.namespace)) else { return Ok(None) };
    caller.check(&row.spec.namespace, Access::Write)?;
    count_request(state, &row.spec.namespace, 1)?;
    Ok(Some(row.spec.kind.clone()))
}

pub(super) fn parse_id(text: &str) -> Result<TimerId, Problem> {
    text.parse().map_err(|error: tourbillon_durable::BadTimerId| Problem::bad_request(error.to_string()))
}

pub(super) fn no_such_timer() -> Problem {
    Problem::not_found("there is no such timer: it has ended and is forgotten, or it never existed")
}
