//! Tests in a process of their own, for properties of a whole process: limits, filters, signals, the environment.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

use super::LONG;

/// Set for a test that runs as the child.
const CHILD: &str = "TOURBILLON_TEST_CHILD";

/// Returns whether this process is such a child.
pub(crate) fn is_a_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Returns a command that starts this program again: through `TOURBILLON_RUNNER`, a command with arguments, if that is set. An emulator
/// needs it where the kernel does not know the program's format.
pub(crate) fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("TOURBILLON_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(first) = words.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// Runs a part of the test with this name in a process of its own.
pub(crate) fn in_a_child(test: &str, variables: &[(&str, &str)], part: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some_and(|name| name == test) {
        return part();
    }
    let mut command = this_program();
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, test)
        .env_remove("TOURBILLON_BACKEND");
    command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let id = child.id();
    let (sender, receiver) = mpsc::channel();
    let waits = thread::spawn(move || _ = sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(2 * LONG) else {
        // SAFETY: numbers. The child has not been waited for, so its id is not another process's.
        unsafe { libc::kill(id as i32, libc::SIGKILL) };
        waits.join().unwrap();
        panic!("{test}: the child hangs");
    };
    let output = output.unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{test}, in the child: {}\n{out}\n{err}",
        output.status
    );
    for line in out.lines().filter(|line| line.starts_with("NOT TESTED") || line.starts_with("hardship:")) {
        println!("{line}");
    }
}
