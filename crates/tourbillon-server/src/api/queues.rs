//! Queues: pull, ack, nack, extend (V3).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use tourbillon_durable::{Ack, Pulled, Receipt};
use utoipa::ToSchema;

use super::docs::Problems;
use super::extract::{Caller, JsonBody, Segments};
use super::receipt;
use super::timers::{announce, count_request};
use crate::access::{Access, Identity};
use crate::deliver::{Target, Want};
use crate::model::{DurationText, PulledTimer};
use crate::problem::Problem;
use crate::state::AppState;

const USUAL_LEASE: Duration = Duration::from_secs(30);
const SHORTEST_LEASE: Duration = Duration::from_secs(1);
const LONGEST_LEASE: Duration = Duration::from_secs(12 * 3600);
const LONGEST_ERROR: usize = 1_000;

/// What a worker asks for.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PullBody {
    /// The namespace of the queue; `default` if it is not given, or the namespace of the API key if that has exactly one.
    namespace: Option<String>,
    /// The most timers; 1 if it is not given.
    #[schema(minimum = 1, maximum = 1000)]
    max: Option<usize>,
    /// How long to wait for the first timer; not at all if it is not given.
    wait: Option<DurationText>,
    /// How long the worker may take for each timer, from 1 s to 12 h; 30 s if it is not given. After that it is delivered again.
    lease: Option<DurationText>,
}

/// Timers for a worker.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct PullPage {
    /// The timers, those that are due for longest first; none if none was due in time.
    timers: Vec<PulledTimer>,
}

/// Deliveries that are done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AckBody {
    /// The namespace of the queue.
    namespace: Option<String>,
    /// The receipts, as `pull` gave them.
    #[schema(min_items = 1, max_items = 1000)]
    receipts: Vec<String>,
}

/// Deliveries that failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NackBody {
    /// The namespace of the queue.
    namespace: Option<String>,
    /// The receipts, as `pull` gave them.
    #[schema(min_items = 1, max_items = 1000)]
    receipts: Vec<String>,
    /// After which time to deliver again; as the timer's retry policy says if it is not given.
    after: Option<DurationText>,
    /// Why it failed.
    error: Option<String>,
    /// Whether it failed for good: the timer becomes a dead letter.
    #[serde(default)]
    give_up: bool,
}

/// Deliveries that take longer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExtendBody {
    /// The namespace of the queue.
    namespace: Option<String>,
    /// The receipts, as `pull` gave them.
    #[schema(min_items = 1, max_items = 1000)]
    receipts: Vec<String>,
    /// How long the worker may take from now on, from 1 s to 12 h.
    lease: DurationText,
}

/// What became of receipts.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ReceiptAnswer {
    /// How many were accepted.
    accepted: usize,
    /// Those that are stale: their lease was over and the timer was delivered again, or they were used before.
    stale: Vec<String>,
}

/// Pull due timers
///
/// Any node of a cluster hands out the due timers of all. A timer belongs to the worker until its lease is over.
#[utoipa::path(
    post, path = "/v1/queues/{queue}/pull", tag = "queues", request_body = PullBody,
    params(("queue" = String, Path, description = "The name of the queue.")),
    responses((status = 200, description = "The timers.", body = PullPage), Problems),
)]
pub(super) async fn pull(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(queue): Segments<String>,
    JsonBody(body): JsonBody<PullBody>,
) -> Result<Json<PullPage>, Problem> {
    let (namespace, kind) = own_queue(&state, &caller, body.namespace, &queue)?;
    let limits = &state.config().limits;
    let max = body.max.unwrap_or(1);
    if !(1..=limits.pull).contains(&max) {
        return Err(Problem::invalid(format!("`max` is 1 to {}", limits.pull)));
    }
    let wait = body.wait.map_or(Duration::ZERO, |wait| wait.0);
    if wait > limits.longest_poll {
        return Err(Problem::invalid(format!("`wait` is at most {:?}: pull again", limits.longest_poll)));
    }
    let lease = check_lease(body.lease.map_or(USUAL_LEASE, |lease| lease.0))?;
    let room = state.places().pull_room(&namespace, max);
    if room == 0 {
        let detail = format!("workers of the namespace {namespace:?} hold as many timers as it may have in flight");
        return Err(Problem::too_many(detail, 1));
    }
    let pulled = state.queues().pull(&kind, Want { max: room, lease, wait }).await?;
    state.places().hold(&namespace, pulled.iter().map(Pulled::receipt), lease);
    state.counters().count_pulled(pulled.len() as u64);
    let timers = pulled.iter().map(|one| PulledTimer::new(&one.row, receipt::to_text(&one.receipt(), &kind)));
    Ok(Json(PullPage { timers: timers.collect() }))
}

/// Acknowledge deliveries
#[utoipa::path(
    post, path = "/v1/queues/{queue}/ack", tag = "queues", request_body = AckBody,
    params(("queue" = String, Path, description = "The name of the queue.")),
    responses((status = 200, description = "What became of the receipts.", body = ReceiptAnswer), Problems),
)]
pub(super) async fn ack(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(queue): Segments<String>,
    JsonBody(body): JsonBody<AckBody>,
) -> Result<Json<ReceiptAnswer>, Problem> {
    let (namespace, kind) = own_queue(&state, &caller, body.namespace, &queue)?;
    finish(&state, &namespace, &kind, body.receipts, &Ack::Done).await
}

