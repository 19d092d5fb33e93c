//! Runs any bytes as operations on a queue and on the naive queue, and compares every answer. Some operations are followed by a
//! check of all invariants.
//!
//! Checking all invariants takes as long as a hundred operations. So the input decides how often that happens, from after every
//! operation to after every 64th, and always at the end: a broken invariant does not repair itself, and usually gives a wrong
//! answer soon.

#[path = "../../../crates/tourbillon-queue/tests/support/mod.rs"]
mod support;

use tourbillon_queue::{Heap, ListTree, Naive, Rounds, Span, Time, TimerQueue, Wheel};

use self::support::{Op, Pair};
use crate::bytes::Bytes;

/// The start of the run, the pace of the checks, and the operations, up to the end of the bytes.
struct QueueRun<'a> {
    start: Time,
    /// Number of operations between two checks of all invariants.
    pace: usize,
    ops: Bytes<'a>,
}

/// The naive queue is slow. With `--cfg tourbillon_small`, even so few timers fill many blocks.
const MOST_TIMERS: usize = 300;

/// Reads bytes as a queue and operations on it.
pub fn queue(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let (queue, pace) = (bytes.byte(), bytes.byte());
    let start = Time::from_nanos(number(&mut bytes));
    let run_on = |ops| QueueRun { start, pace: 1 << (pace % 7), ops };
    match queue % 8 {
        0..3 => run_on(bytes).run(Wheel::new()),
        3 => run_on(bytes).run(Heap::new()),
        4 | 5 => run_on(bytes).run(ListTree::new()),
        _ => {
            let (tick, slots) = (Span::from_nanos(number(&mut bytes)), usize::from(bytes.byte()));
            if let Ok(rounds) = Rounds::with_slots(tick, slots) {
                run_on(bytes).run(rounds);
            }
        }
    }
}

impl QueueRun<'_> {
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

    /// Performs one operation: a byte selects it, and the numbers after it select the timer and the time. About as many timers
    /// are armed as are removed.
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
            // Rarely, or no run would ever hold many timers.
            15 if ops.byte().is_multiple_of(16) => Op::Clear,
            15 => Op::Advance(0),
            // Arms many timers at once, with equal or growing deadlines, or cancels many.
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

/// Reads a number of one to eight bytes. Small numbers take few bytes, so that a short input holds many operations.
fn number(bytes: &mut Bytes<'_>) -> u64 {
    let width = 1 + usize::from(bytes.byte() % 8);
    bytes.number(width)
}
