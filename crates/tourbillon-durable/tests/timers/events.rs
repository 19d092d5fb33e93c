//! Subscriptions to what happens.

use std::time::Duration;

use tourbillon_durable::store::RowState;
use tourbillon_durable::{Ack, Event, Events, FirstDue, NewTimer, RetryPolicy, Target};

use crate::{end, hour, ms, open, record};

/// Returns the next events, by name.
fn names(events: &mut Events, count: usize) -> Vec<&'static str> {
    (0..count).filter_map(|_| events.next_blocking()).map(|event| name(&event)).collect()
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Created { .. } => "created",
        Event::Cancelled { .. } => "cancelled",
        Event::Rescheduled { .. } => "rescheduled",
        Event::Claimed { .. } => "claimed",
        Event::Delivered { .. } => "delivered",
        Event::Failed { .. } => "failed",
        Event::Dead { .. } => "dead",
        Event::Skipped { .. } => "skipped",
        Event::Lagged(_) => "lagged",
        _ => "unknown",
    }
}

#[test]
fn o6_v6_a_subscriber_sees_the_life_of_a_timer_in_its_order() {
    let timers = open();
    let mut events = timers.events(100).unwrap();
    let calls = timers.blocking();
    calls.create(NewTimer::after("mail", hour()).key("a")).unwrap();
    calls.reschedule(Target::key("a"), FirstDue::After(2 * hour()), None).unwrap();
    calls.cancel("a").unwrap();
    assert_eq!(names(&mut events, 3), ["created", "rescheduled", "cancelled"]);
    let _received = record(&timers, "mail", |delivery| match delivery.attempt() {
        1 => Ack::RetryAfter(ms(1), "busy".into()),
        2 => Ack::Done,
        _ => unreachable!("it was acknowledged"),
    });
    calls.create(NewTimer::after("mail", Duration::ZERO)).unwrap();
    assert_eq!(names(&mut events, 5), ["created", "claimed", "failed", "claimed", "delivered"]);
    let _received = record(&timers, "broken", |_| Ack::Retry("always".into()));
    let created = calls.create(NewTimer::after("broken", Duration::ZERO).retry(RetryPolicy::never())).unwrap();
    assert_eq!(names(&mut events, 2), ["created", "claimed"]);
    let Some(Event::Dead { id, row: Some(row), error }) = events.next_blocking() else { panic!("it is dead") };
    assert_eq!((id.timer, row.state, &*error), (created.id, RowState::Claimed, "always"));
    end(&timers);
    assert!(events.next_blocking().is_none(), "the node has ended");
}

#[test]
fn o2_a_subscriber_that_is_too_slow_is_told_how_many_events_it_has_lost() {
    let timers = open();
    let mut events = timers.events(2).unwrap();
    for number in 0..5 {
        timers.blocking().create(NewTimer::after("mail", hour()).key(number.to_string())).unwrap();
    }
    assert!(matches!(events.next_blocking(), Some(Event::Lagged(3))));
    assert_eq!(names(&mut events, 2), ["created", "created"]);
    end(&timers);
}
