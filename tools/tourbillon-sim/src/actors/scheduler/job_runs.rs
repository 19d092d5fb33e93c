//! The runs of a job: each is recorded, may act on its scheduler, and ends at once or later, with success, an error or a panic.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use tourbillon::scheduler::Run;
use tourbillon::time::Instant;

use super::run_actions::SchedulerAction;
use crate::context::time_of;
use crate::plan::SimSetup;
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, DropCounter, EventKind, Id, PlantedPanic, Recorder};

/// How the runs of a job behave.
#[derive(Clone, Copy, Debug)]
pub struct JobBehavior {
    /// Behavior in the run and in the destructor.
    pub in_callbacks: Behavior,
    /// How its runs end.
    pub end: SimRunEnd,
    /// Action of each run on its scheduler.
    pub action: Option<SchedulerAction>,
    /// How its runs proceed if they are futures.
    pub course: Option<AsyncCourse>,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimRunEnd {
    Well,
    Fails,
    Panics,
    /// It panics before it returns a future.
    PanicsAtOnce,
}

/// How an asynchronous run proceeds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncCourse {
    /// It wakes itself, and is ready after this number of polls.
    Yields(u8),
    /// It waits until its gate is opened.
    Waits,
}

/// The gates of waiting runs, in the order in which the runs began.
#[derive(Clone, Default)]
pub(super) struct RunGates(Arc<Mutex<BTreeMap<(Id, u64), RunGate>>>);

#[derive(Default)]
struct RunGate {
    is_open: bool,
    waker: Option<Waker>,
}

/// The state that all runs of a job share.
#[derive(Clone)]
pub(super) struct JobContext {
    pub id: Id,
    pub recorder: Arc<Recorder>,
    pub gates: RunGates,
    pub behavior: JobBehavior,
    /// One moment, as an instant and on the clock.
    pub base: (Instant, u64),
    /// Counts the job, and may panic when it is dropped.
    #[expect(dead_code, reason = "only its destructor matters")]
    pub live: Arc<DropCounter>,
}

/// An asynchronous run.
struct AsyncJobRun {
    context: JobContext,
    number: u64,
    polls: u8,
    is_done: bool,
}

/// The error of a run that fails.
#[derive(Debug)]
pub(super) struct PlannedFailure;

impl JobBehavior {
    /// Returns a random behavior.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> JobBehavior {
        let course = random.one_of(&[
            AsyncCourse::Yields(0),
            AsyncCourse::Yields(1),
            AsyncCourse::Yields(3),
            AsyncCourse::Waits,
            AsyncCourse::Waits,
        ]);
        // If a job is due while its run waits, the scheduler looks at it without an event, and then the order of equal jobs is
        // not known.
        let course = if setup.has_roomy_queue() { course } else { AsyncCourse::Yields(2) };
        JobBehavior {
            in_callbacks: random.one_of(&[
                Behavior::Normal,
                Behavior::Normal,
                Behavior::Normal,
                Behavior::UsesEngine,
                Behavior::PanicsInDrop,
            ]),
            end: random.one_of(&[
                SimRunEnd::Well,
                SimRunEnd::Well,
                SimRunEnd::Well,
                SimRunEnd::Fails,
                SimRunEnd::Panics,
                SimRunEnd::PanicsAtOnce,
            ]),
            action: random.one_in(5).then(|| SchedulerAction::random(random, setup)),
            course: random.one_in(2).then_some(course),
        }
    }
}

impl JobContext {
    /// Makes a synchronous run.
    ///
    /// # Errors
    /// Returns [`PlannedFailure`] if the run is one that fails.
    pub(super) fn call(&self, run: &Run<u32>) -> Result<(), PlannedFailure> {
        self.begin(run);
        self.done(run.number(), self.behavior.end);
        self.behavior.end.finish()
    }

    /// Begins an asynchronous run.
    pub(super) fn start_async(
        &self,
        run: &Run<u32>,
    ) -> impl Future<Output = Result<(), PlannedFailure>> + Send + use<> {
        self.begin(run);
        if self.behavior.end == SimRunEnd::PanicsAtOnce {
            self.done(run.number(), SimRunEnd::PanicsAtOnce);
            let _never = SimRunEnd::PanicsAtOnce.finish();
        }
        let polls = if let Some(AsyncCourse::Yields(polls)) = self.behavior.course { polls } else { 0 };
        AsyncJobRun { context: self.clone(), number: run.number(), polls, is_done: false }
    }

    fn begin(&self, run: &Run<u32>) {
        self.recorder.write(self.id, EventKind::RunStarted(run.number(), time_of(self.base, run.due())));
        // During a shutdown it is not known how far that has come.
        let is_closing = self.recorder.closing.load(Ordering::SeqCst);
        if let (Some(action), Some(scheduler), false) = (self.behavior.action, run.scheduler(), is_closing) {
            let result = action.act(&scheduler);
            self.recorder.write(self.id, EventKind::ActionDone(u64::from(result)));
        }
        self.recorder.behave(self.behavior.in_callbacks);
    }

    fn done(&self, number: u64, end: SimRunEnd) {
        self.recorder.write(self.id, EventKind::RunEnded(number, end != SimRunEnd::Well));
    }
}

impl SimRunEnd {
    fn finish(self) -> Result<(), PlannedFailure> {
        match self {
            SimRunEnd::Well => Ok(()),
            SimRunEnd::Fails => Err(PlannedFailure),
            SimRunEnd::Panics | SimRunEnd::PanicsAtOnce => resume_unwind(Box::new(PlantedPanic)),
        }
    }
}

impl Future for AsyncJobRun {
    type Output = Result<(), PlannedFailure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), PlannedFailure>> {
        self.context.recorder.write(self.context.id, EventKind::RunPolled(self.number));
        if self.polls > 0 {
            self.polls -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let run = (self.context.id, self.number);
        if self.context.behavior.course == Some(AsyncCourse::Waits)
            && !self.context.gates.poll_open(run, context.waker())
        {
            return Poll::Pending;
        }
        self.is_done = true;
        self.context.done(self.number, self.context.behavior.end);
        Poll::Ready(self.context.behavior.end.finish())
    }
}

impl Drop for AsyncJobRun {
    fn drop(&mut self) {
        self.context.gates.forget((self.context.id, self.number));
        if !self.is_done {
            self.context.recorder.write(self.context.id, EventKind::RunDropped(self.number));
        }
    }
}

impl RunGates {
    /// Opens the gate of one of the waiting runs.
    pub(super) fn open(&self, which: usize) {
        let waker = self.with(|gates| {
            let index = which.checked_rem(gates.len())?;
            let gate = gates.values_mut().nth(index)?;
            gate.is_open = true;
            gate.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll_open(&self, run: (Id, u64), waker: &Waker) -> bool {
        let waker = waker.clone();
        let (is_open, before) = self.with(|gates| {
            let gate = gates.entry(run).or_default();
            (gate.is_open, gate.waker.replace(waker))
        });
        drop(before);
        is_open
    }

    fn forget(&self, run: (Id, u64)) {
        let gate = self.with(|gates| gates.remove(&run));
        drop(gate);
    }

    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<(Id, u64), RunGate>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for PlannedFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed on purpose")
    }
}

impl std::error::Error for PlannedFailure {}
