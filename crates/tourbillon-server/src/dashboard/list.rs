//! The first page: how many timers there are in each state, the charts, and the timers of a state or a search.

use axum::extract::{Query, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use maud::{Markup, html};
use serde::{Deserialize, Deserializer};
use tourbillon_durable::store::{Cursor, ListFilter, MOST_SOON, RowId, RowState, SOON, TimerRow};
use tourbillon_durable::{StoreTime, TimerId, TimersError};

use super::actions::done_message;
use super::charts;
use super::format::count;
use super::page::{Page, Place, message, nothing, problem_page};
use super::rows::table_row;
use super::viewer::Viewer;
use crate::problem::Problem;
use crate::state::AppState;

/// The most timers of a table.
const ROWS: usize = 50;

/// The most timers that are counted one by one, for a viewer that does not see all namespaces.
const MOST_COUNTED: usize = 100;

/// The state whose timers are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum View {
    #[default]
    Pending,
    Soon,
    Firing,
    Late,
    Failed,
    Dead,
}

/// What the address of the page says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ListQuery {
    #[serde(deserialize_with = "view_or_none")]
    view: Option<View>,
    q: String,
    namespace: String,
    cursor: String,
    done: Option<String>,
    n: u64,
}

/// Reads the name of a view; every other text, also an empty one, is none.
fn view_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<View>, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(View::ALL.into_iter().find(|view| view.class() == text))
}

/// Timers to be shown.
struct Found {
    rows: Vec<TimerRow>,
    next: Option<Cursor>,
    /// Whether there may be others that no further page has.
    is_cut: bool,
}

pub(super) async fn page(
    State(state): State<AppState>,
    viewer: Viewer,
    Query(mut query): Query<ListQuery>,
) -> Response {
    query.q = query.q.trim().to_owned();
    query.namespace = query.namespace.trim().to_owned();
    if let Ok(id) = query.q.parse::<TimerId>() {
        return Redirect::to(&format!("/timers/{id}")).into_response();
    }
    let namespace = match viewer.namespace(&query.namespace) {
        Ok(namespace) => namespace,
        Err(detail) => return problem_page(Some(&viewer), StatusCode::FORBIDDEN, "Not allowed", &detail),
    };
    match body(&state, &viewer, &query, namespace.as_deref()).await {
        Ok(body) => {
            let page =
                Page { title: "Timers", place: Place::Timers, viewer: Some(&viewer), status: StatusCode::OK, body };
            page.into_response()
        }
        Err(error) => {
            let problem = Problem::from(error);
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            problem_page(Some(&viewer), status, problem.title, &problem.detail)
        }
    }
}

async fn body(
    state: &AppState,
    viewer: &Viewer,
    query: &ListQuery,
    namespace: Option<&str>,
) -> Result<Markup, TimersError> {
    let now = StoreTime::try_from(std::time::SystemTime::now()).unwrap_or_default();
    let counts = match namespace {
        None => tile_counts(state).await?,
        Some(namespace) => namespace_counts(state, namespace, now).await?,
    };
    let found = match query.q.is_empty() {
        true => of_view(state, query.view.unwrap_or_default(), namespace, query.cursor(), now, ROWS).await?,
        false => search(state, query, namespace).await?,
    };
    let activity = state.events().activity(namespace);
    Ok(html! {
        h1.unseen { "Timers" }
        @if let Some(done) = query.done.as_deref().and_then(|done| done_message(done, query.n)) { (message(&done, false)) }
        nav #tiles data-live aria-label="States" {
            ul.tiles {
                @for (view, class, label, number) in counts.tiles() {
                    @let is_current = query.q.is_empty() && query.view.unwrap_or_default() == view;
                    li {
                        a id={ "tile-" (class) } class={ "card tile " (class) } href=(query.with_view(class)) aria-current=[is_current.then_some("true")] {
                            b class=[number.is_zero().then_some("is-zero")] { (number.text()) }
                            span { (label) }
                        }
                    }
                }
            }
        }
        div.charts { (charts::fires_per_second(&activity)) (charts::lateness(&activity)) }
        section.card aria-label="List of timers" {
            (search_form(viewer, query))
            div #list data-live {
                @if found.rows.is_empty() { (empty(query, viewer, found.next.is_some())) }
                @else { (table(&found, now, viewer)) }
                (pager(query, &found))
            }
        }
    })
}

