//! The event loop's work, against those who run it.

use std::sync::Arc;

use loom::thread;

use super::{new_worker, park};
use crate::executor::external_threads::ExternalThreads;
use crate::external::work::{WorkCount, WorkLeft};
use crate::verify::loom::{explore, explore_up_to};

/// A loop without handlers: what makes who runs it return.
#[derive(Default)]
struct Loop {
    work: WorkCount,
    external_threads: ExternalThreads,
}

impl Loop {
    /// With so much work.
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

/// Fails if all are called before the work is counted down, or who runs the loop sits down after it has looked at the count.
#[test]
fn a9_who_runs_a_loop_returns_when_the_last_work_ends() {
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

/// Fails if only one is called.
#[test]
fn a9_two_who_run_a_loop_both_return_when_the_last_work_ends() {
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

/// Fails if all are called before the loop is said to be stopped.
#[test]
fn a9_who_runs_a_loop_returns_when_it_is_stopped_though_there_is_work() {
    explore(|| {
        let events = Loop::new(1);
        let theirs = Arc::clone(&events);
        let stops = thread::spawn(move || theirs.stop());
        events.run();
        stops.join().unwrap();
        // Stopped, it is not run.
        events.run();
    });
}

/// Who runs it may or may not have seen the stop. Fails if what is called by `stop` is lost for the end of work that follows.
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
