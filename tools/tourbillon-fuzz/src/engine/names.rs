//! `NamedTimers` under a few names.

use std::sync::{Arc, Mutex};

use tourbillon::named::NamedTimer;
use tourbillon::time::Instant;
use tourbillon::{ArmError, NamedTimers, Outcome};

use super::{HORIZON, Op, World};

pub(crate) struct Names {
    timers: NamedTimers,
    /// By their numbers.
    all: Vec<One>,
    /// Created and not started.
    created: Vec<Created>,
    told: Arc<Mutex<Vec<(usize, Outcome)>>>,
    is_stopped: bool,
}

struct One {
    name: &'static str,
    due: Instant,
    is_cancelled: bool,
    told: Option<Outcome>,
}

struct Created {
    timer: NamedTimer,
    name: &'static str,
    is_cancelled: bool,
}

const NAMES: [&str; 4] = ["", "a", "b", "a name that is longer than most names are"];
const MOST: usize = 256;

impl Names {
    pub(crate) fn new(world: &World) -> Names {
        let (all, created, told) = (Vec::new(), Vec::new(), Arc::default());
        Names { timers: NamedTimers::on(&world.engine), all, created, told, is_stopped: false }
    }

    pub(crate) fn apply(&mut self, world: &World, op: Op) {
        let name = NAMES[usize::from(op.pick) % NAMES.len()];
        match op.what % 10 {
            0..3 if self.all.len() < MOST => {
                let callback = self.callback();
                let started = self.timers.start(name, op.delay(), callback);
                self.started(world, name, op, started, false);
            }
            3 if self.created.len() < MOST => {
                self.created.push(Created { timer: self.timers.create(name), name, is_cancelled: false });
            }
            4 | 5 => {
                if let Some(index) = op.pick(self.created.len()) {
                    let Created { timer, name, is_cancelled } = self.created.swap_remove(index);
                    if op.what % 10 == 4 {
                        let callback = self.callback();
                        let started = timer.start(op.delay(), callback);
                        self.started(world, name, op, started, is_cancelled);
                    }
                }
            }
            6 | 7 => self.cancel(world, name, usize::MAX),
            8 => self.cancel(world, name, (op.number % 8) as usize),
            _ if op.pick == 0xff => {
                self.timers.stop();
                self.is_stopped = true;
            }
            _ => {}
        }
    }

    fn callback(&self) -> impl FnOnce(Outcome) + Send + 'static {
        let (told, number) = (self.told.clone(), self.all.len());
        move |outcome| told.lock().unwrap().push((number, outcome))
    }

    fn started(
        &mut self,
        world: &World,
        name: &'static str,
        op: Op,
        started: Result<(), ArmError>,
        is_cancelled: bool,
    ) {
        match started {
            Ok(()) => {
                let due = world.now() + op.delay().min(HORIZON);
                self.all.push(One { name, due, is_cancelled, told: None });
            }
            Err(error) => assert!(error == ArmError::Stopped && (self.is_stopped || world.is_closed()), "{error}"),
        }
    }

    /// Cancels the oldest of a name. Where the model knows who is there, it knows how many.
    fn cancel(&mut self, world: &World, name: &str, most: usize) {
        let count = self.timers.count(name);
        assert_eq!(self.timers.cancel_up_to(name, most), count.min(most));
        if most < usize::MAX {
            // Which of them, started or not, were the oldest is not in the model.
            world.is_settled.set(false);
            world.settle();
            self.check_told(world, true);
            self.created.clear();
            return;
        }
        self.all
            .iter_mut()
            .filter(|one| one.name == name && one.told.is_none())
            .for_each(|one| one.is_cancelled = true);
        self.created.iter_mut().filter(|one| one.name == name).for_each(|one| one.is_cancelled = true);
        assert_eq!(self.timers.count(name), 0);
    }

    /// What was told since.
    pub(crate) fn hear(&mut self, world: &World) {
        self.check_told(world, false);
    }

    pub(crate) fn check(&mut self, world: &World) {
        self.hear(world);
        if !world.is_exact() || self.is_stopped {
            return;
        }
        let is_late = |one: &One| one.told.is_none() && !one.is_cancelled && world.must_be_over(one.due);
        assert!(!self.all.iter().any(is_late), "late");
        let pending = self.all.iter().filter(|one| one.told.is_none() && !one.is_cancelled).count();
        let created = self.created.iter().filter(|one| !one.is_cancelled).count();
        assert_eq!(self.timers.len(), pending + created);
    }

    fn check_told(&mut self, world: &World, may_be_cancelled: bool) {
        for (number, outcome) in self.told.lock().unwrap().drain(..) {
            let one = &mut self.all[number];
            assert_eq!(one.told.replace(outcome), None, "told twice");
            match outcome {
                Outcome::Fired => assert!(world.has_been(one.due), "early"),
                Outcome::Cancelled => assert!(one.is_cancelled || may_be_cancelled, "cancelled by nobody"),
                _ => assert!(self.is_stopped || world.is_closed()),
            }
        }
    }

    /// All are told, as many as there are.
    pub(crate) fn end(mut self, world: &World) {
        self.timers.stop();
        self.is_stopped = true;
        self.created.clear();
        world.settle();
        self.check_told(world, false);
        assert!(self.all.iter().all(|one| one.told.is_some()), "not told");
        assert!(self.timers.is_empty() && self.timers.names().is_empty());
    }
}
