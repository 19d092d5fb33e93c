//! Tasks: an abort against the task's own end, and a wait for the end of all.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use loom::thread;

use crate::executor::registry::Registry;
use crate::task::JoinError;
use crate::verify::loom::{TestSignal, explore};

/// Runs a future as an executor does: whenever it is woken.
fn run<F: Future>(mut future: Pin<&mut F>, signal: &Arc<TestSignal>) -> F::Output {
    let waker = Waker::from(Arc::clone(signal));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        signal.wait();
    }
}

/// Fails if `abort` wakes the task before it sets the flag, or does not wake it.
#[test]
fn a_task_that_waits_for_ever_is_ended_by_abort() {
    explore(|| {
        let (registry, signal) = (Arc::<Registry>::default(), TestSignal::new());
        let (task_future, control) = registry.register(std::future::pending::<()>());
        control.set_waker(Waker::from(Arc::clone(&signal)));
        let aborts = thread::spawn(move || control.abort());
        {
            let task_future = pin!(task_future);
            assert!(matches!(run(task_future, &signal).take(), Some(Err(JoinError::Cancelled))));
        }
        aborts.join().unwrap();
        assert_eq!((registry.len(), Arc::strong_count(&signal)), (0, 1), "a task that has ended holds itself");
    });
}

/// Fails if the end of a task does not drop its waker, or an abort puts it back.
#[test]
fn abort_against_the_end_of_a_task_has_one_outcome_and_leaves_nothing_behind() {
    explore(|| {
        let (registry, signal) = (Arc::<Registry>::default(), TestSignal::new());
        let was_dropped = Arc::new(AtomicBool::new(false));
        let holds = Dropped(Arc::clone(&was_dropped));
        let (task_future, control) = registry.register(async move {
            let _holds = holds;
            7
        });
        control.set_waker(Waker::from(Arc::clone(&signal)));
        let theirs = Arc::clone(&control);
        let aborts = thread::spawn(move || theirs.abort());
        {
            let task_future = pin!(task_future);
            assert!(matches!(run(task_future, &signal).take(), Some(Ok(7) | Err(JoinError::Cancelled))));
            assert!(was_dropped.load(Ordering::Relaxed), "what it holds is dropped with its end");
        }
        aborts.join().unwrap();
        // A handle does not keep the task.
        assert_eq!((registry.len(), Arc::strong_count(&signal)), (0, 1), "a task that has ended holds itself");
        drop(control);
    });
}

/// Fails if the removal of the last entry does not look for a thread that waits, looks before it counts, or notifies without the lock.
#[test]
fn d41_a_wait_for_the_end_of_all_tasks_ends_with_the_last() {
    explore(|| {
        let registry = Arc::<Registry>::default();
        let tasks = [(), ()].map(|()| registry.register(async {}).0);
        let ends = thread::spawn(move || drop(tasks));
        assert!(registry.wait_until_empty(None));
        ends.join().unwrap();
    });
}

/// Fails if `abort_all` ends only the tasks that there were when it began to look at the first shard.
#[test]
fn d41_shutdown_aborts_every_task_that_was_entered_before() {
    explore(|| {
        let (registry, signal) = (Arc::<Registry>::default(), TestSignal::new());
        let (task_future, control) = registry.register(std::future::pending::<()>());
        control.set_waker(Waker::from(Arc::clone(&signal)));
        let theirs = Arc::clone(&registry);
        let stops = thread::spawn(move || theirs.abort_all());
        let task_future = pin!(task_future);
        assert!(matches!(run(task_future, &signal).take(), Some(Err(JoinError::Cancelled))));
        stops.join().unwrap();
    });
}

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
