//! A million timers are due in one instant.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use tourbillon::time::Sleep;
use tourbillon::{Clock, Driver, Engine};

use crate::apart::report;
use crate::by_hand::{eventually, ms, poll_with, waker, years};
use crate::ledger::Ledger;

const MILLION: usize = 1_000_000;
/// More than a turn fires of one shard's timers.
const TURN: usize = 1000;

#[test]
fn d26_a_million_due_in_one_instant_fire_in_bounded_turns_between_which_everybody_is_served() {
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).shards(2).build().unwrap();
    let second = Duration::from_secs(1);
    let crowd: Vec<_> = (0..MILLION).map(|_| engine.try_sleep(second).unwrap()).collect();
    // Of another thread, so in another shard; it is armed last, and need not wait for the million.
    let other = thread::scope(|scope| scope.spawn(|| engine.try_sleep(second).unwrap()).join().unwrap());
    assert_eq!(engine.stats().shards, 2);

    engine.clock().advance(second);
    let (mut turns, mut fired, mut most) = (0, 0, 0);
    loop {
        let turn = engine.turn();
        turns += 1;
        fired += turn.fired;
        most = most.max(turn.fired);
        assert!(turn.fired <= TURN, "a turn of {}", turn.fired);
        // Small steps of an opened slot may come before; none of them is long.
        assert!(other.is_elapsed() || turns <= 2, "the other shard waits for the million");
        // Between turns anybody arms and cancels, in the same shard.
        drop(engine.try_sleep(years(1)).unwrap());
        if !turn.more {
            break;
        }
    }
    assert!(turns >= MILLION / TURN);
    let stats = engine.stats();
    assert_eq!((fired, stats.fired, stats.pending), (MILLION + 1, MILLION as u64 + 1, 0));
    assert_eq!(stats.cancelled, turns as u64);
    assert!(crowd.iter().all(Sleep::is_elapsed));
    report(&format!("{fired} due in one instant: {turns} turns, of {most} at most"));
}

#[test]
fn p1_p2_d26_while_a_driver_fires_a_million_others_arm_and_cancel_and_their_timers_fire() {
    let engine = Engine::builder().build().unwrap();
    let due = tourbillon::time::Instant::now() + Duration::from_secs(2);
    let (early, woken) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let counts = waker({
        let (early, woken) = (Arc::clone(&early), Arc::clone(&woken));
        move || {
            early.fetch_add(u64::from(tourbillon::time::Instant::now() < due), Ordering::Relaxed);
            woken.fetch_add(1, Ordering::Relaxed);
        }
    });
    let crowd: Vec<_> = (0..MILLION).filter_map(|_| armed(&engine, due, &counts)).collect();
    let armed_in_time = crowd.len() as u64;

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let beside = scope.spawn(|| beside(&engine, &is_over));
        eventually("the first of them fires", || woken.load(Ordering::Relaxed) > 0);
        let start = Instant::now();
        let (mut served, mut longest) = (0_u64, Duration::ZERO);
        while woken.load(Ordering::Relaxed) < armed_in_time {
            let before = Instant::now();
            drop(engine.try_sleep(years(1)).unwrap());
            longest = longest.max(before.elapsed());
            served += 1;
            assert!(start.elapsed() < Duration::from_secs(60), "the crowd does not end");
        }
        let took = start.elapsed();
        is_over.store(true, Ordering::SeqCst);
        let (ticks, latest) = beside.join().unwrap();
        report(&format!(
            "a driver fired {armed_in_time} of one instant in {took:?}; meanwhile in their shard {served} timers were armed and \
             cancelled, none in more than {longest:?}; in another {ticks} of 1 ms fired, at most {latest:?} late",
        ));
        assert!(served > 0 && ticks > 0, "nobody was served");
    });
    drop(crowd);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.pending), (stats.fired + stats.cancelled, 0), "{stats:?}");
    assert_eq!((woken.load(Ordering::Relaxed), early.load(Ordering::Relaxed)), (armed_in_time, 0));
    let mut after = Ledger::new(&engine);
    let late_batches = after.recovers();
    after.balance(&format!("after the million, {late_batches} late batches"));
}

/// Sleeps of a millisecond, one after the other, on a thread of its own. How many, and how late the latest was.
fn beside(engine: &Engine, is_over: &AtomicBool) -> (u64, Duration) {
    let (mut ticks, mut latest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::SeqCst) {
        let start = Instant::now();
        futures_lite::future::block_on(engine.sleep(ms(1)));
        let late = start.elapsed().checked_sub(ms(1)).expect("early");
        latest = latest.max(late);
        ticks += 1;
    }
    (ticks, latest)
}

/// `None`: too late to arm it.
fn armed(engine: &Engine, due: tourbillon::time::Instant, waker: &Waker) -> Option<Pin<Box<Sleep>>> {
    let mut sleep = Box::pin(engine.sleep_until(due));
    poll_with(sleep.as_mut(), waker).is_pending().then_some(sleep)
}
