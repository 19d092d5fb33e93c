//! A pause of all deliveries.

use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use tourbillon_durable::transfer::{export, import};
use tourbillon_durable::{Ack, MemoryStore, NewTimer, Timers};

use crate::{end, eventually, ms, next, open, record};

#[test]
fn o4_a_paused_store_takes_requests_and_delivers_nothing_until_it_is_resumed() {
    let timers = open();
    let received = record(&timers, "mail", |_| Ack::Done);
    let calls = timers.blocking();
    calls.pause().unwrap();
    assert!(timers.stats().is_paused && calls.counts().unwrap().is_paused);
    calls.create(NewTimer::after("mail", Duration::ZERO).key("late")).unwrap();
    calls.create(NewTimer::after("mail", Duration::ZERO).key("cancelled")).unwrap();
    assert_eq!(calls.cancel("cancelled").unwrap().cancelled, 1);
    assert_eq!(received.recv_timeout(ms(50)).err(), Some(RecvTimeoutError::Timeout));
    calls.resume().unwrap();
    assert_eq!(next(&received).key(), Some("late"));
    end(&timers);
}

#[test]
fn o4_a_pause_outlives_the_process_and_is_shared_by_all_nodes() {
    let clock = || tourbillon_durable::StoreTime::try_from(std::time::SystemTime::now()).unwrap();
    let store = MemoryStore::with_clock(4, clock);
    let first = Timers::builder().build(store.clone()).unwrap();
    first.blocking().pause().unwrap();
    end(&first);
    let lease = Duration::from_millis(300);
    let nodes = [0, 1].map(|_| Timers::builder().node_lease(lease).build(store.clone()).unwrap());
    let received = nodes.each_ref().map(|node| record(node, "mail", |_| Ack::Done));
    nodes.iter().for_each(|node| eventually("it hears of the pause", || node.stats().is_paused));
    for number in 0..20 {
        nodes[0].blocking().create(NewTimer::after("mail", Duration::ZERO).key(number.to_string())).unwrap();
    }
    assert!(received.iter().all(|received| received.recv_timeout(ms(20)).is_err()));
    nodes[1].blocking().resume().unwrap();
    let count = || nodes.iter().map(|node| node.stats().done).sum::<u64>();
    eventually("both nodes deliver again", || count() == 20);
    nodes.iter().for_each(end);
}

#[test]
fn o4_nothing_is_pulled_from_a_paused_store() {
    let timers = open();
    let calls = timers.blocking();
    calls.pause().unwrap();
    calls.create(NewTimer::after("work", Duration::ZERO)).unwrap();
    assert_eq!(calls.pull("work", 1, Duration::from_secs(60)).unwrap(), []);
    calls.resume().unwrap();
    let mut pulled = Vec::new();
    while pulled.is_empty() {
        pulled = calls.pull("work", 1, Duration::from_secs(60)).unwrap();
    }
    assert_eq!(calls.finish_pulled(vec![(pulled[0].receipt(), Ack::Done)]).unwrap(), [Ok(true)]);
    end(&timers);
}

#[test]
fn d45_o4_timers_that_are_imported_during_a_pause_are_delivered_after_it() {
    let other = open();
    other.blocking().create(NewTimer::after("mail", Duration::ZERO).key("imported")).unwrap();
    let mut text = Vec::new();
    export(other.store(), &mut text, &mut |_| ()).unwrap();
    end(&other);

    let timers = open();
    let received = record(&timers, "mail", |_| Ack::Done);
    let calls = timers.blocking();
    calls.create(NewTimer::after("mail", Duration::ZERO).key("first")).unwrap();
    assert_eq!(next(&received).key(), Some("first"), "the node has loaded what is due soon");
    calls.pause().unwrap();
    assert_eq!(import(timers.store(), &mut &text[..], &mut |_| ()).unwrap().written, 1);
    calls.resume().unwrap();
    assert_eq!(next(&received).key(), Some("imported"));
    end(&timers);
}
