//! A small executor for one thread: it runs some futures to their end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};

/// A future that borrows from the thread that runs it.
pub(crate) type LocalTask<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Says which task is to be polled.
struct TaskWaker {
    index: usize,
    ready: Sender<usize>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        // Whoever is gone needs no telling.
        let _ = self.ready.send(self.index);
    }
}

/// Runs all of them, until the last has ended.
pub(crate) fn run_tasks(tasks: Vec<LocalTask<'_>>) {
    let (tell, ready) = channel();
    let waker = |index| Waker::from(Arc::new(TaskWaker { index, ready: tell.clone() }));
    let mut tasks: Vec<_> = tasks.into_iter().enumerate().map(|(index, task)| Some((task, waker(index)))).collect();
    (0..tasks.len()).for_each(|index| _ = tell.send(index));
    let mut left = tasks.len();
    // It cannot fail: a sender is here.
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
