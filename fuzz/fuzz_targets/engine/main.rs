//! Any bytes, read as operations on an engine in virtual time and on everything that is built on it: nothing early, nothing lost,
//! everything told once, and every count right.
//!
//! ```text
//! cargo +nightly fuzz run engine -- -max_total_time=300 -timeout=10
//! ```
//!
//! Each surface has a file, and in it a small model of what was asked of it. What the models leave open: with a capacity, timers
//! may be late (they wait for room), and between a move of the clock and the turns that follow it they may have fired or not.
//! Never early, told once and not lost in the end holds for those as well.

#![no_main]

mod delays;
mod jobs;
mod names;
mod sleeps;
mod waits;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;
use std::time::Duration;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use tourbillon::time::Instant;
use tourbillon::{Clock, Engine, QueueKind, Slack, Time};

/// What engine, and what is done with it.
#[derive(Debug)]
struct Story {
    queue: u8,
    slack: u8,
    capacity: u8,
    ops: Vec<(Surface, Op)>,
}

#[derive(Clone, Copy, Debug)]
enum Surface {
    World,
    Sleeps,
    Delays,
    Waits,
    Names,
    Jobs,
}

/// What is done, to which of them, and with what delay; each surface knows what it means.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    pub(crate) what: u8,
    pub(crate) pick: u8,
    pub(crate) number: u64,
}

/// The engine, and what every model has to know of it.
pub(crate) struct World {
    pub(crate) engine: Engine,
    /// Timers may wait for room.
    pub(crate) is_limited: bool,
    /// All that is due has fired, and all callbacks have been called.
    pub(crate) is_settled: Cell<bool>,
    /// So late may timers be, on purpose.
    late: Duration,
    /// The latest that the clock has shown.
    latest: Cell<Instant>,
}

/// Counts how often it is woken.
#[derive(Default)]
pub(crate) struct Wakes(AtomicUsize);

/// Where the clock begins. Any will do that is the same each time.
const BEGIN: Time = Time::from_nanos(1 << 45);

/// Of engines whose timers may be late.
const LATE: Duration = Duration::from_micros(300);

/// Before it ends, a story waits for what is due within so long.
pub(crate) const HORIZON: Duration = Duration::from_nanos(1 << 58);

fuzz_target!(|story: Story| {
    let world = World::new(&story);
    let mut sleeps = sleeps::Sleeps::default();
    let mut delays = delays::Delays::new(&world);
    let mut waits = waits::Waits::new(&world);
    let mut names = names::Names::new(&world);
    let mut jobs = jobs::Jobs::new(&world);
    for (surface, op) in story.ops {
        match surface {
            Surface::World => world.apply(op),
            Surface::Sleeps => sleeps.apply(&world, op),
            Surface::Delays => delays.apply(&world, op),
            Surface::Waits => waits.apply(&world, op),
            Surface::Names => names.apply(&world, op),
            Surface::Jobs => jobs.apply(&world, op),
        }
        // What these have made due at once is told in the next turn.
        if matches!(surface, Surface::Waits | Surface::Names | Surface::Jobs) {
            world.is_settled.set(false);
        }
        world.look_at_clock();
        sleeps.check(&world);
        delays.check(&world);
        waits.check(&world);
        names.check(&world);
        jobs.check(&world);
        world.check();
    }
    // Everything but the sleeps goes, so that they have all the room there is.
    drop(delays);
    waits.end(&world);
    names.end(&world);
    jobs.end(&world);
    sleeps.end(&world);
    world.check();
    assert_eq!(world.engine.stats().pending, 0, "armed, and nobody's");
});

impl World {
    fn new(story: &Story) -> World {
        let clock = Clock::manual();
        clock.set(BEGIN);
        let queue = match story.queue % 5 {
            0 => QueueKind::Heap,
            1 => QueueKind::ListTree,
            2 => QueueKind::Rounds { tick: Duration::from_micros(100), slots: 64 },
            _ => QueueKind::Wheel,
        };
        let builder = Engine::builder().clock(clock).queue(queue).slack(slack(story.slack));
        let capacity = story.capacity % 32;
        let is_limited = capacity > 0 && story.capacity >= 128;
        let engine = if is_limited { builder.capacity(usize::from(capacity)) } else { builder }.build().unwrap();
        let latest = Cell::new(instant(&engine));
        let late = if story.slack % 4 == 3 { LATE } else { Duration::ZERO };
        World { engine, is_limited, is_settled: Cell::new(true), late, latest }
    }

