//! The counter and the clock of a simulated machine, to which anything can happen between any two readings.

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, RandomState};

use super::*;

/// A machine, as one of its threads sees it. Each reading takes some nanoseconds.
struct SimulatedMachine {
    random: Cell<u64>,
    /// The counter, and the part of a tick that has passed since.
    count: Cell<u64>,
    part: Cell<f64>,
    /// Ticks in a nanosecond of true time.
    hertz: Cell<f64>,
    /// The clock in nanoseconds.
    clock: Cell<f64>,
    /// How long the kernel takes a tick to last, in nanoseconds.
    tick: Cell<f64>,
    /// By what factor the clock is slewed.
    slew: Cell<f64>,
    /// The clock stands still for this many ticks, until the counter has come back to where it was.
    back: Cell<f64>,
    /// Whether the kernel derives its clock from the counter, and whether the thread knows it to.
    is_derived: Cell<bool>,
    is_clock: Cell<bool>,
    checks: Cell<u64>,
    /// Real readings of the clock.
    clock_readings: Cell<u64>,
    /// Readings of the counter or the clock.
    readings: Cell<u64>,
    /// Called before each reading.
    before_reading: RefCell<Event>,
}

/// An event that changes a machine.
type Event = Box<dyn FnMut(&SimulatedMachine)>;

/// The behaviour of a counter while the machine is suspended.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Counter {
    GoesOn,
    StandsStill,
    StartsFromZero,
}

/// Ticks further away than any window or interval: nearer than this is the coincidence that is left out.
const FAR: u64 = 8_000_000;

impl SimulatedMachine {
    fn new(seed: u64) -> SimulatedMachine {
        SimulatedMachine {
            random: Cell::new(seed),
            count: Cell::new(1 << 50),
            part: Cell::new(0.0),
            hertz: Cell::new(2.8),
            clock: Cell::new(1e12),
            tick: Cell::new(1.0 / 2.8),
            slew: Cell::new(1.0),
            back: Cell::new(0.0),
            is_derived: Cell::new(true),
            is_clock: Cell::new(true),
            checks: Cell::new(0),
            clock_readings: Cell::new(0),
            readings: Cell::new(0),
            before_reading: RefCell::new(Box::new(|_| ())),
        }
    }

    /// Calls `event` once, before the reading with this number.
    fn at_reading(self, number: u64, event: impl Fn(&SimulatedMachine) + 'static) -> SimulatedMachine {
        self.before_each(move |machine| {
            if machine.readings.get() == number {
                event(machine);
            }
        })
    }

    fn before_each(self, event: impl FnMut(&SimulatedMachine) + 'static) -> SimulatedMachine {
        *self.before_reading.borrow_mut() = Box::new(event);
        self
    }

