//! Models of `Scheduler`, with threads of its own and without, over a simulated engine: see [`timer`](crate::verify::loom::timer).
//!
//! They check the scheduler's own code: its state, its threads and their waits, its wake-up timers. Time moves when the model says so. A
//! job here must not wait for anything of loom's: the scheduler catches the panics of runs, and would catch a report of loom's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use loom::thread::{self, JoinHandle};
use tourbillon_queue::Time;

use super::builder::SchedulerRules;
use super::random::Random;
use super::shared::SchedulerShared;
use super::user_hooks::UserHooks;
use super::{Overlap, Plan, ScheduleErrorKind, Scheduler, SchedulerOwner, Shutdown};
use crate::engine::Engine;
use crate::instant::Instant;
use crate::multi::waiter::OutcomeCell;
use crate::outcome::Outcome;
use crate::time::MissedTickBehavior;
use crate::verify::loom::timer::{ModelEngine, spawn};
use crate::verify::loom::{DUE, LATER, WakerTally, explore, explore_up_to};

/// A scheduler, its simulated engine and its threads.
struct Fixture {
    model: ModelEngine,
    scheduler: Scheduler<u8>,
    threads: Vec<JoinHandle<()>>,
    made: Made,
}

/// How many runs were made. (In an atomic that loom does not see.)
#[derive(Clone, Default)]
struct Made(Arc<AtomicU64>);

impl Made {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Waits until `count` runs are made. If a run is lost the wait does not end, which loom reports.
    fn wait_for(&self, count: u64) {
        while self.get() < count {
            thread::yield_now();
        }
    }
}

impl Fixture {
    fn new(threads: usize) -> Fixture {
        let model = ModelEngine::new();
        let rules = SchedulerRules {
            overflow: super::Overflow::Wait,
            queue: 8,
            capacity: 8,
            overlap: Overlap::Skip,
            missed: MissedTickBehavior::Skip,
            slack: None,
        };
        let hooks = UserHooks::new(None, None);
        let random = Random::new(1);
        let engine = Engine::of_core(model.core.clone());
        let shared = SchedulerShared::new(model.core.clone(), threads, rules, hooks, random);
        let scheduler = Scheduler { owner: Arc::new(SchedulerOwner::new(shared, engine.clone(), None)) };
        let shared = &scheduler.owner.shared;
        let _first = shared.owner.set(Arc::downgrade(&scheduler.owner));
        shared.unlock_changed(shared.lock());
        let threads = (0..threads)
            .map(|_| {
                let (shared, engine) = (Arc::clone(shared), engine.clone());
                thread::spawn(move || shared.run_thread(&engine))
            })
            .collect();
        Fixture { model, scheduler, threads, made: Made::default() }
    }

    /// Returns a plan to run once, at this time.
    fn plan(&self, due: Time) -> Plan {
        let instant = Instant::from_std(self.model.core.clock.std_of(due));
        Plan::every(std::time::Duration::from_secs(1)).times(1).first_at(instant)
    }

    fn schedule(&self, key: u8, due: Time) -> Result<(), ScheduleErrorKind> {
        let made = self.made.clone();
        let job = move |_: &_| _ = made.0.fetch_add(1, Ordering::Relaxed);
        self.scheduler.schedule(key, self.plan(due), job).map(drop).map_err(|error| error.kind)
    }

    /// Turns the engine, which does the work of a scheduler without threads.
    fn turn(&self) {
        self.model.core.run_callbacks();
    }

    /// Shuts the scheduler down, waits for its threads, and returns how many runs were made.
    fn end(self, how: Shutdown) -> u64 {
        let Fixture { model, scheduler, threads, made } = self;
        let ending = scheduler.shutdown(how);
        model.core.run_callbacks();
        ending.wait();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let stats = scheduler.stats();
        assert_eq!((stats.running, stats.waiting, stats.runs), (0, 0, made.get()));
        drop((ending, scheduler));
        model.core.run_callbacks();
        model.assert_idle();
        made.get()
    }
}

#[test]
fn d39_a_job_that_comes_due_while_a_thread_goes_to_sleep_is_made() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        let fires = spawn(&fixture.model, |model| model.fire(DUE));
        fixture.schedule(0, DUE).unwrap();
        fires.join().unwrap();
        fixture.made.wait_for(1);
        assert_eq!(fixture.end(Shutdown::Abort), 1);
    });
}

