//! One `Timer` that several threads set, wait for and cancel.

use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::checked_engine::{CheckedEngine, micros, one_of};
use super::explore;
use super::outcome_counts::OutcomeCounts;
use crate::multi::waiter::block_on;
use crate::sync::under_shuttle::time;
use crate::timer::WaitHandle;
use crate::{Engine, Outcome, Timer};

/// The longest time until an expiry, in microseconds.
const MOST: u64 = 20_000;

/// A thread that uses the timer. Only one thread sets it, so that this thread knows when its waits are due.
struct TimerUser<'a> {
    checked: &'a CheckedEngine,
    timer: Arc<Timer>,
    counts: &'a Arc<OutcomeCounts>,
    sets: bool,
    due: Time,
    handles: Vec<WaitHandle>,
}

impl TimerUser<'_> {
    fn use_it(&mut self, may_end: bool) {
        for _ in 0..6 {
            match one_of(12) {
                0..3 if self.sets => self.set(),
                3..6 => self.call(),
                6 => {
                    let is_cancelled = self.handles.pop().is_some_and(|handle| handle.cancel());
                    self.counts.cancel(usize::from(is_cancelled));
                }
                7 => self.counts.cancel(self.timer.cancel()),
                8 => self.counts.cancel(usize::from(self.timer.cancel_one())),
                9 => self.wait(),
                10 => self.withdraw(),
                11 if may_end => self.checked.engine.shutdown(),
                _ => self.call_again(),
            }
        }
    }

    fn set(&mut self) {
        let after = micros(0, MOST);
        self.due = time() + Span::from(after);
        self.counts.cancel(self.timer.expires_after(after));
    }

    fn call(&mut self) {
        self.handles.push(self.timer.on_expiry(self.counts.callback(self.checked, self.due)));
    }

    /// Begins a wait whose callback begins another wait.
    fn call_again(&self) {
        let first = self.counts.callback(self.checked, Time::ZERO);
        let second = self.counts.callback(self.checked, Time::ZERO);
        let timer = Arc::clone(&self.timer);
        self.timer.on_expiry(move |outcome| {
            timer.on_expiry(second);
            drop(timer);
            first(outcome);
        });
    }

    fn wait(&self) {
        self.counts.begin();
        let wait = self.timer.wait();
        // The timer was set before, and setting it again ends the wait.
        let _waits = self.checked.waits_until(time() + Span::from(Duration::from_micros(MOST)));
        self.counts.record(block_on(wait));
    }

    fn withdraw(&self) {
        self.counts.begin();
        let mut wait = Box::pin(self.timer.wait());
        let _either = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        drop(wait);
        self.counts.withdraw();
    }
}

fn share(checked: CheckedEngine, may_end: bool) {
    let (timer, counts) = (Arc::new(Timer::on(&checked.engine)), Arc::new(OutcomeCounts::default()));
    for number in 0..3 {
        let (timer, counts) = (Arc::clone(&timer), Arc::clone(&counts));
        checked.spawn(move |checked| {
            let (sets, due) = (number == 0, Time::ZERO);
            TimerUser { checked, timer, counts: &counts, sets, due, handles: Vec::new() }.use_it(may_end);
        });
    }
    checked.run();
    // A callback may begin a wait after the last cancel. With an expiry in the past that wait ends at once.
    counts.cancel(timer.expires_after(Duration::ZERO));
    counts.check(&checked);
    checked.engine.shutdown();
    checked.check_outcomes();
    assert_eq!(timer.wait_blocking(), Outcome::Stopped);
}

#[test]
fn p1_p2_a3_a4_waits_of_a_timer_that_three_threads_share_end_once() {
    explore(|| share(CheckedEngine::driven(Engine::builder().shards(1 + one_of(3))), false));
}

#[test]
fn p2_d28_waits_of_a_timer_end_once_when_the_engine_is_shut_down() {
    explore(|| share(CheckedEngine::driven(Engine::builder().shards(1 + one_of(3))), true));
}

#[test]
fn p1_p2_a3_waits_of_a_timer_whose_engine_is_turned_by_two_threads() {
    explore(|| share(CheckedEngine::turned(Engine::builder(), 2), true));
}
