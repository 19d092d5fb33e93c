//! Timers are armed faster than they can be fired.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use tourbillon::time::Sleep;
use tourbillon::{ArmError, Engine};

use crate::audit::TimerAudit;
use crate::child::{Child, child_part, report};
use crate::kilobytes;
use crate::support::{eventually, ms, poll_with, waker};

const THREADS: usize = 3;
/// How long the threads try to reach the capacity.
const LONGEST: Duration = Duration::from_secs(20);

/// The engine and the cost of the wakers.
#[derive(Clone, Copy)]
struct Flood {
    lasts: Duration,
    /// How long each waker takes.
    waking: Duration,
    capacity: Option<usize>,
}

/// The timers of one thread, counted.
#[derive(Default)]
struct Armed {
    armed: u64,
    /// Timers that were due, or had fired, before they got a waker.
    fired_at_once: u64,
    refused: u64,
}

#[test]
fn p2_p4_p7_armed_faster_than_they_can_fire_timers_are_refused_at_capacity_and_none_is_lost() {
    let test = "flood::p2_p4_p7_armed_faster_than_they_can_fire_timers_are_refused_at_capacity_and_none_is_lost";
    let flood = Flood { lasts: ms(1000), waking: Duration::from_micros(10), capacity: Some(50_000) };
    match child_part(test) {
        None => Child::spawn(test, "is flooded").succeeds(),
        Some(_) => assert!(flood.run() > 0, "no timer was refused: the flood was too small"),
    }
}

#[test]
fn p2_p4_armed_as_fast_as_can_be_without_a_capacity_timers_are_late_and_none_is_lost() {
    let test = "flood::p2_p4_armed_as_fast_as_can_be_without_a_capacity_timers_are_late_and_none_is_lost";
    let flood = Flood { lasts: ms(700), waking: Duration::ZERO, capacity: None };
    match child_part(test) {
        None => Child::spawn(test, "is flooded").succeeds(),
        Some(_) => assert_eq!(flood.run(), 0),
    }
}

impl Flood {
    /// Lets threads arm timers of a millisecond as fast as they can, with a capacity until it is reached. Returns how many were refused.
    fn run(self) -> u64 {
        let Flood { lasts, waking, capacity } = self;
        let builder = Engine::builder();
        let builder = if let Some(capacity) = capacity { builder.capacity(capacity) } else { builder };
        let engine = builder.build().unwrap();
        let woken = Arc::new(AtomicU64::new(0));
        let counts = waker({
            let woken = Arc::clone(&woken);
            move || {
                let start = Instant::now();
                while start.elapsed() < waking {}
                woken.fetch_add(1, Ordering::SeqCst);
            }
        });
        let (is_over, is_full) = (AtomicBool::new(false), AtomicBool::new(capacity.is_none()));
        let (before, mut most) = (kilobytes("VmHWM"), 0);
        let threads: Vec<_> = thread::scope(|scope| {
            let arm = || arm_continuously(&engine, &counts, &is_over, &is_full);
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(arm)).collect();
            let start = Instant::now();
            // A slow machine may need longer to reach the capacity.
            while start.elapsed() < lasts || (!is_full.load(Ordering::SeqCst) && start.elapsed() < LONGEST) {
                most = most.max(engine.stats().pending);
                thread::sleep(ms(10));
            }
            is_over.store(true, Ordering::SeqCst);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let total = |of: fn(&Armed) -> u64| threads.iter().map(of).sum::<u64>();
        let (armed, at_once, refused) = (total(|t| t.armed), total(|t| t.fired_at_once), total(|t| t.refused));
        let stats = engine.stats();
        assert_eq!((stats.fired, stats.pending), (stats.armed, 0), "{stats:?}");
        // Some timers were due before they could be armed, because their thread had lost its processor.
        assert!((armed - at_once..=armed).contains(&stats.armed), "{armed} requested; {stats:?}");
        eventually("each timer that fired has woken its task", || woken.load(Ordering::SeqCst) + at_once == armed);
        // The shards are counted one after the other, while timers move between them.
        let is_bounded = capacity.is_none_or(|capacity| most <= (capacity + capacity / 10) as u64);
        assert!(is_bounded, "{most} pending at once");
        report(&format!(
            "{THREADS} threads armed {armed} timers of 1 ms in {lasts:?}, {waking:?} to wake one, {refused} were refused; {most} pending at \
             once, {} kB more; late by {:?} at most, half of them by no more than {:?}; 0 lost",
            kilobytes("VmHWM").saturating_sub(before),
            stats.lateness.max(),
            stats.lateness.quantile(0.5),
        ));
        let mut after = TimerAudit::new(&engine);
        let late_batches = after.recovers();
        after.check(&format!("after the flood, {late_batches} late batches"));
        refused
    }
}

/// Arms one timer after the other, and then waits until all of them have fired.
fn arm_continuously(engine: &Engine, waker: &Waker, is_over: &AtomicBool, is_full: &AtomicBool) -> Armed {
    let mut done = Armed::default();
    let mut held: VecDeque<std::pin::Pin<Box<Sleep>>> = VecDeque::new();
    while !is_over.load(Ordering::Relaxed) {
        match engine.try_sleep(ms(1)) {
            Ok(sleep) => {
                let mut sleep = Box::pin(sleep);
                done.armed += 1;
                done.fired_at_once += u64::from(poll_with(sleep.as_mut(), waker).is_ready());
                held.push_back(sleep);
            }
            Err(full) => {
                assert!(matches!(full, ArmError::Full { .. }), "{full}");
                done.refused += 1;
                is_full.store(true, Ordering::SeqCst);
            }
        }
        while held.front().is_some_and(|sleep| sleep.is_elapsed()) {
            held.pop_front();
        }
    }
    eventually("all timers of the thread fire", || held.iter().all(|sleep| sleep.is_elapsed()));
    done
}
