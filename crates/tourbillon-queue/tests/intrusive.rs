//! Raw queues whose entries live outside any slab: behind a reference into an arena, or behind an `Rc` of their own.

mod support;

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

use support::{Random, operations, seed};
use tourbillon_queue::{Entries, Place, RawHeap, RawListTree, RawQueue, RawRounds, RawWheel, Settled, Span, Time};

/// A timer as an engine would store it: its number, and one word for the queue.
struct Entry {
    number: usize,
    place: Cell<Place>,
}

impl Entry {
    fn new(number: usize) -> Entry {
        Entry { number, place: Cell::new(Place::NOWHERE) }
    }
}

/// Entries that any kind of pointer leads to.
struct Outside;

impl<Id: Deref<Target = Entry>> Entries<Id> for Outside {
    fn place(&self, id: &Id) -> Place {
        id.place.get()
    }

    fn set_place(&mut self, id: &Id, place: Place) {
        id.place.set(place);
    }
}

const ENTRIES: usize = 100;
/// The default of the variable `TOURBILLON_OPERATIONS`.
const STEPS: u64 = 200_000;

/// The expected content of a queue: deadlines and numbers of the timers, in the order of arming.
#[derive(Default)]
struct Expected(Vec<(Time, usize)>);

impl Expected {
    fn next_deadline(&self) -> Option<Time> {
        self.0.iter().map(|(deadline, _)| *deadline).min()
    }

    fn pop(&mut self, now: Time) -> Option<(Time, usize)> {
        let next = self.next_deadline().filter(|deadline| *deadline <= now)?;
        let first = self.0.iter().position(|(deadline, _)| *deadline == next)?;
        Some(self.0.remove(first))
    }
}

/// Runs random operations on a queue and on a plain list of its expected content. Returns the numbers popped, in order.
fn run<Id, R>(mut queue: R, entries: &[Id], seed: u64) -> Vec<usize>
where
    Id: Deref<Target = Entry> + Clone,
    R: RawQueue<Id>,
{
    let mut random = Random::new(seed);
    let mut expected = Expected::default();
    let (mut now, mut popped) = (Time::ZERO, Vec::new());
    for step in 0..operations(STEPS) {
        let id = &entries[random.below(ENTRIES as u64) as usize];
        match random.below(10) {
            // Insert: soon, at one of few instants, far away, or in the past.
            0..5 if id.place.get() == Place::NOWHERE => {
                let deadline = match random.below(4) {
                    0 => now + Span::from_nanos(random.below(100)),
                    1 => Time::from_nanos(now.as_nanos() / 1000 * 1000 + 1000),
                    2 => now + Span::from_nanos(random.next() >> random.below(60) >> 4),
                    _ => now - Span::from_nanos(random.below(100)),
                };
                let place = queue.insert(&mut Outside, id.clone(), deadline);
                id.place.set(place);
                expected.0.push((deadline, id.number));
            }
            5..7 if id.place.get() != Place::NOWHERE => {
                let (removed, deadline) = queue.remove(&mut Outside, id.place.get());
                removed.place.set(Place::NOWHERE);
                assert_eq!(removed.number, id.number);
                let position = expected.0.iter().position(|entry| *entry == (deadline, id.number));
                expected.0.remove(position.expect("the queue returns the deadline of the insertion"));
            }
            7 => now = now + Span::from_nanos(random.below(300)),
            _ => {
                if random.below(2) == 0 {
                    let due = expected.next_deadline().filter(|deadline| *deadline <= now);
                    assert_eq!(queue.peek(&mut Outside, now), due);
                }
                let first = queue.pop(&mut Outside, now);
                if let Some((id, _)) = &first {
                    id.place.set(Place::NOWHERE);
                    popped.push(id.number);
                }
                assert_eq!(first.map(|(id, deadline)| (deadline, id.number)), expected.pop(now));
            }
        }
        if let Some((found, deadline)) = queue.get(id.place.get()) {
            assert_eq!(found.number, id.number);
            assert!(expected.0.contains(&(deadline, id.number)));
        }
        if step % 256 == 0 {
            assert_eq!(queue.check(&Outside), Ok(expected.0.len()));
            assert_eq!(queue.next_deadline(), expected.next_deadline());
        }
    }
    let mut rest = Vec::new();
    queue.for_each(|id| rest.push(id.number));
    assert_eq!(rest.len(), expected.0.len());
    queue.clear();
    assert_eq!(queue.next_deadline(), None);
    popped
}

