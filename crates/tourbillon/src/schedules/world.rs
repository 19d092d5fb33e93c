//! An engine in a schedule, those who use it, and time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, Thread};
use tourbillon_queue::{Span, Time};

use crate::driver::SPACE;
use crate::sync::scheduled::{set_time, time};
use crate::time::Sleep;
use crate::{Builder, Driver, Engine, Outcome};

/// When a schedule begins.
const START: Time = Time::from_nanos(1_000_000_000);

/// Nobody may wait for longer than this beyond what they wait for: the space between two wake-ups when they come thick, and the
/// slack that timers have here.
const PATIENCE: Duration = Duration::from_micros(2 * SPACE.as_micros() as u64 + SLACK);

/// In microseconds, the most that a timer is given here.
pub(super) const SLACK: u64 = 500;

/// Handles to one engine, its users' books, and what moves time.
#[derive(Clone)]
pub(super) struct World {
    pub(super) engine: Engine,
    pub(super) books: Arc<Books>,
    clockwork: Arc<Clockwork>,
}

/// What those who use an engine have counted. (By what shuttle does not see.)
#[derive(Default)]
pub(super) struct Books {
    /// Timers that were armed, if they are sleeps.
    pub(super) armed: AtomicU64,
    /// Sleeps that were seen to have fired, and to have been stopped.
    pub(super) fired: AtomicU64,
    pub(super) stopped: AtomicU64,
    /// Tasks that were woken by sleeps.
    pub(super) woken: AtomicU64,
}

struct Clockwork {
    state: Mutex<Hands>,
    changed: Condvar,
    /// Told after time has moved.
    moved: Box<dyn Fn(&Engine) + Send + Sync>,
}

#[derive(Default)]
struct Hands {
    /// Until when threads wait, by number. `NEVER`: for something other than time.
    waits: BTreeMap<u64, Time>,
    next: u64,
    /// How many threads of the world have not ended.
    threads: usize,
}

/// A thread that waits, as long as this is there.
pub(super) struct Waits<'a> {
    clockwork: &'a Clockwork,
    number: u64,
}

/// How those who turn an engine from outside are called.
#[derive(Default)]
struct Turning {
    /// How often.
    calls: Mutex<u64>,
    changed: Condvar,
}

impl World {
    /// One whose engine has its driver on a thread of its own.
    pub(super) fn driven(build: Builder) -> World {
        set_time(START);
        let engine = build.build().expect("there are threads enough");
        World::new(engine, |engine| engine.core().driving.time_has_moved(engine.clock()))
    }

    /// One whose engine is turned by so many threads, which are called when they have to come earlier.
    pub(super) fn turned(build: Builder, turners: usize) -> World {
        set_time(START);
        let turning = Arc::new(Turning::default());
        let driver = {
            let turning = Arc::clone(&turning);
            Driver::external_with(move || turning.call())
        };
        let engine = build.driver(driver).build().expect("it needs no threads");
        for _ in 0..turners {
            let (engine, turning) = (engine.clone(), Arc::clone(&turning));
            thread::spawn(move || turning.turn(&engine));
        }
        World::new(engine, move |_| turning.time_has_moved())
    }

    fn new(engine: Engine, moved: impl Fn(&Engine) + Send + Sync + 'static) -> World {
        let (state, changed) = (Mutex::new(Hands::default()), Condvar::new());
        let clockwork = Arc::new(Clockwork { state, changed, moved: Box::new(moved) });
        World { engine, books: Arc::default(), clockwork }
    }

    /// A thread of this world.
    pub(super) fn spawn(&self, run: impl FnOnce(&World) + Send + 'static) {
        self.clockwork.change(|hands| hands.threads += 1);
        let world = self.clone();
        thread::spawn(move || {
            run(&world);
            world.clockwork.change(|hands| hands.threads -= 1);
        });
    }

    /// Moves time while threads wait for it, until all have ended.
    pub(super) fn run(&self) {
        while let Some(limit) = self.clockwork.next_limit() {
            let due = Time::from_nanos(limit.as_nanos() - PATIENCE.as_nanos() as u64);
            let now = time();
            let somewhere = Time::from_nanos(thread_rng().gen_range(now.as_nanos()..=limit.as_nanos()));
            let to = match thread_rng().gen_range(0..4) {
                0 => somewhere,
                1 => limit,
                _ => due.max(now),
            };
            set_time(to);
            (self.clockwork.moved)(&self.engine);
        }
    }

    /// The calling thread waits until that time, and has to be woken then.
    pub(super) fn waits_until(&self, due: Time) -> Waits<'_> {
        let number = self.clockwork.change(|hands| {
            hands.next += 1;
            hands.waits.insert(hands.next, due);
            hands.next
        });
        Waits { clockwork: &self.clockwork, number }
    }

    /// The calling thread waits for something other than time.
    pub(super) fn waits(&self) -> Waits<'_> {
        self.waits_until(Time::NEVER)
    }

    /// After all who used it have gone: whatever was armed has ended, once.
    #[track_caller]
    pub(super) fn check_books(&self) {
        let stats = self.engine.stats();
        let Books { armed, fired, stopped, .. } = &*self.books;
        let [armed, fired, stopped] = [armed, fired, stopped].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(
            (stats.waker_panics, stats.callback_panics),
            (0, 0),
            "something in a waker or a callback has failed"
        );
        assert_eq!(stats.pending, 0, "a timer that has not ended");
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped, "outcomes: {stats:?}");
        assert_eq!(stats.armed, armed, "timers that were armed: {stats:?}");
        assert!(stats.fired >= fired && stats.stopped >= stopped, "{fired} fired, {stopped} stopped: {stats:?}");
        // A timer that somebody has dropped may have fired before, and who waited for it is woken outside of the engine's lock.
        let to_be_woken = stats.fired + stats.stopped;
        self.clockwork.wait_while(|| self.books.woken.load(Ordering::Relaxed) < to_be_woken);
        assert_eq!(self.books.woken.load(Ordering::Relaxed), to_be_woken, "tasks that were woken: {stats:?}");
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.clockwork.change(|hands| hands.waits.remove(&self.number));
    }
}

