//! The process has no file descriptors left.

use std::fs::File;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tourbillon::scheduler::Scheduler;
use tourbillon::{BuildError, Clock, Cron, Driver, Engine, Timer};

use crate::audit::TimerAudit;
use crate::child::{Child, child_part, report};
use crate::support::{has_timerfd, ms};

#[test]
fn p2_p6_out_of_descriptors_timers_continue_and_engines_are_built_or_refused_with_a_typed_error() {
    let test =
        "descriptors::p2_p6_out_of_descriptors_timers_continue_and_engines_are_built_or_refused_with_a_typed_error";
    match child_part(test) {
        None => Child::spawn(test, "has none left").succeeds(),
        Some(_) if !has_timerfd() => {}
        Some(_) => has_none_left(),
    }
}

fn has_none_left() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = Engine::builder().build().unwrap();
    let on_tokio = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build() }).unwrap();
    let mut before = TimerAudit::new(&engine);
    (0..200).for_each(|millis| _ = before.arm(ms(millis)));

    let files = take_all_descriptors();
    engine_continues(before);
    for clock in [Clock::monotonic(), Clock::boot(), Clock::wall()] {
        new_engine_works_without(clock);
    }
    let refused = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build() });
    let refused = refused.expect_err("a task on Tokio cannot be woken without a descriptor");
    assert!(matches!(refused, BuildError::Thread(_)), "{refused:?}");
    report(&format!("out of descriptors, Driver::tokio: {refused}"));
    runtime.block_on(on_tokio.sleep(ms(5)));
    jobs_and_callbacks_continue();

    // The refused engine can be built as soon as there are descriptors again.
    drop(files);
    let again = runtime.block_on(async { Engine::builder().driver(Driver::tokio()).build() }).unwrap();
    runtime.block_on(again.sleep(ms(5)));
}

fn engine_continues(mut audit: TimerAudit) {
    (0..200).for_each(|millis| _ = audit.arm(ms(millis / 2)));
    audit.cancel_some();
    audit.all_fire();
    let late_batches = audit.recovers();
    audit.check(&format!("out of descriptors, an engine from before, {late_batches} late batches"));
}

/// The driver waits on a condition variable instead of a timerfd.
fn new_engine_works_without(clock: Clock) {
    let engine = Engine::builder().clock(clock).build().expect("a driver thread needs no descriptor");
    let mut audit = TimerAudit::new(&engine);
    (0..200).for_each(|millis| _ = audit.arm(ms(millis)));
    audit.cancel_some();
    // A timer that is earlier than the planned wake-up of the driver.
    audit.arm(Duration::from_micros(100));
    audit.all_fire();
    let late_batches = audit.recovers();
    audit.check(&format!("out of descriptors, an engine from then, {:?}, {late_batches} late batches", engine.clock()));
}

fn jobs_and_callbacks_continue() {
    let (send, receive) = channel();
    let scheduler = Scheduler::builder().threads(1).build().unwrap();
    // Every second, on the wall clock, on an engine that is built now.
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
    while receive.recv_timeout(Duration::from_secs(60)).expect("the callback runs") != "callback" {}
}

/// Opens files until the system refuses.
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
