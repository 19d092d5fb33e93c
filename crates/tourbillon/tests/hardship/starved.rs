//! Busy threads take all processors, and the driver thread has the lowest priority.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, getpriority_process, setpriority_process};
use tourbillon::Engine;

use crate::audit::TimerAudit;
use crate::child::{Child, child_part, report};
use crate::support::{eventually, ms};

const FAMINE: Duration = Duration::from_millis(1000);
/// For each processor.
const BUSY: usize = 8;

#[test]
fn p1_p2_p4_where_all_processors_are_busy_timers_are_late_but_none_is_lost() {
    let test = "starved::p1_p2_p4_where_all_processors_are_busy_timers_are_late_but_none_is_lost";
    match child_part(test) {
        None => Child::spawn(test, "starves").succeeds(),
        Some(_) => starves(),
    }
}

fn starves() {
    let engine = Engine::builder().build().unwrap();
    let mut audit = TimerAudit::new(&engine);
    eventually("the driver has started", || crate::driver_threads().len() == 1);
    let driver = Pid::from_raw(crate::driver_threads()[0]);
    let before = getpriority_process(driver).unwrap();
    setpriority_process(driver, 19).unwrap();

    let (is_over, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let threads = BUSY * thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < FAMINE {
            (0..50).for_each(|number| _ = audit.arm(Duration::from_micros(400 * number)));
            audit.cancel_some();
            audit.forget_fired();
            thread::sleep(ms(2));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(rounds.into_inner() > threads as u64, "the busy threads have not run");
    // Restoring the priority needs a privilege. Without it the driver has to recover at the lowest one.
    let restored = setpriority_process(driver, before).is_ok();
    audit.all_fire();
    let (hungry, late_batches) = (audit.armed(), audit.recovers());
    report(&format!("{hungry} timers armed beside {threads} busy threads, driver at nice 19 (restored: {restored})"));
    audit.check(&format!("starved for {FAMINE:?}, {late_batches} late batches"));
}
