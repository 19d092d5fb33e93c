//! Faults of the real system, and overload: the outcomes of timers, counted.
//!
//! After each fault the tests check the same: no timer was early (P1); each armed timer has one outcome, to the last one, and each that
//! fired has woken its task once (P2); timers that are armed afterwards are on time again (P4). The lateness during the fault is only
//! printed:
//!
//!     cargo test -p tourbillon --test hardship -- --nocapture | grep hardship:
//!
//! Faults of a whole process (signals, limits, time namespaces) happen in a process of their own: see `child`.
#![cfg(tourbillon_proc)]

mod audit;
mod child;
#[path = "../random/mod.rs"]
mod random;
#[path = "../support/mod.rs"]
mod support;

mod burst;
mod clocks;
mod descriptors;
mod flood;
mod memory;
mod slow_calls;
mod stalled;
mod starved;
mod stopped;
mod threads;

/// Returns the driver threads of this process, by their kernel ids. (A thread sets its own name, so a new one may not have it yet.)
fn driver_threads() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let named = tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "tourbillon"));
    named.map(|task| task.file_name().to_string_lossy().parse().unwrap()).collect()
}

/// Returns a value of this process's memory statistics, by the name of the line.
fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
