//! Runs a part of the check on a thread of its own, and gives it up if it does not come to an end.
//!
//! A deadlock cannot be seen from inside. Whoever is stuck is left where it is: the process ends anyway, after the report.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::audit::Findings;
use super::promise::Promise;
use super::stage::Stage;
use crate::text;

/// A part that has been started.
pub(crate) struct Part {
    name: &'static str,
    findings: Receiver<Findings>,
    /// What it means if it is stuck.
    promise: Promise,
    /// How long it takes by itself.
    lasts: Duration,
}

/// So much more time it has than it takes, and as much again as the reference shows that the machine needs.
const GRACE: Duration = Duration::from_secs(30);

impl Part {
    /// Starts it. Should it be stuck, `promise` is what it breaks.
    pub(crate) fn start(
        stage: &Arc<Stage>,
        name: &'static str,
        promise: Promise,
        lasts: Duration,
        run: impl FnOnce(&Arc<Stage>) -> Findings + Send + 'static,
    ) -> Part {
        let (send, findings) = channel();
        let stage = Arc::clone(stage);
        thread::spawn(move || {
            // Whoever has given it up does not listen.
            let _ = send.send(run(&stage));
        });
        Part { name, findings, promise, lasts }
    }

    /// Its findings, or that it is stuck.
    pub(crate) fn wait(self, stage: &Stage) -> Findings {
        let grace = if stage.breaks(Promise::P10) { Duration::ZERO } else { GRACE };
        let mut found = self.findings.recv_timeout(self.lasts + grace);
        let patience = stage.reference.patience();
        while matches!(found, Err(RecvTimeoutError::Timeout)) && !patience.is_over() {
            found = self.findings.recv_timeout(Duration::from_millis(20));
        }
        match found {
            Ok(findings) => findings,
            Err(error) => {
                let mut findings = Findings::default();
                let what = match error {
                    RecvTimeoutError::Timeout => {
                        format!(
                            "{}: stuck for {}, which looks like a deadlock",
                            self.name,
                            text::duration(grace + Duration::from_secs(1))
                        )
                    }
                    RecvTimeoutError::Disconnected => {
                        format!("{}: a panic, in the engine or because the system refused a thread", self.name)
                    }
                };
                let promise = if error == RecvTimeoutError::Timeout { self.promise } else { Promise::P6 };
                findings.complain(promise, what);
                findings
            }
        }
    }
}
