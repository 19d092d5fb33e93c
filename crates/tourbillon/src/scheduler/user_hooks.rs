//! The closures that the user gave to the builder, and the reports of failed runs.

use std::any::Any;

use super::async_run::RunOutcome;
use super::error::{Cause, Failure};
use super::history::RunStatus;
use super::job_body::Run;
use super::shared::SchedulerShared;
use crate::core::trace;
use crate::sync::catch_panic::catch_panic;

/// The closures that the user gave to the builder, and the runtime for jobs.
pub(super) struct UserHooks<K> {
    pub(super) on_failure: Option<Box<OnFailure<K>>>,
    pub(super) spawn: Option<Box<SpawnWith>>,
    /// Jobs are called in the context of this runtime.
    #[cfg(feature = "tokio")]
    pub(super) runtime: Option<tokio::runtime::Handle>,
}

pub(super) type OnFailure<K> = dyn Fn(&Failure<'_, K>) + Send + Sync;
pub(super) type SpawnWith = dyn Fn(BoxedTask) + Send + Sync;
pub(super) type BoxedTask = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

/// A part of the message with which Tokio panics where there is no runtime.
const WITHOUT_TOKIO: &str = "must be called from the context of a Tokio 1.x runtime";

impl<K> UserHooks<K> {
    /// Returns hooks without a runtime.
    pub(super) fn new(on_failure: Option<Box<OnFailure<K>>>, spawn: Option<Box<SpawnWith>>) -> UserHooks<K> {
        UserHooks {
            on_failure,
            spawn,
            #[cfg(feature = "tokio")]
            runtime: None,
        }
    }

    /// Returns hooks that spawn async runs on this runtime, and call all jobs in its context.
    #[cfg(feature = "tokio")]
    pub(super) fn on_tokio(on_failure: Option<Box<OnFailure<K>>>, runtime: tokio::runtime::Handle) -> UserHooks<K> {
        let spawner = runtime.clone();
        let spawn: Box<SpawnWith> = Box::new(move |run| drop(spawner.spawn(run)));
        UserHooks { on_failure, spawn: Some(spawn), runtime: Some(runtime) }
    }

    /// Calls a job in the context of the runtime, if there is one.
    pub(super) fn in_runtime<R>(&self, call: impl FnOnce() -> R) -> R {
        #[cfg(feature = "tokio")]
        let _entered = self.runtime.as_ref().map(tokio::runtime::Handle::enter);
        call()
    }
}

impl<K: Send + Sync + 'static> SchedulerShared<K> {
    /// Reports the failure of a run, if it failed. Returns how the run ended, and the message of its failure.
    pub(super) fn report_outcome(&self, run: &Run<K>, outcome: RunOutcome) -> (RunStatus, Option<String>) {
        match outcome {
            RunOutcome::Returned(Ok(())) => (RunStatus::Succeeded, None),
            RunOutcome::Aborted => (RunStatus::Aborted, None),
            RunOutcome::Returned(Err(error)) => {
                let text = self.report(run, Cause::Error(&*error));
                self.drop_user_value(error);
                (RunStatus::Failed, Some(text))
            }
            RunOutcome::TimedOut(limit) => (RunStatus::TimedOut, Some(self.report(run, Cause::TimeLimit(limit)))),
            RunOutcome::Panicked(payload) => {
                let message = message_of(payload);
                let cause = match message.contains(WITHOUT_TOKIO) {
                    true => Cause::NoTokioRuntime(&message),
                    false => Cause::Panic(&message),
                };
                (RunStatus::Panicked, Some(self.report(run, cause)))
            }
        }
    }

    /// Reports a failure to the user and to `tracing`. Returns its message.
    pub(super) fn report(&self, run: &Run<K>, cause: Cause<'_>) -> String {
        // The error is the user's, and its `Display` may panic.
        let mut text = "failed with an error that could not be shown".to_owned();
        self.run_user_code_ignored(|| text = cause.to_string());
        trace::job_failed(&self.engine_clock.core, run.number, &text);
        if let Some(on_failure) = &self.hooks.on_failure {
            let failure = Failure { key: run.key(), run: run.number, attempt: run.facts.attempt, cause };
            self.run_user_code_ignored(|| on_failure(&failure));
        }
        text
    }
}

/// The waker of a run may hold the last reference to a scheduler. A panic while that waker is dropped would abort the process.
impl<K> Drop for UserHooks<K> {
    fn drop(&mut self) {
        let _ignored = catch_panic(|| drop(self.on_failure.take()));
        let _ignored = catch_panic(|| drop(self.spawn.take()));
    }
}

/// Returns the message of a panic.
fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast::<String>() {
        Ok(text) => return *text,
        Err(other) => other.downcast_ref::<&str>().map(|text| (*text).to_owned()).ok_or(other),
    };
    text.unwrap_or_else(|other| {
        // The destructor of the payload is the user's, and may panic as well.
        let _ignored = catch_panic(|| drop(other));
        "something that is not text".to_owned()
    })
}
