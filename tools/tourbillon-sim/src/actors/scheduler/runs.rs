//! What a job does when it is run: writes down that it was, perhaps changes something in its scheduler, and ends, at once or after
//! a while, well or not.

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

use super::deeds::Deed;
use crate::hub::{Hub, Id, Live, Manner, Planted, What};
use crate::plan::Setup;
use crate::random::Random;
use crate::stage::time_of;

/// How a job behaves.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    /// In its destructor, and towards the engine.
    pub manner: Manner,
    /// How its runs end.
    pub end: End,
    /// What each does to its scheduler.
    pub deed: Option<Deed>,
    /// How its runs go on, if they are futures.
    pub course: Option<Course>,
}

/// How a run ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Well,
    Fails,
    Panics,
    /// It panics before there is a future.
    PanicsAtOnce,
}

/// How long a run goes on that is a future.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Course {
    /// It is ready when it has been polled so often; it wakes itself.
    Yields(u8),
    /// It waits until somebody lets it go on.
    Waits,
}

/// Where runs wait until they are let go on, in the order in which they began.
#[derive(Clone, Default)]
pub(super) struct Gates(Arc<Mutex<BTreeMap<(Id, u64), Gate>>>);

#[derive(Default)]
struct Gate {
    is_open: bool,
    waker: Option<Waker>,
}

/// What the runs of a job share.
#[derive(Clone)]
pub(super) struct Part {
    pub id: Id,
    pub hub: Arc<Hub>,
    pub gates: Gates,
    pub habit: Habit,
    /// The same moment as an instant and on the clock.
    pub base: (Instant, u64),
    /// Counts the job, and may panic with it.
    #[expect(dead_code, reason = "it is there to be dropped")]
    pub live: Arc<Live>,
}

/// A run on its way.
struct Flight {
    part: Part,
    number: u64,
    polls: u8,
    is_done: bool,
}

/// The error of a run that fails.
#[derive(Debug)]
pub(super) struct Failed;

impl Habit {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Habit {
        let course =
            random.one_of(&[Course::Yields(0), Course::Yields(1), Course::Yields(3), Course::Waits, Course::Waits]);
        // A job that is due while its run waits is looked at without a word, and then it is not known which of equals is first.
        let course = if setup.is_roomy() { course } else { Course::Yields(2) };
        Habit {
            manner: random.one_of(&[Manner::Good, Manner::Good, Manner::Good, Manner::Nosy, Manner::PanicsInDrop]),
            end: random.one_of(&[End::Well, End::Well, End::Well, End::Fails, End::Panics, End::PanicsAtOnce]),
            deed: random.one_in(5).then(|| Deed::random(random, setup)),
            course: random.one_in(2).then_some(course),
        }
    }
}

impl Part {
    /// Makes a run from its beginning to its end.
    ///
    /// # Errors
    /// If it is of those that fail.
    pub(super) fn call(&self, run: &Run<u32>) -> Result<(), Failed> {
        self.begin(run);
        self.done(run.number(), self.habit.end);
        self.habit.end.give()
    }

    /// Begins a run that goes on for a while.
    pub(super) fn fly(&self, run: &Run<u32>) -> impl Future<Output = Result<(), Failed>> + Send + use<> {
        self.begin(run);
        if self.habit.end == End::PanicsAtOnce {
            self.done(run.number(), End::PanicsAtOnce);
            let _never = End::PanicsAtOnce.give();
        }
        let polls = if let Some(Course::Yields(polls)) = self.habit.course { polls } else { 0 };
        Flight { part: self.clone(), number: run.number(), polls, is_done: false }
    }

    fn begin(&self, run: &Run<u32>) {
        self.hub.write(self.id, What::Ran(run.number(), time_of(self.base, run.due())));
        // In the middle of a shutdown it is not known how far that has come.
        let is_closing = self.hub.closing.load(Ordering::SeqCst);
        if let (Some(deed), Some(scheduler), false) = (self.habit.deed, run.scheduler(), is_closing) {
            let result = deed.act(&scheduler);
            self.hub.write(self.id, What::Did(u64::from(result)));
        }
        self.hub.behave(self.habit.manner);
    }

    fn done(&self, number: u64, end: End) {
        self.hub.write(self.id, What::Done(number, end != End::Well));
    }
}

impl End {
    fn give(self) -> Result<(), Failed> {
        match self {
            End::Well => Ok(()),
            End::Fails => Err(Failed),
            End::Panics | End::PanicsAtOnce => resume_unwind(Box::new(Planted)),
        }
    }
}

impl Future for Flight {
    type Output = Result<(), Failed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        self.part.hub.write(self.part.id, What::Polled(self.number));
        if self.polls > 0 {
            self.polls -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let run = (self.part.id, self.number);
        if self.part.habit.course == Some(Course::Waits) && !self.part.gates.is_open(run, context.waker()) {
            return Poll::Pending;
        }
        self.is_done = true;
        self.part.done(self.number, self.part.habit.end);
        Poll::Ready(self.part.habit.end.give())
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.part.gates.forget((self.part.id, self.number));
        if !self.is_done {
            self.part.hub.write(self.part.id, What::Dropped(self.number));
        }
    }
}

impl Gates {
    /// Lets one of those that wait go on.
    pub(super) fn open(&self, which: usize) {
        let waker = self.with(|gates| {
            let index = which.checked_rem(gates.len())?;
            let gate = gates.values_mut().nth(index)?;
            gate.is_open = true;
            gate.waker.take()
        });
        waker.into_iter().for_each(Waker::wake);
    }

    fn is_open(&self, run: (Id, u64), waker: &Waker) -> bool {
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

    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<(Id, u64), Gate>) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("failed on purpose")
    }
}

impl std::error::Error for Failed {}
