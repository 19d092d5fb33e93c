//! The wheel whose entries store their own deadlines, against a plain list: timers are armed, cancelled, pushed later without a word to the
//! wheel, ended, and taken out.

mod support;

use std::cell::Cell;

use support::{Random, operations, seed};
use tourbillon_queue::{CompactWheel, Entries, EntryDeadlines, Place, Settled, Span, Time};

/// The default of the variable `TOURBILLON_OPERATIONS`.
const STEPS: u64 = 200_000;
const ENTRIES: u64 = 300;

#[derive(Clone, Copy)]
struct Entry {
    /// `None` after it has ended.
    deadline: Option<Time>,
    place: Place,
}

struct Timers(Vec<Entry>);

impl Timers {
    fn new() -> Timers {
        Timers(vec![Entry { deadline: None, place: Place::NOWHERE }; ENTRIES as usize])
    }

    fn is_placed(&self, id: u32) -> bool {
        self.0[id as usize].place != Place::NOWHERE
    }

    fn insert(&mut self, wheel: &mut CompactWheel<u32>, id: u32, deadline: Time) {
        self.0[id as usize].deadline = Some(deadline);
        let place = wheel.insert(self, id, deadline);
        self.0[id as usize].place = place;
    }

    /// Takes the next timer out that is due, after it has inserted again those that were pushed later and forgotten those that ended.
    fn pop(&mut self, wheel: &mut CompactWheel<u32>, now: Time) -> Option<(u32, Time)> {
        loop {
            let (id, due) = wheel.pop(self, now)?;
            self.0[id as usize].place = Place::NOWHERE;
            match self.0[id as usize].deadline {
                Some(deadline) if deadline > due => self.insert(wheel, id, deadline),
                Some(deadline) => {
                    assert_eq!(deadline, due, "the wheel returned a timer after its deadline had passed unseen");
                    self.0[id as usize].deadline = None;
                    return Some((id, deadline));
                }
                None => {}
            }
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        self.0.iter().filter(|entry| entry.place != Place::NOWHERE).filter_map(|entry| entry.deadline).min()
    }
}

impl Entries<u32> for Timers {
    fn place(&self, id: &u32) -> Place {
        self.0[*id as usize].place
    }

    fn set_place(&mut self, id: &u32, place: Place) {
        self.0[*id as usize].place = place;
    }
}

impl EntryDeadlines<u32> for Timers {
    fn deadline(&self, id: &u32) -> Option<Time> {
        self.0[*id as usize].deadline
    }
}

/// Returns a time from `now` on: soon, at one of few instants, or far away.
fn later_than(now: Time, random: &mut Random) -> Time {
    match random.below(3) {
        0 => now + Span::from_nanos(random.below(100)),
        1 => Time::from_nanos(now.as_nanos() / 1000 * 1000 + 1000),
        _ => now + Span::from_nanos(random.next() >> random.below(60) >> 4),
    }
}

#[test]
fn p1_p2_p3_timers_that_move_themselves_come_out_of_the_compact_wheel_once_and_in_order() {
    let mut random = Random::new(seed());
    let (mut wheel, mut timers, mut now) = (CompactWheel::new(), Timers::new(), Time::ZERO);
    let mut pushed = 0;
    for step in 0..operations(STEPS) {
        let id = random.below(ENTRIES) as u32;
        match random.below(12) {
            0..5 if !timers.is_placed(id) => timers.insert(&mut wheel, id, later_than(now, &mut random)),
            5 if timers.is_placed(id) => {
                let place = timers.place(&id);
                assert_eq!(wheel.remove(&mut timers, place), id);
                timers.0[id as usize].place = Place::NOWHERE;
            }
            6..8 if timers.is_placed(id) => {
                if let Some(deadline) = timers.0[id as usize].deadline {
                    timers.0[id as usize].deadline = Some(later_than(deadline, &mut random));
                    pushed += 1;
                }
            }
            8 if timers.is_placed(id) => timers.0[id as usize].deadline = None,
            9 => now = now + Span::from_nanos(random.below(300)),
            10 => {
                // A wake-up may be early, because a timer has moved or ended, and must not be late.
                assert!(timers.next_deadline() >= wheel.next_wakeup(&timers) || timers.next_deadline().is_none());
            }
            _ => {
                let due = timers.next_deadline().filter(|deadline| *deadline <= now);
                assert_eq!(timers.pop(&mut wheel, now).map(|(_, deadline)| deadline), due);
            }
        }
        if step % 256 == 0 {
            let placed = timers.0.iter().filter(|entry| entry.place != Place::NOWHERE).count();
            assert_eq!(wheel.check(&timers), Ok(placed));
        }
    }
    assert!(pushed > operations(STEPS) / 100, "hardly any timer was pushed later");
}

#[test]
fn d26_p3_a_crowd_in_one_slot_is_split_in_steps_and_comes_out_in_the_order_of_the_deadlines() {
    let mut random = Random::new(seed());
    let mut timers = Timers(vec![Entry { deadline: None, place: Place::NOWHERE }; CROWD as usize]);
    let mut wheel = CompactWheel::new();
    let begin = 1 << 40;
    for id in 0..CROWD {
        timers.insert(&mut wheel, id, Time::from_nanos(begin + random.below(1 << 30)));
    }
    // Half of them move: within the slot, out of it, or to their end.
    for id in (0..CROWD).step_by(2) {
        let deadline = &mut timers.0[id as usize].deadline;
        *deadline =
            deadline.filter(|_| random.below(10) > 0).map(|then| then + Span::from_nanos(random.below(1 << 33)));
    }
    let expected: usize = timers.0.iter().filter(|entry| entry.deadline.is_some()).count();
    let end = Time::from_nanos(begin << 1);
    let mut steps = 0;
    while wheel.settle(&mut timers, end, 1000) == Settled::More {
        steps += 1;
    }
    assert!(steps > 1, "the crowd was not split in steps");
    let mut popped = Vec::new();
    while let Some((_, deadline)) = timers.pop(&mut wheel, end) {
        popped.push(deadline);
    }
    assert_eq!(popped.len(), expected);
    assert!(popped.is_sorted());
    assert_eq!(wheel.check(&timers), Ok(0));
}

#[test]
fn p5_deadlines_of_every_size_come_out_of_the_compact_wheel_in_order() {
    let mut timers = Timers::new();
    let mut wheel = CompactWheel::new();
    let mut deadlines: Vec<Time> = (0..ENTRIES).map(|n| Time::from_nanos(((u64::MAX - 1) >> (n % 64)) ^ n)).collect();
    for (id, deadline) in (0..).zip(&deadlines) {
        timers.insert(&mut wheel, id, *deadline);
    }
    deadlines.sort_unstable();
    let last = Time::from_nanos(u64::MAX - 1);
    let popped: Vec<Time> = std::iter::from_fn(|| timers.pop(&mut wheel, last)).map(|(_, deadline)| deadline).collect();
    assert_eq!(popped, deadlines);
}

/// Timers that count how often the wheel reads a deadline, and how often it moves a timer.
struct CountingTimers {
    timers: Timers,
    read: Cell<usize>,
    moved: usize,
}

impl CountingTimers {
    fn new(count: u32) -> CountingTimers {
        let timers = Timers(vec![Entry { deadline: None, place: Place::NOWHERE }; count as usize]);
        CountingTimers { timers, read: Cell::new(0), moved: 0 }
    }

