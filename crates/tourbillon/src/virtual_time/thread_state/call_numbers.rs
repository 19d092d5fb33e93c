//! The numbers of the system calls in which threads wait.
//!
//! `/proc` shows the numbers of the kernel. An emulator in user mode (qemu) makes the calls of a program with the numbers of the machine on
//! which it runs, so the numbers for which the program was compiled can be wrong. [`find`] therefore asks the kernel: a probe thread waits in a
//! futex call with an argument that it can be recognised by, and the number that `/proc` shows for that call chooses the table.

use std::fs::read_to_string;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::{Builder, sleep};
use std::time::{Duration, Instant};

use rustix::thread::futex;

/// The numbers of one architecture. A number that is not listed is not a wait: a thread that sleeps for a real time (`nanosleep`) goes on by
/// itself, and a call that a signal has interrupted (`restart_syscall`) may be such a sleep.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct CallNumbers {
    /// The architectures, as Rust names them.
    architectures: &'static [&'static str],
    /// `futex`, and `futex_time64` where there is one.
    futex: &'static [u32],
    /// `poll`, `ppoll`, `ppoll_time64`, `epoll_wait` and `epoll_pwait`, as far as there are such calls.
    events: &'static [u32],
}

/// `io_uring_enter` and `epoll_pwait2`, which have the same numbers everywhere.
const EVERYWHERE: [u32; 2] = [426, 441];

static TABLES: [CallNumbers; 6] = [
    CallNumbers { architectures: &["x86_64"], futex: &[202], events: &[7, 271, 232, 281] },
    CallNumbers { architectures: &["aarch64", "riscv64", "loongarch64"], futex: &[98], events: &[73, 22] },
    CallNumbers { architectures: &["powerpc64"], futex: &[221], events: &[167, 281, 238, 303] },
    CallNumbers { architectures: &["s390x"], futex: &[238], events: &[168, 302, 251, 312] },
    CallNumbers { architectures: &["x86"], futex: &[240, 422], events: &[168, 309, 414, 256, 319] },
    CallNumbers { architectures: &["arm"], futex: &[240, 422], events: &[168, 336, 414, 252, 346] },
];

/// The value of the probe's futex.
const MARK: u32 = 0x7A11_C0DE;

/// How long the kernel may take to show the probe's wait. Any machine that shows it does so sooner, under any load.
const PATIENCE: Duration = Duration::from_secs(10);

impl CallNumbers {
    pub(super) fn is_wait(&self, call: u32) -> bool {
        self.is_futex(call) || self.events.contains(&call) || EVERYWHERE.contains(&call)
    }

    pub(super) fn is_futex(&self, call: u32) -> bool {
        self.futex.contains(&call)
    }

    /// Returns the table in which a futex call has this number; that of `architecture` if there are several.
    fn with_futex(call: u32, architecture: &str) -> Option<&'static CallNumbers> {
        let tables = TABLES.iter().filter(|table| table.is_futex(call));
        tables.min_by_key(|table| !table.architectures.contains(&architecture))
    }
}

/// Returns the numbers of the kernel on which this process runs.
///
/// # Errors
/// A sentence that says why `/proc` does not show in which calls threads wait.
pub(super) fn find() -> Result<&'static CallNumbers, String> {
    let word = Arc::new(AtomicU32::new(MARK));
    let (send, receive) = channel();
    let waits = {
        let word = Arc::clone(&word);
        move || {
            let _ignored = send.send(rustix::thread::gettid().as_raw_nonzero());
            while word.load(Ordering::SeqCst) == MARK {
                let _ended = futex::wait(&word, futex::Flags::PRIVATE, MARK, None);
            }
        }
    };
    let probe = Builder::new().name("tourbillon-probe".into()).spawn(waits);
    let probe = probe.map_err(|error| format!("no thread can be started: {error}"))?;
    let call = receive.recv().map_err(|_| String::from("the probe has ended")).and_then(|thread| call_of(thread.get()));
    word.store(0, Ordering::SeqCst);
    let _woken = futex::wake(&word, futex::Flags::PRIVATE, 1);
    let _ended = probe.join();
    let call = call?;
    CallNumbers::with_futex(call, std::env::consts::ARCH)
        .ok_or_else(|| format!("the system call with which a thread waits has the unknown number {call}"))
}

/// Waits until the probe waits, and returns the number of its call.
fn call_of(probe: i32) -> Result<u32, String> {
    let file = format!("/proc/self/task/{probe}/syscall");
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let line = read_to_string(&file).map_err(|error| format!("{file} cannot be read: {error}"))?;
        if let Some((call, MARK)) = futex_call(&line) {
            return Ok(call);
        }
        sleep(Duration::from_micros(100));
    }
    Err(String::from("/proc does not show the system calls of this process"))
}

/// Returns the number of the call in a line of `/proc/PID/task/TID/syscall`, and its third argument, which for a futex is the expected value.
pub(super) fn futex_call(line: &str) -> Option<(u32, u32)> {
    let mut words = line.split(' ');
    let call = words.next()?.parse().ok()?;
    let value = u64::from_str_radix(words.nth(2)?.trim_start_matches("0x"), 16).ok()?;
    Some((call, value as u32))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn t9_the_table_of_this_architecture_has_the_numbers_of_the_c_library() {
        let table = TABLES.iter().find(|table| table.architectures.contains(&std::env::consts::ARCH));
        let table = table.expect("the tests run on an architecture that has a table");
        let is_wait = |call: libc::c_long| table.is_wait(call as u32);
        assert!(table.is_futex(libc::SYS_futex as u32));
        for call in [libc::SYS_ppoll, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2, libc::SYS_io_uring_enter] {
            assert!(is_wait(call) && !table.is_futex(call as u32), "{call}");
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "x86", target_arch = "arm"))]
        assert!(is_wait(libc::SYS_poll) && is_wait(libc::SYS_epoll_wait));
        for call in [libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_restart_syscall, libc::SYS_read] {
            assert!(!is_wait(call), "{call}");
        }
    }

    #[test]
    fn t9_the_table_is_chosen_by_the_number_of_a_futex_call() {
        let of = |call, architecture| CallNumbers::with_futex(call, architecture).map(|table| table.architectures[0]);
        assert_eq!(of(202, "x86_64"), Some("x86_64"));
        // A program for ARM in an emulator on x86-64, and the reverse.
        assert_eq!((of(202, "aarch64"), of(98, "x86_64")), (Some("x86_64"), Some("aarch64")));
        // Two architectures share the number.
        assert_eq!((of(240, "arm"), of(422, "x86"), of(240, "aarch64")), (Some("arm"), Some("x86"), Some("x86")));
        assert_eq!(of(1, "x86_64"), None);
    }

    #[test]
    fn t9_the_numbers_of_the_kernel_are_found_or_the_reason_is_given() {
        match find() {
            Ok(table) => assert!(!table.is_futex(libc::SYS_read as u32)),
            Err(why) => println!("NOT TESTED WITH /proc: {why}"),
        }
    }
}
