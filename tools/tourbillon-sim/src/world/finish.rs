//! The end of a world: drops all actors, and checks that nothing is left of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{PATIENCE, SimFailure, SimWorld, WorldResult};
use crate::actors::{self, expiring_map, named, scheduler, timer};
use crate::violation::PromiseViolation;

impl SimWorld {
    /// Drops all actors, shuts the engine down, and checks that nothing is left.
    pub(super) fn finish(mut self) -> WorldResult {
        self.is_swept = false;
        // The slot that one actor leaves may go to another, so the world is observed in between.
        actors::finish(&mut self.sleeps, &mut self.sim);
        actors::finish(&mut self.timeouts, &mut self.sim);
        actors::finish(&mut self.intervals, &mut self.sim);
        actors::finish(&mut self.scopes, &mut self.sim);
        actors::finish(&mut self.bulk_sleeps, &mut self.sim);
        actors::finish(&mut self.streams, &mut self.sim);
        actors::finish(&mut self.queues, &mut self.sim);
        self.observe();
        timer::finish(&mut self.timers, &mut self.sim);
        self.observe();
        named::finish(&mut self.named, &mut self.sim);
        self.observe();
        expiring_map::finish(&mut self.maps, &mut self.sim);
        self.observe();
        scheduler::finish(&mut self.schedulers, &mut self.sim);
        self.sweep();
        self.observe();
        self.check_capacity();
        self.shut_down();
        self.observe();
        let failure = self.sim.model.violation().cloned().map(|violation| SimFailure { violation, step: None });
        match failure {
            Some(failure) => self.give_up(failure),
            None => self.end(),
        }
    }

    /// Checks that all slots are free when no actor is left.
    fn check_capacity(&mut self) {
        let pending = self.sim.engine.stats().pending;
        self.sim.model.expect_eq("P7", "pending timers after all were dropped", pending, 0);
        self.check_free_places();
    }

    /// Checks that all slots that no pending timer holds can be taken, after every woken task has been polled.
    pub(super) fn check_free_places(&mut self) {
        let Some(most) = self.sim.setup.capacity.filter(|_| !self.sim.model.closed) else { return };
        let engine = self.sim.engine.clone();
        let free = most.saturating_sub(engine.stats().pending as usize);
        let all = self.sim.threads.on(0, || {
            let all: Vec<_> = (0..=most).map_while(|_| engine.try_sleep(Duration::MAX).ok()).collect();
            all.len()
        });
        self.sim.model.expect_eq("P7", "free slots", all, free);
    }

    fn end(self) -> WorldResult {
        let SimWorld { sim, trace, .. } = self;
        let recorder = std::sync::Arc::clone(&sim.recorder);
        let mut totals = sim.totals.clone();
        (totals.runs, totals.checks) = (1, sim.model.checks);
        (totals.fires, totals.cancels, totals.stops) = (sim.model.fires, sim.model.cancels, sim.model.stops);
        totals.fault("panics in wakers", recorder.waker_panics.load(Ordering::SeqCst));
        totals.fault("panics in callbacks", recorder.callback_panics.load(Ordering::SeqCst));
        totals.fault("reentrant calls", recorder.reentries.load(Ordering::SeqCst));
        recorder.set_engine(None);
        drop(sim);
        // A callback on the engine's thread may still own values until it returns.
        let start = Instant::now();
        while recorder.live() != 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(20));
        }
        // A thread of the engine may drop its last closure after the last step, so the count is complete only now.
        totals.fault("panics in destructors", recorder.drop_panics.load(Ordering::SeqCst));
        let failure = (recorder.live() != 0).then(|| SimFailure {
            violation: PromiseViolation {
                promise: "P7",
                what: format!("{} wakers, callbacks or jobs were never dropped", recorder.live()),
            },
            step: None,
        });
        WorldResult { totals, hash: trace.hash(), failure }
    }

    /// Drops the rest of the world without checks.
    pub(super) fn give_up(self, failure: SimFailure) -> WorldResult {
        let mut totals = self.sim.totals.clone();
        totals.runs = 1;
        self.sim.recorder.set_engine(None);
        let hash = self.trace.hash();
        let SimWorld {
            sim,
            sleeps,
            timeouts,
            intervals,
            scopes,
            queues,
            timers,
            named,
            schedulers,
            bulk_sleeps,
            streams,
            maps,
            ..
        } = self;
        let _its_own_affair = catch_unwind(AssertUnwindSafe(|| {
            drop((sleeps, timeouts, intervals, scopes, queues, timers, named, schedulers, bulk_sleeps, streams, maps));
            drop(sim);
        }));
        WorldResult { totals, hash, failure: Some(failure) }
    }
}
