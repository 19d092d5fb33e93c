//! Any bytes, read as operations, on every queue and on the naive one: the same answers, and every invariant after
//! every operation.
//!
//! ```text
//! cargo install cargo-fuzz
//! cargo +nightly fuzz run queue -- -max_total_time=60
//! ```

#![no_main]

#[path = "../../crates/tourbillon-queue/tests/support/mod.rs"]
mod support;

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use support::{Op, Pair};
use tourbillon_queue::{Heap, ListTree, Naive, Rounds, Span, Time, TimerQueue, Wheel};

/// Where time begins, what shape the round wheel has, and what is done.
#[derive(Debug)]
struct Story {
    start: Time,
    tick: Span,
    slots: usize,
    ops: Vec<Op>,
}

/// The naive queue is slow. With `--cfg tourbillon_small` so few are a crowd.
const MOST_TIMERS: usize = 200;

fuzz_target!(|story: Story| {
    run(Wheel::new(), &story);
    run(Heap::new(), &story);
    run(ListTree::new(), &story);
    if let Ok(rounds) = Rounds::with_slots(story.tick, story.slots) {
        run(rounds, &story);
    }
});

fn run<Q: TimerQueue<u64>>(queue: Q, story: &Story) {
    let mut pair = Pair::new(queue, Naive::new());
    pair.now = story.start;
    pair.expire(0, story.start);
    for &op in &story.ops {
        pair.apply(op);
        if pair.len() > MOST_TIMERS {
            pair.cancel(0);
        }
        pair.check();
    }
    pair.expire(usize::MAX, Time::NEVER);
    pair.check();
}

impl<'a> Arbitrary<'a> for Story {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Story> {
        let start = Time::from_nanos(number(bytes)?);
        let (tick, slots) = (Span::from_nanos(number(bytes)?), usize::from(bytes.arbitrary::<u8>()?));
        let mut ops = Vec::new();
        while !bytes.is_empty() {
            ops.push(operation(bytes)?);
        }
        Ok(Story { start, tick, slots, ops })
    }
}

/// One byte says what, the numbers after it to whom and when. As many kinds of arming as of everything that takes
/// timers away.
fn operation(bytes: &mut Unstructured<'_>) -> Result<Op> {
    Ok(match bytes.arbitrary::<u8>()? % 16 {
        0..6 => Op::Arm(number(bytes)?),
        6..8 => Op::Cancel(number(bytes)?),
        8..10 => Op::Reschedule(number(bytes)?, number(bytes)?),
        10..12 => Op::Advance(number(bytes)?),
        12 => Op::Backwards(number(bytes)?),
        13 => Op::Some(usize::from(bytes.arbitrary::<u8>()?)),
        14 => Op::Stale(number(bytes)?),
        // Rarely, or no story would ever hold many timers.
        _ if bytes.ratio(1, 16)? => Op::Clear,
        _ => Op::Advance(0),
    })
}

/// A number of one to eight bytes: small ones take few, so that a short input holds many operations.
fn number(bytes: &mut Unstructured<'_>) -> Result<u64> {
    let width = bytes.int_in_range(1..=8)?;
    Ok(bytes.bytes(width.min(bytes.len()))?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}
