//! `GET /v1/events`: what happens to timers, as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream};
use http::HeaderMap;
use serde::Deserialize;
use tokio::sync::broadcast::error::RecvError;
use utoipa::IntoParams;

use super::docs::Problems;
use super::extract::{Caller, Parameters};
use crate::access::Identity;
use crate::events::{EventFeed, FeedEvent, Listener};
use crate::problem::Problem;
use crate::state::AppState;

/// How often a client without events gets a comment, so that neither side takes the connection for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Which events a client wants. Every parameter that is given must match.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct EventQuery {
    /// The namespace; all that the API key allows if it is not given.
    namespace: Option<String>,
    /// The timer's id.
    id: Option<String>,
    /// The key.
    key: Option<String>,
    /// The name.
    name: Option<String>,
    /// What happened, or several separated by commas: `created`, `rescheduled`, `cancelled`, `claimed`, `fired`, `failed`, `dead`, `skipped`, `store_fails`, `store_recovered`.
    #[serde(rename = "type")]
    types: Option<String>,
}

/// Listen to what happens to timers
///
/// Events of this node, from now on, as server-sent events. `Last-Event-ID` goes on after an event that the client has seen; if it is too old, or of
/// an earlier process, the event `reset` comes first. A client that is too slow loses events, and the event `lagged` tells how many.
#[utoipa::path(
    get, path = "/v1/events", tag = "timers", params(EventQuery),
    responses((status = 200, description = "Events, one JSON object each.", body = String, content_type = "text/event-stream"), Problems),
)]
pub(super) async fn stream(
    State(state): State<AppState>,
    Caller(caller): Caller,
    headers: HeaderMap,
    Parameters(query): Parameters<EventQuery>,
) -> Result<Response, Problem> {
    if let Some(namespace) = &query.namespace {
        caller.check(namespace, crate::access::Access::Read)?;
    }
    let last_seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let Some(listener) = state.events().listen(last_seen) else {
        return Err(Problem::too_many("too many clients listen to events: try again later", 5));
    };
    let events = events(Arc::clone(state.events()), listener, EventFilter { query, caller });
    let keep_alive = KeepAlive::new().interval(HEARTBEAT).text("still here");
    let headers = [("cache-control", "no-store"), ("x-accel-buffering", "no")];
    Ok((headers, Sse::new(events).keep_alive(keep_alive)).into_response())
}

/// What a client wants and may see.
struct EventFilter {
    query: EventQuery,
    caller: Identity,
}

fn events(
    feed: Arc<EventFeed>,
    mut listener: Listener,
    filter: EventFilter,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    let mut first = VecDeque::from([Event::default().comment("events of timers").retry(Duration::from_secs(2))]);
    if listener.is_reset {
        first.push_back(Event::default().event("reset").data("{}"));
    }
    let missed = std::mem::take(&mut listener.missed).into_iter().filter(|event| filter.passes(event));
    first.extend(missed.map(|event| to_sse(&feed, &event)));
    stream::unfold((feed, listener, filter, first), |(feed, mut listener, filter, mut first)| async move {
        let next = match first.pop_front() {
            Some(event) => event,
            None => next(&feed, &mut listener, &filter).await?,
        };
        Some((Ok(next), (feed, listener, filter, first)))
    })
}

async fn next(feed: &EventFeed, listener: &mut Listener, filter: &EventFilter) -> Option<Event> {
    loop {
        let event: Result<Arc<FeedEvent>, RecvError> = tokio::select! {
            biased;
            _ = listener.closed.wait_for(|closed| *closed) => return None,
            event = listener.events.recv() => event,
        };
        match event {
            Ok(event) if filter.passes(&event) => return Some(to_sse(feed, &event)),
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => {
                return Some(Event::default().event("lagged").data(format!("{{\"missed\":{missed}}}")));
            }
            Err(RecvError::Closed) => return None,
        }
    }
}

fn to_sse(feed: &EventFeed, event: &FeedEvent) -> Event {
    // JSON has no line break, so one line of data is enough.
    Event::default().id(feed.id(event.number)).event(event.what).data(event.to_json())
}

impl EventFilter {
    /// An event whose namespace is not known passes only for callers that may see all.
    fn passes(&self, event: &FeedEvent) -> bool {
        let is = |wanted: &Option<String>, has: Option<&str>| wanted.is_none() || wanted.as_deref() == has;
        let may_see = match event.namespace.as_deref() {
            Some(namespace) => self.caller.has_namespace(namespace),
            None => self.caller.sees_all(),
        };
        let types = self.query.types.as_deref().unwrap_or_default();
        may_see
            && is(&self.query.namespace, event.namespace.as_deref())
            && self.query.id.as_ref().is_none_or(|wanted| event.timer.is_some_and(|id| id.to_string() == *wanted))
            && is(&self.query.key, event.key.as_deref())
            && is(&self.query.name, event.name.as_deref())
            && (types.is_empty() || types.split(',').any(|wanted| wanted.trim() == event.what))
    }
}
