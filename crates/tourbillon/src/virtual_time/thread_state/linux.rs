//! The state of threads from `/proc`.

use std::fs::{read_dir, read_to_string};

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

/// The number of the system call `futex`.
const FUTEX: &str = if cfg!(target_arch = "x86_64") { "202" } else { "98" };

/// The numbers of the system calls in which a thread waits for events or for other threads.
const WAITS: &[&str] = if cfg!(target_arch = "x86_64") {
    // poll, futex, epoll_wait, ppoll, epoll_pwait, io_uring_enter, epoll_pwait2
    &["7", "202", "232", "271", "281", "426", "441"]
} else {
    // epoll_pwait, ppoll, futex, io_uring_enter, epoll_pwait2, as most architectures number them
    &["22", "73", "98", "426", "441"]
};

impl ThreadWait {
    /// Returns whether the thread may wait for a lock: it is in a futex call that expects the value of a lock with waiting threads.
    pub(in crate::virtual_time) fn may_be_for_lock(&self) -> bool {
        let mut words = self.call.split(' ');
        if words.next() != Some(FUTEX) {
            return false;
        }
        let value = words.nth(2).and_then(|word| u32::from_str_radix(word.trim_start_matches("0x"), 16).ok());
        value.is_some_and(|value| value == MUTEX || value == ONCE || (value >= RW_LOCK && value != PARKED))
    }
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
    if !WAITS.contains(&call.split(' ').next()?) {
        return None;
    }
    let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
    let switches = switches.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect();
    Some(ThreadWait { call, switches })
}
