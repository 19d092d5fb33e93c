//! `Scheduler` with threads of its own or none, over an engine that is made up: see [`timer`](crate::verify::loom::timer).
//!
//! It is the scheduler's own code: the book, the threads that look and wait, the bell. Time moves when the model says so. A job
//! here must not wait for anything of loom's: what a run throws is caught, and a report of loom's would be.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use loom::thread::{self, JoinHandle};
use tourbillon_queue::Time;

use super::shared::{Shared, Users};
use super::{Overlap, Owner, Plan, Rules, ScheduleErrorKind, Scheduler, Shutdown};
use crate::multi::waiter::Answer;
use crate::time::{Instant, MissedTickBehavior};
use crate::verify::loom::timer::{World, spawn};
use crate::verify::loom::{DUE, LATER, Tally, explore, explore_up_to};
use crate::{Engine, Outcome};

/// A scheduler in its world, and its threads.
struct Story {
    world: World,
    scheduler: Scheduler<u8>,
    threads: Vec<JoinHandle<()>>,
    made: Made,
}

/// How many runs were made. (Counted by what loom does not see.)
#[derive(Clone, Default)]
struct Made(Arc<AtomicU64>);

impl Made {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Until so many are made. One that is lost is waited for without end, which loom reports.
    fn wait_for(&self, count: u64) {
        while self.get() < count {
            thread::yield_now();
        }
    }
}

impl Story {
    fn new(threads: usize) -> Story {
        let world = World::new();
        let rules = Rules {
            overflow: super::Overflow::Wait,
            queue: 8,
            capacity: 8,
            overlap: Overlap::Skip,
            missed: MissedTickBehavior::Skip,
        };
        let users = Users { on_failure: None, spawn: None };
        let engine = Engine::of_core(world.core.clone());
        let shared = Shared::new(world.core.clone(), threads, rules, users);
        let scheduler = Scheduler { owner: Arc::new(Owner::new(shared, engine.clone(), None)) };
        let shared = &scheduler.owner.shared;
        let _first = shared.owner.set(Arc::downgrade(&scheduler.owner));
        shared.changed(shared.lock());
        let threads = (0..threads)
            .map(|_| {
                let (shared, engine) = (Arc::clone(shared), engine.clone());
                thread::spawn(move || shared.work(&engine))
            })
            .collect();
        Story { world, scheduler, threads, made: Made::default() }
    }

    /// Once, at this time.
    fn plan(&self, due: Time) -> Plan {
        let instant = Instant::from_std(self.world.core.clock.std_of(due));
        Plan::every(std::time::Duration::from_secs(1)).times(1).first_at(instant)
    }

    fn schedule(&self, key: u8, due: Time) -> Result<(), ScheduleErrorKind> {
        let made = self.made.clone();
        let job = move |_: &_| _ = made.0.fetch_add(1, Ordering::Relaxed);
        self.scheduler.schedule(key, self.plan(due), job).map(drop).map_err(|error| error.kind)
    }

    /// By whoever turns the engine, if there are no threads.
    fn turn(&self) {
        self.world.core.run_callbacks();
    }

    /// All threads end.
    fn end(self, how: Shutdown) -> u64 {
        let Story { world, scheduler, threads, made } = self;
        let ending = scheduler.shutdown(how);
        world.core.run_callbacks();
        ending.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = scheduler.stats();
        assert_eq!((stats.running, stats.waiting, stats.runs), (0, 0, made.get()));
        drop((ending, scheduler));
        world.core.run_callbacks();
        world.assert_idle();
        made.get()
    }
}

#[test]
fn d39_a_job_that_comes_due_while_a_thread_goes_to_sleep_is_made() {
    explore_up_to(3, || {
        let story = Story::new(1);
        let fires = spawn(&story.world, |world| world.fire(DUE));
        story.schedule(0, DUE).unwrap();
        fires.join().unwrap();
        story.made.wait_for(1);
        assert_eq!(story.end(Shutdown::Abort), 1);
    });
}

#[test]
fn d39_an_earlier_job_that_is_scheduled_while_time_comes_is_made() {
    explore_up_to(3, || {
        let story = Story::new(1);
        story.schedule(0, LATER).unwrap();
        let fires = spawn(&story.world, |world| world.fire(DUE));
        story.schedule(1, DUE).unwrap();
        fires.join().unwrap();
        story.made.wait_for(1);
        assert_eq!(story.end(Shutdown::Abort), 1);
    });
}

#[test]
fn d39_a_job_scheduled_while_another_fires_is_made_when_its_time_comes() {
    explore_up_to(3, || {
        let story = Story::new(1);
        story.schedule(0, DUE).unwrap();
        let fires = spawn(&story.world, |world| world.fire(DUE));
        story.schedule(1, LATER).unwrap();
        fires.join().unwrap();
        story.made.wait_for(1);
        story.world.fire(LATER);
        story.made.wait_for(2);
        assert_eq!(story.end(Shutdown::Abort), 2);
    });
}

