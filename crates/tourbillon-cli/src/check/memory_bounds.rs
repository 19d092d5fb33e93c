//! P7: limits are kept, and memory is reused. This program's allocator counts the allocations of this thread.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tourbillon::time::Sleep;
use tourbillon::{ArmError, Engine, QueueKind};

use super::audit::Findings;
use super::check_run::CheckRun;
use super::engines::build;
use super::promise::Promise;
use crate::counting_allocator;
use crate::text::count;

const CAPACITY: usize = 1_000;
const AT_ONCE: usize = 1_000;
const ROUNDS: usize = 100;
/// Rounds until everything that is allocated once has been allocated.
const WARM_UP: usize = 20;
/// The planted fault keeps one timer in ten.
const KEPT: usize = 10;
const FAR: Duration = Duration::from_secs(3600);

pub(crate) fn run(check: &CheckRun) -> Findings {
    let mut findings = Findings::default();
    capacity(&mut findings);
    let mut timers = 0;
    for queue in [QueueKind::Wheel, QueueKind::Heap] {
        timers += steady_state(check, queue, &mut findings);
    }
    let what = format!("{} timers armed, moved and cancelled with no allocation", count(timers));
    if findings.complaints.is_empty() {
        findings.counted(Promise::P7, what);
        findings.counted(Promise::P7, format!("a capacity of {} kept", count(CAPACITY as u64)));
    }
    findings
}

/// Checks that an engine accepts timers up to its capacity, and another one when one was dropped.
fn capacity(findings: &mut Findings) {
    let engine = build(Engine::builder().capacity(CAPACITY));
    let mut sleeps: Vec<_> = (0..CAPACITY).map_while(|_| engine.try_sleep(FAR).ok()).collect();
    findings.expect(sleeps.len() == CAPACITY, Promise::P7, || {
        format!("an engine with a capacity of {CAPACITY} took {}", sleeps.len())
    });
    let refused = engine.try_sleep(FAR).err() == Some(ArmError::Full { capacity: CAPACITY });
    findings.expect(refused, Promise::P7, || "an engine at its capacity did not return `Full`".into());
    sleeps.pop();
    findings
        .expect(engine.try_sleep(FAR).is_ok(), Promise::P7, || "the place of a cancelled timer was not freed".into());
}

/// Arms, resets and cancels timers, and checks that this allocates nothing. Returns the number of timers.
fn steady_state(check: &CheckRun, queue: QueueKind, findings: &mut Findings) -> u64 {
    let engine = build(Engine::builder().queue(queue));
    let boxed = || Box::pin(engine.sleep(FAR));
    let mut sleeps: Vec<Pin<Box<Sleep>>> = (0..AT_ONCE).map(|_| boxed()).collect();
    let leaks = if check.breaks(Promise::P7) { AT_ONCE / KEPT * (WARM_UP + ROUNDS) } else { 0 };
    let mut spare: Vec<Pin<Box<Sleep>>> = (0..leaks).map(|_| boxed()).collect();
    let mut kept = Vec::with_capacity(leaks);
    let mut round = |number: usize| {
        churn(&engine, &mut sleeps, number);
        // The planted fault: cancelled timers are not released.
        for sleep in sleeps.iter_mut().step_by(KEPT) {
            if let Some(fresh) = spare.pop() {
                kept.push(std::mem::replace(sleep, fresh));
            }
        }
        sleeps.iter_mut().for_each(|sleep| sleep.as_mut().set(engine.sleep(FAR)));
    };
    (0..WARM_UP).for_each(&mut round);
    let before = (counting_allocator::allocations(), counting_allocator::in_use());
    (WARM_UP..WARM_UP + ROUNDS).for_each(&mut round);
    let (asked, grown) = (counting_allocator::allocations() - before.0, counting_allocator::in_use() - before.1);
    let pending = engine.stats().pending;
    findings.expect(asked == 0, Promise::P7, || {
        format!("{queue:?}: {} allocations in the steady state, {grown} more bytes in use", count(asked))
    });
    findings
        .expect(pending == 0, Promise::P7, || format!("{queue:?}: {} cancelled timers are pending", count(pending)));
    (ROUNDS * AT_ONCE) as u64
}

fn churn(engine: &Engine, sleeps: &mut [Pin<Box<Sleep>>], round: usize) {
    for (number, sleep) in sleeps.iter_mut().enumerate() {
        let duration = FAR + Duration::from_micros(7919 * number as u64 + round as u64);
        sleep.as_mut().set(engine.sleep(duration));
        let _ = sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let deadline = sleep.deadline();
        sleep.as_mut().reset(deadline + Duration::from_millis(5));
        sleep.as_mut().reset(deadline - Duration::from_micros(100));
    }
}
