//! The whole process is stopped, as by `kill -STOP`, a terminal or a container's freezer, and continues later.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tourbillon::{Clock, Driver, Engine};

use crate::audit::TimerAudit;
use crate::child::{Child, READY, child_part, print, read_line};
use crate::support::{eventually, has_timerfd, ms};

/// How long the process is stopped.
const STOP: Duration = Duration::from_millis(300);

#[test]
fn p1_p2_p4_a_process_that_is_stopped_and_continued_loses_no_timer_on_any_clock_or_driver() {
    let test = "stopped::p1_p2_p4_a_process_that_is_stopped_and_continued_loses_no_timer_on_any_clock_or_driver";
    if child_part(test).is_some() {
        return is_stopped();
    }
    let mut child = Child::spawn(test, "is stopped");
    child.wait_for(READY);
    for _ in 0..2 {
        child.signal(Signal::STOP);
        eventually("the child is stopped", || child.state() == 'T');
        thread::sleep(STOP);
        child.signal(Signal::CONT);
        thread::sleep(ms(50));
    }
    child.write_line("the stop is over");
    child.succeeds();
}

fn is_stopped() {
    let engine = |clock| Engine::builder().clock(clock).build().unwrap();
    let mut engines = [Clock::monotonic(), Clock::boot(), Clock::wall()].map(engine).to_vec();
    // The driver of the last one is a task, not a thread.
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    if has_timerfd() {
        engines.push(tokio.block_on(async { Engine::builder().driver(Driver::tokio()).build().unwrap() }));
    }
    let mut ledgers: Vec<_> = engines.iter().map(TimerAudit::new).collect();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        print(READY);
        scope.spawn(|| {
            assert_eq!(read_line(), "the stop is over");
            is_over.store(true, Ordering::SeqCst);
        });
        // There are always timers of up to 60 ms, so some come due while the process is stopped.
        while !is_over.load(Ordering::SeqCst) {
            for audit in &mut ledgers {
                (1..=60).for_each(|millis| _ = audit.arm(ms(millis)));
                audit.cancel_some();
                audit.forget_fired();
            }
            thread::sleep(ms(5));
        }
    });
    for (mut audit, engine) in ledgers.into_iter().zip(&engines) {
        audit.all_fire();
        let late_batches = audit.recovers();
        let result =
            audit.check(&format!("stopped twice for {STOP:?}, {:?}, {late_batches} late batches", engine.clock()));
        assert!(result.latest >= STOP / 2, "the process was not stopped: {result:?}");
    }
}