#[test]
fn d39_an_earlier_job_that_is_scheduled_while_time_comes_is_made() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, LATER).unwrap();
        let fires = spawn(&fixture.model, |model| model.fire(DUE));
        fixture.schedule(1, DUE).unwrap();
        fires.join().unwrap();
        fixture.made.wait_for(1);
        assert_eq!(fixture.end(Shutdown::Abort), 1);
    });
}

#[test]
fn d39_a_job_scheduled_while_another_fires_is_made_when_its_time_comes() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, DUE).unwrap();
        let fires = spawn(&fixture.model, |model| model.fire(DUE));
        fixture.schedule(1, LATER).unwrap();
        fires.join().unwrap();
        fixture.made.wait_for(1);
        fixture.model.fire(LATER);
        fixture.made.wait_for(2);
        assert_eq!(fixture.end(Shutdown::Abort), 2);
    });
}

#[test]
fn d39_two_threads_make_what_is_due_once_and_both_end() {
    explore_up_to(3, || {
        let fixture = Fixture::new(2);
        fixture.schedule(0, DUE).unwrap();
        fixture.schedule(1, DUE).unwrap();
        fixture.model.fire(DUE);
        assert_eq!(fixture.end(Shutdown::Drain), 2);
    });
}

#[test]
fn d28_threads_that_have_found_nothing_hear_of_the_end() {
    explore_up_to(3, || {
        let fixture = Fixture::new(2);
        assert_eq!(fixture.end(Shutdown::Drain), 0);
    });
}

#[test]
fn d19_a_job_that_is_removed_while_it_comes_due_begins_before_or_never() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, DUE).unwrap();
        let fires = spawn(&fixture.model, |model| model.fire(DUE));
        let was_there = fixture.scheduler.remove(&0);
        let runs = fixture.scheduler.stats().runs;
        fires.join().unwrap();
        let made = fixture.end(Shutdown::Drain);
        assert_eq!(made, runs, "a run that began after its job was removed");
        assert!(was_there || made == 1);
    });
}

#[test]
fn g5_a_job_that_comes_due_during_a_stop_and_a_start_is_made_or_missed() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, DUE).unwrap();
        let fires = spawn(&fixture.model, |model| model.fire(DUE));
        fixture.scheduler.stop();
        fixture.scheduler.start();
        fires.join().unwrap();
        // Its time equals that of the start, so it is not missed.
        fixture.made.wait_for(1);
        assert_eq!(fixture.end(Shutdown::Abort), 1);
    });
}

#[test]
fn d28_d32_a_job_that_is_scheduled_while_the_engine_ends_is_refused_or_gone() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        let stops = spawn(&fixture.model, ModelEngine::stop);
        let scheduled = fixture.schedule(0, DUE);
        assert!(matches!(scheduled, Ok(()) | Err(ScheduleErrorKind::ShutDown)));
        stops.join().unwrap();
        assert!(!fixture.scheduler.is_running() && fixture.scheduler.is_empty());
        assert_eq!(fixture.schedule(1, DUE), Err(ScheduleErrorKind::ShutDown));
        assert_eq!(fixture.end(Shutdown::Drain), 0);
    });
}

#[test]
fn d28_of_two_threads_that_end_it_at_once_both_see_the_end() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, LATER).unwrap();
        let other = {
            let scheduler = fixture.scheduler.clone();
            thread::spawn(move || scheduler.shutdown(Shutdown::Abort).wait())
        };
        fixture.scheduler.shutdown(Shutdown::Drain).wait();
        other.join().unwrap();
        assert_eq!(fixture.end(Shutdown::Drain), 0);
    });
}

#[test]
fn e5_of_two_threads_that_upsert_a_key_one_inserts_and_the_other_replaces() {
    explore_up_to(3, || {
        let fixture = Fixture::new(0);
        let (scheduler, plan) = (fixture.scheduler.clone(), fixture.plan(LATER));
        let other = thread::spawn(move || scheduler.upsert(0, plan, |_| ()).unwrap().is_replaced());
        let is_replaced = fixture.scheduler.upsert(0, fixture.plan(LATER), |_| ()).unwrap().is_replaced();
        assert_ne!(is_replaced, other.join().unwrap());
        assert_eq!(fixture.scheduler.len(), 1);
        assert_eq!(fixture.end(Shutdown::Abort), 0);
    });
}