impl Clockwork {
    fn change<R>(&self, change: impl FnOnce(&mut Hands) -> R) -> R {
        let result = change(&mut self.state.lock().unwrap());
        self.changed.notify_one();
        result
    }

    /// Waits for what others do.
    fn wait_while(&self, condition: impl Fn() -> bool) {
        let mut hands = self.state.lock().unwrap();
        while condition() {
            hands = self.changed.wait(hands).unwrap();
        }
    }

    /// How far time may move, as soon as it may at all. `None`: all threads have ended.
    fn next_limit(&self) -> Option<Time> {
        let mut hands = self.state.lock().unwrap();
        while hands.threads > 0 {
            let limit = hands.waits.values().min().map_or(Time::NEVER, |first| *first + Span::from(PATIENCE));
            if !limit.is_never() && limit > time() {
                return Some(limit);
            }
            hands = self.changed.wait(hands).unwrap();
        }
        None
    }
}

impl Turning {
    fn call(&self) {
        *self.calls.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn time_has_moved(&self) {
        drop(self.calls.lock().unwrap());
        self.changed.notify_all();
    }

    /// What each of those who turn does, until the engine is shut down.
    fn turn(&self, engine: &Engine) {
        loop {
            let seen = *self.calls.lock().unwrap();
            if engine.is_shutdown() {
                return;
            }
            let turn = engine.turn();
            let next = if turn.more { Time::ZERO } else { turn.next.unwrap_or(Time::NEVER) };
            let mut calls = self.calls.lock().unwrap();
            while *calls == seen && next > time() {
                calls = self.changed.wait(calls).unwrap();
            }
        }
    }
}

/// A sleep whose user keeps books.
pub(super) struct Kept {
    sleep: Pin<Box<Sleep>>,
}

/// A task that sleeps: the thread that polled it.
struct Task {
    books: Arc<Books>,
    clockwork: Arc<Clockwork>,
    thread: Thread,
}

impl Kept {
    pub(super) fn new(sleep: Sleep) -> Kept {
        Kept { sleep: Box::pin(sleep) }
    }

    /// Polls it, as a new task of the calling thread.
    pub(super) fn poll(&mut self, world: &World) -> Poll<Outcome> {
        self.poll_as(world, &task(world))
    }

    /// Waits until it has ended.
    pub(super) fn wait(&mut self, world: &World) -> Outcome {
        let task = task(world);
        loop {
            if let Poll::Ready(outcome) = self.poll_as(world, &task) {
                return outcome;
            }
            // One for which there is no room waits for that.
            let due = if self.sleep.is_armed() { self.due(world) } else { Time::NEVER };
            let _waits = world.waits_until(due);
            thread::park();
        }
    }

    /// Sets it to end so long after its deadline.
    pub(super) fn later(&mut self, by: Duration) {
        let deadline = self.sleep.deadline() + by;
        self.sleep.as_mut().reset(deadline);
    }

    /// Sets it to end so long before its deadline.
    pub(super) fn earlier(&mut self, by: Duration) {
        if let Some(deadline) = self.sleep.deadline().checked_sub(by) {
            self.sleep.as_mut().reset(deadline);
        }
    }

    /// Holds it, and lets go of it.
    pub(super) fn hold(&mut self) {
        self.sleep.as_mut().disarm();
        self.sleep.as_mut().arm();
    }

    /// When it is due.
    pub(super) fn due(&self, world: &World) -> Time {
        world.engine.clock().time_of(self.sleep.deadline().into_std())
    }

    fn poll_as(&mut self, world: &World, task: &Waker) -> Poll<Outcome> {
        let was_armed = self.sleep.is_armed();
        let poll = self.sleep.as_mut().poll(&mut Context::from_waker(task));
        // Before anybody else runs.
        let now = time();
        let books = &world.books;
        if poll.is_pending() {
            books.armed.fetch_add(u64::from(!was_armed && self.sleep.is_armed()), Ordering::Relaxed);
            return Poll::Pending;
        }
        let outcome = self.sleep.outcome().expect("it is ready");
        match outcome {
            Outcome::Fired => assert!(now >= self.due(world), "fired at {now:?}, due at {:?}", self.due(world)),
            _ => assert!(world.engine.is_shutdown(), "{outcome:?} in an engine that goes on"),
        }
        if was_armed {
            let seen = if outcome == Outcome::Fired { &books.fired } else { &books.stopped };
            seen.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(outcome)
    }
}

/// A task of the calling thread.
fn task(world: &World) -> Waker {
    let (books, clockwork) = (Arc::clone(&world.books), Arc::clone(&world.clockwork));
    Waker::from(Arc::new(Task { books, clockwork, thread: thread::current() }))
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.thread.unpark();
        self.books.woken.fetch_add(1, Ordering::Relaxed);
        self.clockwork.change(|_| ());
    }
}
