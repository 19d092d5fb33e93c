//! The process has no file descriptors left.

use std::fs::File;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tourbillon::scheduler::Scheduler;
use tourbillon::{BuildError, Clock, Cron, Driver, Engine, Timer};

use crate::apart::{Child, part_of, report};
use crate::ledger::Ledger;
use crate::support::ms;

#[test]
fn p2_p6_out_of_descriptors_timers_go_on_and_engines_are_built_or_refused_with_a_typed_error() {
    let test = "descriptors::p2_p6_out_of_descriptors_timers_go_on_and_engines_are_built_or_refused_with_a_typed_error";
    match part_of(test) {
        None => Child::play(test, "has none left").succeeds(),
        Some(_) => has_none_left(),
    }
}

fn has_none_left() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = Engine::builder().build().unwrap();
    let on_tokio = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build() }).unwrap();
    let mut before = Ledger::new(&engine);
    (0..200).for_each(|millis| _ = before.arm(ms(millis)));

    let files = take_all_descriptors();
    engine_goes_on(before);
    for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
        new_engine_does_without(clock);
    }
    let refused = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build() });
    let refused = refused.expect_err("a task on Tokio cannot be woken without a descriptor");
    assert!(matches!(refused, BuildError::Thread(_)), "{refused:?}");
    report(&format!("out of descriptors, Driver::tokio: {refused}"));
    runtime.block_on(on_tokio.sleep(ms(5)));
    jobs_and_callbacks_go_on();

    // What was refused is to be had again as soon as there are some.
    drop(files);
    let again = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build() }).unwrap();
    runtime.block_on(again.sleep(ms(5)));
}

fn engine_goes_on(mut ledger: Ledger) {
    (0..200).for_each(|millis| _ = ledger.arm(ms(millis / 2)));
    ledger.cancel_some();
    ledger.all_fire();
    let late_batches = ledger.recovers();
    ledger.balance(&format!("out of descriptors, an engine from before, {late_batches} late batches"));
}

/// Its driver waits on a condition variable rather than on a timer of the kernel.
fn new_engine_does_without(clock: Clock) {
    let engine = Engine::builder().clock(clock).build().expect("a driver thread needs no descriptor");
    let mut ledger = Ledger::new(&engine);
    (0..200).for_each(|millis| _ = ledger.arm(ms(millis)));
    ledger.cancel_some();
    // One that is earlier than what the driver has planned.
    ledger.arm(Duration::from_micros(100));
    ledger.all_fire();
    let late_batches = ledger.recovers();
    ledger.balance(&format!(
        "out of descriptors, an engine from then, {:?}, {late_batches} late batches",
        engine.clock()
    ));
}

fn jobs_and_callbacks_go_on() {
    let (send, receive) = channel();
    let scheduler = Scheduler::builder().threads(1).build().unwrap();
    // Every second, on the wall clock, by an engine that is built now.
    let plan = Cron::parse("* * * * * *").unwrap();
    scheduler
        .schedule("tick", plan, {
            let send = send.clone();
            move |_: &_| _ = send.send("job")
        })
        .unwrap();
    assert_eq!(receive.recv_timeout(Duration::from_secs(60)), Ok("job"));
    drop(scheduler);
    Timer::after(ms(1)).on_expiry(move |_| _ = send.send("callback"));
    while receive.recv_timeout(Duration::from_secs(60)).expect("the callback is made") != "callback" {}
}

/// Opens files until no more can be.
fn take_all_descriptors() -> Vec<File> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(64), maximum: most }).unwrap();
    let mut files = Vec::new();
    let refused = loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.raw_os_error(), Some(libc::EMFILE));
    files
}
