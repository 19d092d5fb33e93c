//! Timers of one shard fire in the order of their deadlines, and equal ones in the order in which they were armed.

use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Wake, Waker};
use std::time::Duration;

use tourbillon_queue::{Span, Time};

use super::checked_engine::{CheckedEngine, one_of};
use super::counted_sleep::CountedSleep;
use super::explore;
use crate::{Engine, Slack};

/// A timer, and its number in the order of arming.
struct Numbered {
    number: usize,
    timer: CountedSleep,
}

/// The deadlines and the fires of all timers.
struct FireLog {
    /// The last deadline of each timer, by number.
    due: Vec<Time>,
    /// The numbers of the timers that have fired, in order.
    fired: Vec<usize>,
}

/// A waker that records that a timer has fired.
struct FireRecorder {
    number: usize,
    log: Arc<StdMutex<FireLog>>,
    checked: CheckedEngine,
}

impl Wake for FireRecorder {
    fn wake(self: Arc<Self>) {
        self.log.lock().unwrap().fired.push(self.number);
        self.checked.changed();
    }
}

/// The main thread arms all timers. Then one thread waits for them, and others cancel some and move some later, while they fire.
fn in_order(slack: Slack) {
    let checked = CheckedEngine::driven(Engine::builder().shards(1));
    let log = Arc::new(StdMutex::new(FireLog { due: Vec::new(), fired: Vec::new() }));
    let mut parts: [Vec<Numbered>; 3] = Default::default();
    for number in 0..9 {
        // Few different deadlines, so that some are equal.
        let mut timer =
            CountedSleep::new(checked.engine.sleep(Duration::from_millis(1 + one_of(3) as u64)).slack(slack));
        log.lock().unwrap().due.push(timer.due(&checked));
        let recorder = FireRecorder { number, log: Arc::clone(&log), checked: checked.clone() };
        assert!(timer.poll_with(&checked, &Waker::from(Arc::new(recorder))).is_pending());
        parts[number % 3].push(Numbered { number, timer });
    }
    let [stay, leave, push] = parts;
    checked.spawn(|_| drop(leave));
    checked.spawn({
        let log = Arc::clone(&log);
        move |checked| push_later(checked, push, &log)
    });
    checked.spawn({
        let log = Arc::clone(&log);
        move |checked| wait_for(checked, stay, &log)
    });
    checked.run();
    checked.engine.shutdown();
    let FireLog { due, fired } = &*log.lock().unwrap();
    let fired: Vec<_> = fired.iter().map(|number| (due[*number], *number)).collect();
    assert!(fired.is_sorted(), "fired in this order: {fired:?}");
}

/// Moves all timers later, each to a different time, and waits for them.
fn push_later(checked: &CheckedEngine, mut timers: Vec<Numbered>, log: &StdMutex<FireLog>) {
    for Numbered { number, timer } in &mut timers {
        timer.later(Duration::from_nanos(500_000 + *number as u64));
        // A timer that has fired already keeps its old deadline.
        if timer.is_armed() {
            log.lock().unwrap().due[*number] = timer.due(checked);
        }
    }
    timers.retain(|Numbered { timer, .. }| timer.is_armed());
    wait_for(checked, timers, log);
}

fn wait_for(checked: &CheckedEngine, timers: Vec<Numbered>, log: &StdMutex<FireLog>) {
    let has_fired = |number| log.lock().unwrap().fired.contains(number);
    checked.wait_for(Duration::from_millis(4), || timers.iter().all(|Numbered { number, .. }| has_fired(number)));
    drop(timers);
}

#[test]
fn p3_timers_of_a_shard_fire_in_order_while_others_cancel_and_push_some() {
    explore(|| in_order(if one_of(2) == 0 { Slack::exact() } else { Slack::adaptive() }));
}
