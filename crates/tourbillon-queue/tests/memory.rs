//! How much the queues allocate and free, counted by the allocator itself.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use support::{Random, on_every_queue, seed};
use tourbillon_queue::{Heap, Key, ListTree, Rounds, Span, Time, TimerQueue, Wheel};

const MILLION: u64 = 1_000_000;

/// The system's allocator, with counters for each thread. Each test runs in a thread of its own, so the tests do not see
/// each other's allocations.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// Constants without a destructor: reading them allocates nothing, so the allocator does not call itself.
thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    static LIVE_BYTES: Cell<i64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to `System` unchanged, and its result is returned; the counting touches only two
// thread-local numbers and allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE_BYTES.set(LIVE_BYTES.get() + layout.size() as i64);
        // SAFETY: this method has the same contract as `System.alloc`, and the caller keeps it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.set(LIVE_BYTES.get() - layout.size() as i64);
        // SAFETY: by the contract, `pointer` came from this allocator with this layout, and so from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        LIVE_BYTES.set(LIVE_BYTES.get() + new_size as i64 - layout.size() as i64);
        // SAFETY: by the contract, `pointer` came from this allocator with this layout, and so from `System`, and
        // `new_size` is valid.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Returns how many allocations `action` makes, and its result.
fn allocations_of<T>(action: impl FnOnce() -> T) -> (u64, T) {
    let before = ALLOCATIONS.get();
    let result = action();
    (ALLOCATIONS.get() - before, result)
}

#[test]
fn an_empty_queue_allocates_nothing() {
    assert_eq!(allocations_of(Wheel::<u64>::new).0, 0);
    assert_eq!(allocations_of(Heap::<u64>::new).0, 0);
    assert_eq!(allocations_of(ListTree::<u64>::new).0, 0);
}

/// A load of pending timers, of one timeout or of many.
struct Load {
    random: Random,
    /// Timeouts are between two seconds and this much more.
    spread: u64,
    now: Time,
    keys: Vec<Key>,
}

impl Load {
    fn deadline(&mut self) -> Time {
        self.now + Span::from_secs(2) + Span::from_nanos(self.random.below(self.spread))
    }

    fn pick(&mut self) -> usize {
        self.random.below(self.keys.len() as u64) as usize
    }

    /// Arms up to `timers`, then cancels, arms and reschedules, and returns how many allocations that made. Time
    /// advances by `step` after every hundred operations; timers that are due then are armed again.
    fn run<Q: TimerQueue<u64>>(&mut self, queue: &mut Q, timers: usize, step: Span) -> u64 {
        let mut allocations = 0;
        while self.keys.len() > timers {
            let key = self.keys.pop().unwrap();
            queue.remove(key);
        }
        while self.keys.len() < timers {
            let deadline = self.deadline();
            let key = queue.insert(deadline, 0);
            self.keys.push(key);
        }
        for operation in 0..100_000 {
            let (pick, deadline) = (self.pick(), self.deadline());
            let key = self.keys[pick];
            let (made, new) = allocations_of(|| {
                if operation % 2 == 0 {
                    assert!(queue.reschedule(key, deadline).is_some());
                    return key;
                }
                assert!(queue.remove(key).is_some());
                queue.insert(deadline, 0)
            });
            allocations += made;
            self.keys[pick] = new;
            if operation % 100 == 99 && step > Span::ZERO {
                self.now = self.now + step;
                // A pop may allocate a buffer to sort in, and is not counted here.
                while let Some(timer) = queue.pop(self.now) {
                    let place = self.keys.iter().position(|key| *key == timer.key).unwrap();
                    let deadline = self.deadline();
                    let (made, key) = allocations_of(|| queue.insert(deadline, 0));
                    allocations += made;
                    self.keys[place] = key;
                }
            }
        }
        allocations
    }
}

/// Returns how many allocations a load makes after a warm-up with more timers.
fn allocations_when_warm<Q: TimerQueue<u64>>(mut queue: Q, spread: u64, step: Span) -> u64 {
    let mut load = Load { random: Random::new(seed()), spread, now: Time::ZERO, keys: Vec::new() };
    load.run(&mut queue, 4000, step);
    load.run(&mut queue, 1000, step)
}

const MINUTE: u64 = 60_000_000_000;

#[test]
fn p7_arm_cancel_and_reschedule_allocate_nothing_after_a_warm_up() {
    // Without any pop, and with pops in between that find nothing due. (Time begins at zero and two seconds are more
    // than a slot of the wheel's level 5, so that all timers are in that level, and no other comes and goes.)
    for step in [Span::ZERO, Span::from_nanos(1000)] {
        assert_eq!(allocations_when_warm(Wheel::new(), MINUTE, step), 0);
        assert_eq!(allocations_when_warm(Heap::new(), MINUTE, step), 0);
        assert_eq!(allocations_when_warm(Rounds::new(), MINUTE, step), 0);
        // The tree of the list tree is made of nodes that come and go; its runs are not.
        assert_eq!(allocations_when_warm(ListTree::new(), 1, step), 0);
    }
}

