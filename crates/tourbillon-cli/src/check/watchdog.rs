//! Runs a part of the check on a thread of its own, and abandons it if it does not end.
//!
//! A deadlock cannot be noticed from inside. A stuck thread is left alone: the process exits after the report anyway.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::promise::Promise;
use crate::text;

/// A part that has been started.
pub(crate) struct WatchedPart {
    name: &'static str,
    findings: Receiver<Findings>,
    /// The promise that it breaks if it is stuck.
    promise: Promise,
    /// How long it usually takes.
    lasts: Duration,
}

/// Extra time for a part, which the reference extends on a slow machine.
const GRACE: Duration = Duration::from_secs(30);

impl WatchedPart {
    /// Starts a part. If it is stuck, it breaks `promise`.
    pub(crate) fn start(
        check: &Arc<CheckRun>,
        name: &'static str,
        promise: Promise,
        lasts: Duration,
        run: impl FnOnce(&Arc<CheckRun>) -> Findings + Send + 'static,
    ) -> WatchedPart {
        let (send, findings) = channel();
        let check = Arc::clone(check);
        thread::spawn(move || {
            // An error means that the part was abandoned.
            let _ = send.send(run(&check));
        });
        WatchedPart { name, findings, promise, lasts }
    }

    /// Waits for the findings; reports a stuck part.
    pub(crate) fn wait(self, check: &CheckRun) -> Findings {
        // A planted deadlock need not be given extra time.
        let is_planted = check.breaks(Promise::P10) && self.promise == Promise::P10;
        let grace = if is_planted { Duration::ZERO } else { GRACE };
        let mut found = self.findings.recv_timeout(self.lasts + grace);
        let wait_limit = check.reference.wait_limit();
        while matches!(found, Err(RecvTimeoutError::Timeout)) && !wait_limit.is_over() {
            found = self.findings.recv_timeout(Duration::from_millis(20));
        }
        found.unwrap_or_else(|error| self.without_findings(error, grace))
    }

    fn without_findings(&self, error: RecvTimeoutError, grace: Duration) -> Findings {
        let (name, mut findings) = (self.name, Findings::default());
        match error {
            RecvTimeoutError::Timeout => {
                let since = text::duration(grace + Duration::from_secs(1));
                findings.complain(self.promise, format!("{name}: stuck for {since}, which looks like a deadlock"));
            }
            RecvTimeoutError::Disconnected => {
                let what = format!("{name}: a panic, in the engine or because the system refused a thread");
                findings.complain(Promise::P6, what);
            }
        }
        findings
    }
}
