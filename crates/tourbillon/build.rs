//! Names what the target system has, so that the sources ask for a capability and not for a system.
//!
//! | cfg | the target has |
//! |---|---|
//! | `tourbillon_timerfd` | a timer of the kernel behind a file descriptor (Linux) |
//! | `tourbillon_kqueue` | a timer of the kernel in a kqueue that starts again when it is added again (Apple's systems, FreeBSD) |
//! | `tourbillon_waitable_timer` | a timer of the kernel behind a handle (Windows) |
//! | `tourbillon_driver_task` | a driver that is a task on a Tokio runtime: a timerfd, and the feature `tokio` |
//! | `tourbillon_linux_clocks` | the clocks of the Linux kernel |
//! | `tourbillon_apple_clocks` | the clocks of Apple's systems |
//! | `tourbillon_exact_instant` | a monotonic clock whose nanoseconds the standard library's `Instant` gives away |
//! | `tourbillon_monotonic_counts_suspend` | a monotonic clock of the standard library that counts the time of a suspend (Windows) |
//! | `tourbillon_membarrier` | a fence on all cores by one thread (Linux) |
//! | `tourbillon_tsc` | a kernel that says whether its clock is derived from the processor's time stamp counter |
//! | `tourbillon_proc` | the state of threads and open files in `/proc` (Linux) |
//! | `tourbillon_threads_start_in_destructors` | threads that start while another runs the destructors of its thread-locals (not Windows) |
//! | `tourbillon_unix_sockets` | Unix sockets in the standard library |
//!
//! A platform is added here, in `src/clock/sys`, `src/alarm/sys` and `src/sys`, and nowhere else.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |name| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    let (os, arch) = (target("OS"), target("ARCH"));
    let is_linux = os == "linux";
    let is_apple = target("VENDOR") == "apple";
    let has_tokio = env::var_os("CARGO_FEATURE_TOKIO").is_some();
    let capabilities = [
        ("timerfd", is_linux),
        ("kqueue", is_apple || os == "freebsd"),
        ("waitable_timer", os == "windows"),
        ("driver_task", is_linux && has_tokio),
        ("linux_clocks", is_linux),
        ("apple_clocks", is_apple),
        ("exact_instant", is_linux || is_apple),
        ("monotonic_counts_suspend", os == "windows"),
        ("membarrier", is_linux),
        ("tsc", is_linux && arch == "x86_64"),
        ("proc", is_linux),
        ("threads_start_in_destructors", os != "windows"),
        ("unix_sockets", env::var_os("CARGO_CFG_UNIX").is_some()),
    ];
    for (name, has_it) in capabilities {
        println!("cargo::rustc-check-cfg=cfg(tourbillon_{name})");
        if has_it {
            println!("cargo::rustc-cfg=tourbillon_{name}");
        }
    }
}
