//! Sleeps: polled, reset, disarmed, dropped, in any state.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tourbillon::time::{Instant, Sleep};
use tourbillon::{ArmError, Outcome};

use super::{HORIZON, LATE, Op, Wakes, World, slack};

#[derive(Default)]
pub(crate) struct Sleeps(Vec<One>);

struct One {
    sleep: Pin<Box<Sleep>>,
    wakes: Arc<Wakes>,
    waker: Waker,
    /// Polled, pending, and not known to have ended since.
    is_waiting: bool,
    /// The engine has armed it.
    has_place: bool,
    is_held: bool,
}

const MOST: usize = 64;
/// Each of the other surfaces may hold a place that is reserved for it and not taken yet.
const OTHERS: u64 = 4;

impl Sleeps {
    pub(crate) fn apply(&mut self, world: &World, op: Op) {
        match op.what % 12 {
            0..3 => self.add(One::polled(world, op)),
            3 => self.add(One::new(world.engine.sleep(op.delay()).slack(slack(op.pick % 3)))),
            4 => match world.engine.try_sleep(op.delay()) {
                Ok(sleep) => self.add(One { has_place: true, ..One::new(sleep) }),
                Err(ArmError::Stopped) => assert!(world.is_closed()),
                Err(error) => assert_eq!(error, ArmError::Full { capacity: world.capacity.unwrap_or(0) as usize }),
            },
            5 => {
                if let Some(index) = op.pick(self.0.len()) {
                    self.0.swap_remove(index);
                }
            }
            what => {
                if let Some(index) = op.pick(self.0.len()) {
                    self.0[index].apply(world, what, op.delay());
                }
            }
        }
    }

    pub(crate) fn check(&mut self, world: &World) {
        self.0.iter_mut().for_each(|one| one.check(world));
        let Some(most) = world.capacity.filter(|_| !world.is_closed()) else { return };
        let waits = |one: &&One| one.is_waiting && !one.has_place && one.sleep.outcome().is_none();
        let (reserved, waiting) = (self.0.iter().filter(waits), self.0.iter().filter(waits));
        let reserved = reserved.filter(|one| one.wakes.count() > 0).count() as u64;
        let waiting = waiting.filter(|one| one.wakes.count() == 0).count();
        let pending = world.engine.stats().pending;
        assert!(pending + reserved <= most, "{pending} are pending, {reserved} places reserved, of {most}");
        let is_full = pending + reserved + OTHERS >= most;
        assert!(
            waiting == 0 || is_full,
            "{waiting} wait, {pending} are pending, {reserved} places reserved, of {most}"
        );
    }

    /// Each sleep that waits for a time that comes is told in that time, also if it waits for room.
    pub(crate) fn end(mut self, world: &World) {
        let horizon = world.now() + HORIZON;
        self.0.retain(|one| one.is_waiting && !one.is_held && one.sleep.deadline() <= horizon);
        world.settle();
        world.engine.advance(HORIZON + LATE);
        world.settle();
        world.look_at_clock();
        for one in &mut self.0 {
            // After a shutdown a sleep that waited for room learns how it ended when it is polled.
            if world.is_closed() && one.wakes.count() > 0 {
                one.poll(world);
            }
            one.check(world);
            assert!(one.sleep.outcome().is_some(), "lost: {:?}", one.sleep);
        }
    }

    fn add(&mut self, one: One) {
        if self.0.len() < MOST {
            self.0.push(one);
        }
    }
}

impl One {
    fn new(sleep: Sleep) -> One {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        One { sleep: Box::pin(sleep), wakes, waker, is_waiting: false, has_place: false, is_held: false }
    }

    fn polled(world: &World, op: Op) -> One {
        let mut one = One::new(world.engine.sleep(op.delay()));
        assert!(one.sleep.deadline() >= world.now() + op.delay().min(HORIZON), "it counts from now");
        one.poll(world);
        one
    }

    fn apply(&mut self, world: &World, what: u8, delay: Duration) {
        let has_ended = self.sleep.outcome().is_some();
        match what {
            6 | 7 => return self.poll(world),
            8 => self.reset(world.now() + delay),
            9 => self.reset(world.now().checked_sub(delay).unwrap_or(world.now())),
            10 => {
                self.sleep.as_mut().disarm();
                self.is_held = true;
            }
            _ => {
                self.sleep.as_mut().arm();
                // One that was not held has no other deadline, and stays what it was.
                if !std::mem::take(&mut self.is_held) {
                    return;
                }
            }
        }
        if has_ended {
            // It waits again from the next poll on.
            (self.is_waiting, self.has_place) = (false, false);
            self.wakes.take();
        }
    }

    fn reset(&mut self, deadline: Instant) {
        self.sleep.as_mut().reset(deadline);
        self.is_held = false;
    }

    fn poll(&mut self, world: &World) {
        let wakes = self.wakes.take();
        let had_ended = self.sleep.outcome();
        let armed = world.engine.stats().armed;
        match self.sleep.as_mut().poll(&mut Context::from_waker(&self.waker)) {
            Poll::Pending => {
                assert!(had_ended.is_none(), "it had ended");
                let is_armed = world.engine.stats().armed > armed;
                assert!(wakes == 0 || is_armed, "woken in vain");
                self.is_waiting = true;
                self.has_place |= is_armed;
            }
            Poll::Ready(()) => {
                assert!(self.sleep.outcome().is_some());
                (self.is_waiting, self.has_place) = (false, false);
            }
        }
    }

    fn check(&mut self, world: &World) {
        let due = self.sleep.deadline();
        match self.sleep.outcome() {
            None if !self.is_waiting || self.is_held => {}
            None => {
                assert!(!world.is_closed() || self.wakes.count() > 0, "the engine has ended, and nobody was told");
                assert!(!world.must_be_over(due), "late: {:?}", self.sleep);
            }
            Some(outcome) => {
                match outcome {
                    Outcome::Fired => assert!(!self.is_held && world.has_been(due), "early: {:?}", self.sleep),
                    other => assert!(other == Outcome::Stopped && world.is_closed(), "{:?}", self.sleep),
                }
                if self.is_waiting {
                    let wakes = self.wakes.count();
                    // For a place that it did not take in time, and for its end.
                    let most = if world.capacity.is_some() { 2 } else { 1 };
                    assert!((1..=most).contains(&wakes), "woken {wakes} times");
                }
            }
        }
    }
}
