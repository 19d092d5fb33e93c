//! Timeout, cancel and stop race from three threads, millions of times in all, and every outcome is counted (W3, D27).

mod random;
mod support;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use random::{Random, seed};
use support::eventually;
use tourbillon::time::Instant;
use tourbillon::{Engine, NamedTimers, Outcome, Timer};

/// The number of timers with each outcome, and of those that ended early.
#[derive(Default)]
struct OutcomeTally {
    fired: AtomicUsize,
    cancelled: AtomicUsize,
    stopped: AtomicUsize,
    early: AtomicUsize,
}

impl OutcomeTally {
    fn count(&self, outcome: Outcome, due: Instant) {
        let count = match outcome {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            Outcome::Stopped => &self.stopped,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let is_early = outcome == Outcome::Fired && Instant::now() < due;
        self.early.fetch_add(usize::from(is_early), Ordering::Relaxed);
    }

    fn callback(self: &Arc<OutcomeTally>, due: Instant) -> impl FnOnce(Outcome) + Send + 'static {
        let tally = self.clone();
        move |outcome| tally.count(outcome, due)
    }

    fn ended(&self) -> usize {
        [&self.fired, &self.cancelled, &self.stopped].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }

    /// Checks, when all timers have ended, that each was counted once, by the call that ended it.
    #[track_caller]
    fn assert_exact(&self, begun: usize, cancelled: usize) {
        eventually("all callbacks have run", || self.ended() >= begun);
        assert_eq!((self.ended(), self.cancelled.load(Ordering::Relaxed)), (begun, cancelled));
        assert_eq!(self.early.load(Ordering::Relaxed), 0);
    }
}

fn engine() -> Engine {
    Engine::builder().shards(4).build().unwrap()
}

fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

