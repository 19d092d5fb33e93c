//! The clocks of the operating system, one file for each platform.
//!
//! Each file has:
//!
//! - `monotonic`: the clock that the standard library's `Instant` reads.
//! - `boot`: a clock like it that also counts the time during which the machine is suspended. [`BOOT_IS_MONOTONIC`] is true if that is
//!   `monotonic` itself, because it counts that time or because the system has no such clock.
//! - [`MONOTONIC_COUNTS_SUSPEND`]: whether `monotonic` is documented to count that time.
//! - `wall`: the time of day, in nanoseconds since 1970.
//! - `thread_time`: the processor time of the calling thread if the system tells it cheaply, else the monotonic time.
//! - `std_origin`: an `Instant` and what `monotonic` shows at it, to the nanosecond; `None` if the two clocks have to be compared.
//!
//! | system | `monotonic` | while suspended | `boot` |
//! |---|---|---|---|
//! | Linux | `CLOCK_MONOTONIC` | stands still | `CLOCK_BOOTTIME` |
//! | macOS, iOS | `CLOCK_UPTIME_RAW` | stands still | `CLOCK_MONOTONIC_RAW` |
//! | Windows | `QueryPerformanceCounter` | goes on | the same |
//! | FreeBSD | `CLOCK_MONOTONIC` | stands still | the same: there is no other |
//! | others | the standard library's | not known | the same |
//!
//! In a shuttle schedule the monotonic clock is the schedule's own, which the test moves.

#[cfg(tourbillon_apple_clocks)]
mod apple;
#[cfg(tourbillon_linux_clocks)]
mod linux;
#[cfg(not(any(tourbillon_apple_clocks, tourbillon_linux_clocks)))]
mod portable;

#[cfg(tourbillon_apple_clocks)]
use self::apple as platform;
#[cfg(tourbillon_linux_clocks)]
use self::linux as platform;
#[cfg(not(shuttle))]
pub(super) use self::platform::monotonic;
pub(super) use self::platform::{BOOT_IS_MONOTONIC, MONOTONIC_COUNTS_SUSPEND, boot, std_origin, thread_time, wall};
#[cfg(not(any(tourbillon_apple_clocks, tourbillon_linux_clocks)))]
use self::portable as platform;
#[cfg(shuttle)]
pub(super) use crate::sync::under_shuttle::time as monotonic;
