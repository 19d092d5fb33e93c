//! Where everything that the engine does to its users is written down: wakes, callbacks, runs of jobs, destructors.
//!
//! Wakers, callbacks and jobs are the simulation's own, so what it knows of the engine is what a user would know. Each may
//! also misbehave: see [`Behavior`].

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon::{Clock, Engine, Outcome};

/// What is told to the simulation, by a number of its own.
pub type Id = u32;

/// What the engine did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedEvent {
    /// To whom.
    pub id: Id,
    /// What the clock showed.
    pub clock: u64,
    /// What it was.
    pub what: EventKind,
}

/// See [`RecordedEvent`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// A waker was woken.
    Woken,
    /// A callback was called.
    CallbackCalled(Outcome),
    /// A run of a job was begun: its number, and when it was due.
    RunStarted(u64, u64),
    /// A run that goes on for a while, by its number, was polled.
    RunPolled(u64),
    /// This run of a job has ended, and not well if it says so.
    RunEnded(u64, bool),
    /// This run was dropped before its end.
    RunDropped(u64),
    /// What was called has done something itself, with this result.
    ActionDone(u64),
}

/// How something of the user's behaves when the engine calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Behavior {
    /// As it should.
    #[default]
    Normal,
    /// It panics.
    Panics,
    /// What it owns panics when it is dropped.
    PanicsInDrop,
    /// It asks the engine for its figures, and arms and drops a timer there.
    UsesEngine,
    /// It turns the engine.
    TurnsEngine,
}

/// What all of a world's wakers, callbacks and jobs share.
pub struct Recorder {
    clock: Clock,
    events: Mutex<Vec<RecordedEvent>>,
    /// Wake-ups alone, for [`Recorder::take_wakes`].
    wakes: Mutex<Vec<(Id, u64)>>,
    /// While the world lasts: what is in the engine must not keep it.
    engine: Mutex<Option<Engine>>,
    /// How many wakers, callbacks and jobs there are.
    live: AtomicI64,
    /// How many wakers have panicked, on purpose.
    pub waker_panics: AtomicU64,
    /// How many callbacks have.
    pub callback_panics: AtomicU64,
    /// How many destructors have.
    pub drop_panics: AtomicU64,
    /// How often it was called back into the engine.
    pub reentries: AtomicU64,
    /// The engine is being shut down, or was.
    pub closing: AtomicBool,
}

/// What a callback does besides: something with the timer that it is of. Gives what that returned, or [`NO_TIMER`].
pub type CallbackAction = Box<dyn FnOnce() -> u64 + Send>;

/// There was no timer any more to do something with.
pub const NO_TIMER: u64 = u64::MAX;

/// The payload of a panic that is on purpose.
pub struct PlantedPanic;

/// Counts how many there are of it, and may panic in the end.
pub struct DropCounter {
    recorder: Arc<Recorder>,
    panics: bool,
}

/// A waker of one item of the model.
pub struct RecordingWaker {
    id: Id,
    behavior: Behavior,
    counter: DropCounter,
}

impl Recorder {
    /// With nothing written yet.
    #[must_use]
    pub fn new(clock: Clock) -> Arc<Recorder> {
        Arc::new(Recorder {
            clock,
            events: Mutex::default(),
            wakes: Mutex::default(),
            engine: Mutex::default(),
            live: AtomicI64::new(0),
            waker_panics: AtomicU64::new(0),
            callback_panics: AtomicU64::new(0),
            drop_panics: AtomicU64::new(0),
            reentries: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        })
    }

    /// What its clock shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// What was written since this was last asked.
    #[must_use]
    pub fn take(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// Which items were woken since this was last asked, and what the clock showed.
    #[must_use]
    pub fn take_wakes(&self) -> Vec<(Id, u64)> {
        std::mem::take(&mut *lock(&self.wakes))
    }

    /// How many events wait to be taken.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.events).len()
    }

    /// Whether none does.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives it the engine, or takes it away.
    pub fn set_engine(&self, engine: Option<Engine>) {
        let before = std::mem::replace(&mut *lock(&self.engine), engine);
        drop(before);
    }

    /// How many things of ours the engine has, or we have.
    #[must_use]
    pub fn live(&self) -> i64 {
        self.live.load(Ordering::SeqCst)
    }

