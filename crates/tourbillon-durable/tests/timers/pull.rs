//! Deliveries that workers ask for.

use std::time::Duration;

use tourbillon_durable::{Ack, BlockingTimers, MemoryStore, NewTimer, Pulled, Receipt, RetryPolicy, Timers};

use crate::{PATIENCE, end, eventually, hour, ms, open};

fn now(kind: &str) -> NewTimer {
    NewTimer::after(kind, Duration::ZERO)
}

/// Pulls one row of a kind, as soon as there is one.
fn pull_one(calls: &BlockingTimers, kind: &str, lease: Duration) -> Pulled {
    let mut pulled = Vec::new();
    let begin = std::time::Instant::now();
    while pulled.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "a row of {kind} is due");
        pulled = calls.pull(kind, 1, lease).unwrap();
        std::thread::sleep(ms(1));
    }
    pulled.remove(0)
}

fn finish(calls: &BlockingTimers, receipt: Receipt, ack: Ack) -> bool {
    calls.finish_pulled(vec![(receipt, ack)]).unwrap().remove(0).unwrap()
}

fn extend(calls: &BlockingTimers, receipt: Receipt) -> bool {
    calls.extend_pulled(vec![receipt], PATIENCE).unwrap().remove(0).unwrap()
}

#[test]
fn v1_v5_a_pulled_delivery_is_acknowledged_by_its_receipt_once() {
    let timers = open();
    let calls = timers.blocking();
    calls.create_all((0..5).map(|number| now("work").key(number.to_string())).collect()).unwrap();
    let pulled: Vec<Pulled> = (0..5).map(|_| pull_one(&calls, "work", PATIENCE)).collect();
    assert_eq!(calls.counts().unwrap().claimed, 5);
    assert_eq!(calls.pull("work", 10, PATIENCE).unwrap(), [], "all are taken");
    for receipt in pulled.iter().map(Pulled::receipt) {
        assert!(extend(&calls, receipt) && finish(&calls, receipt, Ack::Done));
        assert!(!finish(&calls, receipt, Ack::Done) && !extend(&calls, receipt), "it ends once");
    }
    assert_eq!((calls.counts().unwrap().claimed, timers.stats().begun), (0, 5));
    end(&timers);
}

#[test]
fn v5_q3_a_lease_that_is_over_gives_the_row_to_the_next_worker_and_refuses_the_late_one() {
    let timers = open();
    let calls = timers.blocking();
    calls.create(now("work")).unwrap();
    let first = pull_one(&calls, "work", ms(20));
    let second = pull_one(&calls, "work", PATIENCE);
    assert_eq!((first.row.attempt, second.row.attempt, first.row.id), (1, 2, second.row.id));
    assert!(!finish(&calls, first.receipt(), Ack::Done) && !extend(&calls, first.receipt()));
    assert!(finish(&calls, second.receipt(), Ack::Done));
    end(&timers);
}

#[test]
fn v4_a_pulled_row_that_is_refused_comes_again_until_it_is_a_dead_letter() {
    let timers = open();
    let calls = timers.blocking();
    let retry = RetryPolicy { attempts: 3, first: ms(1), longest: ms(1), ..RetryPolicy::default() };
    calls.create(now("work").retry(retry)).unwrap();
    for attempt in 1..=4 {
        let pulled = pull_one(&calls, "work", PATIENCE);
        assert_eq!(pulled.row.attempt, attempt);
        let ack = match attempt {
            1 => Ack::RetryAfter(ms(1), "no".into()),
            2 => Ack::Postpone(ms(1)),
            _ => Ack::Retry("no".into()),
        };
        assert!(finish(&calls, pulled.receipt(), ack));
    }
    assert_eq!(calls.counts().unwrap().dead, 1, "a delivery that was postponed does not count");
    end(&timers);
}

#[test]
fn v5_a_receipt_works_in_every_process_on_the_store() {
    let clock = || tourbillon_durable::StoreTime::try_from(std::time::SystemTime::now()).unwrap();
    let store = MemoryStore::with_clock(4, clock);
    let nodes = [0, 1].map(|_| Timers::builder().build(store.clone()).unwrap());
    nodes[0].blocking().create(now("work")).unwrap();
    let receipt = pull_one(&nodes[0].blocking(), "work", PATIENCE).receipt();
    assert!(nodes.iter().all(|node| extend(&node.blocking(), receipt)));
    end(&nodes[0]);
    assert!(finish(&nodes[1].blocking(), receipt, Ack::Done), "the node that handed it out is gone");
    end(&nodes[1]);
}

#[test]
fn o4_nothing_is_pulled_from_a_paused_store() {
    let timers = open();
    let calls = timers.blocking();
    calls.pause().unwrap();
    calls.create(now("work")).unwrap();
    assert_eq!(calls.pull("work", 1, PATIENCE).unwrap(), []);
    calls.resume().unwrap();
    assert!(finish(&calls, pull_one(&calls, "work", PATIENCE).receipt(), Ack::GiveUp("enough".into())));
    end(&timers);
}

#[test]
fn v1_one_handler_serves_many_kinds_and_typed_payloads() {
    let timers = open();
    let (sender, received) = std::sync::mpsc::channel();
    let many = sender.clone();
    let handler = move |delivery: tourbillon_durable::Delivery| {
        let (many, kind) = (many.clone(), delivery.kind().to_owned());
        async move { many.send(kind).map_err(|error| error.to_string()) }
    };
    timers.on_kinds(&["a", "b"], 2, handler).unwrap();
    timers
        .on_json("typed", move |_, (word, number): (String, u32)| {
            let sender = sender.clone();
            async move { sender.send(format!("{word} {number}")).map_err(|error| error.to_string()) }
        })
        .unwrap();
    let calls = timers.blocking();
    calls.create(now("typed").payload("not what it should be")).unwrap();
    eventually("what cannot be read is a dead letter", || calls.counts().unwrap().dead == 1);
    calls.create_all(vec![now("a"), now("b"), now("typed").json(&("tea", 4)).unwrap()]).unwrap();
    let mut seen: Vec<String> = (0..3).map(|_| received.recv_timeout(PATIENCE).unwrap()).collect();
    seen.sort();
    assert_eq!(seen, ["a", "b", "tea 4"]);
    calls.create(NewTimer::after("a", hour())).unwrap();
    end(&timers);
}