    /// Returns a random number below `bound` (splitmix64).
    fn below(&self, bound: u64) -> u64 {
        self.random.set(self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.random.get();
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns a random number between these two.
    fn within(&self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1 << 32) as f64 / (1_u64 << 32) as f64
    }

    /// Lets true time pass.
    fn pass(&self, nanos: f64) {
        self.count_on(nanos * self.hertz.get());
    }

    fn count_on(&self, ticks: f64) {
        let all = self.part.get() + ticks;
        self.count.set(self.count.get().wrapping_add(all as u64));
        self.part.set(all.fract());
        let caught_up = ticks.min(self.back.get());
        self.back.set(self.back.get() - caught_up);
        if self.is_derived.get() {
            self.clock.set(self.clock.get() + (ticks - caught_up) * self.tick.get() * self.slew.get());
        }
    }

    fn reads(&self) {
        self.readings.set(self.readings.get() + 1);
        self.pass(self.within(2.0, 12.0));
        let mut event = self.before_reading.replace(Box::new(|_| ()));
        event(self);
        *self.before_reading.borrow_mut() = event;
        self.pass(self.within(2.0, 12.0));
    }

    fn shows(&self) -> Time {
        Time::from_nanos(self.clock.get() as u64)
    }

    /// Suspends the machine: its clock stands still.
    fn suspend(&self, counter: Counter, nanos: f64) {
        match counter {
            Counter::GoesOn => self.set_counter(self.count.get().wrapping_add((nanos * self.hertz.get()) as u64)),
            Counter::StandsStill => {}
            Counter::StartsFromZero => self.set_counter(self.far_from_now(6_000_000_000)),
        }
    }

    /// Restores the process under another kernel, on a processor of another rate. The clock continues where it was, or later.
    fn restore(&self, counter: u64, hertz: f64, later: f64) {
        self.set_counter(counter);
        self.hertz.set(hertz);
        self.tick.set(1.0 / hertz);
        self.slew.set(1.0);
        self.clock.set(self.clock.get() + later);
    }

    /// Migrates the virtual machine. Its kernel does not notice, and takes a tick to last as long as before.
    fn migrate(&self, hertz: f64, nanos: f64) {
        self.pass(nanos);
        self.hertz.set(hertz);
    }

    /// As `migrate`, to a hypervisor that sets the counter back. The kernel's clock does not go back.
    fn migrate_back(&self, hertz: f64, ticks: u64) {
        self.set_counter(self.count.get().wrapping_sub(ticks));
        self.back.set(self.back.get() + ticks as f64);
        self.hertz.set(hertz);
    }

    fn set_counter(&self, count: u64) {
        self.count.set(count);
        self.back.set(0.0);
    }

    fn far_from_now(&self, bound: u64) -> u64 {
        loop {
            let count = self.below(bound);
            let from_now = count.wrapping_sub(self.count.get());
            if from_now > FAR && from_now < u64::MAX - FAR {
                return count;
            }
        }
    }
}

impl CounterSource for &SimulatedMachine {
    fn counter(&self) -> u64 {
        self.reads();
        self.count.get()
    }

    fn clock(&self) -> Time {
        self.clock_readings.set(self.clock_readings.get() + 1);
        self.reads();
        self.shows()
    }

    fn is_clock(&self) -> bool {
        self.is_clock.get()
    }

    fn check_again(&self) {
        self.checks.set(self.checks.get() + 1);
        self.is_clock.set(self.is_derived.get());
    }
}

/// A thread that reads the time repeatedly, and checks each result.
struct Thread<'a> {
    machine: &'a SimulatedMachine,
    ahead: Ahead<&'a SimulatedMachine>,
    windows: u64,
    last: Time,
}

