//! The resources of a process, read from outside, so that reading does not wake it.

use std::fs;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The resources that a process has used since its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessUsage {
    /// CPU time of its threads.
    pub(crate) cpu: Duration,
    /// How often its threads have gone to sleep.
    pub(crate) sleeps: u64,
    /// Resident bytes.
    pub(crate) resident: usize,
}

impl ProcessUsage {
    /// Reads the usage of a process. Work in progress may be missing; work before its last sleep is not.
    pub(crate) fn at(process: u32) -> ProcessUsage {
        let mut usage = ProcessUsage { cpu: Duration::ZERO, sleeps: 0, resident: resident(process) };
        for thread in fs::read_dir(format!("/proc/{process}/task")).expect("the process exists").flatten() {
            // A thread that ends meanwhile does not count.
            let read = |name| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
            usage.cpu += cpu(&read("schedstat"));
            usage.sleeps += sleeps(&read("status"));
        }
        usage
    }
}

/// Returns the resident bytes of this process.
pub(crate) fn own_resident() -> usize {
    resident(std::process::id())
}

/// Returns the CPU time of this process.
pub(crate) fn own_cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Returns the CPU time that this process uses between two instants. Blocks the thread until the second.
pub(crate) fn own_cpu_time_between(begin: Instant, end: Instant) -> Duration {
    let wait = |until: Instant| std::thread::sleep(until.saturating_duration_since(Instant::now()));
    wait(begin);
    let before = own_cpu_time();
    wait(end);
    own_cpu_time() - before
}

/// Parses the first number of `schedstat`.
fn cpu(schedstat: &str) -> Duration {
    let nanos = schedstat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn sleeps(status: &str) -> u64 {
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn resident(process: u32) -> usize {
    let statm = fs::read_to_string(format!("/proc/{process}/statm")).expect("Linux reports the memory of a process");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the second number");
    pages * rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_the_cpu_time_the_sleeps_and_the_memory() {
        assert_eq!(cpu("1384133 52 7\n"), Duration::from_nanos(1_384_133));
        assert_eq!(sleeps("Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n"), 17);
        assert!(ProcessUsage::at(std::process::id()).resident > 100_000);
    }
}