fn search_form(viewer: &Viewer, query: &ListQuery) -> Markup {
    let view = query.view.map(View::class);
    html! {
        form.search method="get" action="/" role="search" {
            div.field.grow {
                label for="search-text" { "Search by key, name or id" }
                input #search-text type="search" name="q" value=(query.q) placeholder="order 4711" autocomplete="off" spellcheck="false";
            }
            div.field {
                label for="search-state" { "State" }
                select #search-state name="view" {
                    @for (value, label) in [("", "Any"), ("pending", "Pending"), ("firing", "Firing"), ("failed", "Failed"), ("dead", "Dead")] {
                        option value=(value) selected[view.unwrap_or_default() == value] { (label) }
                    }
                }
            }
            div.field {
                label for="search-namespace" { "Namespace" }
                @match viewer.namespaces() {
                    None => input #search-namespace type="text" name="namespace" value=(query.namespace) placeholder="all" autocomplete="off" spellcheck="false";,
                    Some(allowed) => select #search-namespace name="namespace" {
                        @for namespace in allowed { option value=(namespace) selected[*namespace == query.namespace] { (namespace) } }
                    },
                }
            }
            button.button type="submit" { "Search" }
        }
    }
}

fn table(found: &Found, now: StoreTime, viewer: &Viewer) -> Markup {
    html! {
        table.list {
            thead { tr { th { "Due" } th { "Timer" } th { "Delivered to" } th { "State" } th { span.unseen { "Last error" } } th { span.unseen { "Actions" } } } }
            tbody { @for row in &found.rows { (table_row(row, now, viewer)) } }
        }
    }
}

fn empty(query: &ListQuery, viewer: &Viewer, has_more: bool) -> Markup {
    let (title, text) = match query.view.unwrap_or_default() {
        _ if !query.q.is_empty() && has_more => {
            ("Nothing among the timers that were searched", "The search goes on with the next page.")
        }
        _ if !query.q.is_empty() => (
            "Nothing found",
            "No pending, firing or dead timer has a key or a name that begins like this. Timers that have ended are found by their id.",
        ),
        View::Pending => (
            "No timer is pending",
            "Create one here, with the command tourbillon timer create, or with POST /v1/timers.",
        ),
        View::Soon => ("Nothing is due within the next minute", "Timers appear here one minute before their time."),
        View::Firing => {
            ("Nothing is being delivered", "Timers appear here while a webhook is called or a worker has them.")
        }
        View::Late => {
            ("Nothing is late", "Timers appear here if their time has come and they wait for a worker or a free place.")
        }
        View::Failed => {
            ("No delivery has failed", "Timers appear here if their last delivery failed and they are tried again.")
        }
        View::Dead => {
            ("No dead letters", "Timers appear here if they were given up. They can be replayed or discarded.")
        }
    };
    let offers_new = viewer.can_write && query.q.is_empty() && query.view.unwrap_or_default() == View::Pending;
    html! {
        div.empty {
            b { (title) }
            p { (text) }
            @if offers_new { a.button.main href="/new" { "New timer" } }
        }
    }
}

