//! Compares what can be observed after a step with what the models allow.

use std::sync::atomic::Ordering;

use super::{PATIENCE, SimWorld};
use crate::actors::{bulk_sleeps, expiring_map, named, scheduler, sleep, timer};
use crate::callback_thread::Stuck;
use crate::context::SimContext;
use crate::recorder::{EventKind, NO_TIMER};

impl SimWorld {
    /// Processes the events that the engine has caused.
    pub(super) fn process_events(&mut self) {
        self.sim.note_wakes();
        let mut events = self.sim.recorder.take();
        if let Some(broken) = self.sim.planted {
            broken.distort(&mut events);
        }
        let mut woken = Vec::new();
        for event in events {
            self.trace.event(event);
            if event.clock > self.sim.model.clock {
                self.sim.model.set_clock(event.clock);
            }
            match event.what {
                EventKind::Woken => {
                    let surface = self.sim.model.get(event.id).map_or("", |item| item.surface);
                    let is_exact = match surface {
                        "wait" | "named wait" => true,
                        "scope" | "delay queue" => false,
                        _ => self.sim.has_exact_wakes(),
                    };
                    self.sim.model.woken(event.id, event.clock, is_exact);
                    self.sim.ready.insert(event.id);
                    woken.push(event.id);
                }
                EventKind::CallbackCalled(outcome) => self.sim.model.callback_called(event.id, outcome, event.clock),
                EventKind::ActionDone(result) if result == NO_TIMER => {}
                EventKind::ActionDone(result) if timer::on_action(&mut self.timers, &mut self.sim, event, result) => {}
                EventKind::ActionDone(result) if named::on_action(&mut self.named, &mut self.sim, event, result) => {}
                _ => scheduler::on_event(&mut self.schedulers, &mut self.sim, event),
            }
        }
        // A waker that turns the engine while a batch is woken makes the next batch wake before the rest of this one.
        let is_nested = !self.bulk_sleeps.is_empty() && self.sim.recorder.reentries.load(Ordering::SeqCst) > 0;
        if self.sim.has_exact_wakes() && !self.sim.model.closed && !is_nested {
            self.sim.model.check_order(&woken);
        }
    }

    /// Processes all events, and compares everything that can be observed.
    pub(super) fn observe(&mut self) {
        self.run_callbacks();
        self.process_events();
        if self.sim.model.closed {
            self.is_swept = true;
        } else if self.is_swept && scheduler::needs_prompt(&self.schedulers, &self.sim) {
            scheduler::prompt(&self.schedulers, &mut self.sim);
            self.sweep();
        }
        let now = self.sim.now();
        self.trace.number(now);
        self.sim.model.set_clock(now);
        if self.is_swept {
            self.sim.model.note_sweep(now);
        }
        sleep::observe(&mut self.sleeps, &mut self.sim);
        timer::observe(&mut self.timers, &mut self.sim);
        named::observe(&mut self.named, &mut self.sim);
        expiring_map::observe(&mut self.maps, &mut self.sim);
        scheduler::observe(&mut self.schedulers, &mut self.sim, self.is_swept);
        self.sim.model.check(self.is_swept);
        self.check_stats();
    }

    /// After a shutdown, lets the callback thread run all queued callbacks. Returns whether there were any.
    pub(super) fn run_callbacks(&mut self) -> bool {
        let SimContext { threads, callbacks: Some(callbacks), .. } = &mut self.sim else { return false };
        threads.drive(|_| callbacks.run_waiting(PATIENCE)).unwrap_or_else(|Stuck| self.stuck())
    }

    /// Reports that the callback thread is stuck, and abandons it.
    pub(super) fn stuck(&mut self) -> bool {
        self.sim.callbacks = None;
        self.sim.model.violate("P10", "a callback after the shutdown does not return".to_owned());
        false
    }

    fn check_stats(&mut self) {
        let stats = self.sim.engine.stats();
        let sum = stats.fired + stats.cancelled + stats.stopped + stats.pending;
        self.sim.model.expect_eq("P2", "timers that were armed, and those that ended or are pending", stats.armed, sum);
        self.sim.model.expect_eq("P4", "lateness samples and fires", stats.lateness.count(), stats.fired);
        let recorder = &self.sim.recorder;
        let (wakers, callbacks) =
            (recorder.waker_panics.load(Ordering::SeqCst), recorder.callback_panics.load(Ordering::SeqCst));
        self.sim.model.expect_eq("P6", "wakers that panicked", stats.waker_panics, wakers);
        self.sim.model.expect_eq("P6", "callbacks that panicked", stats.callback_panics, callbacks);
        if let Some(most) = self.sim.setup.capacity {
            self.sim.model.expect_eq(
                "P7",
                "whether more timers are pending than the capacity allows",
                stats.pending > most as u64,
                false,
            );
            self.sim.note_wakes();
            self.sim.others = self.others();
            self.sim.has_slot_forwarders = !self.timers.is_empty() || !self.named.is_empty() || !self.maps.is_empty();
            // A surface without a task of its own has been served when all threads have turned: it is armed, or does not need a
            // slot.
            let others = if self.is_swept { self.others_with_tasks() } else { self.sim.others };
            self.sim.model.check_slots(stats.pending, others);
        }
        let least = (sleep::armed(&self.sleeps, &self.sim) + bulk_sleeps::armed(&self.bulk_sleeps, &self.sim)) as u64;
        let others = (self.timeouts.len() + self.intervals.len() + self.streams.len()) as u64 + self.others();
        if !(least..=least + others).contains(&stats.pending) {
            let what = format!("{} timers are pending, expected {least} and at most {others} others", stats.pending);
            self.sim.model.violate("P7", what);
        }
        if !self.sim.model.closed {
            self.trace.number(stats.armed);
            self.trace.number(stats.fired);
        }
    }

    /// Returns how many timers there may be of the surfaces that the model does not track one by one.
    fn others(&self) -> u64 {
        let without_tasks = self.timers.len() + self.named.len() + self.maps.len() + 2 * self.schedulers.len();
        self.others_with_tasks() + without_tasks as u64
    }

    /// Returns how many of them keep a reserved slot until their tasks are polled.
    fn others_with_tasks(&self) -> u64 {
        (self.queues.len() + 2 * self.scopes.len()) as u64
    }
}
