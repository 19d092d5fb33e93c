//! A plan: what a world consists of, and the steps of its run, all drawn before the run.
//!
//! A run can be repeated, also without some of its steps: a step refers to timers by number, and finds one to act on whatever the
//! steps before it did.

use std::time::Duration;

use tourbillon::scheduler::Overflow;
use tourbillon::{QueueKind, Slack};

use crate::actors::{
    bulk_sleeps, delay_queue, expiring_map, interval, named, scheduler, scope, sleep, stream_timeout, timeout, timer,
};
use crate::cron_reference::{CronPace, MOMENTS, ReferenceLine};
use crate::random_source::RandomSource;
use crate::timer_model::{LAST, grid_of};

/// A world and the steps of its run.
#[derive(Clone, Debug)]
pub struct SimPlan {
    /// The seed of the plan; 0 if it was drawn from bytes.
    pub seed: u64,
    /// The parameters of the world.
    pub setup: SimSetup,
    /// The steps, each with the number that it had before others were taken out.
    pub steps: Vec<(usize, SimStep)>,
}

/// The parameters of a world: its threads, engine, clocks and schedulers.
#[derive(Clone, Copy, Debug)]
pub struct SimSetup {
    /// Number of threads.
    pub threads: usize,
    /// Number of threads that turn their own shard.
    pub workers: usize,
    /// Number of shards.
    pub shards: usize,
    /// The timer queue of each shard.
    pub queue: QueueKind,
    /// Default slack of the engine.
    pub slack: SlackChoice,
    /// Capacity of the engine.
    pub capacity: Option<usize>,
    /// The time that the clock shows at the start.
    pub start: u64,
    /// Most durations are shorter than this, in nanoseconds.
    pub scale: u64,
    /// Whether durations also range from a nanosecond to decades.
    pub is_wide: bool,
    /// Whether some callbacks use their own timer. In some worlds with a capacity they do not, and wakers turn the engine
    /// instead.
    pub has_callback_actions: bool,
    /// The rule of schedulers for a run that finds the queue of runs full.
    pub overflow: Overflow,
    /// Capacity of a scheduler's queue of runs.
    pub queue_capacity: usize,
    /// The clock that cron lines follow.
    pub wall: SimWallClock,
}

/// The wall clock of a world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimWallClock {
    /// There are no cron lines.
    Unused,
    /// The engine's clock is the wall clock.
    EngineClock,
    /// A separate clock, which begins at this time.
    Separate(u64),
}

/// A slack that can be printed and compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlackChoice {
    /// See [`Slack`].
    Adaptive,
    /// See [`Slack`].
    Exact,
    /// See [`Slack`].
    UpTo(u64),
    /// See [`Slack`].
    Precise,
}

/// One step of a run.
#[derive(Clone, Copy, Debug)]
pub enum SimStep {
    /// Time passes, and no thread turns the engine: a stall.
    Jump(u64),
    /// The clock is set back.
    Back(u64),
    /// Time passes, and each timer fires at its deadline.
    Advance(u64),
    /// The driver turns the engine once.
    Turn,
    /// A thread turns its own shard.
    Work(usize),
    /// All threads turn until nothing is left to do.
    Sweep,
    /// An executor polls one of the tasks that were woken.
    Poll(usize),
    /// All threads turn and poll until nothing is left to do.
    Settle,
    /// The engine is shut down.
    Shutdown,
    /// See [`sleep`].
    Sleep(sleep::SleepOp),
    /// See [`timeout`].
    Timeout(timeout::TimeoutOp),
    /// See [`interval`].
    Interval(interval::IntervalOp),
    /// See [`scope`].
    Scope(scope::ScopeOp),
    /// See [`delay_queue`].
    DelayQueue(delay_queue::DelayQueueOp),
    /// See [`timer`].
    Timer(timer::TimerOp),
    /// See [`named`].
    Named(named::NamedOp),
    /// See [`scheduler`].
    Scheduler(scheduler::SchedulerOp),
    /// See [`bulk_sleeps`].
    BulkSleeps(bulk_sleeps::BulkSleepOp),
    /// See [`stream_timeout`].
    Stream(stream_timeout::StreamOp),
    /// See [`expiring_map`].
    ExpiringMap(expiring_map::ExpiringMapOp),
}

/// The bit of the surface with streams.
const STREAMS: u64 = 1 << 9;
/// The bit of the surface with maps whose entries expire.
const MAPS: u64 = 1 << 10;
/// Nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const MONTH: u64 = YEAR / 12;
/// A queue capacity that no plan reaches.
const ROOMY_QUEUE: usize = 1024;
/// Most steps of a plan that is drawn from bytes.
const MOST_STEPS_OF_BYTES: usize = 400;
/// Nanoseconds in a year.
pub const YEAR: u64 = 365 * 24 * 60 * 60 * SECOND;

impl SimPlan {
    /// Returns the plan of a seed, with up to `steps` steps.
    #[must_use]
    pub fn new(seed: u64, steps: usize) -> SimPlan {
        SimPlan::draw(seed, RandomSource::from_seed(seed), steps)
    }

