//! One thread with many sleeps: it arms, moves, cancels and hands them over, and checks those that have fired.
//!
//! A fire is compared with the independent clock. `now` is read before the timer is created, so the engine's deadline is at least
//! `now + duration`; and again in the waker, after the engine has fired the timer. So a punctual timer is never found early, and
//! a timer that is early by more than those few instructions is found.

use std::pin::Pin;
use std::sync::Barrier;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{Outcome, Slack};
use tourbillon_tools::Random;

use super::check_run::CheckRun;
use super::disturb::drop_elsewhere;
use super::duration_pace::DurationPace;
use super::promise::Promise;
use super::sleep_slot::SleepSlot;
use super::sleeps::{Slacks, SleepPlan};
use super::stall_detector::StallDetector;
use super::tally::SurfaceTally;
use crate::clock::nanos;

/// One thread and its sleeps.
pub(crate) struct SleepThread<'a> {
    pub(super) check: &'a CheckRun,
    pub(super) plan: &'a SleepPlan,
    pub(super) random: Random,
    pub(super) pace: DurationPace,
    overdue: StallDetector,
    pub(super) slots: Vec<SleepSlot>,
    ready: Receiver<u32>,
    /// Sleeps that another thread hands to this one, and the channel to the next thread.
    inbox: Receiver<Pin<Box<Sleep>>>,
    pub(super) neighbour: Sender<Pin<Box<Sleep>>>,
    pub(super) tally: SurfaceTally,
    pub(super) moves: u64,
}

/// How often a thread looks for sleeps that have fired.
const LOOK: Duration = Duration::from_millis(1);
/// The adaptive slack, and the error of reading the clock.
const ADAPTIVE: Duration = Duration::from_millis(2);
const COARSE: Duration = Duration::from_millis(1);

