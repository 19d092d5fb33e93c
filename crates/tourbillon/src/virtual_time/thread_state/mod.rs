//! Whether threads of this process wait, as far as the system tells: one file for each platform.

#[cfg(tourbillon_proc)]
mod call_numbers;
#[cfg(tourbillon_proc)]
mod linux;
#[cfg(not(tourbillon_proc))]
mod portable;

#[cfg(tourbillon_proc)]
pub(super) use self::linux::{ThreadWait, current_thread, others_wait, visibility, wait_of};
#[cfg(not(tourbillon_proc))]
pub(super) use self::portable::{NeverFound as ThreadWait, current_thread, others_wait, visibility, wait_of};