    fn insert(&mut self, wheel: &mut CompactWheel<u32>, id: u32, deadline: Time) {
        let place = wheel.insert(self, id, deadline);
        self.timers.0[id as usize] = Entry { deadline: Some(deadline), place };
    }
}

impl Entries<u32> for CountingTimers {
    fn place(&self, id: &u32) -> Place {
        self.timers.place(id)
    }

    fn set_place(&mut self, id: &u32, place: Place) {
        self.moved += 1;
        self.timers.set_place(id, place);
    }
}

impl EntryDeadlines<u32> for CountingTimers {
    fn deadline(&self, id: &u32) -> Option<Time> {
        self.read.set(self.read.get() + 1);
        self.timers.deadline(id)
    }
}

const CROWD: u32 = 50_000;

#[test]
fn d26_a_crowd_that_is_due_in_one_nanosecond_is_opened_without_reading_a_deadline() {
    let (mut wheel, mut timers) = (CompactWheel::new(), CountingTimers::new(CROWD));
    // A nanosecond after the time reached: the timers are at the lowest level at once.
    assert!(wheel.pop(&mut timers, Time::from_nanos(999)).is_none());
    for id in 0..CROWD {
        timers.insert(&mut wheel, id, Time::from_nanos(1000));
    }
    assert_eq!(wheel.settle(&mut timers, Time::from_nanos(1000), 1), Settled::Done);
    assert_eq!(timers.read.get(), 0);
    let popped: Vec<u32> =
        std::iter::from_fn(|| wheel.pop(&mut timers, Time::from_nanos(1000))).map(|(id, _)| id).collect();
    assert_eq!(popped, (0..CROWD).collect::<Vec<_>>(), "in the order of arming");
}

#[test]
fn d26_timers_that_were_pushed_out_of_a_crowded_slot_are_not_all_moved_again_and_again() {
    let (mut wheel, mut timers) = (CompactWheel::new(), CountingTimers::new(CROWD));
    let mut random = Random::new(seed());
    let begin = 1 << 40;
    for id in 0..CROWD {
        timers.insert(&mut wheel, id, Time::from_nanos(begin + random.below(1 << 30)));
    }
    for entry in &mut timers.timers.0 {
        entry.deadline = entry.deadline.map(|deadline| deadline + Span::from_nanos((1 << 40) + random.below(1 << 36)));
    }
    let end = Time::from_nanos(begin + (1 << 39));
    let mut popped = 0;
    while wheel.pop(&mut timers, end).is_some() {
        popped += 1;
    }
    assert_eq!(popped, CROWD);
    // Small slots are split more often.
    let splits = if cfg!(tourbillon_small) { 4 } else { 2 };
    assert!(timers.moved <= splits * CROWD as usize, "{} moves of {CROWD} timers", timers.moved);
}
