//! Intervals on a small round-counting wheel, and its errors.

use tourbillon_queue::{Rounds, RoundsError, Span, TimerQueue};

use crate::{MILLI, SECOND, assert_fires_exactly_at, at, fired};

/// Arms job 0 at `start` for every `interval`, arms it again whenever it runs, and expects run `n` exactly at
/// `start + n * interval`.
fn assert_runs_every<Q: TimerQueue<u64>>(queue: &mut Q, start: u64, interval: u64) {
    assert!(queue.pop(at(start)).is_none());
    queue.insert(at(start + interval), 0);
    for run in 1..=100 {
        assert_fires_exactly_at(queue, start + run * interval, &[0]);
        queue.insert(at(start + (run + 1) * interval), 0);
    }
}

const TICK: u64 = 10 * MILLI;
const SLOTS: usize = 8;
const REVOLUTION: u64 = TICK * SLOTS as u64;

fn small_rounds() -> Rounds<u64> {
    Rounds::with_slots(Span::from_nanos(TICK), SLOTS).unwrap()
}

#[test]
fn d12_d13_intervals_of_whole_revolutions_run_on_time_the_first_time_and_every_time() {
    for interval in [TICK, REVOLUTION - TICK, REVOLUTION, REVOLUTION + TICK, 2 * REVOLUTION, 7 * REVOLUTION] {
        for start in [0, 1, TICK - 1, TICK, 3 * TICK + 5, REVOLUTION - 1, 11 * REVOLUTION + TICK / 2] {
            assert_runs_every(&mut small_rounds(), start, interval);
        }
    }
}

#[test]
fn d14_an_interval_of_one_and_a_half_ticks_is_neither_early_nor_does_its_error_add_up() {
    for start in [0, TICK / 2, 3 * TICK + 1] {
        assert_runs_every(&mut small_rounds(), start, TICK + TICK / 2);
    }
}

#[test]
fn d15_two_jobs_below_the_tick_in_one_slot_both_run_and_the_turn_ends() {
    let mut queue = small_rounds();
    let intervals = [TICK / 4, TICK / 5];
    let mut counts = [0; 2];
    for (interval, job) in intervals.iter().zip(0..) {
        queue.insert(at(*interval), job);
    }
    // One turn per tick: each job runs several times in a turn, and is armed again within it.
    for turn in 1..=100 {
        while let Some(job) = queue.pop(at(turn * TICK)) {
            counts[job.value as usize] += 1;
            queue.insert(job.deadline + Span::from_nanos(intervals[job.value as usize]), job.value);
        }
        assert_eq!(counts, intervals.map(|interval| turn * TICK / interval));
    }
}

#[test]
fn d16_any_tick_above_zero_works() {
    for tick in [1, 2, 999, 999_999, MILLI, u64::MAX] {
        for slots in [1, 2, 64, 65] {
            for interval in [1, 500, MILLI, SECOND] {
                let mut queue = Rounds::with_slots(Span::from_nanos(tick), slots).unwrap();
                assert_runs_every(&mut queue, 3, interval);
            }
        }
    }
}

#[test]
fn an_impossible_round_wheel_is_refused_with_what_was_asked_and_what_is_possible() {
    let new = |tick, slots| Rounds::<u64>::with_slots(Span::from_nanos(tick), slots).map(|_| ());
    assert_eq!(new(0, 8), Err(RoundsError::ZeroTick));
    assert_eq!(new(1, 0), Err(RoundsError::Slots { asked: 0 }));
    let most = RoundsError::MAX_SLOTS;
    assert_eq!(new(1, most + 1), Err(RoundsError::Slots { asked: most + 1 }));
    assert_eq!(new(1, usize::MAX), Err(RoundsError::Slots { asked: usize::MAX }));
    assert_eq!(new(1, most), Ok(()));

    let message = RoundsError::Slots { asked: most + 1 }.to_string();
    assert!(message.contains(&(most + 1).to_string()) && message.contains(&most.to_string()), "{message}");
    let message = RoundsError::ZeroTick.to_string();
    assert!(message.contains("tick") && message.contains("zero"), "{message}");
}

#[test]
fn the_blocks_of_a_slot_that_a_tick_leaves_sparse_are_merged() {
    // One slot for all timers. Of every 64 timers in it, 60 are due in the first tick and four in a later round.
    let mut queue = Rounds::with_slots(Span::from_nanos(1), 1).unwrap();
    for number in 0..640 {
        queue.insert(at(if number % 64 < 60 { 1 } else { 100 }), number);
    }
    assert_eq!(fired(&mut queue, 1).len(), 600);
    queue.check().unwrap();
    assert_eq!(fired(&mut queue, 100).len(), 40);
}
