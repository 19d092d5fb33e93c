//! Faults of the real system, and overload: what becomes of timers, counted.
//!
//! After each fault the same is asked: nothing was early (P1); each timer that was armed has one outcome, to the last one, and each
//! that fired has woken its task once (P2); timers that are armed afterwards are on time again (P4). How late they were
//! meanwhile is printed, and not judged:
//!
//!     cargo test -p tourbillon --test hardship -- --nocapture | grep hardship:
//!
//! What hits a whole process (signals, limits, time name spaces) happens in a process of its own: see `apart`.
#![cfg(target_os = "linux")]

mod apart;
mod ledger;
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

/// The driver threads of this process, by the kernel's numbers. (A thread gives itself its name, so a new one may not have it yet.)
fn driver_threads() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let named = tasks
        .filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "tourbillon"));
    named.map(|task| task.file_name().to_string_lossy().parse().unwrap()).collect()
}

/// What the kernel says of this process's memory, by the name of the line.
fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
