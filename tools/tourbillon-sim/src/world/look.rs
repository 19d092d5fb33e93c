//! What can be seen after a step, compared with what may be.

use std::sync::atomic::Ordering;

use super::{PATIENCE, World};
use crate::actors::{crowd, named, scheduler, sleep, timer};
use crate::callbacks::Stuck;
use crate::hub::{NOBODY, What};
use crate::stage::Stage;

impl World {
    /// Takes in what the engine has done.
    pub(super) fn absorb(&mut self) {
        self.stage.hear_wakes();
        let mut events = self.stage.hub.take();
        if let Some(broken) = self.stage.broken {
            broken.distort(&mut events);
        }
        let mut woken = Vec::new();
        for event in events {
            self.trace.event(event);
            if event.clock > self.stage.model.clock {
                self.stage.model.clock_shows(event.clock);
            }
            match event.what {
                What::Woken => {
                    let surface = self.stage.model.get(event.id).map_or("", |item| item.surface);
                    let is_exact = match surface {
                        "wait" | "named wait" => true,
                        "scope" | "delay queue" => false,
                        _ => self.stage.is_exact(),
                    };
                    self.stage.model.woken(event.id, event.clock, is_exact);
                    self.stage.ready.insert(event.id);
                    woken.push(event.id);
                }
                What::Told(outcome) => self.stage.model.told(event.id, outcome, event.clock),
                What::Did(result) if result == NOBODY => {}
                What::Did(result) if timer::did(&mut self.timers, &mut self.stage, event, result) => {}
                What::Did(result) if named::did(&mut self.named, &mut self.stage, event, result) => {}
                _ => scheduler::heard(&mut self.schedulers, &mut self.stage, event),
            }
        }
        // Who turns the engine while a batch is woken has the next batch woken before the rest of it.
        let is_nested = !self.crowd.is_empty() && self.stage.hub.reentries.load(Ordering::SeqCst) > 0;
        if self.stage.is_exact() && !self.stage.model.closed && !is_nested {
            self.stage.model.check_order(&woken);
        }
    }

    /// Takes in what has happened, and compares all that can be seen.
    pub(super) fn look(&mut self) {
        self.run_callbacks();
        self.absorb();
        if self.stage.model.closed {
            self.is_swept = true;
        } else if self.is_swept && scheduler::is_to_be_asked(&self.schedulers, &self.stage) {
            scheduler::ask(&self.schedulers, &mut self.stage);
            self.sweep();
        }
        let now = self.stage.now();
        self.trace.number(now);
        self.stage.model.clock_shows(now);
        if self.is_swept {
            self.stage.model.swept(now);
        }
        sleep::observe(&mut self.sleeps, &mut self.stage);
        timer::observe(&mut self.timers, &mut self.stage);
        named::observe(&mut self.named, &mut self.stage);
        scheduler::observe(&mut self.schedulers, &mut self.stage, self.is_swept);
        self.stage.model.check(self.is_swept);
        self.check_stats();
    }

    /// After a shutdown, lets the callback thread run all callbacks that wait. Returns whether there were any.
    pub(super) fn run_callbacks(&mut self) -> bool {
        let Stage { threads, callbacks: Some(callbacks), .. } = &mut self.stage else { return false };
        threads.drive(|_| callbacks.run_waiting(PATIENCE)).unwrap_or_else(|Stuck| self.stuck())
    }

    /// Notes that the callback thread does not go on, and leaves it to itself.
    pub(super) fn stuck(&mut self) -> bool {
        self.stage.callbacks = None;
        self.stage.model.violate("P10", "a callback after the shutdown does not return".to_owned());
        false
    }

    fn check_stats(&mut self) {
        let stats = self.stage.engine.stats();
        let sum = stats.fired + stats.cancelled + stats.stopped + stats.pending;
        self.stage.model.same("P2", "armed, and what became of it", stats.armed, sum);
        self.stage.model.same("P4", "fires and their lateness", stats.lateness.count(), stats.fired);
        let hub = &self.stage.hub;
        let (wakers, callbacks) = (hub.waker_panics.load(Ordering::SeqCst), hub.callback_panics.load(Ordering::SeqCst));
        self.stage.model.same("P6", "wakers that panicked", stats.waker_panics, wakers);
        self.stage.model.same("P6", "callbacks that panicked", stats.callback_panics, callbacks);
        if let Some(most) = self.stage.setup.capacity {
            self.stage.model.same("P7", "more timers than there is room for", stats.pending > most as u64, false);
            self.stage.hear_wakes();
            self.stage.others = self.others();
            self.stage.has_passing = !self.timers.is_empty() || !self.named.is_empty();
            // What has no task of its own has been served when all was turned: it is armed, or has no use for a place.
            let others = if self.is_swept { self.others_with_tasks() } else { self.stage.others };
            self.stage.model.check_waiters(stats.pending, others);
        }
        let least = (sleep::armed(&self.sleeps, &self.stage) + crowd::armed(&self.crowd, &self.stage)) as u64;
        let others = (self.timeouts.len() + self.intervals.len()) as u64 + self.others();
        if !(least..=least + others).contains(&stats.pending) {
            let what =
                format!("{} timers are pending, and should be {least} and at most {others} others", stats.pending);
            self.stage.model.violate("P7", what);
        }
        if !self.stage.model.closed {
            self.trace.number(stats.armed);
            self.trace.number(stats.fired);
        }
    }

    /// How many timers there may be of the surfaces that the model does not follow one by one.
    fn others(&self) -> u64 {
        let without_tasks = self.timers.len() + self.named.len() + 2 * self.schedulers.len();
        self.others_with_tasks() + without_tasks as u64
    }

    /// The same for those that keep a reserved place until their tasks are polled.
    fn others_with_tasks(&self) -> u64 {
        (self.queues.len() + 2 * self.scopes.len()) as u64
    }
}
