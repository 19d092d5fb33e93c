//! Shared by the tests: random numbers that can be repeated, and two queues run side by side.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use tourbillon_queue::{Key, Settled, Span, Time, TimerQueue};

/// Random numbers from a seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number less than `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Returns the seed of a random test: the variable `TOURBILLON_SEED` if it is set, else a new one. Prints it, so that a
/// failing test shows it.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("TOURBILLON_SEED") {
        Ok(text) => text.parse().expect("TOURBILLON_SEED is a number"),
        Err(_) => std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64),
    };
    println!("to repeat this: TOURBILLON_SEED={seed}");
    seed
}

/// Returns how many operations a random test makes: the variable `TOURBILLON_OPERATIONS` if it is set, else `usual`. It is set
/// to few where each is slow (under an interpreter) or the test is run a thousand times.
pub(crate) fn operations(usual: u64) -> u64 {
    std::env::var("TOURBILLON_OPERATIONS")
        .map_or(usual, |text| text.parse().expect("TOURBILLON_OPERATIONS is a number"))
}

/// One operation on a queue; `arbitrary` numbers pick timers and times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Arm(u64),
    Cancel(u64),
    Reschedule(u64, u64),
    /// Advance the time by this much, or (if even) to the next deadline, and expire.
    Advance(u64),
    /// Expire at a time that is this much before the present.
    Backwards(u64),
    /// Settle a little, at this time or ahead of it; then (if even) expire a few.
    Some(usize),
    Stale(u64),
    Clear,
}

/// Two queues that run the same operations and must return the same results.
pub(crate) struct Pair<A, B> {
    pub(crate) tested: A,
    pub(crate) oracle: B,
    pub(crate) now: Time,
    live: Vec<(Key, Key)>,
    stale: Vec<(Key, Key)>,
    armed: u64,
}

