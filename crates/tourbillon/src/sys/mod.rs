//! What the operating system tells about threads and the process, and what it does for them: one file for each platform.
//!
//! Each file has:
//!
//! - `current_thread`: the kernel's number of the calling thread; `None` if there is none by which other threads can ask for its state.
//! - `wake_without_slack`: makes the kernel end the waits of the calling thread without a delay of its own. It may do nothing.
//! - `process_time`: the processor time that this process has used, in nanoseconds; `None` if the system does not tell.

#[cfg(tourbillon_proc)]
mod linux;
#[cfg(not(tourbillon_proc))]
mod portable;

#[cfg(tourbillon_proc)]
use self::linux as platform;
#[cfg(feature = "test-util")]
pub(crate) use self::platform::current_thread;
#[cfg(feature = "inspect")]
pub(crate) use self::platform::process_time;
pub(crate) use self::platform::wake_without_slack;
#[cfg(not(tourbillon_proc))]
use self::portable as platform;