fn small_rounds<Id>() -> RawRounds<Id> {
    RawRounds::with_slots(Span::from_nanos(7), 5).unwrap()
}

#[test]
fn entries_in_an_arena_come_out_of_every_queue_alike() {
    let seed = seed();
    let arena = || (0..ENTRIES).map(Entry::new).collect::<Vec<_>>();
    let arenas = [arena(), arena(), arena(), arena(), arena()];
    let [wheel, heap, list_tree, rounds, odd] = arenas.each_ref().map(|arena| arena.iter().collect::<Vec<&Entry>>());

    let popped = run(RawWheel::new(), &wheel, seed);
    assert!(popped.len() as u64 > operations(STEPS) / 200, "too few timers were popped for a useful test");
    assert_eq!(run(RawHeap::new(), &heap, seed), popped);
    assert_eq!(run(RawListTree::new(), &list_tree, seed), popped);
    assert_eq!(run(RawRounds::default(), &rounds, seed), popped);
    assert_eq!(run(small_rounds(), &odd, seed), popped);
}

#[test]
fn entries_behind_an_rc_come_out_of_every_queue_alike() {
    let seed = seed();
    let entries = || (0..ENTRIES).map(Entry::new).map(Rc::new).collect::<Vec<_>>();

    let popped = run(RawWheel::new(), &entries(), seed);
    assert_eq!(run(RawHeap::new(), &entries(), seed), popped);
    assert_eq!(run(RawListTree::new(), &entries(), seed), popped);
    assert_eq!(run(RawRounds::default(), &entries(), seed), popped);
    assert_eq!(run(small_rounds(), &entries(), seed), popped);
}

#[test]
fn timers_that_a_wheel_has_made_ready_come_out_in_order_without_more_upkeep() {
    let entries: Vec<_> = (0..7).map(Entry::new).collect();
    let mut wheel = RawWheel::new();
    // Six in one slot, the last of them first, and one in the next.
    for (entry, nanos) in entries.iter().zip([69, 68, 67, 66, 65, 64, 128]) {
        entry.place.set(wheel.insert(&mut Outside, entry, Time::from_nanos(nanos)));
    }
    let now = Time::from_nanos(128);
    assert!(wheel.pop_ready(&mut Outside, now).is_none(), "no slot has been opened");
    assert_eq!(wheel.settle(&mut Outside, Time::from_nanos(127), usize::MAX), Settled::Done);
    for nanos in 64..70 {
        let ready = wheel.pop_ready(&mut Outside, now).map(|(_, deadline)| deadline.as_nanos());
        assert_eq!(ready, Some(nanos));
    }
    assert!(wheel.pop_ready(&mut Outside, now).is_none(), "the other slot has not been opened");
    assert_eq!(wheel.pop(&mut Outside, now).map(|(entry, _)| entry.number), Some(6));
}

#[test]
fn a_queue_keeps_no_reference_to_an_entry_that_it_has_returned() {
    fn holds_none<R: RawQueue<Rc<Entry>>>(mut queue: R) {
        let entries: Vec<_> = (0..300).map(Entry::new).map(Rc::new).collect();
        for (entry, nanos) in entries.iter().zip(0..) {
            entry.place.set(queue.insert(&mut Outside, entry.clone(), Time::from_nanos(nanos)));
        }
        for _ in 0..100 {
            drop(queue.pop(&mut Outside, Time::from_nanos(99)));
        }
        for entry in &entries[100..200] {
            queue.remove(&mut Outside, entry.place.get());
        }
        assert!(entries[..200].iter().all(|entry| Rc::strong_count(entry) == 1), "fired or removed, but still held");
        assert!(entries[200..].iter().all(|entry| Rc::strong_count(entry) == 2));
        queue.clear();
        assert!(entries.iter().all(|entry| Rc::strong_count(entry) == 1), "cleared, but still held");
    }
    holds_none(RawWheel::new());
    holds_none(RawHeap::new());
    holds_none(RawListTree::new());
    holds_none(RawRounds::default());
    holds_none(small_rounds());
}