#[test]
fn p7_when_timers_fire_arm_cancel_and_reschedule_allocate_nothing_either() {
    let step = Span::from_millis(100);
    assert_eq!(allocations_when_warm(Wheel::new(), MINUTE, step), 0);
    assert_eq!(allocations_when_warm(Heap::new(), MINUTE, step), 0);
    assert_eq!(allocations_when_warm(Rounds::new(), MINUTE, step), 0);
    assert_eq!(allocations_when_warm(ListTree::new(), 1, step), 0);
}

#[test]
fn p7_a_lone_ticker_allocates_nothing_in_the_long_run() {
    fn tick<Q: TimerQueue<u64>>(mut queue: Q) {
        let mut now = Time::ZERO;
        let mut ticks = |count: u32| {
            for _ in 0..count {
                queue.insert(now + Span::from_millis(10), 0);
                now = queue.next_deadline().unwrap();
                assert!(queue.pop(now).is_some() && queue.pop(now).is_none());
            }
        };
        ticks(10_000);
        assert_eq!(allocations_of(|| ticks(100_000)).0, 0);
    }
    tick(Wheel::new());
    tick(Heap::new());
    tick(ListTree::new());
}

/// Pops at `now` and for a minute after it, while nothing is due. Returns the end of that minute.
fn let_time_pass(queue: &mut Wheel<u64>, now: Time) -> Time {
    const STEPS: u64 = 3000;
    for step in 0..=STEPS {
        assert!(queue.pop(now + Span::from_millis(20 * step)).is_none());
    }
    now + Span::from_millis(20 * STEPS)
}

#[test]
fn f2_a_level_of_the_wheel_takes_memory_only_while_it_is_used() {
    for cancelled in [true, false] {
        let mut queue = Wheel::new();
        let before = LIVE_BYTES.get();
        // Near timers only; more of them than of the far ones below, so that the far ones reuse their blocks.
        for number in 0..1000 {
            queue.insert(Time::from_nanos(number * MILLION), number);
        }
        let mut now = Time::from_nanos(1000 * MILLION);
        assert_eq!(queue.expire(now, drop), 1000);
        now = let_time_pass(&mut queue, now);
        let near_only = LIVE_BYTES.get() - before;

        // Some timers in every level up to the last.
        let keys: Vec<Key> = (0..63).map(|bit| queue.insert(now + Span::from_nanos(1 << bit), bit)).collect();
        let with_far = LIVE_BYTES.get() - before;
        assert!(with_far > near_only, "levels are made when they are needed");
        if cancelled {
            for &key in &keys {
                assert!(queue.remove(key).is_some());
            }
        } else {
            now = now + Span::from_nanos(1 << 62);
            assert_eq!(queue.expire(now, drop), keys.len());
        }
        drop(keys);
        let_time_pass(&mut queue, now);
        let far_gone = LIVE_BYTES.get() - before;
        println!("near timers only: {near_only} B, with far ones: {with_far} B, far ones gone: {far_gone} B");
        assert!(far_gone <= near_only, "unused levels still take memory");
    }
}

#[test]
fn a_timer_in_a_wheel_takes_at_most_48_bytes_without_spare_capacity() {
    const { assert!(Wheel::<u64>::BYTES_PER_TIMER <= 48) };
    let mut random = Random::new(seed());
    let before = LIVE_BYTES.get();
    let mut queue = Wheel::new();
    for number in 0..MILLION {
        queue.insert(Time::from_nanos(random.below(60 * MINUTE)), number);
    }
    let each = (LIVE_BYTES.get() - before) as f64 / MILLION as f64;
    println!("{} bytes a timer, measured {each:.1} with spare capacity", Wheel::<u64>::BYTES_PER_TIMER);
    assert!(each <= 2.0 * 48.0, "{each} bytes a timer");
}

#[test]
fn memory_of_cancelled_timers_is_used_again() {
    /// Arms a million timers in all, in rounds. Each is cancelled within its round, but every 64th in the next.
    fn in_rounds<Q: TimerQueue<u64>>(mut queue: Q) {
        const ROUNDS: u64 = 100;
        let mut random = Random::new(seed());
        let (mut keys, mut survivors) = (Vec::with_capacity(10_000), Vec::with_capacity(10_000));
        let before = LIVE_BYTES.get();
        let (mut warm, mut most) = (0, 0);
        for round in 0..ROUNDS {
            let now = Time::from_nanos(round * 100 * MILLION);
            assert!(queue.pop(now).is_none());
            for number in 0..MILLION / ROUNDS {
                keys.push(queue.insert(now + Span::from_secs(1) + Span::from_nanos(random.below(MINUTE)), number));
            }
            survivors.drain(..).for_each(|key| assert!(queue.remove(key).is_some()));
            let live = LIVE_BYTES.get() - before;
            if round < ROUNDS / 10 {
                warm = live.max(warm);
            } else {
                most = live.max(most);
            }
            for (key, number) in keys.drain(..).zip(0..) {
                if number % 64 == 0 {
                    survivors.push(key);
                } else {
                    assert!(queue.remove(key).is_some());
                }
            }
        }
        println!("at most {warm} B in the first rounds, {most} B in the others");
        // A vector that is full takes twice as much.
        assert!(most <= 2 * warm, "{most} bytes after many rounds, {warm} after some");
        queue.check().unwrap();
    }
    on_every_queue!(in_rounds);
}
