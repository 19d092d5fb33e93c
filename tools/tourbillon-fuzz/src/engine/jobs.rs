//! A `Scheduler` whose runs are made where the engine is turned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tourbillon::scheduler::{JobId, Overflow, Overlap, Plan, Remaining, Run, Scheduler, Shutdown};
use tourbillon::time::{Instant, MissedTickBehavior};

use super::{HORIZON, Op, World};

pub(crate) struct Jobs {
    scheduler: Scheduler<u8>,
    made: Arc<Mutex<Vec<Made>>>,
    /// How many runs a job may make, and how many it has made.
    jobs: HashMap<JobId, (u64, u64)>,
    paused: [bool; KEYS],
    /// The interval is so long that it never comes.
    is_far: [bool; KEYS],
}

/// A run that was made.
struct Made {
    job: JobId,
    number: u64,
    due: Instant,
    at: Instant,
}

const KEYS: usize = 8;
/// So that no story takes long: time may go on for years in one operation.
const MOST_TIMES: u64 = 8;

impl Jobs {
    pub(crate) fn new(world: &World) -> Jobs {
        let scheduler =
            Scheduler::builder().engine(&world.engine).threads(0).overflow(Overflow::RunLate).build().unwrap();
        Jobs { scheduler, made: Arc::default(), jobs: HashMap::new(), paused: [false; KEYS], is_far: [false; KEYS] }
    }

    pub(crate) fn apply(&mut self, world: &World, op: Op) {
        let key = op.pick % KEYS as u8;
        let index = usize::from(key);
        match op.what % 12 {
            0..5 => self.schedule(world, key, op),
            5 => {
                let was_there = self.scheduler.contains(&key);
                assert_eq!(self.scheduler.remove(&key), was_there);
                assert!(!self.scheduler.contains(&key));
            }
            6 => self.paused[index] |= self.scheduler.pause(&key),
            7 => {
                self.scheduler.resume(&key);
                self.paused[index] = false;
            }
            8 => self.reschedule(key, op),
            9 => self.scheduler.stop(),
            10 => self.scheduler.start(),
            _ if op.pick == 0xff => _ = self.scheduler.shutdown(Shutdown::Abort),
            _ => {}
        }
    }

    fn schedule(&mut self, world: &World, key: u8, op: Op) {
        let (made, engine) = (self.made.clone(), world.engine.clone());
        let was_there = self.scheduler.contains(&key);
        let job = move |run: &Run<u8>| {
            let at = engine.sleep(Duration::ZERO).deadline();
            made.lock().unwrap().push(Made { job: run.job(), number: run.number(), due: run.due(), at });
        };
        match self.scheduler.schedule(key, plan(op), job) {
            Ok(id) => {
                assert!(!was_there, "two under one key");
                assert!(self.jobs.insert(id, (MOST_TIMES, 0)).is_none(), "an id that was given before");
                self.paused[usize::from(key)] = false;
                self.is_far[usize::from(key)] = op.delay() > HORIZON;
            }
            Err(error) => assert!(was_there || world.is_closed() || !self.scheduler.is_running(), "{error:?}"),
        }
    }

    fn reschedule(&mut self, key: u8, op: Op) {
        if self.scheduler.reschedule(&key, plan(op)).is_ok() {
            self.jobs.values_mut().for_each(|(may, made)| *may = *made + MOST_TIMES);
            self.is_far[usize::from(key)] = op.delay() > HORIZON;
        }
    }

    /// What was run since.
    pub(crate) fn hear(&mut self) {
        for Made { job, number, due, at } in self.made.lock().unwrap().drain(..) {
            assert!(due <= at, "a run that was due at {due:?} began at {at:?}");
            let (may, made) = self.jobs.get_mut(&job).expect("a job that we know");
            *made += 1;
            assert!(*made <= *may && number == *made, "run {number}, after {made} of {may}");
        }
    }

    pub(crate) fn check(&mut self, world: &World) {
        self.hear();
        if world.is_exact() && self.scheduler.is_running() {
            for key in 0..KEYS as u8 {
                let next = self.scheduler.next_run(&key);
                assert!(next.is_none_or(|next| !world.must_be_over(next)), "late: {key} is due at {next:?}");
                let has_more = self.scheduler.remaining(&key).is_some_and(|left| left != Remaining::Runs(0));
                let may_rest = self.paused[usize::from(key)] || self.is_far[usize::from(key)];
                assert!(next.is_some() || !has_more || may_rest, "{key} is never due");
            }
        }
    }

    pub(crate) fn end(mut self, world: &World) {
        let ending = self.scheduler.shutdown(Shutdown::Drain);
        world.settle();
        self.check(world);
        assert!(ending.is_over() && self.scheduler.is_empty());
    }
}

/// A plan of every kind that there is, but none without end.
fn plan(op: Op) -> Plan {
    let plan = Plan::every(op.delay().max(Duration::from_nanos(1))).times(1 + op.number % MOST_TIMES);
    let plan = plan.overlap([Overlap::Skip, Overlap::QueueOne, Overlap::Parallel][usize::from(op.what) % 3]);
    let plan = plan.missed(match op.pick / 8 % 3 {
        0 => MissedTickBehavior::Burst,
        1 => MissedTickBehavior::Delay,
        _ => MissedTickBehavior::Skip,
    });
    if op.pick >= 128 { plan.first_at_once() } else { plan }
}