/// Refuse deliveries
#[utoipa::path(
    post, path = "/v1/queues/{queue}/nack", tag = "queues", request_body = NackBody,
    params(("queue" = String, Path, description = "The name of the queue.")),
    responses((status = 200, description = "What became of the receipts.", body = ReceiptAnswer), Problems),
)]
pub(super) async fn nack(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(queue): Segments<String>,
    JsonBody(body): JsonBody<NackBody>,
) -> Result<Json<ReceiptAnswer>, Problem> {
    let (namespace, kind) = own_queue(&state, &caller, body.namespace, &queue)?;
    let error = body.error.unwrap_or_else(|| "the worker refused it".to_owned());
    let error: String = error.chars().filter(|letter| !letter.is_control()).take(LONGEST_ERROR).collect();
    let ack = match (body.give_up, body.after) {
        (true, _) => Ack::GiveUp(error),
        (false, Some(after)) => Ack::RetryAfter(after.0, error),
        (false, None) => Ack::Retry(error),
    };
    let answer = finish(&state, &namespace, &kind, body.receipts, &ack).await?;
    announce(&state, Some(&kind), std::time::SystemTime::UNIX_EPOCH);
    Ok(answer)
}

/// Extend leases
#[utoipa::path(
    post, path = "/v1/queues/{queue}/extend", tag = "queues", request_body = ExtendBody,
    params(("queue" = String, Path, description = "The name of the queue.")),
    responses((status = 200, description = "What became of the receipts.", body = ReceiptAnswer), Problems),
)]
pub(super) async fn extend(
    State(state): State<AppState>,
    Caller(caller): Caller,
    Segments(queue): Segments<String>,
    JsonBody(body): JsonBody<ExtendBody>,
) -> Result<Json<ReceiptAnswer>, Problem> {
    let (namespace, kind) = own_queue(&state, &caller, body.namespace, &queue)?;
    let lease = check_lease(body.lease.0)?;
    let (texts, receipts, stale) = read_receipts(&state, body.receipts, &kind)?;
    let answers = state.timers().extend_pulled(receipts.iter().copied(), lease).await?;
    let current = receipts.iter().zip(&answers).filter(|(_, answer)| **answer == Ok(true)).map(|(receipt, _)| *receipt);
    state.places().hold(&namespace, current, lease);
    settle(texts, answers, stale)
}

async fn finish(
    state: &AppState,
    namespace: &str,
    kind: &str,
    texts: Vec<String>,
    ack: &Ack,
) -> Result<Json<ReceiptAnswer>, Problem> {
    let (texts, receipts, stale) = read_receipts(state, texts, kind)?;
    let acks: Vec<(Receipt, Ack)> = receipts.iter().map(|receipt| (*receipt, ack.clone())).collect();
    let answers = state.timers().finish_pulled(acks).await?;
    state.places().release(namespace, receipts.iter());
    settle(texts, answers, stale)
}

/// Returns the namespace and the kind of a queue that the caller may use.
fn own_queue(
    state: &AppState,
    caller: &Identity,
    namespace: Option<String>,
    queue: &str,
) -> Result<(String, String), Problem> {
    let namespace = namespace.unwrap_or_else(|| caller.default_namespace().to_owned());
    caller.check(&namespace, Access::Write)?;
    count_request(state, &namespace, 1)?;
    tourbillon_durable::spec::check_kind(&namespace).map_err(|error| Problem::invalid(error.to_string()))?;
    let kind = Target::queue(queue.to_owned()).and_then(|target| target.kind(&namespace)).map_err(Problem::invalid)?;
    Ok((namespace, kind))
}

fn check_lease(lease: Duration) -> Result<Duration, Problem> {
    if (SHORTEST_LEASE..=LONGEST_LEASE).contains(&lease) {
        return Ok(lease);
    }
    Err(Problem::invalid("a lease is 1 s to 12 h: extend it if a worker takes longer"))
}

/// Receipts with their texts, and texts that are none.
type ReadReceipts = (Vec<String>, Vec<Receipt>, Vec<String>);

/// Returns the receipts of this queue with their texts, and the texts that are none.
fn read_receipts(state: &AppState, texts: Vec<String>, kind: &str) -> Result<ReadReceipts, Problem> {
    let most = state.config().limits.pull;
    if texts.is_empty() || texts.len() > most {
        return Err(Problem::invalid(format!("give 1 to {most} receipts")));
    }
    let (mut known, mut receipts, mut stale) = (Vec::new(), Vec::new(), Vec::new());
    for text in texts {
        match receipt::from_text(&text, kind) {
            Some(receipt) => {
                known.push(text);
                receipts.push(receipt);
            }
            None => stale.push(text),
        }
    }
    Ok((known, receipts, stale))
}

fn settle(
    texts: Vec<String>,
    answers: Vec<Result<bool, tourbillon_durable::TimersError>>,
    mut stale: Vec<String>,
) -> Result<Json<ReceiptAnswer>, Problem> {
    let mut accepted = 0;
    for (text, answer) in texts.into_iter().zip(answers) {
        if answer? {
            accepted += 1;
        } else {
            stale.push(text);
        }
    }
    Ok(Json(ReceiptAnswer { accepted, stale }))
}
