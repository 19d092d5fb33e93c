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
use crate::clock;
use crate::sync::thread;
use crate::task::JoinHandle;

/// A runtime: threads that run tasks, each with its own reactor and its own timers.
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
/// # Drop
/// Dropping it ends every task at its next await and waits for the workers, also for one that its task blocks. To bound that wait, or to
/// let tasks finish, see [`shutdown_timeout`](Runtime::shutdown_timeout). A drop within one of the runtime's own tasks does not wait.
pub struct Runtime {
    pub(super) handle: Handle,
    pub(super) threads: Vec<thread::JoinHandle<()>>,
    pub(super) monitor: Option<thread::JoinHandle<()>>,
}

/// The result of [`shutdown_timeout`](Runtime::shutdown_timeout).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of tasks that had not finished by themselves, and were dropped.
    pub aborted: usize,
    /// The number of workers that their tasks still blocked, and that were left behind.
    pub blocked: usize,
}

impl Runtime {
    /// Starts a runtime with a worker for each core, and io_uring where it is allowed.
    ///
    /// # Errors
    /// The system refuses threads or file descriptors.
    pub fn new() -> Result<Runtime, BuildError> {
        Runtime::builder().build()
    }

    /// Returns a builder with the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns the back end of the workers: never [`Backend::Auto`]. Without workers it is [`Backend::Epoll`].
    #[must_use]
    pub fn backend(&self) -> Backend {
        self.handle.shared.backend
    }

    /// Returns the engine of the runtime's timers: `tourbillon::time` uses it within tasks and `block_on`.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.handle.shared.engine
    }

    /// Returns a handle to spawn from other threads.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Spawns a task: see [`Handle::spawn`].
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Gives the tasks so much time to finish, and ends those that have not: from then on the runtime takes no new tasks. It waits until
    /// then also for workers that their tasks block, and for some milliseconds more, in which others end.
    ///
    /// A task that blocks its worker beyond that ends at its next await. Until the last of those workers has ended the runtime's timers
    /// go on: otherwise a loop over `sleep` would never wait, and so never end.
    ///
    /// A call within one of the runtime's own tasks does not wait.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_rt::Runtime;
    ///
    /// let runtime = Runtime::builder().workers(1).build()?;
    /// runtime.spawn(std::future::pending::<()>());
    /// assert_eq!(runtime.shutdown_timeout(Duration::from_millis(20)).aborted, 1);
    /// # Ok::<(), tourbillon_rt::BuildError>(())
    /// ```
    pub fn shutdown_timeout(mut self, timeout: Duration) -> ShutdownReport {
        let until = clock::system_now().checked_add(timeout);
        let interrupted = InterruptedWork::new();
        let shared = &self.handle.shared;
        // Without workers no thread would run the tasks; and a task that called this would wait for itself.
        let waits = shared.has_workers() && !shared.works_on_this_thread();
        if waits {
            interrupted.suspend(None);
        }
        let all_finished = waits && shared.wait_for_tasks(until);
        let aborted = if all_finished { 0 } else { shared.tasks_left() };
        drop(interrupted);
        let blocked = self.end(until);
        ShutdownReport { aborted, blocked }
    }

    /// Ends the runtime and returns how many workers are still blocked at `until`. Without a time it waits for all.
    fn end(&mut self, until: Option<Instant>) -> usize {
        let shared = Arc::clone(&self.handle.shared);
        shared.stop();
        let threads = std::mem::take(&mut self.threads);
        if shared.has_workers() && shared.works_on_this_thread() {
            // The workers end by themselves, and the last of them ends the timers: until then tasks may still use them.
            shared.finish();
            return 0;
        }
        // This thread may work for another runtime, and tasks of this one may wait for tasks of that one.
        let interrupted = InterruptedWork::new();
        interrupted.suspend(None);
        let mut blocked = Vec::new();
        for (thread, worker) in threads.into_iter().zip(&shared.workers) {
            match until {
                Some(until) if is_blocked_after_wait(&thread, worker, until) => blocked.push(worker),
                // A worker does not panic.
                _ => _ = thread.join(),
            }
        }
        shared.finish();
        // (A substitute may be the thread that drops the runtime.)
        let is_joined = !shared.works_on_this_thread();
        let grace = |until: Instant| until.max(clock::system_now()) + GRACE;
        let others = if is_joined { shared.substitutes.join(until.map(grace)) } else { 0 };
        if !blocked.is_empty() || others > 0 {
            // The last of them ends the timers. Until then other threads must not rely on theirs.
            for worker in &blocked {
                worker.leave_timers_to_driver();
                worker.reactor.evict();
            }
            return blocked.len() + others;
        }
        shared.end_timers();
        let monitor = self.monitor.take();
        // The monitor holds the descriptors of all workers. (It may be the thread that drops the runtime, in a waker that it calls.)
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
        if self.handle.shared.has_monitor {
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

/// The time without progress after which a worker counts as blocked, once the timeout of the shutdown has passed.
const GRACE: Duration = Duration::from_millis(100);

/// Waits for a worker to end, until `until` and then as long as it makes progress. Returns whether it is blocked.
fn is_blocked_after_wait(thread: &thread::JoinHandle<()>, worker: &WorkerShared, until: Instant) -> bool {
    let mut pause = Duration::from_micros(50);
    let (mut poll_count, mut since) = (worker.poll_count(), clock::system_now());
    while !thread.is_finished() {
        let now = clock::system_now();
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
