//! Says what the tests of a process do not test on this machine.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

/// Writes `NOT TESTED what: reason` to the standard error, past the output that the test harness hides of tests that pass. The same line is written
/// once in a process.
pub fn not_tested(what: &str, reason: &str) {
    static WRITTEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("NOT TESTED {what}: {reason}");
    // Under the lock, so that lines do not mix.
    let mut written = WRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
    if !written.contains(&line) {
        // One system call, so that lines of other processes are not between.
        let _ = std::io::stderr().write_all(format!("\n{line}\n").as_bytes());
        written.insert(line);
    }
}