impl<'a> Thread<'a> {
    fn new(machine: &'a SimulatedMachine, windows: u64) -> Thread<'a> {
        Thread { machine, ahead: Ahead::with(machine, windows, 1), windows, last: Time::ZERO }
    }

    #[track_caller]
    fn now(&mut self) {
        let before = self.machine.shows();
        let now = self.ahead.now();
        assert!(now >= before, "P1: {} ns behind, reading {}", (before - now).as_nanos(), self.machine.readings.get());
        assert!(
            now >= self.last,
            "P3: {} ns back, reading {}",
            (self.last - now).as_nanos(),
            self.machine.readings.get()
        );
        let most = self.windows * WINDOW + TOGETHER + EARLY;
        let ahead = (now - self.machine.shows()).as_nanos();
        assert!(ahead <= most, "P4: {ahead} ns ahead, reading {}", self.machine.readings.get());
        self.last = now;
    }

    /// Reads the time until the clock has moved by `nanos`.
    #[track_caller]
    fn run(&mut self, nanos: u64) {
        let end = self.machine.shows() + Span::from_nanos(nanos);
        while self.machine.shows() < end {
            self.now();
            self.machine.pass(self.machine.within(5.0, 60.0));
        }
    }

    /// Reads the time repeatedly, and returns whether most reads did without the clock.
    #[track_caller]
    fn reads_cheaply(&mut self) -> bool {
        let (clock, all) = (self.machine.clock_readings.get(), self.machine.readings.get());
        self.run(1_000_000);
        (self.machine.clock_readings.get() - clock) * 10 < self.machine.readings.get() - all
    }
}

const WINDOWS: [u64; 2] = [1, 16];
const COUNTERS: [Counter; 3] = [Counter::GoesOn, Counter::StandsStill, Counter::StartsFromZero];

/// Returns the readings before which an event happens: the first of them measure, the later ones are inside windows or end them.
fn moments() -> impl Iterator<Item = (u64, u64)> {
    let early = (1..60).chain((60..1500).step_by(61));
    early.chain((5_000..9_000).step_by(397)).map(|number| (number, WINDOWS[number as usize % 2]))
}

/// Makes an event happen at any moment, and checks that the returned times are right, and cheap again after a while.
#[track_caller]
fn at_any_moment(event: impl Fn(&SimulatedMachine) + Copy + 'static) {
    for (number, windows) in moments() {
        let machine = SimulatedMachine::new(number).at_reading(number, event);
        goes_well(&machine, number, windows);
    }
}

/// Reads the time until some time after the event.
#[track_caller]
fn goes_well(machine: &SimulatedMachine, number: u64, windows: u64) {
    let mut thread = Thread::new(machine, windows);
    while machine.readings.get() <= number {
        thread.run(1_000);
    }
    thread.run(100_000);
    if number.is_multiple_of(16) {
        thread.run(600_000);
        assert!(thread.reads_cheaply(), "the counter is not used after the event before reading {number}");
    }
}

#[test]
fn d68_a_suspend_during_the_measurement_or_later_makes_nothing_early() {
    for counter in COUNTERS {
        for nanos in [300e3, 20e6, 3600e9] {
            at_any_moment(move |machine| machine.suspend(counter, nanos));
        }
    }
}

#[test]
fn d68_a_restore_under_another_kernel_makes_nothing_early() {
    for factor in [0.5, 1.0, 2.0] {
        for later in [0.0, 100e3] {
            let go = move |machine: &SimulatedMachine, counter| machine.restore(counter, 2.8 * factor, later);
            at_any_moment(move |machine| go(machine, machine.count.get().wrapping_add(FAR)));
            at_any_moment(move |machine| go(machine, machine.count.get().wrapping_sub(FAR)));
            at_any_moment(move |machine| go(machine, machine.far_from_now(u64::MAX)));
        }
    }
}

#[test]
fn d68_a_migration_of_the_virtual_machine_between_or_inside_windows_makes_nothing_early() {
    for factor in [0.5, 1.0, 2.0] {
        for nanos in [0.0, 10e3, 50e6] {
            at_any_moment(move |machine| machine.migrate(2.8 * factor, nanos));
        }
        at_any_moment(move |machine| machine.migrate_back(2.8 * factor, FAR));
    }
}

#[test]
fn d68_a_clock_that_is_slewed_by_a_tenth_either_way_is_not_overtaken() {
    for (from, to) in [(0.9, 1.1), (1.1, 0.9), (1.0, 1.1), (1.0, 0.9)] {
        for (number, windows) in moments() {
            let machine = SimulatedMachine::new(number).at_reading(number, move |machine| machine.slew.set(to));
            machine.slew.set(from);
            goes_well(&machine, number, windows);
        }
    }
}

#[test]
fn d68_a_thread_that_loses_its_processor_between_two_readings_is_not_early() {
    for nanos in [500.0, 5e3, 50e3, 500e3, 5e6, 5e9] {
        at_any_moment(move |machine| machine.pass(nanos));
    }
}

/// Nothing that one thread has measured is used by another.
#[test]
fn d68_threads_measure_counters_of_their_own() {
    let worlds = [2.8, 1.4, 5.6].map(|hertz: f64| {
        let machine = SimulatedMachine::new(hertz.to_bits());
        machine.restore(machine.below(u64::MAX), hertz, 0.0);
        machine
    });
    let mut threads: Vec<_> = worlds.iter().map(|machine| Thread::new(machine, 16)).collect();
    for _ in 0..1000 {
        threads.iter_mut().for_each(|thread| thread.run(2_000));
    }
    assert!(threads.iter_mut().all(Thread::reads_cheaply));
}

#[test]
fn d68_a_counter_that_stands_still_or_runs_at_an_impossible_rate_is_not_used() {
    for factor in [0.0, 1e-6, 0.01, 100.0] {
        let machine = SimulatedMachine::new(1);
        machine.is_derived.set(false);
        let hertz = 2.8 * factor;
        let count = |machine: &SimulatedMachine, by: f64| machine.part.set(machine.part.get() + by);
        // Here the clock runs by itself, independent of the counter.
        let machine = machine.before_each(move |machine| {
            machine.clock.set(machine.clock.get() + 15.0);
            count(machine, 15.0 * hertz);
        });
        machine.hertz.set(0.0);
        let mut thread = Thread::new(&machine, 16);
        for _ in 0..100_000 {
            thread.now();
        }
        assert!(!thread.reads_cheaply_by_calls(), "{factor}");
    }
}

impl Thread<'_> {
    /// As `reads_cheaply`, for a machine whose clock moves with readings only.
    fn reads_cheaply_by_calls(&mut self) -> bool {
        let before = self.machine.clock_readings.get();
        (0..10_000).for_each(|_| self.now());
        self.machine.clock_readings.get() - before < 5_000
    }
}

