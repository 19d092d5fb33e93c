//! A small executor that runs futures on one thread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};

/// A future that may borrow from the thread that runs it.
pub(crate) type LocalTask<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Sends the index of its task when it is woken.
struct TaskWaker {
    index: usize,
    ready: Sender<usize>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        // An error means that the executor has ended.
        let _ = self.ready.send(self.index);
    }
}

/// Runs all tasks until the last has ended.
pub(crate) fn run_tasks(tasks: Vec<LocalTask<'_>>) {
    let (sender, ready) = channel();
    let waker = |index| Waker::from(Arc::new(TaskWaker { index, ready: sender.clone() }));
    let mut tasks: Vec<_> = tasks.into_iter().enumerate().map(|(index, task)| Some((task, waker(index)))).collect();
    (0..tasks.len()).for_each(|index| _ = sender.send(index));
    let mut left = tasks.len();
    // `recv` cannot fail, since `sender` is a sender.
    while left > 0
        && let Ok(index) = ready.recv()
    {
        let Some((task, waker)) = &mut tasks[index] else { continue };
        if task.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            tasks[index] = None;
            left -= 1;
        }
    }
}
