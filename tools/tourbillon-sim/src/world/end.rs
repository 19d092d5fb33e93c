//! The end of a world: all go, and nothing is left of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{Failure, PATIENCE, Ran, World};
use crate::actors::{self, named, scheduler, timer};
use crate::model::Violation;

impl World {
    /// All go, and nothing is left of them.
    pub(super) fn finish(mut self) -> Ran {
        self.is_swept = false;
        // Room that one leaves may be what another has waited for, so it is looked in between.
        actors::finish(&mut self.sleeps, &mut self.stage);
        actors::finish(&mut self.timeouts, &mut self.stage);
        actors::finish(&mut self.intervals, &mut self.stage);
        actors::finish(&mut self.scopes, &mut self.stage);
        actors::finish(&mut self.crowd, &mut self.stage);
        actors::finish(&mut self.queues, &mut self.stage);
        self.look();
        timer::finish(&mut self.timers, &mut self.stage);
        self.look();
        named::finish(&mut self.named, &mut self.stage);
        self.look();
        scheduler::finish(&mut self.schedulers, &mut self.stage);
        self.sweep();
        self.look();
        self.check_room();
        self.shut_down();
        self.look();
        let failure = self.stage.model.violation().cloned().map(|violation| Failure { violation, step: None });
        match failure {
            Some(failure) => self.give_up(failure),
            None => self.end(),
        }
    }

    /// With nobody there, all the room there is can be had.
    fn check_room(&mut self) {
        let pending = self.stage.engine.stats().pending;
        self.stage.model.same("P7", "timers that are pending when all are gone", pending, 0);
        self.check_free_places();
    }

    /// When every task has been polled that was woken, all places can be had that no pending timer holds.
    pub(super) fn check_free_places(&mut self) {
        let Some(most) = self.stage.setup.capacity.filter(|_| !self.stage.model.closed) else { return };
        let engine = self.stage.engine.clone();
        let free = most.saturating_sub(engine.stats().pending as usize);
        let all = self.stage.threads.on(0, || {
            let all: Vec<_> = (0..=most).map_while(|_| engine.try_sleep(Duration::MAX).ok()).collect();
            all.len()
        });
        self.stage.model.same("P7", "timers for which there is room", all, free);
    }

    fn end(self) -> Ran {
        let World { stage, trace, .. } = self;
        let hub = std::sync::Arc::clone(&stage.hub);
        let mut totals = stage.totals.clone();
        (totals.runs, totals.checks) = (1, stage.model.checks);
        (totals.fires, totals.cancels, totals.stops) = (stage.model.fired, stage.model.cancelled, stage.model.stopped);
        totals.fault("panics in wakers", hub.waker_panics.load(Ordering::SeqCst));
        totals.fault("panics in callbacks", hub.callback_panics.load(Ordering::SeqCst));
        totals.fault("calls from within", hub.reentries.load(Ordering::SeqCst));
        hub.set_engine(None);
        drop(stage);
        // What the last call of a thread of the engine's owned goes with that call.
        let start = Instant::now();
        while hub.live() != 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(20));
        }
        // A thread of the engine may drop its last closure after the last step: before this, the count depends on the machine's load.
        totals.fault("panics in destructors", hub.drop_panics.load(Ordering::SeqCst));
        let failure = (hub.live() != 0).then(|| Failure {
            violation: Violation {
                promise: "P7",
                what: format!("{} wakers, callbacks or jobs were never dropped", hub.live()),
            },
            step: None,
        });
        Ran { totals, hash: trace.hash(), failure }
    }

    /// The rest is dropped as it is.
    pub(super) fn give_up(self, failure: Failure) -> Ran {
        let mut totals = self.stage.totals.clone();
        totals.runs = 1;
        self.stage.hub.set_engine(None);
        let hash = self.trace.hash();
        let World { stage, sleeps, timeouts, intervals, scopes, queues, timers, named, schedulers, crowd, .. } = self;
        let _its_own_affair = catch_unwind(AssertUnwindSafe(|| {
            drop((sleeps, timeouts, intervals, scopes, queues, timers, named, schedulers, crowd));
            drop(stage);
        }));
        Ran { totals, hash, failure: Some(failure) }
    }
}