#[test]
fn e5_a_run_now_while_a_thread_goes_to_sleep_is_made() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, LATER).unwrap();
        fixture.scheduler.run_now(&0).unwrap();
        fixture.made.wait_for(1);
        assert_eq!(fixture.end(Shutdown::Abort), 1);
    });
}

#[test]
fn e5_a_job_that_is_removed_during_a_run_now_begins_before_or_never() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        fixture.schedule(0, LATER).unwrap();
        let scheduler = fixture.scheduler.clone();
        let runs = thread::spawn(move || scheduler.run_now(&0).is_ok());
        assert!(fixture.scheduler.remove(&0));
        let begun = fixture.scheduler.stats().runs;
        let is_queued = runs.join().unwrap();
        let made = fixture.end(Shutdown::Drain);
        assert_eq!(made, begun, "a run that began after its job was removed");
        assert!(is_queued || made == 0);
    });
}

#[test]
fn e5_a_retry_that_is_planned_while_time_comes_is_made() {
    explore_up_to(3, || {
        let fixture = Fixture::new(1);
        let made = fixture.made.clone();
        let job = move |run: &super::Run<u8>| {
            made.0.fetch_add(1, Ordering::Relaxed);
            if run.attempt() == 1 { Err("once") } else { Ok(()) }
        };
        let backoff = super::Backoff::fixed(std::time::Duration::from_nanos(100));
        fixture.scheduler.schedule(0, fixture.plan(DUE).retry(1, backoff), job).unwrap();
        fixture.model.fire(DUE);
        fixture.made.wait_for(1);
        // The run ends before this or after it, so the retry is due now or a hundred nanoseconds later.
        fixture.model.fire(LATER);
        while fixture.made.get() < 2 && fixture.scheduler.stats().failed == 0 {
            thread::yield_now();
        }
        fixture.model.fire(Time::from_nanos(300));
        fixture.made.wait_for(2);
        assert_eq!(fixture.end(Shutdown::Abort), 2);
    });
}

#[test]
fn d39_without_threads_a_job_that_comes_due_while_another_is_made_is_made() {
    explore_up_to(3, || {
        let fixture = Fixture::new(0);
        fixture.schedule(0, DUE).unwrap();
        let fires = spawn(&fixture.model, |model| {
            model.fire(DUE);
            model.core.run_callbacks();
        });
        fixture.schedule(1, DUE).unwrap();
        fixture.turn();
        fires.join().unwrap();
        // The last turn has left nothing but the callbacks that were posted during it.
        fixture.turn();
        assert_eq!(fixture.made.get(), 2);
        assert_eq!(fixture.end(Shutdown::Drain), 2);
    });
}

#[test]
fn d39_without_threads_two_that_turn_make_a_run_once() {
    explore_up_to(3, || {
        let fixture = Fixture::new(0);
        fixture.schedule(0, DUE).unwrap();
        fixture.model.fire(DUE);
        let turns = spawn(&fixture.model, |model| model.core.run_callbacks());
        fixture.turn();
        turns.join().unwrap();
        fixture.turn();
        assert_eq!(fixture.made.get(), 1);
        assert_eq!(fixture.end(Shutdown::Drain), 1);
    });
}

#[test]
fn d39_a_run_that_is_aborted_while_it_is_polled_sees_it_or_is_woken() {
    explore(|| {
        let (model, tally) = (ModelEngine::new(), WakerTally::new());
        let abort = OutcomeCell::new();
        let aborts = {
            let abort = abort.clone();
            spawn(&model, move |model| abort.set(&model.core, Outcome::Cancelled))
        };
        let poll = || abort.poll(&Context::from_waker(&tally.waker()));
        let at_once = poll();
        aborts.join().unwrap();
        assert!(at_once.is_ready() || tally.woken() == 1, "a run that is never ended");
        assert_eq!(poll(), Poll::Ready(Outcome::Cancelled));
        drop(abort);
        tally.assert_none_lost_or_doubled();
        model.assert_idle();
    });
}
