//! The whole process is stopped, as by `kill -STOP`, a terminal or a container's freezer, and goes on later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tourbillon::{Clock, Driver, Engine};

use crate::apart::{Child, READY, part_of, say, told};
use crate::ledger::Ledger;
use crate::support::{eventually, ms};

/// How long it is stopped.
const STOP: Duration = Duration::from_millis(300);

#[test]
fn p1_p2_p4_a_process_that_is_stopped_and_goes_on_loses_no_timer_on_any_clock_or_driver() {
    let test = "stopped::p1_p2_p4_a_process_that_is_stopped_and_goes_on_loses_no_timer_on_any_clock_or_driver";
    if part_of(test).is_some() {
        return is_stopped();
    }
    let mut child = Child::play(test, "is stopped");
    child.wait_for(READY);
    for _ in 0..2 {
        child.signal(Signal::STOP);
        eventually("it is stopped", || child.state() == 'T');
        thread::sleep(STOP);
        child.signal(Signal::CONT);
        thread::sleep(ms(50));
    }
    child.tell("that was it");
    child.succeeds();
}

fn is_stopped() {
    let engine = |clock| Engine::builder().clock(clock).build().unwrap();
    let mut engines = [Clock::monotonic(), Clock::boot(), Clock::wall()].map(engine).to_vec();
    // The last has no thread of its own for a driver, but a task.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    engines.push(tokio.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() }));
    let mut ledgers: Vec<_> = engines.iter().map(Ledger::new).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        say(READY);
        scope.spawn(|| {
            assert_eq!(told(), "that was it");
            is_over.store(true, Ordering::SeqCst);
        });
        // There are timers of up to 60 ms at any time, so some come due while nothing moves.
        while !is_over.load(Ordering::SeqCst) {
            for ledger in &mut ledgers {
                (1..=60).for_each(|millis| _ = ledger.arm(ms(millis)));
                ledger.cancel_some();
                ledger.forget_fired();
            }
            thread::sleep(ms(5));
        }
    });
    for (mut ledger, engine) in ledgers.into_iter().zip(&engines) {
        ledger.all_fire();
        let late_batches = ledger.recovers();
        let account =
            ledger.balance(&format!("stopped twice for {STOP:?}, {:?}, {late_batches} late batches", engine.clock()));
        assert!(account.latest >= STOP / 2, "it was not stopped: {account:?}");
    }
}
