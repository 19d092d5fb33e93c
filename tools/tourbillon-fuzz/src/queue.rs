//! Any bytes, read as operations, on a queue and on the naive one: the same answers to each, and every invariant after some of them.
//!
//! Verifying all invariants takes as long as a hundred operations. So the input says how often it is done, from after every operation to after
//! every 64th, and at the end in any case: what is broken does not mend itself, and most of what breaks gives a wrong answer soon.

#[path = "../../../crates/tourbillon-queue/tests/support/mod.rs"]
mod support;

use tourbillon_queue::{Heap, ListTree, Naive, Rounds, Span, Time, TimerQueue, Wheel};

use self::support::{Op, Pair};
use crate::bytes::Bytes;

/// On which queue, from when on, how often verified; then what is done, to the end of the bytes.
struct Story<'a> {
    start: Time,
    /// The operations between two times that all invariants are verified.
    pace: usize,
    ops: Bytes<'a>,
}

/// The naive queue is slow. With `--cfg tourbillon_small` so few are a crowd.
const MOST_TIMERS: usize = 300;

/// Reads bytes as a queue and operations on it.
pub fn queue(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (queue, pace) = (bytes.byte(), bytes.byte());
    let start = Time::from_nanos(number(&mut bytes));
    let story = |ops| Story { start, pace: 1 << (pace % 7), ops };
    match queue % 8 {
        0..3 => story(bytes).run(Wheel::new()),
        3 => story(bytes).run(Heap::new()),
        4 | 5 => story(bytes).run(ListTree::new()),
        _ => {
            let (tick, slots) = (Span::from_nanos(number(&mut bytes)), usize::from(bytes.byte()));
            if let Ok(rounds) = Rounds::with_slots(tick, slots) {
                story(bytes).run(rounds);
            }
        }
    }
}

impl Story<'_> {
    fn run<Q: TimerQueue<u64>>(mut self, queue: Q) {
        let mut pair = Pair::new(queue, Naive::new());
        pair.now = self.start;
        pair.expire(0, self.start);
        let mut steps = 0;
        while !self.ops.is_empty() {
            self.step(&mut pair);
            while pair.len() > MOST_TIMERS {
                pair.cancel(0);
            }
            steps += 1;
            if steps % self.pace == 0 {
                pair.check();
            }
        }
        pair.check();
        pair.expire(usize::MAX, Time::NEVER);
        pair.check();
    }

    /// One byte says what, the numbers after it to whom and when. As many kinds of arming as of everything that takes timers away.
    fn step<Q: TimerQueue<u64>>(&mut self, pair: &mut Pair<Q, Naive<u64>>) {
        let ops = &mut self.ops;
        let op = match ops.byte() % 18 {
            0..6 => Op::Arm(number(ops)),
            6..8 => Op::Cancel(number(ops)),
            8..10 => Op::Reschedule(number(ops), number(ops)),
            10..12 => Op::Advance(number(ops)),
            12 => Op::Backwards(number(ops)),
            13 => Op::Some(usize::from(ops.byte())),
            14 => Op::Stale(number(ops)),
            // Rarely, or no story would ever hold many timers.
            15 if ops.byte().is_multiple_of(16) => Op::Clear,
            15 => Op::Advance(0),
            // Many at once, alike or ever farther away: a crowd in a short input. And away with it, or with a part.
            16 => {
                let (count, shape, step) = (ops.byte(), number(ops), number(ops));
                (1..u64::from(count)).for_each(|nth| pair.apply(Op::Arm(shape.wrapping_add(nth.wrapping_mul(step)))));
                Op::Arm(shape)
            }
            _ => {
                let (count, pick) = (ops.byte(), number(ops));
                (1..count).for_each(|_| pair.apply(Op::Cancel(pick)));
                Op::Cancel(pick)
            }
        };
        pair.apply(op);
    }
}

/// A number of one to eight bytes: small ones take few, so that a short input holds many operations.
fn number(bytes: &mut Bytes<'_>) -> u64 {
    let width = 1 + usize::from(bytes.byte() % 8);
    bytes.number(width)
}
