//! The page of one timer: what it is, what happens to it now, and how it ended before.

use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use maud::{Markup, html};
use serde::Deserialize;
use tourbillon_durable::store::{EndedAs, HistoryEntry, RowState, TimerRow};
use tourbillon_durable::{MissedFires, StoreTime, TimerId};

use super::actions::done_message;
use super::format::{absolute, count, duration, when};
use super::page::{Page, Place, message, nothing, problem_page};
use super::rows::{badge, recurrence_of, row_actions, state_of, target_of};
use super::viewer::Viewer;
use crate::deliver::Target;
use crate::problem::Problem;
use crate::state::AppState;

/// The most bytes of a payload that are shown.
const LONGEST_PAYLOAD: usize = 8 * 1024;

/// The most entries of the history that are shown.
const MOST_HISTORY: usize = 100;

/// What the address of the page says.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct TimerQuery {
    done: Option<String>,
    n: u64,
}

/// What the store knows of a timer.
struct Known {
    id: TimerId,
    rows: Vec<TimerRow>,
    history: Vec<HistoryEntry>,
    now: StoreTime,
}

pub(super) async fn page(
    State(state): State<AppState>,
    viewer: Viewer,
    Path(id): Path<String>,
    Query(query): Query<TimerQuery>,
) -> Response {
    let unknown = || {
        let detail = "No timer has this id, or the store has forgotten it since it ended.";
        problem_page(Some(&viewer), StatusCode::NOT_FOUND, "There is no such timer", detail)
    };
    let Ok(id) = id.parse::<TimerId>() else { return unknown() };
    let known = match Known::read(&state, id).await {
        Ok(known) => known,
        Err(problem) => {
            let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return problem_page(Some(&viewer), status, problem.title, &problem.detail);
        }
    };
    if !known.namespace().is_some_and(|namespace| viewer.may_see(namespace)) {
        return unknown();
    }
    let title = known.title();
    let body = known.body(&viewer, &query);
    Page { title: &title, place: Place::Elsewhere, viewer: Some(&viewer), status: StatusCode::OK, body }.into_response()
}

impl Known {
    async fn read(state: &AppState, id: TimerId) -> Result<Known, Problem> {
        let rows = state.timers().get(id).await?;
        let mut history = state.timers().history(id).await?;
        history.truncate(MOST_HISTORY);
        Ok(Known { id, rows, history, now: StoreTime::try_from(std::time::SystemTime::now()).unwrap_or_default() })
    }

    fn namespace(&self) -> Option<&str> {
        let of_row = self.rows.first().map(|row| row.spec.namespace.as_str());
        of_row.or_else(|| self.history.first().map(|entry| entry.namespace.as_str()))
    }

    fn key_and_name(&self) -> (Option<&str>, Option<&str>) {
        match (self.rows.first(), self.history.first()) {
            (Some(row), _) => (row.spec.key.as_deref(), row.spec.name.as_deref()),
            (None, Some(entry)) => (entry.key.as_deref(), entry.name.as_deref()),
            (None, None) => (None, None),
        }
    }

    fn title(&self) -> String {
        let (key, name) = self.key_and_name();
        key.or(name).map_or_else(|| format!("Timer {}", self.id), str::to_owned)
    }

