//! The process may have no more memory.
//!
//! Rust has no answer to that but to end the process, wherever it happens: so an engine has a capacity, and who stays below it
//! does not get there.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tourbillon::{ArmError, BuildError, Engine};

use crate::apart::{Child, part_of, report, say};
use crate::kilobytes;
use crate::ledger::Ledger;
use crate::support::{ms, years};

const CAPACITY: usize = 200_000;
/// Enough for so many, and not for many more.
const ROOM: u64 = 64 << 20;

#[test]
fn p7_at_the_limit_of_memory_an_engine_with_a_capacity_refuses_and_goes_on_and_one_without_ends_the_process() {
    let test = "memory::p7_at_the_limit_of_memory_an_engine_with_a_capacity_refuses_and_goes_on_and_one_without_ends_the_process";
    match part_of(test).as_deref() {
        None => {
            Child::play(test, "capacity").succeeds();
            let said = Child::play(test, "none").ends_by(Signal::ABORT);
            assert!(said.contains("memory allocation of"), "{said}");
            let armed = said.lines().filter_map(|line| line.strip_prefix("armed ")?.parse::<usize>().ok()).max();
            assert!(armed.is_some_and(|armed| armed > CAPACITY), "not even the capacity: {armed:?}");
            let armed = armed.unwrap_or_default();
            report(&format!("{ROOM} bytes, no capacity: the process was aborted with {armed} timers pending"));
        }
        Some("capacity") => refuses(),
        Some(_) => arms_for_ever(),
    }
}

fn refuses() {
    let engine = started(Engine::builder().capacity(CAPACITY).build().unwrap());
    let mut held = Vec::with_capacity(CAPACITY);
    limit_memory(ROOM);
    for round in 0..3 {
        held.extend((0..CAPACITY).map(|_| engine.try_sleep(years(1)).expect("there is room")));
        for _ in 0..1000 {
            assert_eq!(
                engine.try_sleep(years(1)).unwrap_err(),
                ArmError::Full { capacity: CAPACITY },
                "in round {round}"
            );
        }
        assert_eq!(engine.stats().pending, CAPACITY as u64);
        held.clear();
    }
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.cancelled), (1 + 3 * CAPACITY as u64, 3 * CAPACITY as u64), "{stats:?}");
    report(&format!(
        "{ROOM} bytes, capacity {CAPACITY}: filled 3 times, 3000 refused, {} armed and cancelled",
        stats.armed
    ));

    // A thread, with its stack, is more than there is: an engine is refused, and who has one goes on.
    limit_memory(1 << 20);
    let others = start_threads_until_refused();
    let refused = Engine::builder().build().expect_err("there is no memory for its thread");
    assert!(matches!(refused, BuildError::Thread(_)), "{refused:?}");
    report(&format!("no memory for a thread: {refused}"));
    let before = engine.stats();
    futures_lite::future::block_on(engine.sleep(ms(5)));
    assert_eq!(engine.stats().fired, before.fired + 1);

    drop(others);
    limit_memory(4 * ROOM);
    let engine = started(Engine::builder().capacity(CAPACITY).build().expect("there is memory again"));
    let mut ledger = Ledger::new(&engine);
    let late_batches = ledger.recovers();
    ledger.balance(&format!("after the limit was reached, {late_batches} late batches"));
}

fn arms_for_ever() {
    let engine = started(Engine::builder().build().unwrap());
    // Its end is no news to anybody but the test.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum }).unwrap();
    // Room for what the test itself holds, so that it is the engine that asks for more.
    let mut held = Vec::with_capacity(10_000_000);
    limit_memory(ROOM);
    while held.len() < held.capacity() {
        held.push(engine.try_sleep(years(1)).unwrap());
        if held.len() % 10_000 == 0 {
            say(&format!("armed {}", held.len()));
        }
    }
}

/// Its thread has what a thread asks for when it starts: a stack for signals, and maybe 64 MB of addresses for the C library's
/// allocator, which would be all that the limit leaves.
fn started(engine: Engine) -> Engine {
    futures_lite::future::block_on(engine.sleep(ms(1)));
    engine
}

/// The C library may have kept the stacks of threads that have ended, for the next ones. They end when what this gives is dropped.
fn start_threads_until_refused() -> Vec<Sender<()>> {
    let mut others = Vec::new();
    loop {
        let (end, ends) = channel();
        match thread::Builder::new().spawn(move || ends.recv()) {
            Ok(_) => others.push(end),
            Err(_) => return others,
        }
    }
}

/// The process may have so many bytes more than it has.
fn limit_memory(more: u64) {
    let most = getrlimit(Resource::As).maximum;
    let now = 1024 * kilobytes("VmSize");
    setrlimit(Resource::As, Rlimit { current: Some(now + more), maximum: most }).unwrap();
}
