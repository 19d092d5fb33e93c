//! Properties of the system that Linux reports.

use std::fs::read_to_string;

use rustix::thread::{MembarrierQuery, current_timer_slack, membarrier_query};
use tourbillon_rt::{Backend, BuildError, Runtime};

use super::{Fact, cost_of};
use crate::text::time;

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0";
const FORBIDDEN: &str = "/proc/sys/kernel/io_uring_disabled";

/// Returns the kernel's name and version.
pub(super) fn system() -> Vec<Fact> {
    let name = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    vec![Fact::text_only("kernel", "kernel", format!("{} {}", text(name.sysname()), text(name.release())))]
}

/// Returns the facilities that timers use. `read` is the cost of a clock read in nanoseconds.
pub(super) fn facilities(read: u64) -> Vec<Fact> {
    let call = cost_of(|| _ = rustix::process::getppid());
    let is_fast = read < call / 2;
    let how = if is_fast { "without a system call (vDSO)" } else { "by a system call" };
    let vdso = Fact::new("clock_is_vdso", "clock is read", format!("{how}; a system call takes {call} ns"), is_fast);
    vec![clock_source(), vdso, slack(), io_uring(), auto(), membarrier()]
}

fn clock_source() -> Fact {
    let read = |file: &str| read_to_string(format!("{CLOCK_SOURCE}/{file}")).ok().map(|text| text.trim().to_owned());
    let (key, label) = ("clock_source", "clock source");
    match (read("current_clocksource"), read("available_clocksource")) {
        (Some(current), Some(all)) => Fact::new(key, label, format!("{current} (of {all})"), current),
        (Some(current), None) => Fact::text_only(key, label, current),
        _ => Fact::new(key, label, "not known", None::<u64>),
    }
}

fn slack() -> Fact {
    let slack = current_timer_slack().ok();
    let text = slack.map_or_else(super::unknown, |slack| {
        format!("{} for a thread by default; the driver sets its own to 1 ns", time(slack))
    });
    Fact::new("timer_slack_ns", "timer slack", text, slack)
}

fn io_uring() -> Fact {
    let (key, label) = ("io_uring", "io_uring");
    match Runtime::builder().backend(Backend::Uring).workers(0).build() {
        Ok(runtime) if runtime.backend() == Backend::Uring => Fact::text_only(key, label, "available"),
        Ok(runtime) => Fact::text_only(key, label, format!("not tried: TOURBILLON_BACKEND says {}", runtime.backend())),
        Err(BuildError::Refused { why, .. }) => Fact::text_only(key, label, format!("refused: {why}{}", forbidden())),
        Err(error) => Fact::text_only(key, label, error.to_string()),
    }
}

/// Returns what the administrator has configured for io_uring.
fn forbidden() -> &'static str {
    match read_to_string(FORBIDDEN).ok().as_deref().map(str::trim) {
        Some("1") => " (kernel.io_uring_disabled is 1: for privileged processes only)",
        Some("2") => " (kernel.io_uring_disabled is 2: for no process)",
        Some("0") => " (kernel.io_uring_disabled is 0: a sandbox forbids it, or a limit does)",
        _ => "",
    }
}

fn auto() -> Fact {
    let (key, label) = ("back_end", "back end by default");
    match Runtime::builder().backend(Backend::Auto).workers(0).build() {
        Ok(runtime) => Fact::text_only(key, label, runtime.backend().to_string()),
        Err(error) => Fact::text_only(key, label, format!("none: {error}")),
    }
}

fn membarrier() -> Fact {
    let is_there = membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED);
    let text =
        if is_there { "available: threads arm and cancel under biased locks" } else { "not available: ordinary locks" };
    Fact::new("membarrier", "membarrier", text, is_there)
}
