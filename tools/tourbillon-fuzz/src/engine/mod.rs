//! Any bytes, read as operations on an engine in virtual time and on everything that is built on it: nothing early, nothing lost,
//! everything told once, and every count right.
//!
//! Each surface has a file, and in it a small model of what was asked of it. What somebody is told is compared with it at once, what there
//! is in between every few operations, as the input says: from after each to after every 32nd, and in the end. What the models leave open: between a move of
//! the clock and the turns that follow it timers may have fired or not. Never early, told once and not lost in the end holds
//! for those as well. With a capacity, a sleep that waits for room ends in its time all the same (D64), is woken once for a
//! place that it then has (D65), and waits only while no place is free.

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

use tourbillon::time::Instant;
use tourbillon::{Clock, Engine, QueueKind, Slack, Span, Time};

use self::delays::Delays;
use self::jobs::Jobs;
use self::names::Names;
use self::sleeps::Sleeps;
use self::waits::Waits;
use crate::bytes::Bytes;

/// What engine, and how often its users look at everything they have.
struct Setup {
    queue: u8,
    slack: u8,
    capacity: u8,
    pace: u8,
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

/// The engine, and who uses it.
struct Stage {
    world: World,
    sleeps: Sleeps,
    delays: Delays,
    waits: Waits,
    names: Names,
    jobs: Jobs,
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
    /// How many timers it may hold: others wait for room.
    pub(crate) capacity: Option<u64>,
    /// All that is due has fired, and all callbacks have been called.
    pub(crate) is_settled: Cell<bool>,
    /// So late may timers be, on purpose.
    late: Duration,
    /// What the clock shows.
    now: Cell<Instant>,
    /// The latest that it has shown.
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

/// Reads bytes as an engine and operations on it.
pub fn engine(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let setup = Setup { queue: bytes.byte(), slack: bytes.byte(), capacity: bytes.byte(), pace: bytes.byte() };
    let mut stage = Stage::new(&setup);
    let (mut steps, pace) = (0, 1 << (setup.pace % 6));
    while !bytes.is_empty() {
        let (surface, op) = operation(&mut bytes);
        stage.apply(surface, op);
        steps += 1;
        if steps % pace == 0 {
            stage.check();
        }
    }
    stage.check();
    stage.end();
}

fn operation(bytes: &mut Bytes<'_>) -> (Surface, Op) {
    let surface = match bytes.byte() % 12 {
        0..3 => Surface::World,
        3..6 => Surface::Sleeps,
        6 => Surface::Delays,
        7..9 => Surface::Waits,
        9..11 => Surface::Names,
        _ => Surface::Jobs,
    };
    let (what, pick, width) = (bytes.byte(), bytes.byte(), bytes.byte());
    // Small numbers take few bytes, so that a short input holds many operations.
    (surface, Op { what, pick, number: bytes.number(usize::from(width % 8)) })
}

impl Stage {
    fn new(setup: &Setup) -> Stage {
        let world = World::new(setup);
        let (sleeps, delays, waits) = (Sleeps::default(), Delays::new(&world), Waits::new(&world));
        let (names, jobs) = (Names::new(&world), Jobs::new(&world));
        Stage { world, sleeps, delays, waits, names, jobs }
    }

    /// Does something, and takes note of what came of it at once, whoever was told.
    fn apply(&mut self, surface: Surface, op: Op) {
        let Stage { world, sleeps, delays, waits, names, jobs } = self;
        // Each operation is a poll of its own, as in an executor: nothing that is ready at once has to yield (D63).
        tourbillon::coop::refill();
        match surface {
            Surface::World => world.apply(op),
            Surface::Sleeps => sleeps.apply(world, op),
            Surface::Delays => delays.apply(world, op),
            Surface::Waits => waits.apply(world, op),
            Surface::Names => names.apply(world, op),
            Surface::Jobs => jobs.apply(world, op),
        }
        // What these have made due at once is told in the next turn. With a capacity any of them may leave a place to another, which
        // then looks for what is due.
        let is_world = matches!(surface, Surface::World);
        if matches!(surface, Surface::Waits | Surface::Names | Surface::Jobs) || world.capacity.is_some() && !is_world {
            world.is_settled.set(false);
        }
        world.look_at_clock();
        waits.hear(world);
        names.hear(world);
        jobs.hear();
    }

    /// Looks at everything there is.
    fn check(&mut self) {
        self.sleeps.check(&self.world);
        self.delays.check(&self.world);
        self.waits.check(&self.world);
        self.names.check(&self.world);
        self.jobs.check(&self.world);
        self.world.check();
    }

    /// Everything but the sleeps goes, so that they have all the room there is.
    fn end(self) {
        let Stage { world, sleeps, delays, waits, names, jobs } = self;
        drop(delays);
        waits.end(&world);
        names.end(&world);
        jobs.end(&world);
        sleeps.end(&world);
        world.check();
        assert_eq!(world.engine.stats().pending, 0, "armed, and nobody's");
    }
}

impl World {
    fn new(setup: &Setup) -> World {
        let clock = Clock::manual();
        clock.set(BEGIN);
        let queue = match setup.queue % 5 {
            0 => QueueKind::Heap,
            1 => QueueKind::ListTree,
            2 => QueueKind::Rounds { tick: Duration::from_micros(100), slots: 64 },
            _ => QueueKind::Wheel,
        };
        let builder = Engine::builder().clock(clock).queue(queue).slack(slack(setup.slack));
        let capacity = setup.capacity % 32;
        let capacity = (capacity > 0 && setup.capacity >= 128).then_some(u64::from(capacity));
        let builder = if let Some(most) = capacity { builder.capacity(most as usize) } else { builder };
        let engine = builder.build().unwrap();
        let now = instant(&engine);
        let late = if setup.slack % 4 == 3 { LATE } else { Duration::ZERO };
        World { engine, capacity, is_settled: Cell::new(true), late, now: Cell::new(now), latest: Cell::new(now) }
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
                clock.set(clock.now() - Span::from_nanos(op.number % 1_000_000));
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
        // After a shutdown, callbacks are called by a thread that nobody turns.
        while self.is_closed() && self.engine.stats().callbacks_waiting > 0 {
            std::thread::yield_now();
        }
        self.is_settled.set(true);
    }

    /// To be called after every step: nothing but a step moves the clock.
    fn look_at_clock(&self) {
        self.now.set(instant(&self.engine));
        self.latest.set(self.latest.get().max(self.now.get()));
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Whether something that is due then may have fired.
    pub(crate) fn has_been(&self, due: Instant) -> bool {
        due <= self.latest.get()
    }

    /// Whether something that is due then must have fired.
    pub(crate) fn must_be_over(&self, due: Instant) -> bool {
        self.is_exact() && due + self.late <= self.now()
    }

    /// Whether the models know exactly what has ended.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_settled.get() && !self.is_closed()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.engine.is_shutdown()
    }

    fn check(&self) {
        let stats = self.engine.stats();
        assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped + stats.pending, "{stats:?}");
        assert_eq!(stats.waker_panics + stats.callback_panics, 0);
        assert!(self.capacity.is_none_or(|most| stats.pending <= most), "more than there is room for: {stats:?}");
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
