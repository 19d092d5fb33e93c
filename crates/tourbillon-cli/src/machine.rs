//! The CPU time and memory that this process uses, and the cores and memory of the machine.

use std::time::Duration;

use crate::clock::monotonic;

/// CPU time, elapsed time and memory of this process.
#[derive(Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    /// Peak resident memory in bytes.
    pub(crate) memory: u64,
}

impl Usage {
    pub(crate) fn now() -> Usage {
        let wall = Duration::from_nanos(monotonic());
        Usage { cpu: cpu(), wall, memory: memory() }
    }

    pub(crate) fn since(self, before: &Usage) -> Usage {
        Usage {
            cpu: self.cpu.saturating_sub(before.cpu),
            wall: self.wall.saturating_sub(before.wall),
            memory: self.memory,
        }
    }
}

/// Returns how many threads can run in parallel.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the bytes of memory available to new programs; `None` if that is not known.
pub(crate) fn available_memory() -> Option<u64> {
    kibibytes_of("/proc/meminfo", "MemAvailable:")
}

/// Returns the bytes of memory of the machine.
pub(crate) fn whole_memory() -> Option<u64> {
    kibibytes_of("/proc/meminfo", "MemTotal:")
}

#[cfg(target_os = "linux")]
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(target_os = "linux"))]
fn cpu() -> Duration {
    Duration::ZERO
}

fn memory() -> u64 {
    kibibytes_of("/proc/self/status", "VmHWM:").unwrap_or(0)
}

/// Parses a line `Name:   123 kB` of a kernel file.
fn kibibytes_of(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
