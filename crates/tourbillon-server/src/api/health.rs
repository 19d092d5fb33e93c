//! Whether the server lives, and whether it can work.

use std::time::Duration;

use axum::extract::State;
use tourbillon_durable::StoreFailing;

use crate::durations::format_time;
use crate::problem::Problem;
use crate::state::AppState;

/// How long the store may take to answer a server that is ready.
const READY_TIME: Duration = Duration::from_secs(5);

/// For how long a request of the node must have failed to be mentioned.
const FAILS_FOR_LONG: Duration = Duration::from_secs(60);

/// Whether the process lives
#[utoipa::path(
    get, path = "/healthz", tag = "operations", security(()),
    responses((status = 200, description = "It lives.", body = String, content_type = "text/plain; charset=utf-8")),
)]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the server can work
///
/// The store answers. A node that owns no shard can still take requests. If it owns none because its clock is off from the store's (O1), or if the
/// store has failed one of its own requests for a minute, the text says so.
#[utoipa::path(
    get, path = "/readyz", tag = "operations", security(()),
    responses(
        (status = 200, description = "It can.", body = String, content_type = "text/plain; charset=utf-8"),
        (status = 503, description = "It cannot: the store does not answer.", body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn readyz(State(state): State<AppState>) -> Result<String, Problem> {
    let probe = state.timers().get_key("tourbillon.readyz", "probe");
    match tokio::time::timeout(READY_TIME, probe).await {
        Ok(Ok(_)) => Ok(ready(&state)),
        Ok(Err(error)) => Err(Problem::unavailable(error.to_string())),
        Err(_) => Err(Problem::unavailable(format!("the store did not answer within {READY_TIME:?}"))),
    }
}

/// Returns what a node says that can take requests.
fn ready(state: &AppState) -> String {
    let stats = state.timers().stats_without_lateness();
    if stats.is_clock_off {
        let off = stats.clock_skew;
        return format!(
            "ready, but this node delivers nothing: its clock is off by {off:?} from the store's, set it right\n"
        );
    }
    let failing =
        stats.store_failing.filter(|failing| failing.since.elapsed().is_ok_and(|lasts| lasts >= FAILS_FOR_LONG));
    failing.map_or("ready\n".to_owned(), |failing| {
        let StoreFailing { request, error, since, times } = failing;
        let since = format_time(since);
        format!("ready, but since {since} and {times} times the store has failed to {request}: {error}\n")
    })
}
