//! Task queues with the interface of `crossbeam-deque`, which neither loom nor shuttle can see into.
//!
//! They promise less: `is_empty` reads a number that is written without any order. A caller that relies on more needs fences, as with the
//! real ones.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_deque::Steal;
#[cfg(loom)]
use loom::sync::atomic::AtomicUsize;
#[cfg(shuttle)]
use shuttle::sync::atomic::AtomicUsize;

use super::{Mutex, Ordering, lock};

pub(crate) struct Injector<T>(LockedQueue<T>);

pub(crate) struct TaskQueue<T>(Arc<LockedQueue<T>>);

pub(crate) struct Stealer<T>(Arc<LockedQueue<T>>);

/// A queue behind a lock, with its length beside it.
struct LockedQueue<T> {
    tasks: Mutex<VecDeque<T>>,
    len: AtomicUsize,
}

impl<T> LockedQueue<T> {
    fn new() -> LockedQueue<T> {
        LockedQueue { tasks: Mutex::new(VecDeque::new()), len: AtomicUsize::new(0) }
    }

    fn push(&self, task: T) {
        let mut tasks = lock(&self.tasks);
        tasks.push_back(task);
        self.len.store(tasks.len(), Ordering::Relaxed);
    }

    fn pop(&self) -> Option<T> {
        let mut tasks = lock(&self.tasks);
        let task = tasks.pop_front();
        self.len.store(tasks.len(), Ordering::Relaxed);
        task
    }

    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    fn steal(&self) -> Steal<T> {
        self.pop().map_or(Steal::Empty, Steal::Success)
    }
}

impl<T> Injector<T> {
    pub(crate) fn new() -> Injector<T> {
        Injector(LockedQueue::new())
    }

    pub(crate) fn push(&self, task: T) {
        self.0.push(task);
    }

    pub(crate) fn steal(&self) -> Steal<T> {
        self.0.steal()
    }

    pub(crate) fn steal_batch_and_pop(&self, _: &TaskQueue<T>) -> Steal<T> {
        self.0.steal()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl<T> TaskQueue<T> {
    pub(crate) fn new_fifo() -> TaskQueue<T> {
        TaskQueue(Arc::new(LockedQueue::new()))
    }

    pub(crate) fn stealer(&self) -> Stealer<T> {
        Stealer(Arc::clone(&self.0))
    }

    pub(crate) fn push(&self, task: T) {
        self.0.push(task);
    }

    pub(crate) fn pop(&self) -> Option<T> {
        self.0.pop()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}

impl<T> Stealer<T> {
    pub(crate) fn steal(&self) -> Steal<T> {
        self.0.steal()
    }

    pub(crate) fn steal_batch_and_pop(&self, _: &TaskQueue<T>) -> Steal<T> {
        self.0.steal()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 0
    }
}
