//! Intervals with each of the three behaviors for missed ticks.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::time::{Interval, MissedTickBehavior, interval_at};
use tourbillon::{Outcome, Span};

use super::{MOST, TaskActor};
use crate::context::{SimContext, add, engine_time};
use crate::plan::{SimSetup, after};
use crate::random_source::RandomSource;
use crate::recorder::{Behavior, Id};
use crate::timer_model::{ModelState, NEVER, ObservedBy};

/// An operation on an interval.
#[derive(Clone, Copy, Debug)]
pub enum IntervalOp {
    /// Creates an interval.
    New { thread: usize, after: Duration, period: Duration, missed: MissedTickBehavior },
    /// Polls the interval, also if its task was not woken.
    Poll { which: usize, thread: usize },
    /// Sets its next tick to a time from now.
    ResetAfter { which: usize, thread: usize, after: Duration },
    /// Sets its next tick to one period from now.
    Reset { which: usize, thread: usize },
    /// Sets another behavior for missed ticks.
    Missed { which: usize, missed: MissedTickBehavior },
    /// Drops the interval.
    Drop { which: usize, thread: usize },
}

/// An interval and what is expected of it.
pub struct IntervalActor {
    id: Id,
    interval: Interval,
    waker: Waker,
    next: u64,
}

/// A tick that is later than this counts as missed, as documented.
const TOLERANCE: Span = Span::from_millis(5);

/// Most ticks that one poll of the task takes.
const IN_A_ROW: usize = 4;

impl IntervalOp {
    /// Returns a random operation.
    pub fn random(random: &mut RandomSource<'_>, setup: &SimSetup) -> IntervalOp {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        let missed = random.one_of(&[MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]);
        let after = after(random, setup);
        let period = Duration::from_nanos(setup.scale / 16 + 1 + random.below(setup.scale));
        match random.below(12) {
            0..3 => IntervalOp::New { thread, after, period, missed },
            3..7 => IntervalOp::Poll { which, thread },
            7 => IntervalOp::ResetAfter { which, thread, after },
            8 => IntervalOp::Reset { which, thread },
            9 => IntervalOp::Missed { which, missed },
            _ => IntervalOp::Drop { which, thread },
        }
    }
}

impl TaskActor for IntervalActor {
    fn id(&self) -> Id {
        self.id
    }

    /// Takes ticks until none is ready.
    fn poll(actors: &mut Vec<IntervalActor>, sim: &mut SimContext, index: usize, thread: usize) {
        let Some(actor) = actors.get_mut(index) else { return };
        sim.ready.remove(&actor.id);
        for _ in 0..IN_A_ROW {
            let IntervalActor { id, interval, waker, next } = actor;
            let before = sim.model.get(*id).map(|item| item.state);
            let polled = sim.poll(*id, thread, || interval.poll_tick(&mut Context::from_waker(waker)));
            if sim.model.closed {
                // The first tick after the shutdown is ready at once. Later ticks are not compared.
                if before == Some(ModelState::Pending) || polled.is_ready() {
                    sim.model.expect_eq("P6", "a tick after a shutdown", polled.is_ready(), true);
                }
                let actor = actors.swap_remove(index);
                return actor.leave(sim, thread);
            }
            let Poll::Ready(tick) = polled else {
                return sim.found_pending(*id, thread, before, *next, "interval");
            };
            sim.model.ended(*id, Outcome::Fired);
            let tick = sim.time_of(tick);
            sim.model.expect_eq("P1", "the time of a tick", tick, *next);
            *next = next_tick(*next, sim.now(), interval.period(), interval.missed_tick_behavior());
            sim.model.set_idle(*id);
            sim.model.set(*id, *next, sim.setup.slack.grid());
        }
        // There may be more ticks; the task yields, and is polled again.
        sim.ready.insert(actors[index].id);
    }

    fn leave(self, sim: &mut SimContext, thread: usize) {
        sim.forget_timer(self.id);
        sim.threads.on(thread, || drop(self.interval));
    }
}

/// Performs an operation.
pub fn step(actors: &mut Vec<IntervalActor>, sim: &mut SimContext, op: IntervalOp) {
    let (which, thread) = match op {
        IntervalOp::New { thread, after, period, missed } => {
            if actors.len() < MOST / 4 {
                actors.push(create(sim, thread, after, period, missed));
            }
            return;
        }
        IntervalOp::Missed { which, .. } => (which, 0),
        IntervalOp::Poll { which, thread }
        | IntervalOp::ResetAfter { which, thread, .. }
        | IntervalOp::Reset { which, thread }
        | IntervalOp::Drop { which, thread } => (which, thread),
    };
    let Some(index) = which.checked_rem(actors.len()) else { return };
    // Only a poll shows whether a timer that was woken has ended or has a slot.
    if matches!(op, IntervalOp::Reset { .. } | IntervalOp::ResetAfter { .. }) && sim.model.is_woken(actors[index].id) {
        let count = actors.len();
        IntervalActor::poll(actors, sim, index, thread);
        if actors.len() < count {
            return;
        }
    }
    let actor = &mut actors[index];
    match op {
        IntervalOp::New { .. } => {}
        IntervalOp::Poll { .. } => IntervalActor::poll(actors, sim, index, thread),
        IntervalOp::ResetAfter { after, .. } => {
            sim.threads.on(thread, || actor.interval.reset_after(after));
            note_next_tick(actor, sim, thread, after);
        }
        IntervalOp::Reset { .. } => {
            let period = actor.interval.period();
            sim.threads.on(thread, || actor.interval.reset());
            note_next_tick(actor, sim, thread, period);
        }
        IntervalOp::Missed { missed, .. } => actor.interval.set_missed_tick_behavior(missed),
        IntervalOp::Drop { .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(sim, thread);
        }
    }
}

fn create(
    sim: &mut SimContext,
    thread: usize,
    after: Duration,
    period: Duration,
    missed: MissedTickBehavior,
) -> IntervalActor {
    let next = sim.due_after(after);
    let start = sim.instant_of(next);
    let interval = sim.threads.on(thread, || {
        let mut interval = interval_at(start, period);
        interval.set_missed_tick_behavior(missed);
        interval
    });
    let id = sim.model.add("interval", ObservedBy::Waking);
    sim.model.set(id, next, sim.setup.slack.grid());
    let waker = sim.waker(id, Behavior::Normal);
    IntervalActor { id, interval, waker, next }
}

/// Computes the tick after `tick`.
fn next_tick(tick: u64, now: u64, period: Duration, missed: MissedTickBehavior) -> u64 {
    let is_late = now > tick.saturating_add(TOLERANCE.as_nanos());
    match missed {
        MissedTickBehavior::Delay if is_late => add(now, period),
        MissedTickBehavior::Skip if is_late => {
            let (tick, now, period) = (u128::from(tick), u128::from(now), period.as_nanos());
            let next = tick + ((now - tick) / period + 1) * period;
            engine_time(u64::try_from(next).unwrap_or(NEVER))
        }
        _ => add(tick, period),
    }
}

/// Notes that the next tick is `after` from now.
fn note_next_tick(actor: &mut IntervalActor, sim: &mut SimContext, thread: usize, after: Duration) {
    let id = actor.id;
    actor.next = sim.due_after(after);
    sim.reset(id, thread, actor.next, sim.setup.slack.grid());
    if sim.model.get(id).is_some_and(|item| item.signals > 0 || item.state != ModelState::Pending) {
        sim.model.set_idle(id);
    }
}