impl<'a> SleepThread<'a> {
    pub(crate) fn new(
        check: &'a CheckRun,
        plan: &'a SleepPlan,
        thread: usize,
        inbox: Receiver<Pin<Box<Sleep>>>,
        neighbour: Sender<Pin<Box<Sleep>>>,
    ) -> SleepThread<'a> {
        let (sender, ready) = channel();
        let many = (plan.timers / plan.threads).max(1);
        let slot = |index| SleepSlot::new(index as u32, plan.clock, sender.clone(), plan.engine.sleep(Duration::ZERO));
        SleepThread {
            check,
            plan,
            random: check.random(plan.surface, thread),
            pace: DurationPace::new(check.timers),
            overdue: StallDetector::default(),
            slots: (0..many).map(slot).collect(),
            ready,
            inbox,
            neighbour,
            tally: SurfaceTally::new(plan.surface),
            moves: 0,
        }
    }

    /// Runs the thread. Returns its tally, and how often it moved a deadline.
    pub(crate) fn run(mut self, meeting: &Barrier) -> (SurfaceTally, u64) {
        for index in 0..self.slots.len() {
            if !self.check.is_under_load() {
                break;
            }
            self.arm(index);
        }
        while self.check.is_under_load() {
            self.check_fired(|sleeper, index| {
                sleeper.arm(index);
                sleeper.disturb();
            });
            self.inbox.try_iter().enumerate().for_each(|(place, sleep)| drop_elsewhere(place, sleep));
        }
        self.drain();
        // No thread hands over sleeps any more, so the inbox is complete.
        meeting.wait();
        self.inbox.try_iter().for_each(drop);
        if meeting.wait().is_leader() {
            self.plan.engine.shutdown();
        }
        meeting.wait();
        self.finish();
        (self.tally, self.moves)
    }

    /// Checks the sleeps that have fired, and calls `then` for each. If none has, it sleeps for a while: if it waited for the
    /// channel instead, every waker would have to wake this thread, at a high cost for the driver.
    fn check_fired(&mut self, mut then: impl FnMut(&mut Self, usize)) {
        // A bound on the sleeps before the caller reads the clock again.
        for looked_at in 0..1024 {
            let Ok(index) = self.ready.try_recv() else {
                if looked_at == 0 {
                    thread::sleep(LOOK);
                }
                return;
            };
            let index = index as usize;
            if self.slots[index].is_armed && self.slots[index].poll().is_ready() {
                self.count_ended(index);
                then(self, index);
            }
        }
    }

    /// Arms the sleep of a slot again.
    pub(super) fn arm(&mut self, index: usize) {
        let (slack, late, is_adaptive) = self.slack();
        // A sleep that is over before its first poll was never armed. Then a longer one is tried.
        for attempt in 0..16 {
            let duration = self.pace.duration(&mut self.random) + Duration::from_micros((1 << attempt) - 1);
            // The planted fault: the audit expects a longer duration.
            let is_short = self.check.breaks(Promise::P1) && self.random.one_in(100);
            let expected = if is_short { duration + Duration::from_secs(1) } else { duration };
            let before = self.plan.clock.now();
            let slot = &mut self.slots[index];
            slot.sleep.as_mut().set(self.plan.engine.sleep(duration).slack(slack));
            (slot.due, slot.slack, slot.is_adaptive) = (before + nanos(expected), nanos(late), is_adaptive);
            match slot.poll() {
                Poll::Pending => {
                    slot.due_by = self.plan.clock.now() + nanos(expected);
                    slot.is_armed = true;
                    self.tally.armed += 1;
                    return;
                }
                Poll::Ready(()) => {
                    let due = slot.due;
                    self.tally.check(due, self.plan.clock.now());
                }
            }
        }
    }

    /// Returns a random slack. Exact and precise timers cost a wake-up each, so they are few.
    fn slack(&mut self) -> (Slack, Duration, bool) {
        let kind = if self.plan.slacks == Slacks::Mixed { self.random.below(32) } else { 31 };
        match kind {
            0 => (Slack::precise(), Duration::ZERO, false),
            1..3 => (Slack::exact(), Duration::ZERO, false),
            3..16 => (Slack::up_to(COARSE), COARSE, false),
            _ => (Slack::adaptive(), ADAPTIVE, true),
        }
    }

    /// Counts a sleep that has ended, and checks its time.
    pub(super) fn count_ended(&mut self, index: usize) {
        let (slot, tally) = (&mut self.slots[index], &mut self.tally);
        let outcome = slot.sleep.outcome().unwrap_or(Outcome::Fired);
        let woken_at = slot.woken_at();
        let seen = woken_at.unwrap_or_else(|| self.plan.clock.now());
        tally.count(outcome);
        if outcome == Outcome::Fired {
            tally.check(slot.due, seen);
        }
        // Lateness is known only if the waker was called for this timer at a known time.
        if let Some(woken_at) = woken_at {
            let latest = slot.due_by.saturating_add(slot.slack);
            if self.overdue.is_stall(&self.check.reference, latest, woken_at) {
                tally.stalled(latest, woken_at);
            }
            if outcome == Outcome::Fired {
                self.overdue.fired(slot.due, woken_at);
            }
            if outcome == Outcome::Fired && slot.is_adaptive {
                let late = woken_at.saturating_sub(slot.due_by);
                tally.lateness.saturating_record(late);
                self.pace.record_lateness(late);
            }
        }
        slot.clear();
    }

    /// Waits until no sleep is overdue that was due when the load ended, as long as any fires.
    fn drain(&mut self) {
        let now = self.plan.clock.now();
        let is_overdue = |slot: &SleepSlot| slot.is_armed && slot.due + slot.slack < now;
        let mut wait_limit = self.check.reference.wait_limit();
        let mut before = usize::MAX;
        loop {
            self.check_fired(|_, _| {});
            let overdue = self.slots.iter().filter(|slot| is_overdue(slot)).count();
            if overdue == 0 || (overdue == before && wait_limit.is_over()) {
                return;
            }
            if overdue != before {
                (before, wait_limit) = (overdue, self.check.reference.wait_limit());
            }
        }
    }

    /// Checks after the shutdown that every sleep has ended.
    fn finish(&mut self) {
        for index in 0..self.slots.len() {
            if !self.slots[index].is_armed {
                continue;
            }
            match self.slots[index].poll() {
                Poll::Ready(()) => self.count_ended(index),
                Poll::Pending => {
                    let what = format!("{}: a sleep is pending after the shutdown of its engine", self.plan.surface);
                    self.tally.complain(Promise::P2, what);
                }
            }
        }
    }
}
