//! The cases of the scenario `queue`, each written once for all systems.

use std::hint::black_box;
use std::time::Instant;

use tourbillon_tools::Random;

use super::{QueueCase, QueueSystem};

/// Longest timeout, a minute.
const FAR: u64 = 60_000_000_000;
/// The timeout in the case `fifo`.
const DELAY: u64 = 30_000_000_000;
/// Time between two operations of the case `fifo`.
const GAP: u64 = 1_000;
/// All timers of the case `pop` are due within this time.
const SPREAD: u64 = 2_000_000_000;
/// Time advances in steps of a millisecond.
pub(super) const STEP: u64 = 1_000_000;

/// A system that can be measured.
pub(super) trait Contestant {
    fn name(&self) -> &'static str;

    /// Sets up a case with `pending` timers.
    fn prepare(&self, case: QueueCase, pending: usize) -> Box<dyn PreparedCase>;

    /// Arms `pending` timers, `repeat` times, and measures how long they take to expire. Returns nanoseconds per timer.
    fn pop(&self, pending: usize, repeat: usize, round: u64) -> f64;
}

/// A case that is set up.
pub(super) trait PreparedCase {
    /// Performs operations, and returns nanoseconds per operation.
    fn round(&mut self, operations: usize) -> f64;
}

/// A contestant for the system `S`.
pub(super) struct ContestantOf<S>(pub(super) std::marker::PhantomData<S>);

impl<S: QueueSystem + 'static> Contestant for ContestantOf<S> {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn prepare(&self, case: QueueCase, pending: usize) -> Box<dyn PreparedCase> {
        match case {
            QueueCase::InsertRemove => Box::new(InsertRemove::<S>::new(pending)),
            QueueCase::Fifo => Box::new(Fifo::<S>::new(pending)),
            QueueCase::Reschedule => Box::new(Reschedule::<S>::new(pending)),
            QueueCase::Pop => unreachable!("`pop` is not prepared"),
        }
    }

    fn pop(&self, pending: usize, repeat: usize, round: u64) -> f64 {
        let mut random = Random::new(round);
        let mut nanos = 0.0;
        for _ in 0..repeat {
            nanos += pop_once::<S>(pending, &mut random);
        }
        nanos / repeat as f64
    }
}

fn per_operation(start: Instant, operations: usize) -> f64 {
    start.elapsed().as_nanos() as f64 / operations as f64
}

/// A system with pending timers, and random numbers for more.
struct FilledQueue<S: QueueSystem> {
    system: S,
    /// `None` only while a timer is being replaced.
    handles: Vec<Option<S::SystemHandle>>,
    random: Random,
}

impl<S: QueueSystem> FilledQueue<S> {
    fn new(pending: usize) -> FilledQueue<S> {
        let mut random = Random::new(pending as u64);
        let mut system = S::new(pending);
        let handles = (0..pending as u64).map(|value| {
            let deadline = system.deadline(1 + random.any() % FAR);
            Some(system.insert(deadline, value))
        });
        let handles = handles.collect();
        FilledQueue { system, handles, random }
    }

    /// Returns random deadlines.
    fn draw(&mut self, count: usize) -> Vec<S::SystemDeadline> {
        (0..count).map(|_| self.system.deadline(1 + self.random.any() % FAR)).collect()
    }
}

impl<S: QueueSystem> Drop for FilledQueue<S> {
    fn drop(&mut self) {
        dispose(&mut self.system, &mut self.handles);
    }
}

fn dispose<S: QueueSystem>(system: &mut S, handles: &mut Vec<Option<S::SystemHandle>>) {
    handles.drain(..).flatten().for_each(|handle| system.dispose(handle));
}

/// Arms a timer and cancels it, beside others that are pending.
struct InsertRemove<S: QueueSystem>(FilledQueue<S>);

impl<S: QueueSystem> InsertRemove<S> {
    fn new(pending: usize) -> InsertRemove<S> {
        InsertRemove(FilledQueue::new(pending))
    }
}

