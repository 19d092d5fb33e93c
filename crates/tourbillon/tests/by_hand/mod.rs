//! Polling by hand, in virtual time.
//!
//! [`Paused`] stops the time of the thread, for the functions of `tourbillon::time`; [`manual`] gives an engine of one's
//! own that stands still.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tourbillon::time::error::Elapsed;
#[cfg(feature = "test-util")]
use tourbillon::time::{self, Instant};
use tourbillon::{Clock, Engine, Outcome};

/// An engine whose clock stands still but for `Engine::advance`.
pub(crate) fn manual() -> Engine {
    Engine::builder().clock(Clock::manual()).build().unwrap()
}

/// An engine whose clock stands still but for `Engine::advance`, with so many shards.
pub(crate) fn with_shards(shards: usize) -> Engine {
    Engine::builder().clock(Clock::manual()).shards(shards).build().unwrap()
}

/// What the clock of an engine shows, as users see it.
pub(crate) fn now(engine: &Engine) -> tourbillon::time::Instant {
    engine.sleep(Duration::ZERO).deadline()
}

/// The least by which times can differ.
pub(crate) const NANO: Duration = Duration::from_nanos(1);

/// Until it is dropped, the time of this thread stands still but for [`Paused::advance`].
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

/// A task that counts how often it has been woken.
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

    /// How often it was woken since this was last asked.
    pub(crate) fn wakes(&self) -> usize {
        self.wakes.0.swap(0, Ordering::SeqCst)
    }

    /// How many wakers of it there are elsewhere.
    pub(crate) fn wakers_held(&self) -> usize {
        // One is in `wakes`, one in `waker`.
        Arc::strong_count(&self.wakes) - 2
    }
}

/// Writes down in which order its wakers are woken.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u64>>>);

impl Log {
    /// A waker that writes this name.
    pub(crate) fn waker(&self, name: u64) -> Waker {
        let log = self.clone();
        waker(move || log.write(name))
    }

    pub(crate) fn write(&self, name: u64) {
        self.0.lock().unwrap().push(name);
    }

    /// What was written since this was last asked.
    pub(crate) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Writes down what its callbacks were told, in order.
#[derive(Clone, Default)]
pub(crate) struct Outcomes(Arc<Mutex<Vec<(u64, Outcome)>>>);

impl Outcomes {
    /// A callback that writes this name.
    pub(crate) fn callback(&self, name: u64) -> impl FnOnce(Outcome) + Send + 'static {
        let told = self.clone();
        move |outcome| told.0.lock().unwrap().push((name, outcome))
    }

    /// What was written since this was last asked.
    pub(crate) fn take(&self) -> Vec<(u64, Outcome)> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A waker that calls this.
pub(crate) fn waker(call: impl Fn() + Send + Sync + 'static) -> Waker {
    struct CallbackQueue<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for CallbackQueue<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    Waker::from(Arc::new(CallbackQueue(call)))
}

/// Polls once, with a waker of one's own.
pub(crate) fn poll_with<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    // As an executor does that knows where a poll begins.
    tourbillon::coop::refill();
    future.poll(&mut Context::from_waker(waker))
}

/// Waits, on the real clock, until this is so. It fails only after so long that no loaded machine explains it.
pub(crate) fn eventually(what: &str, so: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(60), "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A future that is pending and holds no waker, until it is told its value.
pub(crate) struct Told<T>(pub(crate) Option<T>);

impl<T: Unpin> Future for Told<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.0.take().map_or(Poll::Pending, Poll::Ready)
    }
}

/// Whether the deadline was reached.
pub(crate) fn is_elapsed<T>(poll: Poll<Result<T, Elapsed>>) -> bool {
    matches!(poll, Poll::Ready(Err(elapsed)) if !elapsed.is_stopped())
}

/// Whether the engine was shut down.
pub(crate) fn is_stopped<T>(poll: Poll<Result<T, Elapsed>>) -> bool {
    matches!(poll, Poll::Ready(Err(elapsed)) if elapsed.is_stopped())
}

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) fn years(years: u64) -> Duration {
    Duration::from_secs(years * 365 * 24 * 60 * 60)
}
