//! The progress bar of a scenario.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Returns a progress bar, which is hidden if standard error is not a terminal.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len}  {msg}  {elapsed}") {
        bar.set_style(style);
    }
    bar
}