    fn apply(&self, op: Op) {
        let clock = self.engine.clock();
        match op.what % 8 {
            0..3 => {
                self.engine.advance(short(op.number));
                self.is_settled.set(true);
            }
            3 => {
                clock.advance(short(op.number));
                self.is_settled.set(false);
            }
            4 => {
                clock.set(Time::from_nanos(clock.now().as_nanos().saturating_sub(op.number % 1_000_000)));
                self.is_settled.set(false);
            }
            5 => _ = self.engine.turn(),
            6 => self.settle(),
            // Rarely, or no story would come far.
            _ if op.pick == 0xff => self.engine.shutdown(),
            _ => {}
        }
    }

    /// Turns until there is nothing more to do.
    pub(crate) fn settle(&self) {
        self.engine.advance(Duration::ZERO);
        while self.engine.turn().more {}
        self.engine.advance(Duration::ZERO);
        self.is_settled.set(true);
    }

    fn look_at_clock(&self) {
        self.latest.set(self.latest.get().max(self.now()));
    }

    pub(crate) fn now(&self) -> Instant {
        instant(&self.engine)
    }

    /// Whether something that is due then may have fired.
    pub(crate) fn has_been(&self, due: Instant) -> bool {
        due <= self.latest.get().max(self.now())
    }

    /// Whether something that is due then must have fired.
    pub(crate) fn must_be_over(&self, due: Instant) -> bool {
        self.is_exact() && due + self.late <= self.now()
    }

    /// Whether the models know exactly what has ended.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_settled.get() && !self.is_limited && !self.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.engine.is_shutdown()
    }

    fn check(&self) {
        let stats = self.engine.stats();
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped + stats.pending, "{stats:?}");
        assert_eq!(stats.waker_panics + stats.callback_panics, 0);
    }
}

impl Wakes {
    /// How often since this was last asked.
    pub(crate) fn take(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Op {
    /// One of so many.
    pub(crate) fn pick(&self, count: usize) -> Option<usize> {
        (count > 0).then(|| usize::from(self.pick) % count)
    }

    /// A delay of every kind that there is.
    pub(crate) fn delay(&self) -> Duration {
        match self.number % 16 {
            0 => Duration::MAX,
            1 => Duration::from_nanos(1 << (self.number / 16 % 64)),
            2 => Duration::ZERO,
            _ => short(self.number / 16),
        }
    }
}

/// From nothing to some minutes; by the last bits, so that one more or less makes a difference.
fn short(number: u64) -> Duration {
    let (kind, rest) = (number % 8, number / 8);
    Duration::from_nanos(match kind {
        0 => rest % 4,
        1..4 => rest % 10_000,
        4..7 => rest % 50_000_000,
        _ => rest % 500_000_000_000,
    })
}

pub(crate) fn slack(number: u8) -> Slack {
    match number % 4 {
        0 => Slack::exact(),
        1 => Slack::precise(),
        2 => Slack::adaptive(),
        _ => Slack::upto(LATE),
    }
}

fn instant(engine: &Engine) -> Instant {
    engine.sleep(Duration::ZERO).deadline()
}

impl<'a> Arbitrary<'a> for Story {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Story> {
        let [queue, slack, capacity] = bytes.arbitrary()?;
        let mut ops = Vec::new();
        while !bytes.is_empty() {
            let [surface, what, pick, width] = bytes.arbitrary()?;
            let surface = match surface % 12 {
                0..3 => Surface::World,
                3..6 => Surface::Sleeps,
                6 => Surface::Delays,
                7..9 => Surface::Waits,
                9..11 => Surface::Names,
                _ => Surface::Jobs,
            };
            // Small numbers take few bytes, so that a short input holds many operations.
            let width = usize::from(width % 8).min(bytes.len());
            let number = bytes.bytes(width)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
            ops.push((surface, Op { what, pick, number }));
        }
        Ok(Story { queue, slack, capacity, ops })
    }
}
