//! Records everything that the engine does to its users: wake-ups, callbacks, runs of jobs, destructors.
//!
//! Wakers, callbacks and jobs belong to the simulation, so it observes what a user could observe. Each of them may misbehave: see
//! [`Behavior`].

use std::any::Any;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon::{Clock, Engine, Outcome};

/// Number by which the simulation knows a timer, a task or a job.
pub type Id = u32;

/// Something that the engine did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedEvent {
    /// The timer, task or job that it was done to.
    pub id: Id,
    /// The time that the clock showed.
    pub clock: u64,
    /// The kind of the event.
    pub what: EventKind,
}

/// An action of the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// It woke a waker.
    Woken,
    /// It called a callback.
    CallbackCalled(Outcome),
    /// It began a run of a job: the run's number, and when it was due.
    RunStarted(u64, u64),
    /// It polled the run with this number.
    RunPolled(u64),
    /// The run with this number ended; `true` if it failed.
    RunEnded(u64, bool),
    /// It dropped the run with this number before its end.
    RunDropped(u64),
    /// A callback or a run performed its own action, with this result.
    ActionDone(u64),
}

/// How a waker, a callback or a job behaves when the engine calls it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Behavior {
    /// It returns.
    #[default]
    Normal,
    /// It panics.
    Panics,
    /// A value that it owns panics when it is dropped.
    PanicsInDrop,
    /// It reads the engine's stats, and arms and drops a timer of the engine.
    UsesEngine,
    /// It turns the engine.
    TurnsEngine,
}

/// The events of a world, and what its wakers, callbacks and jobs share.
pub struct Recorder {
    clock: Clock,
    events: Mutex<Vec<RecordedEvent>>,
    /// The wake-ups alone, for [`Recorder::take_wakes`].
    wakes: Mutex<Vec<(Id, u64)>>,
    /// `None` once the world has ended: what the engine owns must not keep the engine alive.
    engine: Mutex<Option<Engine>>,
    /// Number of wakers, callbacks and jobs that exist.
    live: AtomicI64,
    /// Number of wakers that have panicked as intended.
    pub waker_panics: AtomicU64,
    /// Number of callbacks that have panicked as intended.
    pub callback_panics: AtomicU64,
    /// Number of destructors that have panicked as intended.
    pub drop_panics: AtomicU64,
    /// Number of calls into the engine from a waker, a callback or a job.
    pub reentries: AtomicU64,
    /// Whether the shutdown of the engine has begun.
    pub closing: AtomicBool,
}

/// An action of a callback on its own timer. Returns what the timer returned, or [`NO_TIMER`].
pub type CallbackAction = Box<dyn FnOnce() -> u64 + Send>;

/// Result of an action whose timer was gone.
pub const NO_TIMER: u64 = u64::MAX;

/// Payload of an intended panic.
pub struct PlantedPanic;

/// A value that counts itself, and may panic when it is dropped.
pub struct DropCounter {
    recorder: Arc<Recorder>,
    panics: bool,
}

/// A waker that records its wake-ups.
pub struct RecordingWaker {
    id: Id,
    behavior: Behavior,
    counter: DropCounter,
}

impl Recorder {
    /// Returns a recorder without events.
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

    /// Returns what the clock shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now().as_nanos()
    }

    /// Takes the events that were recorded since the last call.
    #[must_use]
    pub fn take(&self) -> Vec<RecordedEvent> {
        std::mem::take(&mut *lock(&self.events))
    }

    /// Takes the wake-ups since the last call, each with what the clock showed.
    #[must_use]
    pub fn take_wakes(&self) -> Vec<(Id, u64)> {
        std::mem::take(&mut *lock(&self.wakes))
    }

    /// Returns how many events have been recorded and not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        lock(&self.events).len()
    }

    /// Returns whether no event waits to be taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets or removes the engine that misbehaving callbacks use.
    pub fn set_engine(&self, engine: Option<Engine>) {
        let before = std::mem::replace(&mut *lock(&self.engine), engine);
        drop(before);
    }

    /// Returns how many wakers, callbacks and jobs exist.
    #[must_use]
    pub fn live(&self) -> i64 {
        self.live.load(Ordering::SeqCst)
    }

    /// Returns a value to move into a closure, so that the closure is counted.
    #[must_use]
    pub fn drop_counter(self: &Arc<Self>, behavior: Behavior) -> DropCounter {
        self.live.fetch_add(1, Ordering::SeqCst);
        DropCounter { recorder: Arc::clone(self), panics: behavior == Behavior::PanicsInDrop }
    }

    /// Returns the state of a waker for `id`.
    #[must_use]
    pub fn recording_waker(self: &Arc<Self>, id: Id, behavior: Behavior) -> Arc<RecordingWaker> {
        // A user may drop the last reference to a waker, so its destructor never panics.
        Arc::new(RecordingWaker { id, behavior, counter: self.drop_counter(Behavior::Normal) })
    }

    /// Returns a waker for `id`.
    #[must_use]
    pub fn waker(self: &Arc<Self>, id: Id, behavior: Behavior) -> Waker {
        Waker::from(self.recording_waker(id, behavior))
    }

    /// Returns a callback for `id`.
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

    /// Records an event that happens now.
    pub fn write(&self, id: Id, what: EventKind) {
        let event = RecordedEvent { id, clock: self.now(), what };
        lock(&self.events).push(event);
    }

    /// Records an event before those that it caused: the engine decided on it first.
    fn write_at(&self, index: usize, id: Id, what: EventKind) {
        let event = RecordedEvent { id, clock: self.now(), what };
        let mut events = lock(&self.events);
        let index = index.min(events.len());
        events.insert(index, event);
    }

    /// Behaves as told, apart from panics in destructors.
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
        // Before `live`, so that the count of panics is complete as soon as nothing is alive.
        self.recorder.drop_panics.fetch_add(panics.into(), Ordering::SeqCst);
        self.recorder.live.fetch_sub(1, Ordering::SeqCst);
        if panics {
            resume_unwind(Box::new(PlantedPanic));
        }
    }
}

/// Returns the message of a panic; `None` if the panic was intended.
#[must_use]
pub fn panic_message(payload: &(dyn Any + Send)) -> Option<String> {
    if payload.is::<PlantedPanic>() {
        return None;
    }
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).or_else(|| Some("a payload that is not text".to_owned()))
}

/// Locks a mutex. A panic leaves what these mutexes guard intact, so poisoning is ignored.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
