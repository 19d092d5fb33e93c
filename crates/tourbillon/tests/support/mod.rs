//! Helpers that the test programs share: engines in virtual time, tasks that are polled by hand, wakers that record calls.
//!
//! [`Paused`] stops the time of the thread, for the functions of `tourbillon::time`; [`manual`] returns a separate engine with
//! a manual clock.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon::time::error::Elapsed;
#[cfg(feature = "test-util")]
use tourbillon::time::{self, Instant};
use tourbillon::{Clock, Engine, Outcome};

/// Returns an engine whose clock moves only by `Engine::advance`.
pub(crate) fn manual() -> Engine {
    Engine::builder().clock(Clock::manual()).build().unwrap()
}

/// Returns an engine with this many shards whose clock moves only by `Engine::advance`.
pub(crate) fn with_shards(shards: usize) -> Engine {
    Engine::builder().clock(Clock::manual()).shards(shards).build().unwrap()
}

/// Returns the time of an engine's clock, as users see it.
pub(crate) fn now(engine: &Engine) -> tourbillon::time::Instant {
    engine.sleep(Duration::ZERO).deadline()
}

/// Reads an answer of an HTTP/1 server until its last word, "hello", and returns it.
pub(crate) async fn hello(stream: &mut tokio::io::DuplexStream) -> String {
    use tokio::io::AsyncReadExt;

    let mut text = String::new();
    while !text.ends_with("hello") {
        let mut bytes = [0; 512];
        let count = stream.read(&mut bytes).await.unwrap();
        assert!(count > 0, "the connection has ended after: {text}");
        text += str::from_utf8(&bytes[..count]).unwrap();
    }
    text
}

/// The smallest difference between two times.
pub(crate) const NANO: Duration = Duration::from_nanos(1);

/// Lets the paused time of this thread or runtime move by itself. Where it cannot, this prints that, and returns `false`.
#[cfg(feature = "test-util")]
#[must_use]
pub(crate) fn auto_advances() -> bool {
    if time::can_auto_advance() {
        time::auto_advance();
        return true;
    }
    println!("NOT TESTED WITH TIME THAT MOVES BY ITSELF: the system does not tell which threads wait");
    eprintln!("NOT TESTED WITH TIME THAT MOVES BY ITSELF: the system does not tell which threads wait");
    false
}

/// Returns whether there are timers of the kernel, which a driver on a Tokio runtime needs. Where the system refuses them, this prints it.
#[cfg(tourbillon_timerfd)]
#[must_use]
pub(crate) fn has_timerfd() -> bool {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};

    let Err(why) = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC) else { return true };
    println!("NOT TESTED WITH A TIMERFD AND A DRIVER ON TOKIO: it is refused here ({why})");
    eprintln!("NOT TESTED WITH A TIMERFD AND A DRIVER ON TOKIO: it is refused here ({why})");
    false
}

/// A guard that pauses the time of this thread: it moves only by [`Paused::advance`].
#[cfg(feature = "test-util")]
pub(crate) struct Paused(());

#[cfg(feature = "test-util")]
impl Paused {
    pub(crate) fn new() -> Paused {
        time::pause();
        Paused(())
    }

    pub(crate) fn advance(&self, duration: Duration) {
        time::blocking_advance(duration);
    }

    pub(crate) fn advance_to(&self, instant: Instant) {
        self.advance(instant - Instant::now());
    }
}

#[cfg(feature = "test-util")]
impl Drop for Paused {
    fn drop(&mut self) {
        time::resume();
    }
}

/// Returns a guard that only one test of a program holds at a time: for tests that measure or change the whole process.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a command that starts this program again: through `TOURBILLON_RUNNER`, a command with arguments, if that is set. An emulator
/// needs it where the kernel does not know the program's format.
pub(crate) fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("TOURBILLON_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(first) = words.next() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// Compiles only for types that can be sent to and shared between threads.
pub(crate) fn assert_shareable<T: Send + Sync + Unpin + 'static>() {}

/// A task that counts its wake-ups.
pub(crate) struct Task {
    wakes: Arc<Wakes>,
    waker: Waker,
}

struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Task {
    pub(crate) fn new() -> Task {
        let wakes = Arc::new(Wakes(AtomicUsize::new(0)));
        Task { waker: Waker::from(Arc::clone(&wakes)), wakes }
    }

    pub(crate) fn cx(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    pub(crate) fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        poll_with(future, &self.waker)
    }

    /// Returns the number of wake-ups since the last call.
    pub(crate) fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }

    /// Returns how many clones of the task's waker exist elsewhere.
    pub(crate) fn wakers_held(&self) -> usize {
        // One is in `wakes`, one in `waker`.
        Arc::strong_count(&self.wakes) - 2
    }
}

/// A record of the order in which its wakers were woken.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u64>>>);

impl Log {
    /// Returns a waker that records this name.
    pub(crate) fn waker(&self, name: u64) -> Waker {
        let log = self.clone();
        waker(move || log.write(name))
    }

    pub(crate) fn write(&self, name: u64) {
        self.0.lock().unwrap().push(name);
    }

    /// Returns the names recorded since the last call.
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A record of the outcomes that its callbacks were given, in order.
#[derive(Clone, Default)]
pub(crate) struct Outcomes(Arc<Mutex<Vec<(u64, Outcome)>>>);

impl Outcomes {
    /// Returns a callback that records this name with its outcome.
    pub(crate) fn callback(&self, name: u64) -> impl FnOnce(Outcome) + Send + 'static {
        let outcomes = self.clone();
        move |outcome| outcomes.0.lock().unwrap().push((name, outcome))
    }

    /// Returns the outcomes recorded since the last call.
    pub(crate) fn take(&self) -> Vec<(u64, Outcome)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Returns a waker that runs `call`.
pub(crate) fn waker(call: impl Fn() + Send + Sync + 'static) -> Waker {
    struct CallOnWake<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for CallOnWake<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    Waker::from(Arc::new(CallOnWake(call)))
}

/// Polls once with this waker and a full cooperation budget.
pub(crate) fn poll_with<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    // An executor refills the budget before it polls a task.
    tourbillon::coop::refill();
    future.poll(&mut Context::from_waker(waker))
}

/// Waits, on the real clock, until the condition holds. Fails only after a time that no load of the machine explains.
pub(crate) fn eventually(what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "still not so after a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A future that is pending and holds no waker until the test supplies its value.
pub(crate) struct Supplied<T>(pub(crate) Option<T>);

impl<T: Unpin> Future for Supplied<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Returns whether the deadline was reached.
pub(crate) fn is_elapsed<T>(poll: Poll<Result<T, Elapsed>>) -> bool {
    matches!(poll, Poll::Ready(Err(elapsed)) if !elapsed.is_stopped())
}

/// Returns whether the engine was shut down.
pub(crate) fn is_stopped<T>(poll: Poll<Result<T, Elapsed>>) -> bool {
    matches!(poll, Poll::Ready(Err(elapsed)) if elapsed.is_stopped())
}

/// Returns how often a thread has gone to sleep, from its `/proc` file `status`.
pub(crate) fn naps_in(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

pub(crate) fn years(years: u64) -> Duration {
    Duration::from_secs(years * 365 * 24 * 60 * 60)
}