    fn body(&self, viewer: &Viewer, query: &TimerQuery) -> Markup {
        html! {
            p.crumb { a href="/" { "Timers" } }
            div.title #title data-live {
                h1 { (self.title()) }
                (self.latest_badge())
            }
            @if let Some(done) = query.done.as_deref().and_then(|done| done_message(done, query.n)) { (message(&done, false)) }
            div.columns {
                div {
                    (self.occurrences(viewer))
                    (self.past())
                    (self.payload())
                }
                div {
                    (self.facts())
                    (self.reschedule_form(viewer))
                    (self.cancel_name_form(viewer))
                }
            }
        }
    }

    fn latest_badge(&self) -> Markup {
        match (self.rows.first(), self.history.first()) {
            (Some(row), _) => badge(state_of(row, self.now)),
            (None, Some(entry)) => badge(ended(entry.ended_as)),
            (None, None) => nothing(),
        }
    }

    fn occurrences(&self, viewer: &Viewer) -> Markup {
        html! {
            section.card #now data-live aria-label="Now" {
                header { h2 { "Now" } }
                @if self.rows.is_empty() {
                    div.empty { b { "This timer has ended" } p { "Its history is below, as long as the store remembers it." } }
                } @else {
                    div.body {
                        ul.timeline {
                            @for row in &self.rows {
                                li {
                                    span { (badge(state_of(row, self.now))) }
                                    span {
                                        @match row.state {
                                            RowState::Armed if row.attempt > 0 => { "tried again " (when(row.wake, self.now)) },
                                            RowState::Armed => { "due " (when(row.due, self.now)) },
                                            RowState::Claimed => { "due " (when(row.due, self.now)) ", its lease ends " (when(row.wake, self.now)) },
                                            RowState::Dead => { "was due " (when(row.due, self.now)) },
                                        }
                                        span.faint.small {
                                            @if row.spec.is_repeating() { " · occurrence " (row.id.occurrence) }
                                            @if row.attempt > 0 { " · attempt " (row.attempt) " of " (row.spec.retry.attempts) }
                                            @if row.stands_for > 0 { " · stands for " (row.stands_for) " missed" }
                                        }
                                    }
                                    span { (row_actions(row, viewer, true)) }
                                    @if let Some(error) = &row.last_error { span.why { (error) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn past(&self) -> Markup {
        html! {
            section.card #history data-live aria-label="History" {
                header { h2 { "History" } @if self.history.len() == MOST_HISTORY { span.faint.small { "the last " (MOST_HISTORY) } } }
                div.body {
                    ul.timeline {
                        @for entry in &self.history {
                            li {
                                span { (badge(ended(entry.ended_as))) }
                                span {
                                    (when(entry.at, self.now))
                                    span.faint.small {
                                        " · occurrence " (entry.id.occurrence)
                                        @if entry.ended_as == EndedAs::Fired { " · " (duration(entry.at.since(entry.due))) " after its time" }
                                        @if entry.attempts > 1 { " · " (entry.attempts) " attempts" }
                                    }
                                }
                                span.faint.small { (absolute(entry.at)) }
                                @if let Some(error) = &entry.error { span.why { (error) } }
                            }
                        }
                        @if let Some(row) = self.rows.last() {
                            li {
                                span { (badge(("pending", "Created"))) }
                                span { (when(row.created, self.now)) }
                                span.faint.small { (absolute(row.created)) }
                            }
                        }
                    }
                }
            }
        }
    }

    fn facts(&self) -> Markup {
        let (key, name) = self.key_and_name();
        let row = self.rows.first();
        let fact = |label: &str, value: Markup| html! { div { dt { (label) } dd { (value) } } };
        html! {
            section.card aria-label="Details" {
                header { h2 { "Details" } }
                div.body {
                    dl.facts {
                        (fact("Id", html! { code { (self.id) } }))
                        (fact("Namespace", html! { (self.namespace().unwrap_or_default()) }))
                        @if let Some(key) = key { (fact("Key", html! { (key) })) }
                        @if let Some(name) = name { (fact("Name", html! { (name) })) }
                        @if let Some(row) = row {
                            (fact("Due", html! { (absolute(row.due)) " UTC" }))
                            @if let Some(plan) = recurrence_of(row) { (fact("Repeats", html! { (plan) })) }
                            (fact("Delivered to", match Target::of(&row.spec).0 {
                                Some(Target::Webhook(webhook)) => html! { "POST " code { (webhook.url) } },
                                _ => target_of(row),
                            }))
                            (fact("Retries", html! { "up to " (row.spec.retry.attempts) " deliveries, " (duration(row.spec.retry.first)) " apart at first" }))
                            (fact("If missed", html! { (missed(row.spec.missed)) }))
                            (fact("Created", html! { (absolute(row.created)) " UTC" }))
                            (fact("Version", html! { (row.version) }))
                        }
                    }
                }
            }
        }
    }

    fn payload(&self) -> Markup {
        let Some(row) = self.rows.first() else { return nothing() };
        let (_, payload) = Target::of(&row.spec);
        if payload.is_empty() {
            return nothing();
        }
        let media = row.spec.content_type.as_deref().unwrap_or("bytes");
        html! {
            section.card aria-label="Payload" {
                header { h2 { "Payload" } span.faint.small { (media) ", " (count(payload.len() as u64)) " bytes" } }
                div.body { (payload_text(payload)) }
            }
        }
    }

    fn reschedule_form(&self, viewer: &Viewer) -> Markup {
        let Some(row) = self.rows.iter().find(|row| row.state == RowState::Armed) else { return nothing() };
        if !viewer.can_write {
            return nothing();
        }
        html! {
            section.card aria-label="Reschedule" {
                header { h2 { "Reschedule" } }
                form.form.body method="post" action={ "/timers/" (self.id) "/reschedule" } {
                    input type="hidden" name="version" value=(row.version);
                    fieldset {
                        legend.unseen { "When it is due" }
                        div.choices {
                            label { input type="radio" name="when" value="after" checked; "after a time" }
                            label { input type="radio" name="when" value="at"; "at a time" }
                        }
                        div data-shown-for="when=after" {
                            label for="reschedule-after" { "From now" }
                            input #reschedule-after name="after" placeholder="15m" autocomplete="off";
                        }
                        div data-shown-for="when=at" {
                            label for="reschedule-at" { "Date and time, UTC" }
                            input #reschedule-at type="datetime-local" name="at" step="1";
                        }
                    }
                    div.actions { button.button type="submit" { "Reschedule" } }
                }
            }
        }
    }

    fn cancel_name_form(&self, viewer: &Viewer) -> Markup {
        let (Some(row), (_, Some(name))) = (self.rows.first(), self.key_and_name()) else { return nothing() };
        if !viewer.can_write {
            return nothing();
        }
        html! {
            section.card aria-label="All timers of the name" {
                header { h2 { "All timers of this name" } }
                form.form.body method="post" action="/cancel-name" data-confirm={ "Cancel all pending timers with the name " (name) "?" } {
                    input type="hidden" name="namespace" value=(row.spec.namespace);
                    input type="hidden" name="name" value=(name);
                    p.faint { "Every pending timer with the name " b { (name) } " is cancelled in one transaction." }
                    div.actions { button.button.risk type="submit" { "Cancel all" } }
                }
            }
        }
    }
}

/// What the pages call the end of an occurrence, with the class of its colour.
fn ended(ended: EndedAs) -> (&'static str, &'static str) {
    match ended {
        EndedAs::Fired => ("fired", "Fired"),
        EndedAs::Cancelled => ("cancelled", "Cancelled"),
        EndedAs::Dead => ("dead", "Discarded"),
        EndedAs::Skipped => ("skipped", "Skipped"),
    }
}

fn missed(missed: MissedFires) -> String {
    match missed {
        MissedFires::Once => "one delivery stands for all".to_owned(),
        MissedFires::Skip { older_than } => format!("skipped if late by more than {}", duration(older_than)),
        MissedFires::All { at_most } => format!("the last {at_most} are delivered"),
        MissedFires::DeadAfter(age) => format!("a dead letter if late by more than {}", duration(age)),
    }
}

/// Returns JSON with indents, other text as it is, and of bytes only their number.
fn payload_text(payload: &[u8]) -> Markup {
    let shown = &payload[..payload.len().min(LONGEST_PAYLOAD)];
    let is_cut = shown.len() < payload.len();
    let json = serde_json::from_slice::<serde_json::Value>(payload).ok().filter(|_| !is_cut);
    let pretty = json.and_then(|value| serde_json::to_string_pretty(&value).ok());
    let text = pretty.or_else(|| str::from_utf8(payload).is_ok().then(|| String::from_utf8_lossy(shown).into_owned()));
    html! {
        @match text {
            Some(text) => pre tabindex="0" { (text) },
            None => p.faint { "Not text." },
        }
        @if is_cut { p.hint { "The first " (count(LONGEST_PAYLOAD as u64)) " bytes." } }
    }
}
