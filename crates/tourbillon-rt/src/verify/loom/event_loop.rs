//! The event loop's work, against the threads that run the loop.

use std::sync::Arc;

use loom::thread;

use super::{new_worker, park};
use crate::executor::external_threads::ExternalThreads;
use crate::external::work::{WorkCount, WorkLeft};
use crate::verify::loom::{explore, explore_up_to};

/// An event loop without handlers: only the part that makes `run` return.
#[derive(Default)]
struct Loop {
    work: WorkCount,
    external_threads: ExternalThreads,
}

impl Loop {
    /// Returns a loop with so much work.
    fn new(work: usize) -> Arc<Loop> {
        let this = Loop::default();
        (0..work).for_each(|_| this.work.begin());
        Arc::new(this)
    }

    /// As `EventLoop::run_within` does.
    fn run(&self) {
        let worker = new_worker();
        self.external_threads.attach(&worker);
        while !self.work.is_stopped() && self.work.count() > 0 {
            park(&worker, || false);
        }
        self.external_threads.detach(&worker, None, false);
    }

    /// As the drop of a `WorkGuard` does.
    fn end_work(&self) {
        if self.work.end() == WorkLeft::None {
            self.unpark_all();
        }
    }

    fn stop(&self) {
        self.work.stop();
        self.unpark_all();
    }

    fn unpark_all(&self) {
        self.external_threads.with(|workers| workers.iter().for_each(|worker| worker.unpark()));
    }
}

/// Fails if all threads are unparked before the work is counted down, or if a thread that runs the loop enters the list after it has
/// looked at the count.
#[test]
fn a9_a_thread_that_runs_a_loop_returns_when_the_last_work_ends() {
    explore(|| {
        let events = Loop::new(2);
        let theirs = Arc::clone(&events);
        let ends = thread::spawn(move || {
            theirs.end_work();
            theirs.end_work();
        });
        events.run();
        ends.join().unwrap();
    });
}

/// Fails if only one thread is unparked.
#[test]
fn a9_two_threads_that_run_a_loop_both_return_when_the_last_work_ends() {
    explore_up_to(2, || {
        let events = Loop::new(1);
        let theirs = Arc::clone(&events);
        let runs = thread::spawn(move || theirs.run());
        let theirs = Arc::clone(&events);
        let ends = thread::spawn(move || theirs.end_work());
        events.run();
        runs.join().unwrap();
        ends.join().unwrap();
    });
}

/// Fails if all threads are unparked before the loop is marked as stopped.
#[test]
fn a9_a_thread_that_runs_a_loop_returns_when_it_is_stopped_though_there_is_work() {
    explore(|| {
        let events = Loop::new(1);
        let theirs = Arc::clone(&events);
        let stops = thread::spawn(move || theirs.stop());
        events.run();
        stops.join().unwrap();
        // A stopped loop does not run.
        events.run();
    });
}

/// The thread may or may not have seen the stop. Fails if the `unpark` of `stop` hides that of the end of work that follows.
#[test]
fn a9_a_loop_that_was_restarted_is_run_until_its_work_ends() {
    explore(|| {
        let events = Loop::new(1);
        let theirs = Arc::clone(&events);
        let restarts = thread::spawn(move || {
            theirs.stop();
            theirs.work.restart();
            theirs.end_work();
        });
        events.run();
        restarts.join().unwrap();
        assert_eq!(events.work.count(), 0);
        events.run();
    });
}