    /// Returns the plan that the bytes of a fuzzer encode. It ends where the bytes end.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> SimPlan {
        SimPlan::draw(0, RandomSource::from_bytes(bytes), MOST_STEPS_OF_BYTES)
    }

    fn draw(seed: u64, mut random: RandomSource<'_>, steps: usize) -> SimPlan {
        let setup = SimSetup::random(&mut random);
        let surfaces = 1 + random.below(255) + if random.one_in(16) { 256 } else { 0 };
        // Where only sleeps, timeouts, intervals and streams take slots, the model tracks every slot.
        let is_counted = setup.capacity.is_some() && random.one_in(2);
        let surfaces = if is_counted { 1 + random.below(7) + if random.one_in(8) { 256 } else { 0 } } else { surfaces };
        // By the seed and not by a draw, so that the worlds of the other seeds, some of which tests keep, are as before.
        let surfaces = surfaces
            + match seed % 4 {
                0 => STREAMS,
                // The model counts slots one by one only where all surfaces have tasks.
                2 if !is_counted => MAPS,
                _ => 0,
            };
        // Few worlds are shut down early: what happens after a shutdown shows soon.
        let ends_at = if random.one_in(2) { steps * 9 / 10 + random.index(steps / 10 + 1) } else { steps };
        let ends_at = if random.one_in(8) { random.index(steps + 1) } else { ends_at };
        let last = if ends_at < steps { (ends_at + 30).min(steps) } else { steps };
        let mut plan = SimPlan { seed, setup, steps: Vec::new() };
        for number in 0..last {
            if random.is_exhausted() {
                break;
            }
            let step =
                if number == ends_at { SimStep::Shutdown } else { SimStep::random(&mut random, &setup, surfaces) };
            plan.steps.push((number, step));
        }
        plan
    }

    /// Returns the plan with only the steps of these numbers.
    #[must_use]
    pub fn only(&self, keep: &[usize]) -> SimPlan {
        let steps = self.steps.iter().filter(|(number, _)| keep.contains(number)).copied().collect();
        SimPlan { seed: self.seed, setup: self.setup, steps }
    }
}

impl SimSetup {
    fn random(random: &mut RandomSource<'_>) -> SimSetup {
        let threads = 1 + random.index(4);
        let scale = random.one_of(&[50, 10_000, 5_000_000, SECOND, HOUR, MONTH, YEAR, 60 * YEAR]);
        let starts = [
            0,
            1,
            SECOND,
            (1 << 32) * 1_000_000 - scale.min(1 << 40),
            (1 << 36) * 1_000_000,
            100 * YEAR,
            584 * YEAR - scale.min(YEAR),
            LAST - scale.min(LAST),
            LAST - 1,
        ];
        let tick = Duration::from_nanos((scale / random.one_of(&[1, 16, 256])).max(1));
        let queues = [
            QueueKind::Wheel,
            QueueKind::Wheel,
            QueueKind::Heap,
            QueueKind::ListTree,
            QueueKind::Rounds { tick, slots: random.one_of(&[1, 8, 64]) },
        ];
        let queue = random.one_of(&queues);
        let start = if random.one_in(3) { random.one_of(&starts) } else { SECOND + random.below(YEAR) };
        let moment = random.one_of(&MOMENTS) * SECOND;
        let wall = match scale {
            ..=SECOND => SimWallClock::Separate(moment - random.below(3 * 3600 * SECOND)),
            HOUR | MONTH if random.one_in(2) => SimWallClock::EngineClock,
            _ => SimWallClock::Unused,
        };
        let slack = SlackChoice::random(random, scale);
        let capacity =
            random.one_in(3).then(|| if random.one_in(2) { 1 + random.index(3) } else { 1 + random.index(12) });
        // The model cannot predict which run is queued unless it knows when the scheduler looks at its jobs, and in which order
        // the scheduler serves its two clocks.
        let is_known = capacity.is_none() && slack.grid() == 1;
        let queue_capacity = if is_known { random.one_of(&[0, 1, 2, ROOMY_QUEUE]) } else { ROOMY_QUEUE };
        let wall = if queue_capacity < ROOMY_QUEUE { SimWallClock::Unused } else { wall };
        let start = if wall == SimWallClock::EngineClock { moment - random.below(4 * scale) } else { start };
        let has_workers = random.one_in(5);
        let shards = if has_workers { threads + 1 } else { 1 + random.index(threads) };
        SimSetup {
            threads,
            workers: if has_workers { random.index(threads + 1) } else { 0 },
            shards,
            queue,
            slack,
            capacity,
            start,
            scale,
            is_wide: random.one_in(6),
            has_callback_actions: capacity.is_none() || random.one_in(2),
            overflow: random.one_of(&[Overflow::Wait, Overflow::Skip, Overflow::RunLate]),
            queue_capacity,
            wall,
        }
    }
}

impl SimSetup {
    /// Returns whether a scheduler's queue of runs is never full.
    #[must_use]
    pub fn has_roomy_queue(&self) -> bool {
        self.queue_capacity >= ROOMY_QUEUE
    }

