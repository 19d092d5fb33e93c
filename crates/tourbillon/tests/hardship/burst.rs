//! A million timers are due in one instant.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use tourbillon::time::{Instant, Sleep};
use tourbillon::{Clock, Driver, Engine};

use crate::audit::TimerAudit;
use crate::child::report;
use crate::support::{eventually, ms, poll_with, waker, years};

const MILLION: usize = 1_000_000;
/// The most timers of one shard that a turn fires.
const TURN: usize = 1000;

#[test]
fn d26_a_million_timers_due_at_once_fire_in_bounded_turns_between_which_others_arm() {
    let engine = Engine::builder().clock(Clock::manual()).driver(Driver::external()).shards(2).build().unwrap();
    let second = Duration::from_secs(1);
    let crowd: Vec<_> = (0..MILLION).map(|_| engine.try_sleep(second).unwrap()).collect();
    // A timer of another thread, so in another shard; it is armed last, and need not wait for the million.
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
        // The upkeep of an opened slot may take some turns before; none of them is long.
        assert!(other.is_elapsed() || turns <= 2, "the other shard waits for the million");
        // Between turns this thread arms and cancels, in the same shard.
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
fn p1_p2_d26_while_a_driver_fires_a_million_timers_others_arm_and_cancel_and_their_timers_fire() {
    let engine = Engine::builder().build().unwrap();
    let due = Instant::now() + Duration::from_secs(2);
    let crowd = Arc::new(Crowd::default());
    let counts = waker({
        let crowd = Arc::clone(&crowd);
        move || crowd.one_is_woken(due)
    });
    let sleeps: Vec<_> = (0..MILLION).filter_map(|_| armed(&engine, due, &counts)).collect();
    let size = sleeps.len() as u64;
    thread::scope(|scope| {
        let beside = scope.spawn(|| beside(&engine, &crowd, size));
        let (took, longest) = serve(&engine, &crowd, size);
        let (ticks, latest) = beside.join().unwrap();
        report(&format!(
            "a driver fired {size} of one instant in {took:?}; meanwhile {} timers were armed and cancelled in their shard, none in more \
             than {longest:?}, and {ticks} of 1 ms fired in another, at most {latest:?} late",
            crowd.served.load(Ordering::Relaxed),
        ));
    });
    drop(sleeps);
    let stats = engine.stats();
    assert_eq!((stats.armed, stats.pending), (stats.fired + stats.cancelled, 0), "{stats:?}");
    assert_eq!((crowd.woken(), crowd.early.load(Ordering::Relaxed)), (size, 0));
    let mut after = TimerAudit::new(&engine);
    let late_batches = after.recovers();
    after.check(&format!("after the million, {late_batches} late batches"));
}

/// The state of the million timers.
#[derive(Default)]
struct Crowd {
    woken: AtomicU64,
    early: AtomicU64,
    /// The number of timers that other threads have armed and cancelled meanwhile.
    served: AtomicU64,
}

impl Crowd {
    fn woken(&self) -> u64 {
        self.woken.load(Ordering::Relaxed)
    }

    /// Called by each waker. One of them waits, in the middle, until another thread has armed a timer: on any machine this proves that
    /// arming does not wait for the last fire.
    fn one_is_woken(&self, due: Instant) {
        self.early.fetch_add(u64::from(Instant::now() < due), Ordering::Relaxed);
        if self.woken.fetch_add(1, Ordering::Relaxed) == 1000 {
            eventually("other threads arm meanwhile", || self.served.load(Ordering::Relaxed) > 0);
        }
    }
}

/// Arms and cancels while the million fires. Returns how long that took, and the longest single call.
fn serve(engine: &Engine, crowd: &Crowd, size: u64) -> (Duration, Duration) {
    eventually("the first of the million fires", || crowd.woken() > 0);
    let (start, mut longest) = (StdInstant::now(), Duration::ZERO);
    while crowd.woken() < size {
        let before = StdInstant::now();
        drop(engine.try_sleep(years(1)).unwrap());
        longest = longest.max(before.elapsed());
        crowd.served.fetch_add(1, Ordering::Relaxed);
        assert!(start.elapsed() < Duration::from_secs(60), "the million does not end");
    }
    (start.elapsed(), longest)
}

/// Sleeps for a millisecond again and again, on a thread of its own. Returns how many sleeps ended while the million fired, and the
/// greatest lateness.
fn beside(engine: &Engine, crowd: &Crowd, size: u64) -> (u64, Duration) {
    let (mut ticks, mut latest) = (0, Duration::ZERO);
    while crowd.woken() < size {
        let (is_during, start) = (crowd.woken() > 0, StdInstant::now());
        futures_lite::future::block_on(engine.sleep(ms(1)));
        let late = start.elapsed().checked_sub(ms(1)).expect("early");
        if is_during {
            (ticks, latest) = (ticks + 1, latest.max(late));
        }
    }
    (ticks, latest)
}

/// Arms a sleep; returns `None` if its deadline has already passed.
fn armed(engine: &Engine, due: Instant, waker: &Waker) -> Option<Pin<Box<Sleep>>> {
    let mut sleep = Box::pin(engine.sleep_until(due));
    poll_with(sleep.as_mut(), waker).is_pending().then_some(sleep)
}
