//! A `Timer` and the waits for it.

use std::sync::{Arc, Mutex};

use tourbillon::time::Instant;
use tourbillon::timer::WaitHandle;
use tourbillon::{Outcome, Timer};

use super::{Op, World};

pub(crate) struct Waits {
    timer: Timer,
    /// `None`: never set, so long past.
    expiry: Option<Instant>,
    /// By their numbers.
    waits: Vec<One>,
    told: Arc<Mutex<Vec<(usize, Outcome)>>>,
}

struct One {
    handle: WaitHandle,
    /// As far as we know.
    ended: Option<Ended>,
    told: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    /// By us.
    Cancelled,
    /// Fired, or stopped with the engine.
    ByItself,
}

const MOST: usize = 256;

impl Waits {
    pub(crate) fn new(world: &World) -> Waits {
        Waits { timer: Timer::on(&world.engine), expiry: None, waits: Vec::new(), told: Arc::default() }
    }

    pub(crate) fn apply(&mut self, world: &World, op: Op) {
        self.see(world);
        match op.what % 8 {
            0 | 1 => {
                let count = self.timer.expires_after(op.delay());
                assert_eq!(count, self.cancelled(usize::MAX));
                self.expiry = self.timer.expiry();
            }
            2..5 if self.waits.len() < MOST => {
                let (told, number) = (self.told.clone(), self.waits.len());
                let handle = self.timer.on_expiry(move |outcome| told.lock().unwrap().push((number, outcome)));
                self.waits.push(One { handle, ended: None, told: false });
            }
            5 => {
                let count = self.timer.cancel();
                assert_eq!(count, self.cancelled(usize::MAX));
            }
            6 => {
                let count = usize::from(self.timer.cancel_one());
                assert_eq!(count, self.cancelled(1));
            }
            _ => {
                if let Some(index) = op.pick(self.waits.len()) {
                    let one = &mut self.waits[index];
                    assert_eq!(one.handle.cancel(), one.ended.is_none());
                    one.ended.get_or_insert(Ended::Cancelled);
                }
            }
        }
    }

    /// The oldest that were pending are cancelled now. Gives how many those are.
    fn cancelled(&mut self, most: usize) -> usize {
        let pending = self.waits.iter_mut().filter(|one| one.ended.is_none()).take(most);
        pending.map(|one| one.ended = Some(Ended::Cancelled)).count()
    }

    /// What has ended without us.
    fn see(&mut self, world: &World) {
        for one in self.waits.iter_mut().filter(|one| one.ended.is_none() && !one.handle.is_pending()) {
            assert!(world.is_closed() || self.expiry.is_none_or(|due| world.has_been(due)), "early");
            one.ended = Some(Ended::ByItself);
        }
    }

    /// What was told since.
    pub(crate) fn hear(&mut self, world: &World) {
        if self.told.lock().unwrap().is_empty() {
            return;
        }
        self.see(world);
        for (number, outcome) in self.told.lock().unwrap().drain(..) {
            let one = &mut self.waits[number];
            assert!(!std::mem::replace(&mut one.told, true), "told twice");
            match outcome {
                Outcome::Cancelled => assert_eq!(one.ended, Some(Ended::Cancelled)),
                Outcome::Fired => assert_eq!(one.ended, Some(Ended::ByItself)),
                _ => assert!(one.ended == Some(Ended::ByItself) && world.is_closed()),
            }
        }
    }

    pub(crate) fn check(&mut self, world: &World) {
        self.hear(world);
        self.see(world);
        let is_due = self.expiry.map_or(world.is_exact(), |due| world.must_be_over(due));
        let is_late = |one: &One| one.ended.is_none() && (world.is_closed() || is_due);
        assert!(!self.waits.iter().any(is_late), "late");
    }

    /// All are told.
    pub(crate) fn end(mut self, world: &World) {
        self.see(world);
        let count = self.timer.cancel();
        assert_eq!(count, self.cancelled(usize::MAX));
        world.settle();
        self.check(world);
        assert!(self.waits.iter().all(|one| one.told), "not told");
    }
}
