//! Who waits for a timer of which others decide how it ends: a callback, or a future.
//!
//! A callback goes to the engine's [line of calls](crate::core::callbacks). A future is told directly, by its [`Answer`], and its task is
//! woken by whoever tells.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::coop;
use crate::core::Core;
use crate::core::callbacks::{Callback, PostedCallback};
use crate::outcome::Outcome;
use crate::sync::aside::thread::{self, Thread};
use crate::sync::{Mutex, lock};

/// Who waits. It is told once.
pub(crate) enum Waiter {
    Call(Callback),
    Task(Arc<Answer>),
}

/// What a future waits for: an outcome, from whoever decides on it.
pub(crate) struct Answer(Mutex<Given>);

/// An [`Answer`] in the hands of the future that waits for it.
pub(crate) struct Awaited {
    answer: Arc<Answer>,
    /// Whether a poll was pending.
    has_waited: bool,
}

enum Given {
    /// Not yet. Who asked last is woken.
    NotYet(Option<Waker>),
    Outcome(Outcome),
}

/// So many are told before a lock is let go that others want.
const BATCH: usize = if cfg!(shuttle) { 2 } else { 256 };

/// Tells each of them how it ended, in order. To be called outside every lock: tasks are woken.
pub(crate) fn tell(core: &Core, mut ended: impl Iterator<Item = (Waiter, Outcome)>) {
    let mut answers = Vec::new();
    let mut told = BATCH;
    while told == BATCH {
        told = 0;
        let batch = ended.by_ref().take(BATCH).inspect(|_| told += 1);
        core.post(batch.filter_map(|(waiter, outcome)| match waiter {
            Waiter::Call(callback) => Some(PostedCallback { callback, outcome }),
            Waiter::Task(answer) => {
                answers.push((answer, outcome));
                None
            }
        }));
        answers.drain(..).for_each(|(answer, outcome)| answer.give(core, outcome));
    }
}

/// Blocks the thread until the future is ready.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            // Whatever else unparks the thread only makes it look again.
            Poll::Pending => thread::park(),
        }
    }
}

impl Awaited {
    pub(crate) fn new(answer: Arc<Answer>) -> Awaited {
        Awaited { answer, has_waited: false }
    }

    /// [Polls](Answer::poll) it for a future of the user's: one that is there at once may have to wait, so that the task yields.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let result = if self.has_waited { coop::Result::Awaited } else { coop::Result::AtOnce };
        let poll = self.answer.poll(context);
        self.has_waited = poll.is_pending();
        match poll {
            Poll::Pending => Poll::Pending,
            // It is given again in the next poll.
            Poll::Ready(outcome) => coop::poll_result(context, result).map(|()| outcome),
        }
    }
}

impl Answer {
    pub(crate) fn new() -> Arc<Answer> {
        Arc::new(Answer(Mutex::new(Given::NotYet(None))))
    }

    /// The outcome, again and again once it is given; else the waker is woken when it is.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        if let Some(poll) = self.look(context.waker()) {
            return poll;
        }
        // Wakers are the user's: they are cloned and dropped outside the lock.
        let mut waker = Some(context.waker().clone());
        let poll = match &mut *lock(&self.0) {
            Given::Outcome(outcome) => Poll::Ready(*outcome),
            Given::NotYet(asked) => {
                std::mem::swap(asked, &mut waker);
                Poll::Pending
            }
        };
        drop(waker);
        poll
    }

    /// What there is to say without keeping another waker.
    fn look(&self, waker: &Waker) -> Option<Poll<Outcome>> {
        match &*lock(&self.0) {
            Given::Outcome(outcome) => Some(Poll::Ready(*outcome)),
            Given::NotYet(Some(asked)) if asked.will_wake(waker) => Some(Poll::Pending),
            Given::NotYet(_) => None,
        }
    }

    /// To be called outside every lock: a task is woken.
    pub(crate) fn give(&self, core: &Core, outcome: Outcome) {
        let before = std::mem::replace(&mut *lock(&self.0), Given::Outcome(outcome));
        if let Given::NotYet(Some(waker)) = before {
            core.wake_one(waker);
        }
    }
}
