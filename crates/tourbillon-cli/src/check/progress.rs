//! A progress bar, which is hidden if standard error is not a terminal.

use std::io::IsTerminal;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::check_run::CheckRun;
use crate::clock::{monotonic, nanos};

/// The thread that moves the bar. Dropping this waits for the thread, which removes the bar and ends when the run is over.
pub(crate) struct ProgressGuard(Option<JoinHandle<()>>);

const STEPS: u64 = 1_000;

/// Starts a thread that moves a bar with time until the run is over. If the run takes longer than planned, the bar stops just before its
/// end.
pub(crate) fn show(check: &Arc<CheckRun>, wanted: bool) -> ProgressGuard {
    if !wanted || !std::io::stderr().is_terminal() {
        return ProgressGuard(None);
    }
    let bar = ProgressBar::new(STEPS);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {msg}  {elapsed}") {
        bar.set_style(style);
    }
    let check = Arc::clone(check);
    let start = monotonic();
    ProgressGuard(Some(thread::spawn(move || {
        while !check.is_over() {
            let passed = STEPS * (monotonic() - start) / nanos(check.lasts).max(1);
            bar.set_position(passed.min(STEPS - 1));
            bar.set_message(check.phase());
            thread::sleep(Duration::from_millis(50));
        }
        bar.finish_and_clear();
    })))
}

impl Drop for ProgressGuard {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // The thread returns nothing, and a panic of it does not matter.
            let _ = thread.join();
        }
    }
}
