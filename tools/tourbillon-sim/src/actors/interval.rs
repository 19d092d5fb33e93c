//! Intervals with each of the three ways to make up for missed ticks.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::Outcome;
use tourbillon::time::{Interval, MissedTickBehavior, interval_at};

use super::{MOST, Player};
use crate::hub::{Id, Manner};
use crate::model::{NEVER, SeenBy, State};
use crate::plan::{Setup, after};
use crate::random::Random;
use crate::stage::{Stage, add, known};

/// What can be done with an interval.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// A new one.
    New { thread: usize, after: Duration, period: Duration, missed: MissedTickBehavior },
    /// It is polled, also without having been woken.
    Poll { which: usize, thread: usize },
    /// Its next tick is after so long.
    ResetAfter { which: usize, thread: usize, after: Duration },
    /// Its next tick is after one period.
    Reset { which: usize, thread: usize },
    /// It makes up for missed ticks in another way.
    Missed { which: usize, missed: MissedTickBehavior },
    /// It is dropped.
    Drop { which: usize, thread: usize },
}

/// One interval.
pub struct Actor {
    id: Id,
    interval: Interval,
    waker: Waker,
    next: u64,
}

/// Later than this, a tick counts as missed: so it is documented.
const TOLERANCE: u64 = 5_000_000;

/// So many ticks are taken in one poll of the task.
const IN_A_ROW: usize = 4;

impl Op {
    /// Any.
    pub fn random(random: &mut Random, setup: &Setup) -> Op {
        let (which, thread) = (random.index(MOST), random.index(setup.threads));
        let missed = random.one_of(&[MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip]);
        let after = after(random, setup);
        let period = Duration::from_nanos(setup.scale / 16 + 1 + random.below(setup.scale));
        match random.below(12) {
            0..3 => Op::New { thread, after, period, missed },
            3..7 => Op::Poll { which, thread },
            7 => Op::ResetAfter { which, thread, after },
            8 => Op::Reset { which, thread },
            9 => Op::Missed { which, missed },
            _ => Op::Drop { which, thread },
        }
    }
}

impl Player for Actor {
    fn id(&self) -> Id {
        self.id
    }

    /// Takes ticks until there is none.
    fn poll(actors: &mut Vec<Actor>, stage: &mut Stage, index: usize, thread: usize) {
        let Some(actor) = actors.get_mut(index) else { return };
        stage.ready.remove(&actor.id);
        for _ in 0..IN_A_ROW {
            let Actor { id, interval, waker, next } = actor;
            let before = stage.model.get(*id).map(|item| item.state);
            let polled = stage.poll(*id, thread, || interval.poll_tick(&mut Context::from_waker(waker)));
            if stage.model.closed {
                // The first tick after the shutdown is ready at once; of the others this is not the place to tell.
                if before == Some(State::Pending) || polled.is_ready() {
                    stage.model.same("P6", "a tick after a shutdown", polled.is_ready(), true);
                }
                let actor = actors.swap_remove(index);
                return actor.leave(stage, thread);
            }
            let Poll::Ready(tick) = polled else {
                stage.model.still_pending(*id);
                if before == Some(State::Idle) {
                    if *next <= stage.now() {
                        stage.model.violate("P4", format!("interval {id} is past and was armed"));
                    }
                    let place = stage.place(thread, stage.setup.slack.is_strict());
                    stage.model.pend(*id, place);
                }
                return;
            };
            stage.model.end(*id, Outcome::Fired);
            let tick = stage.time_of(tick);
            stage.model.same("P1", "the time of a tick", tick, *next);
            *next = next_tick(*next, stage.now(), interval.period(), interval.missed_tick_behavior());
            stage.model.idle(*id);
            stage.model.set(*id, *next, stage.setup.slack.grid());
        }
        // It has not had all; its task yields, and comes again.
        stage.ready.insert(actors[index].id);
    }

    fn leave(self, stage: &mut Stage, thread: usize) {
        stage.ready.remove(&self.id);
        if stage.model.is_pending(self.id) {
            stage.model.cancel(self.id);
        }
        stage.model.forget(self.id);
        stage.threads.on(thread, || drop(self.interval));
    }
}

/// Does it.
pub fn step(actors: &mut Vec<Actor>, stage: &mut Stage, op: Op) {
    let (which, thread) = match op {
        Op::New { thread, after, period, missed } => {
            if actors.len() < MOST / 4 {
                actors.push(create(stage, thread, after, period, missed));
            }
            return;
        }
        Op::Missed { which, .. } => (which, 0),
        Op::Poll { which, thread }
        | Op::ResetAfter { which, thread, .. }
        | Op::Reset { which, thread }
        | Op::Drop { which, thread } => (which, thread),
    };
    let Some(index) = which.checked_rem(actors.len()) else { return };
    // Whether one has ended that was woken, or has a place, shows when it is polled.
    if matches!(op, Op::Reset { .. } | Op::ResetAfter { .. }) && stage.model.is_woken(actors[index].id) {
        let count = actors.len();
        Actor::poll(actors, stage, index, thread);
        if actors.len() < count {
            return;
        }
    }
    let actor = &mut actors[index];
    match op {
        Op::New { .. } => {}
        Op::Poll { .. } => Actor::poll(actors, stage, index, thread),
        Op::ResetAfter { after, .. } => {
            stage.threads.on(thread, || actor.interval.reset_after(after));
            changed(actor, stage, thread, after);
        }
        Op::Reset { .. } => {
            let period = actor.interval.period();
            stage.threads.on(thread, || actor.interval.reset());
            changed(actor, stage, thread, period);
        }
        Op::Missed { missed, .. } => actor.interval.set_missed_tick_behavior(missed),
        Op::Drop { .. } => {
            let actor = actors.swap_remove(index);
            actor.leave(stage, thread);
        }
    }
}

fn create(stage: &mut Stage, thread: usize, after: Duration, period: Duration, missed: MissedTickBehavior) -> Actor {
    let next = stage.due_after(after);
    let start = stage.instant_of(next);
    let interval = stage.threads.on(thread, || {
        let mut interval = interval_at(start, period);
        interval.set_missed_tick_behavior(missed);
        interval
    });
    let id = stage.model.add("interval", SeenBy::Waking);
    stage.model.set(id, next, stage.setup.slack.grid());
    let waker = stage.waker(id, Manner::Good);
    Actor { id, interval, waker, next }
}

/// The tick after that one, in the plainest words.
fn next_tick(tick: u64, now: u64, period: Duration, missed: MissedTickBehavior) -> u64 {
    let is_late = now > tick.saturating_add(TOLERANCE);
    match missed {
        MissedTickBehavior::Delay if is_late => add(now, period),
        MissedTickBehavior::Skip if is_late => {
            let (tick, now, period) = (u128::from(tick), u128::from(now), period.as_nanos());
            let next = tick + ((now - tick) / period + 1) * period;
            known(u64::try_from(next).unwrap_or(NEVER))
        }
        _ => add(tick, period),
    }
}

/// Its next tick is after so long.
fn changed(actor: &mut Actor, stage: &mut Stage, thread: usize, after: Duration) {
    let id = actor.id;
    actor.next = stage.due_after(after);
    stage.reset(id, thread, actor.next, stage.setup.slack.grid());
    if stage.model.get(id).is_some_and(|item| item.signals > 0 || item.state != State::Pending) {
        stage.model.idle(id);
    }
}
