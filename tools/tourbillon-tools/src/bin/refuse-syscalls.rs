//! Runs a program with system calls refused, as containers and old kernels do.
//!
//!     refuse-syscalls EPERM timerfd_create,membarrier PROGRAM [ARGUMENT...]
//!
//! The kernel refuses the calls to the program and to all processes that it starts. The exit status is the program's; it is 125 if the
//! program was not started.

#[cfg(target_os = "linux")]
#[path = "../../../../crates/tourbillon-rt/tests/support/refuse.rs"]
mod refuse;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [errno, calls, program, rest @ ..] = arguments.as_slice() else {
        return fail("usage: refuse-syscalls EPERM|ENOSYS CALL,CALL... PROGRAM [ARGUMENT...]");
    };
    fail(&run(errno, calls, program, rest))
}

fn fail(why: &str) -> ExitCode {
    eprintln!("refuse-syscalls: {why}");
    ExitCode::from(125)
}

/// Becomes the program. Returns only if that fails, with the reason.
#[cfg(target_os = "linux")]
fn run(errno: &str, calls: &str, program: &str, arguments: &[String]) -> String {
    use std::os::unix::process::CommandExt;

    let errno = match errno {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        other => return format!("{other} is neither EPERM nor ENOSYS"),
    };
    for call in calls.split(',') {
        let Some((_, number)) = CALLS.iter().find(|(name, _)| *name == call) else {
            let known: Vec<_> = CALLS.iter().map(|(name, _)| *name).collect();
            return format!("{call} is none of {}", known.join(", "));
        };
        if let Err(why) = refuse::refuse(*number, errno) {
            return format!("the kernel takes no filter: {why}");
        }
    }
    std::process::Command::new(program).args(arguments).exec().to_string()
}

/// Says that the kernel has no filters.
#[cfg(not(target_os = "linux"))]
fn run(_: &str, _: &str, _: &str, _: &[String]) -> String {
    String::from("only Linux has filters of system calls")
}

/// The system calls that can be refused: those that the crates do without where they must.
#[cfg(target_os = "linux")]
const CALLS: [(&str, libc::c_long); 5] = [
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("membarrier", libc::SYS_membarrier),
    ("timerfd_create", libc::SYS_timerfd_create),
];