    /// Returns a cron line for a job, or `None`. There are none where decades pass in a step: of more than a thousand missed
    /// times a job counts a thousand each time that its scheduler looks, and how often that is, is not known.
    pub fn cron_line(&self, random: &mut RandomSource<'_>) -> Option<ReferenceLine> {
        let pace = match self.wall {
            SimWallClock::Unused => return None,
            _ if self.is_wide => return None,
            SimWallClock::EngineClock if self.scale == HOUR => CronPace::Minutes,
            SimWallClock::EngineClock => CronPace::Days,
            SimWallClock::Separate(_) => {
                random.one_of(&[CronPace::Seconds, CronPace::Minutes, CronPace::Days, CronPace::Days])
            }
        };
        random.one_in(2).then(|| ReferenceLine::random(random, pace))
    }
}

impl SlackChoice {
    /// Returns a random slack.
    pub fn random(random: &mut RandomSource<'_>, scale: u64) -> SlackChoice {
        let most = random.below(scale.saturating_mul(2)).max(1);
        random.one_of(&[
            SlackChoice::Adaptive,
            SlackChoice::Adaptive,
            SlackChoice::Exact,
            SlackChoice::UpTo(most),
            SlackChoice::Precise,
        ])
    }

    /// Converts to the engine's type.
    #[must_use]
    pub fn slack(self) -> Slack {
        match self {
            SlackChoice::Adaptive => Slack::adaptive(),
            SlackChoice::Exact => Slack::exact(),
            SlackChoice::UpTo(most) => Slack::up_to(Duration::from_nanos(most)),
            SlackChoice::Precise => Slack::precise(),
        }
    }

    /// Returns the grid to which deadlines are rounded up, in nanoseconds.
    #[must_use]
    pub fn grid(self) -> u64 {
        if let SlackChoice::UpTo(most) = self { grid_of(most) } else { 1 }
    }

    /// Returns whether timers with this slack get wake-ups of their own.
    #[must_use]
    pub fn is_strict(self) -> bool {
        self != SlackChoice::Adaptive
    }
}

impl SimStep {
    /// Returns a random step, on one of the surfaces whose bits are set.
    fn random(random: &mut RandomSource<'_>, setup: &SimSetup, surfaces: u64) -> SimStep {
        if random.one_in(2) {
            return SimStep::of_time(random, setup);
        }
        loop {
            let surface = random.below(match surfaces & (STREAMS | MAPS) {
                0 => 9,
                STREAMS => 10,
                _ => 11,
            });
            if surfaces >> surface & 1 == 0 {
                continue;
            }
            return match surface {
                0 => SimStep::Sleep(sleep::SleepOp::random(random, setup)),
                1 => SimStep::Timeout(timeout::TimeoutOp::random(random, setup)),
                2 => SimStep::Interval(interval::IntervalOp::random(random, setup)),
                3 => SimStep::Scope(scope::ScopeOp::random(random, setup)),
                4 => SimStep::DelayQueue(delay_queue::DelayQueueOp::random(random, setup)),
                5 => SimStep::Timer(timer::TimerOp::random(random, setup)),
                6 => SimStep::Named(named::NamedOp::random(random, setup)),
                7 => SimStep::Scheduler(scheduler::SchedulerOp::random(random, setup)),
                8 => SimStep::BulkSleeps(bulk_sleeps::BulkSleepOp::random(random, setup)),
                9 => SimStep::Stream(stream_timeout::StreamOp::random(random, setup)),
                _ => SimStep::ExpiringMap(expiring_map::ExpiringMapOp::random(random, setup)),
            };
        }
    }

    fn of_time(random: &mut RandomSource<'_>, setup: &SimSetup) -> SimStep {
        match random.below(20) {
            0..4 => SimStep::Poll(random.index(8)),
            4..6 => SimStep::Jump(span(random, setup)),
            6 => SimStep::Back(span(random, setup)),
            7..11 => SimStep::Advance(span(random, setup)),
            11..13 => SimStep::Turn,
            13 => SimStep::Work(random.index(setup.threads)),
            14..18 => SimStep::Sweep,
            _ => SimStep::Settle,
        }
    }
}

/// Returns a random duration in nanoseconds: often a round one, so that deadlines coincide, sometimes zero, one, or very long.
pub fn span(random: &mut RandomSource<'_>, setup: &SimSetup) -> u64 {
    let SimSetup { scale, is_wide, .. } = *setup;
    match random.below(32) {
        0..2 => 0,
        2 => 1,
        3 => random.any() >> random.below(64),
        4..20 if is_wide => (80 * YEAR) >> random.below(62),
        4..20 => (scale / 8).max(1) * random.below(12),
        _ => random.below(scale),
    }
}

/// Returns a random duration until a deadline, sometimes `Duration::MAX`.
pub fn after(random: &mut RandomSource<'_>, setup: &SimSetup) -> Duration {
    if random.one_in(24) { Duration::MAX } else { Duration::from_nanos(span(random, setup)) }
}