impl<A: TimerQueue<u64>, B: TimerQueue<u64>> Pair<A, B> {
    pub(crate) fn new(tested: A, oracle: B) -> Pair<A, B> {
        Pair { tested, oracle, now: Time::ZERO, live: Vec::new(), stale: Vec::new(), armed: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn apply(&mut self, op: Op) {
        match op {
            Op::Arm(shape) => self.arm(self.deadline(shape)),
            Op::Cancel(pick) => self.cancel(pick),
            Op::Reschedule(pick, shape) => self.reschedule(pick, self.deadline(shape)),
            Op::Advance(by) => {
                self.now = match self.oracle.next_deadline() {
                    Some(next) if by % 2 == 0 && next > self.now => next,
                    _ => self.now + Span::from_nanos(by / 2),
                };
                self.expire(usize::MAX, self.now);
            }
            Op::Backwards(by) => {
                let then = self.now - Span::from_nanos(by);
                self.expire(usize::MAX, then);
            }
            Op::Some(steps) => {
                // Perhaps not to the end: the next arms and cancels then meet a queue in the middle of its upkeep.
                let ahead = self.now + Span::from_nanos(1 << (steps % 40));
                let _: Settled = self.tested.settle(if steps % 3 == 0 { ahead } else { self.now }, steps % 16);
                if steps % 2 == 0 {
                    self.expire(steps, self.now);
                }
            }
            Op::Stale(pick) => self.try_stale(pick),
            Op::Clear => {
                self.tested.clear();
                self.oracle.clear();
                self.stale.append(&mut self.live);
            }
        }
        assert_eq!(self.tested.len(), self.oracle.len(), "len after {op:?}");
    }

    /// Returns a deadline of one of many kinds, chosen by one number.
    fn deadline(&self, shape: u64) -> Time {
        let (kind, rest, now) = (shape % 16, shape / 16, self.now.as_nanos());
        let nanos = match kind {
            0 => now,
            1 => now.saturating_sub(rest % 1000),
            2 => rest % 3,
            3..5 => now.saturating_add(rest % 64),
            5..7 => now.saturating_add(rest % 10_000),
            7..9 => now.saturating_add(rest % 5_000_000_000),
            // Just before, at, or just after the start of a slot of some level.
            9..11 => {
                let width = 1u64 << (6 * (rest % 11));
                let boundary = (now / width).saturating_add(1 + rest / 16 % 3).saturating_mul(width);
                boundary.saturating_add(rest / 64 % 3).saturating_sub(1)
            }
            // The deadline of another timer.
            11..13 => self.pick(rest).and_then(|(key, _)| self.tested.deadline(key)).map_or(now, Time::as_nanos),
            13 => rest.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            14 => now.saturating_add(1 << (rest % 64)),
            _ => u64::MAX - rest % 3,
        };
        Time::from_nanos(nanos)
    }

    fn pick(&self, pick: u64) -> Option<(Key, Key)> {
        (!self.live.is_empty()).then(|| self.live[(pick % self.live.len() as u64) as usize])
    }

    pub(crate) fn arm(&mut self, deadline: Time) {
        let value = self.armed;
        self.armed += 1;
        self.live.push((self.tested.insert(deadline, value), self.oracle.insert(deadline, value)));
    }

    pub(crate) fn cancel(&mut self, pick: u64) {
        if self.live.is_empty() {
            return;
        }
        let keys = self.live.swap_remove((pick % self.live.len() as u64) as usize);
        assert_eq!(self.tested.get(keys.0), self.oracle.get(keys.1));
        assert_eq!(self.tested.remove(keys.0), self.oracle.remove(keys.1));
        self.stale.push(keys);
    }

    pub(crate) fn reschedule(&mut self, pick: u64, deadline: Time) {
        if let Some((tested, oracle)) = self.pick(pick) {
            assert_eq!(self.tested.reschedule(tested, deadline), self.oracle.reschedule(oracle, deadline));
            assert_eq!(self.tested.deadline(tested), Some(deadline));
            assert_eq!(self.tested.get_mut(tested), self.oracle.get_mut(oracle));
        }
    }

    /// Takes up to `limit` timers out of both queues; without a limit, every other time by one call.
    pub(crate) fn expire(&mut self, limit: usize, now: Time) {
        if limit == usize::MAX && self.armed.is_multiple_of(2) {
            self.expire_all(now);
            return;
        }
        let mut popped = Vec::new();
        while popped.len() < limit {
            let (tested, oracle) = (self.tested.pop(now), self.oracle.pop(now));
            let answer = |timer: &tourbillon_queue::Expired<u64>| (timer.deadline, timer.value);
            assert_eq!(tested.as_ref().map(answer), oracle.as_ref().map(answer), "popped at {now:?}");
            let (Some(tested), Some(oracle)) = (tested, oracle) else { break };
            assert!(tested.deadline <= now, "early");
            popped.push((tested.key, oracle.key));
        }
        if !popped.is_empty() {
            popped.sort_unstable();
            self.live.retain(|keys| popped.binary_search(keys).is_err());
            self.stale.append(&mut popped);
        }
    }

    fn expire_all(&mut self, now: Time) {
        let (mut tested, mut oracle) = (Vec::new(), Vec::new());
        let counts =
            (self.tested.expire(now, |timer| tested.push(timer)), self.oracle.expire(now, |timer| oracle.push(timer)));
        assert_eq!(counts, (tested.len(), oracle.len()));
        let answer = |timer: &tourbillon_queue::Expired<u64>| (timer.deadline, timer.value);
        assert!(tested.iter().map(answer).eq(oracle.iter().map(answer)), "{tested:?}, not {oracle:?}");
        assert!(tested.iter().all(|timer| timer.deadline <= now), "early");
        let mut keys: Vec<_> = tested.iter().zip(&oracle).map(|(tested, oracle)| (tested.key, oracle.key)).collect();
        keys.sort_unstable();
        self.live.retain(|pair| keys.binary_search(pair).is_err());
        self.stale.append(&mut keys);
    }

    /// Every method refuses a stale key.
    fn try_stale(&mut self, pick: u64) {
        if self.stale.is_empty() {
            return;
        }
        let (key, _) = self.stale[(pick % self.stale.len() as u64) as usize];
        assert_eq!(self.tested.get(key), None);
        assert_eq!(self.tested.get_mut(key), None);
        assert_eq!(self.tested.deadline(key), None);
        assert_eq!(self.tested.reschedule(key, self.now), None);
        assert_eq!(self.tested.remove(key), None);
        self.stale.truncate(1000);
    }

    pub(crate) fn check(&self) {
        self.tested.check().unwrap();
        assert_eq!(self.tested.next_deadline(), self.oracle.next_deadline());
        let (wakeup, deadline) = (self.tested.next_wakeup(), self.tested.next_deadline());
        assert!(wakeup <= deadline, "a wake-up at {wakeup:?}, after the deadline {deadline:?}");
        assert_eq!(self.tested.next_wakeup().is_some(), self.tested.next_deadline().is_some());
    }
}

/// Calls a function that is generic over the queue once for each structure, some of them in several shapes.
#[allow(unused_macros, reason = "each test binary uses a part of it")]
macro_rules! on_every_queue {
    ($function:ident) => {
        $function(tourbillon_queue::Wheel::new());
        $function(tourbillon_queue::Heap::new());
        $function(tourbillon_queue::ListTree::new());
        $function(tourbillon_queue::Rounds::new());
        $function(tourbillon_queue::Rounds::with_slots(tourbillon_queue::Span::from_nanos(7), 5).unwrap());
        $function(tourbillon_queue::Rounds::with_slots(tourbillon_queue::Span::from_secs(1), 1).unwrap());
    };
}
#[allow(unused_imports, reason = "each test binary uses a part of it")]
pub(crate) use on_every_queue;