#[test]
fn d68_when_the_kernel_chooses_another_source_the_first_disagreement_ends_the_use_of_the_counter() {
    for windows in WINDOWS {
        let machine = SimulatedMachine::new(7);
        let mut thread = Thread::new(&machine, windows);
        thread.run(1_000_000);
        assert!(thread.reads_cheaply());
        // From now on the clock runs by itself, and the counter, which goes on, is a twentieth too fast for it. That is
        // too little to make a time late, and enough to be seen.
        machine.is_derived.set(false);
        let machine = &machine;
        *machine.before_reading.borrow_mut() = Box::new(|machine| machine.clock.set(machine.clock.get() + 15.0 / 1.05));
        for _ in 0..100_000 {
            machine.hertz.set(0.0);
            machine.part.set(machine.part.get() + 15.0 * 2.8);
            thread.now();
        }
        assert!(machine.checks.get() >= 1 && !thread.ahead.usable.get());
        thread.now();
    }
}

/// A process can set its own clock back, with a time namespace.
#[test]
fn d68_a_clock_that_was_set_back_is_followed() {
    for windows in WINDOWS {
        let machine = SimulatedMachine::new(3);
        let mut thread = Thread::new(&machine, windows);
        thread.run(1_000_000);
        machine.clock.set(machine.clock.get() - 900e9);
        machine.pass(300e3);
        thread.last = Time::ZERO;
        thread.run(1_000_000);
        assert!(thread.reads_cheaply());
    }
}

#[test]
fn d68_a_counter_is_used_after_it_has_proven_itself_and_again_after_each_event() {
    let machine = SimulatedMachine::new(5);
    let mut thread = Thread::new(&machine, 16);
    thread.ahead = Ahead::with(&machine, 16, PROVEN_ALONE);
    for _ in 0..2 {
        thread.run(u64::from(PROVEN_ALONE) * SHORTEST);
        assert_eq!(thread.ahead.window.get(), 0);
        thread.run(u64::from(PROVEN_ALONE) * SHORTEST);
        assert!(thread.reads_cheaply());
        machine.restore(machine.far_from_now(u64::MAX), 1.4, 0.0);
    }
}