fn pager(query: &ListQuery, found: &Found) -> Markup {
    let next = found.next.map(|Cursor(id)| format!("{}&cursor={}.{}", query.address(), id.timer, id.occurrence));
    if next.is_none() && !found.is_cut && query.cursor.is_empty() {
        return nothing();
    }
    html! {
        div.pager {
            @if !query.cursor.is_empty() { a href=(query.address()) { "First page" } }
            @if let Some(next) = next { a #next-page href=(next) { "Next page" } }
            @if found.is_cut { span { "These are the next " (found.rows.len()) ". Search to find others." } }
        }
    }
}

/// Finds the timers of a state.
async fn of_view(
    state: &AppState,
    view: View,
    namespace: Option<&str>,
    cursor: Option<Cursor>,
    now: StoreTime,
    limit: usize,
) -> Result<Found, TimersError> {
    let filter = |state: Option<RowState>| ListFilter {
        namespace: namespace.map(str::to_owned),
        state,
        ..ListFilter::default()
    };
    let timers = state.timers();
    if matches!(view, View::Failed | View::Dead) {
        let filter = match view {
            View::Dead => filter(Some(RowState::Dead)),
            _ => ListFilter { failed: true, ..filter(Some(RowState::Armed)) },
        };
        let page = timers.list(filter, cursor, limit).await?;
        return Ok(Found { rows: page.rows, next: page.next, is_cut: false });
    }
    let wanted = if view == View::Firing { RowState::Claimed } else { RowState::Armed };
    let soon = now.saturating_add(SOON);
    let mut rows = match view {
        // Those that are late come first.
        View::Soon => timers.upcoming(filter(Some(wanted)), limit.saturating_mul(4)).await?,
        _ => timers.upcoming(filter(Some(wanted)), limit + 1).await?,
    };
    rows.retain(|row| match view {
        View::Soon => row.wake > now && row.wake <= soon,
        View::Late => row.wake <= now,
        _ => true,
    });
    let is_cut = rows.len() > limit;
    rows.truncate(limit);
    Ok(Found { rows, next: None, is_cut })
}

/// Finds timers by what their key or name begins with; those first whose key or name is exactly the text.
async fn search(state: &AppState, query: &ListQuery, namespace: Option<&str>) -> Result<Found, TimersError> {
    let timers = state.timers();
    let owned = namespace.map(str::to_owned);
    let filter = query.filter(owned.clone());
    let mut rows = Vec::new();
    if query.cursor.is_empty() {
        let exact = owned.unwrap_or_else(|| tourbillon_durable::spec::DEFAULT_NAMESPACE.to_owned());
        rows.extend(timers.get_key(exact.clone(), query.q.clone()).await?.filter(|row| filter.passes(row)));
        let named = ListFilter { namespace: Some(exact), name: Some(query.q.clone()), ..filter.clone() };
        rows.extend(timers.list(named, None, ROWS).await?.rows);
    }
    let page = timers.list(filter, query.cursor(), ROWS).await?;
    for row in page.rows {
        if !rows.iter().any(|other| other.id == row.id) {
            rows.push(row);
        }
    }
    Ok(Found { rows, next: page.next, is_cut: false })
}

/// The numbers of the tiles.
struct Tiles([TileCount; 6]);

#[derive(Clone, Copy)]
enum TileCount {
    Exactly(u64),
    AtLeast(u64),
}

impl TileCount {
    fn is_zero(self) -> bool {
        matches!(self, TileCount::Exactly(0))
    }

    fn text(self) -> String {
        match self {
            TileCount::Exactly(number) => count(number),
            TileCount::AtLeast(number) => format!("{}+", count(number)),
        }
    }
}

impl Tiles {
    fn tiles(&self) -> impl Iterator<Item = (View, &'static str, &'static str, TileCount)> {
        let labels = ["Pending", "Due soon", "Firing now", "Late", "Failed", "Dead"];
        let views = View::ALL.into_iter().zip(labels).zip(self.0);
        views.map(|((view, label), number)| (view, view.class(), label, number))
    }
}

async fn tile_counts(state: &AppState) -> Result<Tiles, TimersError> {
    let counts = state.overview().counts(state.timers()).await?;
    let late = counts.overdue.iter().map(|(_, late)| late).sum();
    let soon = if counts.due_soon >= MOST_SOON { TileCount::AtLeast } else { TileCount::Exactly };
    let exactly = TileCount::Exactly;
    Ok(Tiles([
        exactly(counts.armed),
        soon(counts.due_soon),
        exactly(counts.claimed),
        exactly(late),
        exactly(counts.failed),
        exactly(counts.dead),
    ]))
}

/// Counts the timers of one namespace, up to a limit.
async fn namespace_counts(state: &AppState, namespace: &str, now: StoreTime) -> Result<Tiles, TimersError> {
    let mut tiles = [TileCount::Exactly(0); 6];
    for (tile, view) in tiles.iter_mut().zip(View::ALL) {
        let found = of_view(state, view, Some(namespace), None, now, MOST_COUNTED).await?;
        let has_more = found.is_cut || found.next.is_some();
        let number = found.rows.len() as u64;
        *tile = if has_more { TileCount::AtLeast(number) } else { TileCount::Exactly(number) };
    }
    Ok(Tiles(tiles))
}

impl View {
    const ALL: [View; 6] = [View::Pending, View::Soon, View::Firing, View::Late, View::Failed, View::Dead];

    fn class(self) -> &'static str {
        match self {
            View::Pending => "pending",
            View::Soon => "soon",
            View::Firing => "firing",
            View::Late => "late",
            View::Failed => "failed",
            View::Dead => "dead",
        }
    }
}

impl ListQuery {
    fn filter(&self, namespace: Option<String>) -> ListFilter {
        let state = match self.view {
            None => None,
            Some(View::Firing) => Some(RowState::Claimed),
            Some(View::Dead) => Some(RowState::Dead),
            Some(View::Pending | View::Soon | View::Late | View::Failed) => Some(RowState::Armed),
        };
        let failed = self.view == Some(View::Failed);
        ListFilter { namespace, prefix: Some(self.q.clone()), state, failed, ..ListFilter::default() }
    }

    fn cursor(&self) -> Option<Cursor> {
        let (timer, occurrence) = self.cursor.split_once('.')?;
        Some(Cursor(RowId { timer: timer.parse().ok()?, occurrence: occurrence.parse().ok()? }))
    }

    fn with_view(&self, view: &str) -> String {
        format!("/?view={view}&namespace={}", encoded(&self.namespace))
    }

    fn address(&self) -> String {
        let view = self.view.map_or("", View::class);
        format!("/?q={}&view={view}&namespace={}", encoded(&self.q), encoded(&self.namespace))
    }
}

fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect()
}