    /// Something to put in a closure, that is counted.
    #[must_use]
    pub fn drop_counter(self: &Arc<Self>, behavior: Behavior) -> DropCounter {
        self.live.fetch_add(1, Ordering::SeqCst);
        DropCounter { recorder: Arc::clone(self), panics: behavior == Behavior::PanicsInDrop }
    }

    /// What a waker for this item is made of.
    #[must_use]
    pub fn recording_waker(self: &Arc<Self>, id: Id, behavior: Behavior) -> Arc<RecordingWaker> {
        // A waker is dropped by whoever holds it, user or engine: its destructor is well-mannered.
        Arc::new(RecordingWaker { id, behavior, counter: self.drop_counter(Behavior::Normal) })
    }

    /// A waker for this item.
    #[must_use]
    pub fn waker(self: &Arc<Self>, id: Id, behavior: Behavior) -> Waker {
        Waker::from(self.recording_waker(id, behavior))
    }

    /// A callback for this item.
    pub fn callback(
        self: &Arc<Self>,
        id: Id,
        behavior: Behavior,
        action: Option<CallbackAction>,
    ) -> impl FnOnce(Outcome) + Send + 'static {
        let counter = self.drop_counter(behavior);
        move |outcome| {
            counter.recorder.write(id, EventKind::CallbackCalled(outcome));
            if let Some(action) = action {
                let before = counter.recorder.len();
                let result = action();
                counter.recorder.write_at(before, id, EventKind::ActionDone(result));
            }
            if matches!(behavior, Behavior::Panics | Behavior::PanicsInDrop) {
                counter.recorder.callback_panics.fetch_add(1, Ordering::SeqCst);
            }
            counter.recorder.behave(behavior);
        }
    }

    /// Writes down what happened just now.
    pub fn write(&self, id: Id, what: EventKind) {
        let event = RecordedEvent { id, clock: self.now(), what };
        lock(&self.events).push(event);
    }

    /// The same before what was written meanwhile: who was woken by it was woken after it had been decided.
    fn write_at(&self, index: usize, id: Id, what: EventKind) {
        let event = RecordedEvent { id, clock: self.now(), what };
        let mut events = lock(&self.events);
        let index = index.min(events.len());
        events.insert(index, event);
    }

    /// Does what the manner says, panics in destructors aside.
    pub fn behave(&self, behavior: Behavior) {
        let engine = lock(&self.engine).clone();
        match (behavior, engine) {
            (Behavior::Panics, _) => resume_unwind(Box::new(PlantedPanic)),
            (Behavior::UsesEngine, Some(engine)) => {
                self.reentries.fetch_add(1, Ordering::SeqCst);
                let stats = engine.stats();
                assert!(stats.pending <= stats.armed);
                let mut sleep = std::pin::pin!(engine.sleep(Duration::from_nanos(1 + stats.armed % 1000)));
                let _armed: Poll<()> = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            (Behavior::TurnsEngine, Some(engine)) => {
                self.reentries.fetch_add(1, Ordering::SeqCst);
                engine.turn();
            }
            _ => {}
        }
    }
}

impl Wake for RecordingWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let recorder = &self.counter.recorder;
        recorder.write(self.id, EventKind::Woken);
        lock(&recorder.wakes).push((self.id, recorder.now()));
        if self.behavior == Behavior::Panics {
            recorder.waker_panics.fetch_add(1, Ordering::SeqCst);
        }
        recorder.behave(self.behavior);
    }
}

impl Drop for DropCounter {
    fn drop(&mut self) {
        let panics = self.panics && !std::thread::panicking();
        // Before `live`, so that the count is whole as soon as nothing is alive.
        self.recorder.drop_panics.fetch_add(panics.into(), Ordering::SeqCst);
        self.recorder.live.fetch_sub(1, Ordering::SeqCst);
        if panics {
            resume_unwind(Box::new(PlantedPanic));
        }
    }
}

/// What a panic says; nothing, if it was on purpose.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> Option<String> {
    if payload.is::<PlantedPanic>() {
        return None;
    }
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).or_else(|| Some("something that is not text".to_owned()))
}

/// What it guards is a list: a panic in between leaves it whole.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