#[test]
fn w3_d27_named_timers_that_time_out_are_cancelled_and_stopped_at_once_end_once_each() {
    let (engine, mut random) = (engine(), Random(seed()));
    let (rounds, each, names) = (250, 20_000, 50);
    let mut ways = [0; 3];
    for _ in 0..rounds {
        let (timers, tally) = (NamedTimers::on(&engine), Arc::new(OutcomeTally::default()));
        let name = |number: u64| format!("name {number}");
        let mut begun = 0;
        let start = Instant::now();
        // The timers are being started while the other threads begin to end them.
        let ready = Barrier::new(3);
        let pause = micros(random.below(8000));
        let (cancelled, stopped) = thread::scope(|scope| {
            let cancels = scope.spawn(|| {
                ready.wait();
                let mut cancelled = 0;
                for number in (0..names).chain(0..names) {
                    cancelled += timers.cancel_up_to(&name(number), 150);
                    cancelled += timers.cancel_up_to(&name(number), 1);
                }
                cancelled
            });
            let stops = scope.spawn(|| {
                ready.wait();
                while start.elapsed() < pause {
                    thread::yield_now();
                }
                timers.shutdown()
            });
            ready.wait();
            for _ in 0..each {
                let due = start + micros(random.below(8000));
                let timer = timers.create(&name(random.below(names)));
                begun += usize::from(timer.start_at(due, tally.callback(due)).is_ok());
            }
            (cancels.join().unwrap(), stops.join().unwrap())
        });
        tally.assert_exact(begun, cancelled);
        assert_eq!(tally.stopped.load(Ordering::Relaxed), stopped);
        assert!(timers.is_empty() && timers.names().is_empty());
        for (sum, count) in ways.iter_mut().zip([&tally.fired, &tally.cancelled, &tally.stopped]) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
    println!("fired, cancelled, stopped: {ways:?}");
    assert!(ways.iter().all(|way| *way > 0), "one side wins every race: {ways:?}");
}

#[test]
fn w3_d28_named_timers_and_timers_of_an_engine_that_is_shut_down_end_once_each() {
    let mut random = Random(seed());
    for _ in 0..100 {
        let (engine, tally) = (engine(), Arc::new(OutcomeTally::default()));
        let named = NamedTimers::on(&engine);
        let timers: Vec<_> = (0..500).map(|_| Timer::on(&engine)).collect();
        let mut begun = 0;
        let start = Instant::now();
        for timer in &timers {
            let due = start + micros(random.below(3000));
            timer.expires_at(due);
            (0..5).for_each(|_| _ = timer.on_expiry(tally.callback(due)));
            begun += 5;
        }
        let begin = Barrier::new(3);
        let (wait, pause) = (random.below(2000), micros(random.below(3000)));
        let cancelled = thread::scope(|scope| {
            let cancels = scope.spawn(|| {
                begin.wait();
                (0..wait).for_each(|_| std::hint::spin_loop());
                let waits: usize =
                    timers.iter().rev().map(|timer| usize::from(timer.cancel_one()) + timer.cancel()).sum();
                waits + (0..10).map(|_| named.cancel("a")).sum::<usize>()
            });
            let stops = scope.spawn(|| {
                begin.wait();
                thread::sleep(pause);
                engine.shutdown();
            });
            begin.wait();
            for _ in 0..2500 {
                let due = Instant::now() + micros(random.below(1000));
                begun += usize::from(named.create("a").start_at(due, tally.callback(due)).is_ok());
            }
            stops.join().unwrap();
            cancels.join().unwrap()
        });
        tally.assert_exact(begun, cancelled);
        assert!(named.is_empty());
    }
}

#[test]
fn d27_a_timer_that_is_set_waited_for_and_cancelled_by_several_threads_counts_exactly() {
    let (engine, mut random) = (engine(), Random(seed()));
    let (timer, tally) = (Timer::on(&engine), Arc::new(OutcomeTally::default()));
    let over = AtomicBool::new(false);
    let (begun, cancelled) = thread::scope(|scope| {
        let cancels = |seed: u64| {
            let (timer, over) = (&timer, &over);
            move || {
                let (mut random, mut cancelled) = (Random(seed), 0);
                while !over.load(Ordering::Relaxed) {
                    cancelled += match random.below(4) {
                        0 => timer.cancel(),
                        _ => usize::from(timer.cancel_one()),
                    };
                    (0..random.below(3000)).for_each(|_| std::hint::spin_loop());
                }
                cancelled
            }
        };
        let others = [scope.spawn(cancels(random.below(1 << 60))), scope.spawn(cancels(random.below(1 << 60)))];
        let (mut begun, mut cancelled) = (0, 0);
        for _ in 0..100_000 {
            let due = Instant::now() + micros(random.below(60));
            cancelled += timer.expires_at(due);
            for _ in 0..random.below(16) {
                let handle = timer.on_expiry(tally.callback(due));
                begun += 1;
                cancelled += usize::from(random.below(8) == 0 && handle.cancel());
            }
            // Now and then the timer expires, unless the others change it first.
            let waits_until = if random.below(4) == 0 { due + micros(random.below(60)) } else { due - micros(60) };
            while Instant::now() < waits_until {
                std::hint::spin_loop();
            }
        }
        over.store(true, Ordering::Relaxed);
        let others = others.map(|other| other.join().unwrap());
        cancelled += timer.cancel();
        (begun, cancelled + others.iter().sum::<usize>())
    });
    tally.assert_exact(begun, cancelled);
    let fired = tally.fired.load(Ordering::Relaxed);
    println!("{begun} waits, {fired} fired, {cancelled} cancelled");
    assert!(fired > 0 && cancelled > 0);
}

#[test]
fn d27_d39_futures_that_are_polled_and_dropped_while_they_fire_and_are_cancelled_count_exactly() {
    let (engine, mut random) = (engine(), Random(seed()));
    let tally = OutcomeTally::default();
    let (mut begun, mut withdrawn, mut cancelled) = (0, 0, 0);
    for _ in 0..300 {
        let timer = Timer::on(&engine);
        let due = Instant::now() + micros(random.below(300));
        timer.expires_at(due);
        let mut waits: Vec<_> = (0..200).map(|_| timer.wait()).collect();
        begun += waits.len();
        let pause = random.below(3000);
        cancelled += thread::scope(|scope| {
            let cancels = scope.spawn(|| {
                (0..pause).for_each(|_| std::hint::spin_loop());
                (0..100).filter(|_| timer.cancel_one()).count()
            });
            for mut wait in waits.drain(..100) {
                match poll(&mut wait) {
                    Poll::Ready(outcome) => tally.count(outcome, due),
                    // The wait may be counted as cancelled before it is dropped, and then no callback runs.
                    Poll::Pending => withdrawn += 1,
                }
            }
            cancels.join().unwrap()
        });
        for wait in waits {
            tally.count(futures_lite::future::block_on(wait), due);
        }
    }
    assert_eq!((tally.ended() + withdrawn, tally.early.load(Ordering::Relaxed)), (begun, 0));
    let ended = tally.cancelled.load(Ordering::Relaxed);
    assert!(ended <= cancelled && cancelled <= ended + withdrawn, "{ended} of {cancelled}");
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn d28_no_callback_is_lost_while_engines_come_and_go() {
    let mut random = Random(seed());
    for _ in 0..300 {
        let (engine, tally) = (engine(), Arc::new(OutcomeTally::default()));
        let timer = Arc::new(Timer::on(&engine));
        let now = Instant::now();
        let (posts, threads) = (200, 2);
        let pause = random.below(20_000);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| (0..posts).for_each(|_| _ = timer.on_expiry(tally.callback(now))));
            }
            (0..pause).for_each(|_| std::hint::spin_loop());
            drop(engine);
        });
        tally.assert_exact(posts * threads, 0);
    }
}
