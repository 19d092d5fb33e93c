//! Timers as rows of a table.

use std::time::Duration;

use maud::{Markup, html};
use tourbillon_durable::StoreTime;
use tourbillon_durable::spec::Recurrence;
use tourbillon_durable::store::{RowId, RowState, SOON, TimerRow};

use super::format::{duration, when};
use super::page::nothing;
use super::viewer::Viewer;
use crate::deliver::Target;

/// From which lateness on a row is shown as late and not as being due.
const LATE: Duration = Duration::from_secs(1);

/// What the pages call the state of a row, with the class of its colour.
pub(super) fn state_of(row: &TimerRow, now: StoreTime) -> (&'static str, &'static str) {
    match row.state {
        RowState::Dead => ("dead", "Dead"),
        RowState::Claimed => ("firing", "Firing"),
        RowState::Armed if row.last_error.is_some() => ("failed", "Failed, tried again"),
        RowState::Armed if row.wake.saturating_add(LATE) < now => ("late", "Late"),
        RowState::Armed if row.wake <= now.saturating_add(SOON) => ("soon", "Due soon"),
        RowState::Armed => ("pending", "Pending"),
    }
}

/// Returns a state in its colour.
pub(super) fn badge((class, text): (&str, &str)) -> Markup {
    html! { span class={ "badge " (class) } { (text) } }
}

/// Returns where a timer is delivered.
pub(super) fn target_of(row: &TimerRow) -> Markup {
    match Target::of(&row.spec).0 {
        Some(Target::Queue(queue)) => html! { "queue " code { (queue) } },
        Some(Target::Webhook(webhook)) => {
            let host = url::Url::parse(&webhook.url).ok().and_then(|url| url.host_str().map(str::to_owned));
            html! { "webhook " code { (host.unwrap_or(webhook.url)) } }
        }
        None => html! { "handler " code { (row.spec.kind) } },
    }
}

/// Returns when a timer is due again, if it is.
pub(super) fn recurrence_of(row: &TimerRow) -> Option<String> {
    let plan = match &row.spec.recurrence {
        Recurrence::Once => return None,
        Recurrence::Every(interval) => format!("every {}", duration(*interval)),
        Recurrence::Cron { line, zone } => format!("{line} ({zone})"),
    };
    Some(match row.left {
        Some(left) => format!("{plan}, {left} left"),
        None => plan,
    })
}

/// Returns the address of a timer's page.
pub(super) fn page_of(row: &TimerRow) -> String {
    format!("/timers/{}", row.id.timer)
}

/// Returns a row that shows its actions to viewers that may do them.
pub(super) fn table_row(row: &TimerRow, now: StoreTime, viewer: &Viewer) -> Markup {
    let spec = &*row.spec;
    let title = spec.key.as_deref().or(spec.name.as_deref());
    let id = row.id.timer.to_string();
    html! {
        tr {
            td.when {
                (when(shown_time(row), now))
                @if let Some(plan) = recurrence_of(row) { span.sub { (plan) } }
            }
            td {
                a.what #{ "row-" (id) "-" (row.id.occurrence) } href=(page_of(row)) {
                    @match title { Some(title) => (title), None => span.mono { (id) } }
                }
                span.sub {
                    @if let (Some(_), Some(name)) = (&spec.key, &spec.name) { (name) " · " }
                    (spec.namespace)
                }
            }
            td { (target_of(row)) }
            td {
                (badge(state_of(row, now)))
                @if row.attempt > 0 { span.sub { "attempt " (row.attempt) " of " (spec.retry.attempts) } }
            }
            @if let Some(error) = &row.last_error { td.error.small { (shortened(error)) } } @else { td {} }
            td.end { (row_actions(row, viewer, true)) }
        }
    }
}

/// Returns the time that matters: of the end of a claimed row's lease nobody wants to know.
fn shown_time(row: &TimerRow) -> StoreTime {
    match row.state {
        RowState::Armed => row.wake,
        RowState::Claimed | RowState::Dead => row.due,
    }
}

/// Returns what can be done to a row.
pub(super) fn row_actions(row: &TimerRow, viewer: &Viewer, is_slim: bool) -> Markup {
    if !viewer.can_write {
        return nothing();
    }
    let class = if is_slim { "button slim" } else { "button" };
    match row.state {
        RowState::Armed => html! {
            form method="post" action={ (page_of(row)) "/cancel" } data-confirm="Cancel this timer? It will not be delivered." {
                button class={ (class) " risk" } id=(action_id("cancel", row.id)) type="submit" { "Cancel" }
            }
        },
        RowState::Claimed => nothing(),
        RowState::Dead => html! {
            div.actions {
                form method="post" action={ (page_of(row)) "/" (row.id.occurrence) "/replay" } {
                    button class=(class) id=(action_id("replay", row.id)) type="submit" { "Replay" }
                }
                form method="post" action={ (page_of(row)) "/" (row.id.occurrence) "/discard" } data-confirm="Discard this dead letter? It cannot be replayed afterwards." {
                    button class={ (class) " risk" } id=(action_id("discard", row.id)) type="submit" { "Discard" }
                }
            }
        },
    }
}

fn action_id(action: &str, id: RowId) -> String {
    format!("{action}-{}-{}", id.timer, id.occurrence)
}

/// Returns the beginning of a long text.
fn shortened(text: &str) -> String {
    const MOST: usize = 120;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