#[test]
fn d39_two_threads_make_what_is_due_once_and_both_end() {
    explore_up_to(3, || {
        let story = Story::new(2);
        story.schedule(0, DUE).unwrap();
        story.schedule(1, DUE).unwrap();
        story.world.fire(DUE);
        assert_eq!(story.end(Shutdown::Drain), 2);
    });
}

#[test]
fn d28_threads_that_have_found_nothing_hear_of_the_end() {
    explore_up_to(3, || {
        let story = Story::new(2);
        assert_eq!(story.end(Shutdown::Drain), 0);
    });
}

#[test]
fn d19_a_job_that_is_removed_while_it_comes_due_begins_before_or_never() {
    explore_up_to(3, || {
        let story = Story::new(1);
        story.schedule(0, DUE).unwrap();
        let fires = spawn(&story.world, |world| world.fire(DUE));
        let was_there = story.scheduler.remove(&0);
        let runs = story.scheduler.stats().runs;
        fires.join().unwrap();
        let made = story.end(Shutdown::Drain);
        assert_eq!(made, runs, "a run that began after its job was removed");
        assert!(was_there || made == 1);
    });
}

#[test]
fn g5_a_job_that_comes_due_during_a_stop_and_a_start_is_made_or_missed() {
    explore_up_to(3, || {
        let story = Story::new(1);
        story.schedule(0, DUE).unwrap();
        let fires = spawn(&story.world, |world| world.fire(DUE));
        story.scheduler.stop();
        story.scheduler.start();
        fires.join().unwrap();
        // Its time was just when the clock stood still, so it is not missed.
        story.made.wait_for(1);
        assert_eq!(story.end(Shutdown::Abort), 1);
    });
}

#[test]
fn d28_d32_a_job_that_is_scheduled_while_the_engine_ends_is_refused_or_gone() {
    explore_up_to(3, || {
        let story = Story::new(1);
        let stops = spawn(&story.world, World::stop);
        let scheduled = story.schedule(0, DUE);
        assert!(matches!(scheduled, Ok(()) | Err(ScheduleErrorKind::ShutDown)));
        stops.join().unwrap();
        assert!(!story.scheduler.is_running() && story.scheduler.is_empty());
        assert_eq!(story.schedule(1, DUE), Err(ScheduleErrorKind::ShutDown));
        assert_eq!(story.end(Shutdown::Drain), 0);
    });
}

#[test]
fn d28_of_two_who_end_it_at_once_both_see_the_end() {
    explore_up_to(3, || {
        let story = Story::new(1);
        story.schedule(0, LATER).unwrap();
        let other = {
            let scheduler = story.scheduler.clone();
            thread::spawn(move || scheduler.shutdown(Shutdown::Abort).wait())
        };
        story.scheduler.shutdown(Shutdown::Drain).wait();
        other.join().unwrap();
        assert_eq!(story.end(Shutdown::Drain), 0);
    });
}

#[test]
fn d39_without_threads_a_job_that_comes_due_while_another_is_made_is_made() {
    explore_up_to(3, || {
        let story = Story::new(0);
        story.schedule(0, DUE).unwrap();
        let fires = spawn(&story.world, |world| {
            world.fire(DUE);
            world.core.run_callbacks();
        });
        story.schedule(1, DUE).unwrap();
        story.turn();
        fires.join().unwrap();
        // Whoever turned last has left nothing: one more turn finds no more than what was posted during it.
        story.turn();
        assert_eq!(story.made.get(), 2);
        assert_eq!(story.end(Shutdown::Drain), 2);
    });
}

#[test]
fn d39_without_threads_two_who_turn_make_a_run_once() {
    explore_up_to(3, || {
        let story = Story::new(0);
        story.schedule(0, DUE).unwrap();
        story.world.fire(DUE);
        let turns = spawn(&story.world, |world| world.core.run_callbacks());
        story.turn();
        turns.join().unwrap();
        story.turn();
        assert_eq!(story.made.get(), 1);
        assert_eq!(story.end(Shutdown::Drain), 1);
    });
}

#[test]
fn d39_a_run_that_is_aborted_while_it_is_polled_sees_it_or_is_woken() {
    explore(|| {
        let (world, tally) = (World::new(), Tally::new());
        let abort = Answer::new();
        let aborts = {
            let abort = abort.clone();
            spawn(&world, move |world| abort.give(&world.core, Outcome::Cancelled))
        };
        let poll = || abort.poll(&Context::from_waker(&tally.waker()));
        let at_once = poll();
        aborts.join().unwrap();
        assert!(at_once.is_ready() || tally.woken() == 1, "a run that nobody ends");
        assert_eq!(poll(), Poll::Ready(Outcome::Cancelled));
        drop(abort);
        tally.assert_none_lost_or_doubled();
        world.assert_idle();
    });
}