impl<S: QueueSystem> PreparedCase for InsertRemove<S> {
    fn round(&mut self, operations: usize) -> f64 {
        let deadlines = self.0.draw(operations);
        let system = &mut self.0.system;
        let start = Instant::now();
        for (operation, &deadline) in deadlines.iter().enumerate() {
            let handle = system.insert(deadline, operation as u64);
            black_box(system.remove(black_box(handle)));
        }
        per_operation(start, operations)
    }
}

/// Gives a random pending timer another deadline.
struct Reschedule<S: QueueSystem>(FilledQueue<S>);

impl<S: QueueSystem> Reschedule<S> {
    fn new(pending: usize) -> Reschedule<S> {
        Reschedule(FilledQueue::new(pending.max(1)))
    }
}

impl<S: QueueSystem> PreparedCase for Reschedule<S> {
    fn round(&mut self, operations: usize) -> f64 {
        let deadlines = self.0.draw(operations);
        let FilledQueue { system, handles, random } = &mut self.0;
        let picks: Vec<u32> = (0..operations).map(|_| (random.any() % handles.len() as u64) as u32).collect();
        let start = Instant::now();
        for (&pick, &deadline) in picks.iter().zip(&deadlines) {
            let place = &mut handles[pick as usize];
            *place = place.take().map(|handle| system.reschedule(handle, deadline));
        }
        per_operation(start, operations)
    }
}

/// All timers have the same timeout; each is cancelled when so many others have been armed after it. Time advances.
struct Fifo<S: QueueSystem> {
    system: S,
    /// A ring of the pending timers.
    handles: Vec<Option<S::SystemHandle>>,
    oldest: usize,
    now: u64,
}

impl<S: QueueSystem> Fifo<S> {
    fn new(pending: usize) -> Fifo<S> {
        let mut system = S::new(pending);
        let handles = (0..pending as u64).map(|value| {
            let deadline = system.deadline(value * GAP + DELAY);
            Some(system.insert(deadline, value))
        });
        let handles = handles.collect();
        let now = pending as u64 * GAP;
        system.expire(now, |_| panic!("nothing is due"));
        Fifo { system, handles, oldest: 0, now }
    }
}

impl<S: QueueSystem> Drop for Fifo<S> {
    fn drop(&mut self) {
        dispose(&mut self.system, &mut self.handles);
    }
}

impl<S: QueueSystem> PreparedCase for Fifo<S> {
    fn round(&mut self, operations: usize) -> f64 {
        let Fifo { system, handles, oldest, now } = self;
        let times = (0..operations as u64).map(|operation| *now + operation * GAP + DELAY);
        let deadlines: Vec<_> = times.map(|time| system.deadline(time)).collect();
        let start = Instant::now();
        for (operation, &deadline) in deadlines.iter().enumerate() {
            let new = system.insert(deadline, operation as u64);
            if handles.is_empty() {
                black_box(system.remove(new));
            } else {
                let old = handles[*oldest].replace(new);
                black_box(old.and_then(|old| system.remove(old)));
                *oldest = if *oldest + 1 == handles.len() { 0 } else { *oldest + 1 };
            }
            *now += GAP;
            if *now % STEP == 0 {
                system.expire(*now, |_| panic!("nothing is due"));
            }
        }
        per_operation(start, operations)
    }
}

/// Arms random timers, then advances time in steps of a millisecond until all have expired. Returns nanoseconds per timer,
/// without the arming.
fn pop_once<S: QueueSystem>(pending: usize, random: &mut Random) -> f64 {
    let mut system = S::new(pending);
    let handles = (0..pending as u64).map(|value| {
        let deadline = system.deadline(1 + random.any() % SPREAD);
        Some(system.insert(deadline, value))
    });
    let mut handles: Vec<_> = handles.collect();
    let (mut expired, mut sum) = (0, 0);
    let mut now = 0;
    let start = Instant::now();
    while expired < pending {
        now += STEP;
        system.expire(now, |value| {
            expired += 1;
            sum ^= value;
        });
        assert!(now < 2 * SPREAD, "{}: {} timers have not expired", S::NAME, pending - expired);
    }
    let nanos = per_operation(start, pending);
    black_box(sum);
    dispose(&mut system, &mut handles);
    nanos
}
