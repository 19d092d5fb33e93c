//! P3: within one shard, timers fire in the order of their deadlines, and equal ones in the order in which they were armed.
//!
//! It runs in virtual time, so that the order depends on nothing else, and for each kind of queue.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{Clock, Engine, QueueKind};
use tourbillon_tools::Random;

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines::build;
use super::promise::Promise;
use crate::text::count;

/// Every kind of queue, with its name.
pub(crate) const KINDS: [(&str, QueueKind); 4] = [
    ("wheel", QueueKind::Wheel),
    ("heap", QueueKind::Heap),
    ("list and tree", QueueKind::ListTree),
    ("rounds", QueueKind::Rounds { tick: Duration::from_millis(1), slots: 512 }),
];

const TIMERS: usize = 10_000;

/// A waker that logs its number.
struct OrderWaker {
    number: usize,
    log: Arc<Mutex<Vec<usize>>>,
}

impl Wake for OrderWaker {
    fn wake(self: Arc<Self>) {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

pub(crate) fn run(check: &CheckRun) -> Findings {
    let mut findings = Findings::default();
    let mut fires = 0;
    for (place, (name, kind)) in KINDS.into_iter().enumerate() {
        let mut random = check.random("order", place);
        let engine = build(Engine::builder().clock(Clock::manual()).queue(kind));
        let (fired, expected) = run_one_kind(check, &engine, &mut random);
        fires += fired.len() as u64;
        if let Some(first) = fired.iter().zip(&expected).position(|(fired, expected)| fired != expected) {
            let out = fired.iter().zip(&expected).filter(|(fired, expected)| fired != expected).count() as u64;
            findings.complain(
                Promise::P3,
                format!("{name}: {} fires out of order, the first is number {first}", count(out)),
            );
        }
        findings.expect(fired.len() == expected.len(), Promise::P3, || {
            format!("{name}: {} of {} timers fired", fired.len(), expected.len())
        });
    }
    findings.counted(Promise::P3, format!("{} fires in {} kinds of queue, all in order", count(fires), KINDS.len()));
    if !findings.complaints.is_empty() {
        findings.counted.clear();
    }
    findings
}

/// Arms timers with few different deadlines, cancels some, and lets time pass. Returns the timers that fired, and the expected
/// ones.
fn run_one_kind(check: &CheckRun, engine: &Engine, random: &mut Random) -> (Vec<usize>, Vec<usize>) {
    let log = Arc::new(Mutex::new(Vec::with_capacity(TIMERS)));
    let mut durations: Vec<Duration> = (0..TIMERS).map(|_| duration(random)).collect();
    let expected_durations = durations.clone();
    if check.breaks(Promise::P3) {
        (0..TIMERS).step_by(100).for_each(|number| durations.swap(number, TIMERS - 1 - number));
    }
    let arm = |(number, duration): (usize, &Duration)| {
        let waker = Waker::from(Arc::new(OrderWaker { number, log: Arc::clone(&log) }));
        let mut sleep = Box::pin(engine.sleep(*duration));
        let is_pending = sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        is_pending.then_some(sleep)
    };
    let mut sleeps: Vec<Option<Pin<Box<Sleep>>>> = durations.iter().enumerate().map(arm).collect();
    let mut expected: Vec<usize> = (0..TIMERS).filter(|_| !random.one_in(8)).collect();
    let mut kept = expected.iter().peekable();
    for (number, sleep) in sleeps.iter_mut().enumerate() {
        if kept.next_if_eq(&&number).is_none() {
            *sleep = None;
        }
    }
    // The sort is stable: equal deadlines keep the order of arming.
    expected.sort_by_key(|number| expected_durations[*number]);
    while engine.stats().pending > 0 {
        engine.advance(random.duration(Duration::from_millis(200)));
    }
    let fired = log.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (fired, expected)
}

/// Returns a duration that is often equal to others, sometimes close, sometimes far.
fn duration(random: &mut Random) -> Duration {
    match random.below(3) {
        0 => Duration::from_millis(1 + random.below(50)),
        1 => Duration::from_micros(1) + random.duration(Duration::from_millis(1)),
        _ => Duration::from_micros(1) + random.duration(Duration::from_secs(5)),
    }
}
