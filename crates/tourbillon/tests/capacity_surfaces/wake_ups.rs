//! How many wake-ups it takes.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tourbillon::Engine;
use tourbillon::time::Sleep;

use crate::support::ms;
use crate::{HOUR, full, with_slots};

/// Counts all wake-ups, and records which sleeps are to be polled.
#[derive(Default)]
struct Executor {
    wakes: AtomicUsize,
    ready: Mutex<Vec<usize>>,
}

struct Numbered(Arc<Executor>, usize);

impl Wake for Numbered {
    fn wake(self: Arc<Self>) {
        self.0.wakes.fetch_add(1, Ordering::SeqCst);
        self.0.ready.lock().unwrap().push(self.1);
    }
}

/// Many sleeps, each in a task of its own.
struct Crowd {
    executor: Arc<Executor>,
    sleeps: Vec<Option<(Pin<Box<Sleep>>, Waker)>>,
    ended: usize,
}

impl Crowd {
    /// Makes `count` sleeps and polls each once.
    fn new(engine: &Engine, count: usize, after: impl Fn(usize) -> Duration) -> Crowd {
        let executor = Arc::new(Executor::default());
        let task = |index| Waker::from(Arc::new(Numbered(Arc::clone(&executor), index)));
        let sleeps = (0..count).map(|index| Some((Box::pin(engine.sleep(after(index))), task(index)))).collect();
        let mut crowd = Crowd { executor, sleeps, ended: 0 };
        (0..count).for_each(|index| crowd.poll(index));
        crowd
    }

    fn poll(&mut self, index: usize) {
        let Some((sleep, waker)) = &mut self.sleeps[index] else { return };
        if sleep.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            self.sleeps[index] = None;
            self.ended += 1;
        }
    }

    /// Polls every woken sleep, in the order of the wake-ups, until none is left; at most `at_most` wake-ups are allowed.
    fn run(&mut self, at_most: usize) {
        loop {
            let ready = std::mem::take(&mut *self.executor.ready.lock().unwrap());
            if ready.is_empty() {
                return;
            }
            for index in ready {
                self.poll(index);
                let wakes = self.wakes();
                assert!(
                    wakes <= at_most,
                    "{wakes} wake-ups, more than {at_most}; {} of {} sleeps have ended",
                    self.ended,
                    self.sleeps.len()
                );
            }
        }
    }

    fn wakes(&self) -> usize {
        self.executor.wakes.load(Ordering::SeqCst)
    }
}

const SLEEPS: usize = 8000;
const SLOTS: usize = 100;

#[test]
fn d65_eight_thousand_sleeps_through_a_hundred_slots_are_woken_twice_each_at_most() {
    let engine = with_slots(SLOTS);
    let mut crowd = Crowd::new(&engine, SLEEPS, |index| ms(10 + index as u64 / 2));
    // An armed sleep is woken when it ends; one that waits is also woken when it gets a slot.
    let at_most = SLOTS + 2 * (SLEEPS - SLOTS);
    while crowd.ended < SLEEPS {
        engine.advance(ms(1));
        crowd.run(at_most);
        assert!(engine.stats().pending <= SLOTS as u64);
        assert!(crowd.wakes() >= crowd.ended);
    }
    assert!((SLEEPS..=at_most).contains(&crowd.wakes()), "{} wake-ups", crowd.wakes());
    assert_eq!(engine.stats().pending, 0);
}

#[test]
fn d65_eight_thousand_sleeps_that_take_turns_by_being_dropped_are_woken_once_each() {
    let engine = with_slots(SLOTS);
    let mut crowd = Crowd::new(&engine, SLEEPS, |_| HOUR);
    for index in 0..SLEEPS {
        crowd.sleeps[index] = None;
        crowd.run(SLEEPS - SLOTS);
        assert_eq!(engine.stats().pending as usize, SLOTS.min(SLEEPS - 1 - index));
    }
    assert_eq!(crowd.wakes(), SLEEPS - SLOTS, "one wake-up for each slot that was given");
}

#[test]
fn d65_a_thousand_sleeps_that_wait_for_one_slot_and_are_due_together_are_woken_once_each() {
    let (engine, _taken) = full(1);
    let mut crowd = Crowd::new(&engine, 1000, |_| ms(10));
    engine.advance(ms(10));
    crowd.run(1000);
    assert_eq!((crowd.ended, crowd.wakes()), (1000, 1000));
}
