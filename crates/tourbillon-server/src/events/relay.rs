//! Passes what the timers of this process say on to the clients.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use tourbillon_durable::store::{RowId, TimerRow};
use tourbillon_durable::{Event, StoreFailing, Target, TimerId, Timers, TimersError};

use super::{Counted, EventFeed, FeedEvent, FeedValue};

/// How many events may wait for the feed.
const CAPACITY: usize = 65_536;

/// The most deliveries whose rows are remembered until they end.
const MOST_CLAIMED: usize = 100_000;

/// Subscribes to the timers, and publishes their events until they end.
///
/// # Errors
/// The timers have ended.
pub(crate) fn relay(timers: &Timers, feed: Arc<EventFeed>) -> Result<(), TimersError> {
    let mut events = timers.events(CAPACITY)?;
    tokio::spawn(async move {
        let mut relay = Relay { feed, claimed: HashMap::new() };
        while let Some(event) = events.next().await {
            relay.take(event);
        }
        relay.feed.close();
    });
    Ok(())
}

struct Relay {
    feed: Arc<EventFeed>,
    /// The rows of deliveries that have begun: an acknowledgement by its token does not say whose it is.
    claimed: HashMap<RowId, Arc<TimerRow>>,
}

/// What an event is about, as far as it is known.
#[derive(Default)]
struct Subject {
    namespace: Option<String>,
    id: Option<TimerId>,
    key: Option<String>,
    name: Option<String>,
    fields: Vec<(&'static str, FeedValue)>,
}

impl Relay {
    fn take(&mut self, event: Event) {
        match event {
            Event::Created { id, spec, due } => {
                let subject = Subject {
                    namespace: Some(spec.namespace.clone()),
                    id: Some(id),
                    key: spec.key.clone(),
                    name: spec.name.clone(),
                    ..Subject::default()
                };
                self.publish("created", Counted::Not, subject.with("due", FeedValue::Time(due)));
            }
            Event::Cancelled { target, counts } => {
                let subject = Subject::of_target(target);
                let subject = subject.with("cancelled", FeedValue::Count(counts.cancelled));
                self.publish("cancelled", Counted::Not, subject.with("in_flight", FeedValue::Count(counts.in_flight)));
            }
            Event::Rescheduled { id, kind, due } => {
                let subject = Subject::of_kind(id, &kind).with("due", FeedValue::Time(due));
                self.publish("rescheduled", Counted::Not, subject);
            }
            Event::Claimed { row } => self.claimed(row),
            Event::Delivered { id, row } => {
                let row = self.ended(id, row);
                self.publish("fired", Counted::Fired, Subject::of_delivery(id, row.as_deref()));
            }
            Event::Failed { id, row, error, next } => {
                let row = self.ended(id, row);
                let subject = Subject::of_delivery(id, row.as_deref()).with("error", FeedValue::Text(error));
                self.publish("failed", Counted::Failed, subject.with("next", FeedValue::Time(next)));
            }
            Event::Dead { id, row, error } => {
                let row = self.ended(id, row);
                let subject = Subject::of_delivery(id, row.as_deref()).with("error", FeedValue::Text(error));
                self.publish("dead", Counted::Failed, subject);
            }
            Event::Skipped { id, kind } => self.publish("skipped", Counted::Not, Subject::of_kind(id, &kind)),
            Event::StoreFails(StoreFailing { request, error, since, .. }) => {
                let subject = Subject::default().with("request", FeedValue::Text(request.to_string()));
                let subject = subject.with("error", FeedValue::Text(error.to_string()));
                self.publish("store_fails", Counted::Not, subject.with("since", FeedValue::Time(since)));
            }
            Event::StoreRecovered => self.publish("store_recovered", Counted::Not, Subject::default()),
            Event::Lagged(missed) => {
                self.publish("lagged", Counted::Not, Subject::default().with("missed", FeedValue::Count(missed)));
            }
            _ => {}
        }
    }

    fn claimed(&mut self, row: Arc<TimerRow>) {
        let late = SystemTime::now().duration_since(row.due.to_system()).unwrap_or_default();
        let counted = if row.attempt == 1 { Counted::Begun(late) } else { Counted::Not };
        let subject = Subject::of_delivery(row.id, Some(&row)).with("late_ms", FeedValue::Millis(late));
        self.publish("claimed", counted, subject);
        if self.claimed.len() < MOST_CLAIMED {
            self.claimed.insert(row.id, row);
        }
    }

    fn ended(&mut self, id: RowId, row: Option<Arc<TimerRow>>) -> Option<Arc<TimerRow>> {
        let known = self.claimed.remove(&id);
        row.or(known)
    }

    fn publish(&self, what: &'static str, counted: Counted, subject: Subject) {
        let Subject { namespace, id, key, name, fields } = subject;
        let event = FeedEvent { number: 0, what, at: SystemTime::now(), namespace, timer: id, key, name, fields };
        self.feed.publish(counted, event);
    }
}

impl Subject {
    fn with(mut self, field: &'static str, value: FeedValue) -> Subject {
        self.fields.push((field, value));
        self
    }

    fn of_delivery(id: RowId, row: Option<&TimerRow>) -> Subject {
        let subject = Subject { id: Some(id.timer), ..Subject::default() };
        let subject = subject.with("occurrence", FeedValue::Count(id.occurrence));
        let Some(row) = row else { return subject };
        let subject = Subject {
            namespace: Some(row.spec.namespace.clone()),
            key: row.spec.key.clone(),
            name: row.spec.name.clone(),
            ..subject
        };
        subject.with("due", FeedValue::Text(row.due.to_string())).with("attempt", FeedValue::Count(row.attempt.into()))
    }

    /// The kind of a queue tells the namespace, that of webhooks does not.
    fn of_kind(id: RowId, kind: &str) -> Subject {
        let namespace = kind.strip_prefix("queue:").and_then(|rest| rest.rsplit_once('/'));
        let namespace = namespace.map(|(namespace, _)| namespace.to_owned());
        Subject { namespace, ..Subject::of_delivery(id, None) }
    }

    fn of_target(target: Target) -> Subject {
        match target {
            Target::Id(id) => Subject { id: Some(id), ..Subject::default() },
            Target::Key { namespace, key } => {
                Subject { namespace: Some(namespace), key: Some(key), ..Subject::default() }
            }
            Target::Name { namespace, name } => {
                Subject { namespace: Some(namespace), name: Some(name), ..Subject::default() }
            }
        }
    }
}
