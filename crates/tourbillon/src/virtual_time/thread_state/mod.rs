//! Whether threads of this process wait, as far as the system tells: one file for each platform.

#[cfg(target_os = "linux")]
mod call_numbers;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;

#[cfg(target_os = "linux")]
pub(super) use self::linux::{ThreadWait, current_thread, others_wait, visibility, wait_of};
#[cfg(not(target_os = "linux"))]
pub(super) use self::portable::{NeverFound as ThreadWait, current_thread, others_wait, visibility, wait_of};
