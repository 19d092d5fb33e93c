//! Numbers that the kernel reports about this process.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::refuse::refuse;

/// Lets one test run at a time, for tests that count resources of the whole process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of descriptors of the process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Returns the number of sockets that the reactors of this process watch, as the kernel reports it.
pub(crate) fn watched_by_the_kernel() -> usize {
    let mut count = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let Ok(target) = std::fs::read_link(entry.path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let info = format!("/proc/self/fdinfo/{}", entry.file_name().to_string_lossy());
        if target.contains("eventpoll") {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            count += info.lines().filter(|line| line.starts_with("tfd:")).count();
        } else if target.contains("io_uring") {
            let info = std::fs::read_to_string(info).unwrap_or_default();
            let polls = info.lines().skip_while(|line| !line.starts_with("PollList")).skip(1);
            count += polls.take_while(|line| line.starts_with(' ')).count();
        }
    }
    count
}

/// Returns the ids of the threads of this process whose names begin so.
pub(crate) fn threads_named(name: &str) -> Vec<i32> {
    let mut ids = Vec::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let comm = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        if comm.starts_with(name) {
            ids.push(task.file_name().to_string_lossy().parse().unwrap());
        }
    }
    ids
}

/// Returns how often these threads have gone to sleep, and how long they have run.
pub(crate) fn sleeps_and_cpu(name: &str) -> (u64, Duration) {
    let (mut sleeps, mut nanos) = (0, 0);
    for id in threads_named(name) {
        let read = |file| std::fs::read_to_string(format!("/proc/self/task/{id}/{file}")).unwrap_or_default();
        let status = read("status");
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        sleeps += count.map_or(0, |count| count.trim().parse::<u64>().unwrap());
        nanos += read("schedstat").split(' ').next().and_then(|run| run.parse::<u64>().ok()).unwrap_or(0);
    }
    (sleeps, Duration::from_nanos(nanos))
}

/// Makes these system calls fail with this error, for this thread and those that it starts. Where that cannot be done, this prints it, and
/// returns `false`.
#[must_use]
pub(crate) fn try_refuse(calls: &[libc::c_long], errno: i32) -> bool {
    let Some(why) = calls.iter().find_map(|call| refuse(*call, errno).err()) else { return true };
    println!("NOT TESTED WITH A SYSTEM CALL REFUSED: filters cannot be set here ({why})");
    eprintln!("NOT TESTED WITH A SYSTEM CALL REFUSED: filters cannot be set here ({why})");
    false
}
