//! The process reaches its memory limit.
//!
//! A Rust program that is out of memory aborts, wherever that happens. So an engine has a capacity, and a program that stays below it
//! does not run out of memory through timers.

use std::sync::mpsc::{Sender, channel};
use std::thread;

use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use tourbillon::{ArmError, BuildError, Engine};

use crate::audit::TimerAudit;
use crate::child::{Child, child_part, print, report};
use crate::kilobytes;
use crate::support::{ms, years};

const CAPACITY: usize = 200_000;
/// Enough bytes for that many timers, and not for many more.
const ROOM: u64 = 64 << 20;

const NOT_KEPT: &str = "the system does not keep it";

#[test]
fn p7_at_the_limit_of_memory_an_engine_with_a_capacity_refuses_timers_and_one_without_ends_the_process() {
    let test =
        "memory::p7_at_the_limit_of_memory_an_engine_with_a_capacity_refuses_timers_and_one_without_ends_the_process";
    match child_part(test).as_deref() {
        None => {
            if Child::spawn(test, "probe").ends().1.contains(NOT_KEPT) {
                println!("NOT TESTED AT A LIMIT OF MEMORY: {NOT_KEPT}, as under qemu");
                return;
            }
            Child::spawn(test, "capacity").succeeds();
            let said = Child::spawn(test, "none").ends_by(Signal::ABORT);
            assert!(said.contains("memory allocation of"), "{said}");
            let armed = said.lines().filter_map(|line| line.strip_prefix("armed ")?.parse::<usize>().ok()).max();
            assert!(
                armed.is_some_and(|armed| armed > CAPACITY),
                "fewer timers than the capacity were armed: {armed:?}"
            );
            let armed = armed.unwrap_or_default();
            report(&format!("{ROOM} bytes, no capacity: the process was aborted with {armed} timers pending"));
        }
        Some("probe") => print(if is_limit_kept() { "the limit is kept" } else { NOT_KEPT }),
        Some("capacity") => refuses(),
        Some(_) => arms_without_end(),
    }
}

/// Returns whether the system refuses memory beyond the limit.
fn is_limit_kept() -> bool {
    limit_memory(ROOM);
    Vec::<u8>::new().try_reserve_exact(4 * ROOM as usize).is_err()
}

fn refuses() {
    let engine = started(Engine::builder().capacity(CAPACITY).build().unwrap());
    let mut held = Vec::with_capacity(CAPACITY);
    limit_memory(ROOM);
    for round in 0..3 {
        held.extend((0..CAPACITY).map(|_| engine.try_sleep(years(1)).expect("the engine is not full")));
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

    // A thread, with its stack, takes more than is left: a new engine is refused, and the existing one continues.
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
    let mut audit = TimerAudit::new(&engine);
    let late_batches = audit.recovers();
    audit.check(&format!("after the limit was reached, {late_batches} late batches"));
}

fn arms_without_end() {
    let engine = started(Engine::builder().build().unwrap());
    // The abort must not leave a core dump.
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: getrlimit(Resource::Core).maximum }).unwrap();
    // Memory for the test's own vector in advance, so that the engine is the one that asks for more.
    let mut held = Vec::with_capacity(10_000_000);
    limit_memory(ROOM);
    while held.len() < held.capacity() {
        held.push(engine.try_sleep(years(1)).unwrap());
        if held.len() % 10_000 == 0 {
            print(&format!("armed {}", held.len()));
        }
    }
}

/// Waits until the driver thread has allocated what a thread allocates when it starts: a signal stack, and perhaps 64 MB of addresses for
/// the C library's allocator, which would be all that the limit leaves.
fn started(engine: Engine) -> Engine {
    futures_lite::future::block_on(engine.sleep(ms(1)));
    engine
}

/// The C library may have kept the stacks of ended threads for new ones, so this starts threads until one is refused. They end when the
/// returned senders are dropped.
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

/// Limits the memory of the process to this many bytes more than it has.
fn limit_memory(more: u64) {
    let most = getrlimit(Resource::As).maximum;
    let now = 1024 * kilobytes("VmSize");
    setrlimit(Resource::As, Rlimit { current: Some(now + more), maximum: most }).unwrap();
}
