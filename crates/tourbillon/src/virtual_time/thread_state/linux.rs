//! The state of threads from `/proc`.

use std::fs::{read_dir, read_to_string};
use std::sync::OnceLock;

use super::call_numbers::{self, CallNumbers, futex_call};

/// The system call in which a thread waits, and how often the thread had run before. Two equal values mean that it has not run in between.
#[derive(PartialEq, Eq)]
pub(in crate::virtual_time) struct ThreadWait {
    call: String,
    switches: Vec<u64>,
}

/// The value that a thread expects in the futex of a mutex that it waits for.
const MUTEX: u32 = 2;
/// The same for a value that another thread is initialising: `Once`, `OnceLock`, `LazyLock`.
const ONCE: u32 = 5;
/// The same for an `RwLock`: one of the two highest bits, and a count.
const RW_LOCK: u32 = 1 << 30;
/// The same for `thread::park`, which is no lock.
const PARKED: u32 = u32::MAX;

/// The numbers of the system calls, or why threads cannot be seen to wait.
static NUMBERS: OnceLock<Result<&'static CallNumbers, String>> = OnceLock::new();

impl ThreadWait {
    /// Returns whether the thread may wait for a lock: it is in a futex call that expects the value of a lock with waiting threads.
    pub(in crate::virtual_time) fn may_be_for_lock(&self) -> bool {
        let call = futex_call(&self.call).filter(|(call, _)| numbers().is_ok_and(|numbers| numbers.is_futex(*call)));
        call.is_some_and(|(_, value)| value == MUTEX || value == ONCE || (value >= RW_LOCK && value != PARKED))
    }
}

/// Returns the numbers of the kernel's system calls, which the first call of this function finds out.
fn numbers() -> Result<&'static CallNumbers, &'static str> {
    NUMBERS.get_or_init(call_numbers::find).as_ref().copied().map_err(String::as_str)
}

/// Finds out whether [`wait_of`] sees threads that wait.
///
/// # Errors
/// A sentence that says why not.
pub(in crate::virtual_time) fn visibility() -> Result<(), &'static str> {
    numbers().map(|_| ())
}

/// Returns the kernel's number of the calling thread.
pub(in crate::virtual_time) fn current_thread() -> Option<i32> {
    Some(rustix::thread::gettid().as_raw_nonzero().get())
}

/// Returns whether no thread of this process is running, apart from the `known` threads and the drivers and watchers of engines.
pub(in crate::virtual_time) fn others_wait(known: &[i32]) -> bool {
    let Ok(threads) = read_dir("/proc/self/task") else { return true };
    let numbers = threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|thread| !known.contains(thread)).all(|thread| {
        let status = read_to_string(format!("/proc/self/task/{thread}/status")).unwrap_or_default();
        !status.contains("State:\tR") || status.starts_with("Name:\ttourbillon")
    })
}

/// Returns the wait of a thread; `None` if it does not wait. A thread that has ended counts as waiting.
pub(in crate::virtual_time) fn wait_of(thread: i32) -> Option<ThreadWait> {
    let folder = format!("/proc/self/task/{thread}");
    let Ok(status) = read_to_string(format!("{folder}/status")) else {
        return Some(ThreadWait { call: String::new(), switches: Vec::new() });
    };
    // A thread that has been woken and has no processor yet is still in its call; but it does not sleep any more.
    if !status.contains("State:\tS") {
        return None;
    }
    // The number of the call, and its arguments.
    let call = read_to_string(format!("{folder}/syscall")).ok()?;
    if !numbers().ok()?.is_wait(call.split(' ').next()?.parse().ok()?) {
        return None;
    }
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    let switches = switches.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    Some(ThreadWait { call, switches })
}