/// A process can set its own clock forward, too. If it does so all the time, the counter is not used.
#[test]
fn d68_a_clock_that_is_set_forward_all_the_time_is_read_each_time() {
    for windows in WINDOWS {
        let machine = SimulatedMachine::new(9);
        let mut thread = Thread::new(&machine, windows);
        thread.ahead = Ahead::with(&machine, windows, PROVEN_ALONE);
        for _ in 0..200 {
            (0..1000).for_each(|_| thread.now());
            machine.clock.set(machine.clock.get() + machine.within(1e6, 600e9));
        }
    }
}

/// All events in random order, from a seed.
#[test]
fn d68_p1_p3_whatever_happens_to_counter_and_clock_no_time_is_behind_or_goes_back() {
    let seed =
        std::env::var("TOURBILLON_SEED").ok().map(|seed| seed.parse::<u64>().expect("TOURBILLON_SEED is a number"));
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("to repeat this: TOURBILLON_SEED={seed}");
    let mut cheap = 0;
    for round in 0..100 {
        let machine = SimulatedMachine::new(seed.wrapping_add(round));
        let rate = 1 << machine.below(6);
        let mut quiet_until = 0.0;
        let machine = machine.before_each(move |machine| {
            if machine.below(100) == 0 {
                machine.pass(machine.within(0.0, 4.0).exp() * 100.0);
            }
            if machine.below(3_000 * rate) == 0 {
                machine.slew.set(machine.within(0.9, 1.1));
            }
            // Two of these do not come within two milliseconds of the clock: each takes longer than that.
            if machine.clock.get() >= quiet_until && machine.below(1_000 * rate) == 0 {
                happens(machine);
                quiet_until = machine.clock.get() + 2.1e6;
            }
        });
        let mut thread = Thread::new(&machine, WINDOWS[round as usize % 2]);
        let (calls, most) = (20_000, machine.below(8) as f64);
        for _ in 0..calls {
            thread.now();
            machine.pass(machine.within(0.0, most).exp() * 5.0);
        }
        cheap += u64::from(machine.clock_readings.get() * 2 < calls);
    }
    assert!(cheap >= 10, "the counter is hardly used: in {cheap} of 100 rounds");
}

fn happens(machine: &SimulatedMachine) {
    let hertz = 2.8 * machine.within(-1.0, 1.0).exp2();
    let nanos = 300e3 * machine.within(0.0, 20.0).exp();
    match machine.below(6) {
        0 | 1 => machine.suspend(COUNTERS[machine.below(3) as usize], nanos),
        2 => machine.migrate(hertz, nanos - 300e3),
        3 => machine.migrate_back(hertz, FAR + machine.below(FAR)),
        4 => machine.restore(machine.far_from_now(u64::MAX), hertz, machine.within(0.0, 1e6)),
        _ => machine.restore(machine.count.get().wrapping_add(FAR), hertz, machine.within(0.0, 1e9)),
    }
}

#[test]
fn p1_it_is_never_behind_the_clock_and_hardly_ahead() {
    for windows in WINDOWS {
        let ahead = Ahead::new(windows, true);
        let start = crate::clock::monotonic();
        let mut most = 0;
        while (crate::clock::monotonic() - start).as_nanos() < 100_000_000 {
            for _ in 0..100 {
                let before = crate::clock::monotonic();
                let now = ahead.now();
                let after = crate::clock::monotonic();
                assert!(now >= before, "behind the clock");
                most = most.max((now - after).as_nanos());
            }
        }
        assert!(most <= windows * WINDOW / 3 + TOGETHER + EARLY, "{most} ns ahead after {windows} windows");
    }
}

/// Otherwise, of two timers for the same duration, the one that is armed later would fire first.
#[test]
fn p3_it_does_not_go_back_when_the_clock_is_read_again() {
    for windows in WINDOWS {
        let (ahead, start) = (Ahead::new(windows, true), crate::clock::monotonic());
        let mut last = start;
        while (crate::clock::monotonic() - start).as_nanos() < 100_000_000 {
            let now = ahead.now();
            assert!(now >= last, "{} ns back after {windows} windows", (last - now).as_nanos());
            last = now;
        }
    }
}
