//! The clocks of the operating system, one file for each platform.
//!
//! In a shuttle schedule the monotonic clock is the schedule's own, which the test moves.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(all(target_os = "linux", not(shuttle)))]
pub(super) use self::linux::monotonic;
#[cfg(target_os = "linux")]
pub(super) use self::linux::{boot, thread_time, wall};
#[cfg(all(not(target_os = "linux"), not(shuttle)))]
pub(super) use self::portable::monotonic;
#[cfg(not(target_os = "linux"))]
pub(super) use self::portable::thread_time;
#[cfg(shuttle)]
pub(super) use crate::sync::under_shuttle::time as monotonic;
