//! The runtime: its threads, and how it ends.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tourbillon::Engine;

use super::backend::{Backend, BuildError};
use super::builder::Builder;
use super::handle::Handle;
use super::monitor;
use super::nesting::InterruptedWork;
use super::worker::{self, IdleSlot};
use super::worker_shared::WorkerShared;
use crate::sync::thread;
use crate::task::JoinHandle;

/// Threads that run tasks, each with its own reactor and its own timers.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_rt::{Runtime, time};
///
/// let runtime = Runtime::new()?;
/// let answer = runtime.block_on(async {
///     let task = tourbillon_rt::spawn(async {
///         time::sleep(Duration::from_millis(1)).await;
///         42
///     });
///     task.await
/// })?;
/// assert_eq!(answer, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Its end
/// Dropping it ends every task at its next await, and waits for the workers: a task that blocks its worker is waited for. To bound
/// that, or to let tasks finish, see [`shutdown_timeout`](Runtime::shutdown_timeout). From within one of its own tasks nobody is
/// waited for.
pub struct Runtime {
    pub(super) handle: Handle,
    pub(super) threads: Vec<thread::JoinHandle<()>>,
    pub(super) monitor: Option<thread::JoinHandle<()>>,
}

/// How a [`shutdown_timeout`](Runtime::shutdown_timeout) ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Shutdown {
    /// So many tasks had not finished by themselves, and were dropped.
    pub aborted: usize,
    /// So many workers were still blocked by their tasks, and were left behind.
    pub blocked: usize,
}

impl Runtime {
    /// One with a worker for each core, and the back end that can be had.
    ///
    /// # Errors
    /// The system refuses threads or file descriptors.
    pub fn new() -> Result<Runtime, BuildError> {
        Runtime::builder().build()
    }

    /// How to build one.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The back end that was taken: never [`Backend::Auto`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.handle.shared.backend
    }

    /// The engine of its timers: `tourbillon::time` uses it within tasks and `block_on`.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.handle.shared.engine
    }

    /// To spawn from elsewhere.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// See [`Handle::spawn`].
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Lets its tasks finish for so long, and ends those that have not by then: from that time on no new tasks are taken. Workers
    /// that are blocked by their tasks are waited for until then, too, and for some milliseconds more, in which others end.
    ///
    /// A task that blocks its worker beyond that ends at its next await. Until the last of those workers has ended the runtime's timers
    /// go on: otherwise a loop over `sleep` would never wait, and so never end.
    ///
    /// From within one of its own tasks nobody is waited for.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_rt::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// drop(runtime.spawn(std::future::pending::<()>()));
    /// assert_eq!(runtime.shutdown_timeout(Duration::from_millis(20)).aborted, 1);
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Shutdown {
        let until = Instant::now().checked_add(timeout);
        let interrupted = InterruptedWork::new();
        let shared = &self.handle.shared;
        // Without workers nobody would run them; and who is one of them would wait for itself.
        let waits = shared.has_workers() && !shared.is_at_work_here();
        if waits {
            interrupted.suspend(None);
        }
        let all_finished = waits && shared.wait_for_tasks(until);
        let aborted = if all_finished { 0 } else { shared.tasks_left() };
        drop(interrupted);
        let blocked = self.end(until);
        Shutdown { aborted, blocked }
    }

    /// Ends it. How many workers are blocked then, or for ever if no time is given.
    fn end(&mut self, until: Option<Instant>) -> usize {
        let shared = Arc::clone(&self.handle.shared);
        shared.stop();
        let threads = std::mem::take(&mut self.threads);
        if shared.has_workers() && shared.is_at_work_here() {
            // They end by themselves, and the last of them ends the timers: until then tasks may still use them.
            shared.finish();
            return 0;
        }
        // This thread may work for another runtime, on whose tasks ours wait.
        let interrupted = InterruptedWork::new();
        interrupted.suspend(None);
        let mut blocked = Vec::new();
        for (thread, worker) in threads.into_iter().zip(&shared.workers) {
            match until {
                Some(until) if is_blocked(&thread, worker, until) => blocked.push(worker),
                // A worker does not panic.
                _ => _ = thread.join(),
            }
        }
        shared.finish();
        // (It may be one of them that drops us.)
        let is_joined = !shared.is_at_work_here();
        let grace = |until: Instant| until.max(Instant::now()) + GRACE;
        let others = if is_joined { shared.substitutes.join(until.map(grace)) } else { 0 };
        if !blocked.is_empty() || others > 0 {
            // The last of them ends the timers. Meanwhile nobody looks after them any more: others are not to rely on them.
            for worker in &blocked {
                worker.leave_timers_to_driver();
                worker.reactor.evict();
            }
            return blocked.len() + others;
        }
        shared.end_timers();
        let monitor = self.monitor.take();
        // It holds the descriptors of all. (It may be the one that drops us, in somebody's waker.)
        if let Some(monitor) = monitor.filter(|monitor| monitor.thread().id() != thread::current().id()) {
            let _ = monitor.join();
        }
        0
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.threads.is_empty() || !self.handle.shared.is_stopped() {
            self.end(None);
        }
    }
}

impl Runtime {
    pub(super) fn start(&mut self, slots: Vec<IdleSlot>, name: &str) -> Result<(), BuildError> {
        let named = |name: String| thread::Builder::new().name(name);
        if self.handle.shared.is_watched {
            let shared = Arc::clone(&self.handle.shared);
            let monitor = named(format!("{name}-watch")).spawn(move || monitor::run(&shared));
            self.monitor = Some(monitor.map_err(BuildError::Thread)?);
        }
        for (index, slot) in slots.into_iter().enumerate() {
            let shared = Arc::clone(&self.handle.shared);
            let thread = named(format!("{name}-{index}")).spawn(move || {
                worker::work(&shared, slot);
                shared.worker_has_ended();
            });
            self.threads.push(thread.map_err(BuildError::Thread)?);
        }
        Ok(())
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

/// Who has not got on for so long, after the time that it was given, is blocked.
const GRACE: Duration = Duration::from_millis(100);

/// Waits for a worker, until then and for as long as it gets on. Whether it is blocked.
fn is_blocked(thread: &thread::JoinHandle<()>, worker: &WorkerShared, until: Instant) -> bool {
    let mut pause = Duration::from_micros(50);
    let (mut poll_count, mut since) = (worker.poll_count(), Instant::now());
    while !thread.is_finished() {
        let now = Instant::now();
        if poll_count != worker.poll_count() {
            (poll_count, since) = (worker.poll_count(), now);
        }
        if until <= now && now - since >= GRACE {
            return true;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
    false
}
