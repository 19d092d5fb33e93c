//! `std::thread`, as far as the runtime uses it.

use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use shuttle::sync::atomic::{AtomicBool, Ordering};
pub(crate) use shuttle::thread::{Result, Thread, current, park};

pub(crate) use self::{ThreadBuilder as Builder, ThreadHandle as JoinHandle};

/// Shuttle's thread builder, with [`ThreadHandle::is_finished`].
#[derive(Default)]
pub(crate) struct ThreadBuilder(shuttle::thread::Builder);

pub(crate) struct ThreadHandle<T> {
    handle: shuttle::thread::JoinHandle<T>,
    is_finished: Arc<AtomicBool>,
}

impl ThreadBuilder {
    pub(crate) fn new() -> ThreadBuilder {
        ThreadBuilder::default()
    }

    pub(crate) fn name(self, name: String) -> ThreadBuilder {
        ThreadBuilder(self.0.name(name))
    }

    pub(crate) fn spawn<T: Send + 'static>(
        self,
        run: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<ThreadHandle<T>> {
        let is_finished = Arc::new(AtomicBool::new(false));
        let finished = Arc::clone(&is_finished);
        let handle = self.0.spawn(move || {
            let result = run();
            finished.store(true, Ordering::SeqCst);
            result
        })?;
        Ok(ThreadHandle { handle, is_finished })
    }
}

impl<T> ThreadHandle<T> {
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::SeqCst)
    }

    pub(crate) fn join(self) -> Result<T> {
        self.handle.join()
    }

    pub(crate) fn thread(&self) -> &Thread {
        self.handle.thread()
    }
}

/// Returns one, whatever the machine has: schedules can be repeated on another.
pub(crate) fn available_parallelism() -> io::Result<NonZero<usize>> {
    Ok(NonZero::<usize>::MIN)
}

/// Lets other threads run.
pub(crate) fn sleep(_: Duration) {
    shuttle::thread::yield_now();
}
