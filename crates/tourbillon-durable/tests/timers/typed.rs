//! Handlers of many kinds and of typed payloads.

use std::time::Duration;

use tourbillon_durable::NewTimer;

use crate::{PATIENCE, end, eventually, open};

fn now(kind: &str) -> NewTimer {
    NewTimer::after(kind, Duration::ZERO)
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
    end(&timers);
}
