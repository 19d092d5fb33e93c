//! Many threads make all kinds of calls on the timers of one engine, on the real clock; in the end all counts must agree.

mod random;
mod support;

use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use random::{Random, seed};
use support::{poll_with, waker, years};
use tourbillon::time::{Instant, Sleep};
use tourbillon::{Engine, Outcome, QueueKind, Slack};

const THREADS: u64 = 4;
/// The duration of one story.
const STORY: Duration = Duration::from_millis(350);
/// The most timers that wait to be taken by another thread.
const POOL: usize = 500;

/// The state that the threads of one story share.
struct Story {
    engine: Engine,
    /// Timers on their way from one thread to another.
    pool: Mutex<Vec<Pin<Box<Sleep>>>>,
    end: AtomicBool,
    shutdown_begins: AtomicBool,
    wakes: Arc<AtomicU64>,
    fires_seen: AtomicU64,
    stops_seen: AtomicU64,
}

#[test]
fn p2_whatever_the_threads_do_each_timer_has_one_outcome_and_none_is_early() {
    let seed = seed();
    let slacks = [Slack::adaptive(), Slack::exact(), Slack::up_to(Duration::from_micros(500)), Slack::precise()];
    for (number, slack) in slacks.into_iter().enumerate() {
        let queue = [QueueKind::Wheel, QueueKind::Heap, QueueKind::Wheel, QueueKind::ListTree][number];
        run(seed ^ (number as u64) << 60, slack, queue, Ending::Drop);
        run(seed ^ (number as u64 + 8) << 60, slack, QueueKind::Wheel, Ending::Shutdown);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Drop,
    /// In the middle, while all threads continue.
    Shutdown,
}

fn run(seed: u64, slack: Slack, queue: QueueKind, ending: Ending) {
    let story = Story {
        // Fewer shards than threads, so that some share.
        engine: Engine::builder().slack(slack).queue(queue).shards(3).build().unwrap(),
        pool: Mutex::default(),
        end: AtomicBool::new(false),
        shutdown_begins: AtomicBool::new(false),
        wakes: Arc::default(),
        fires_seen: AtomicU64::new(0),
        stops_seen: AtomicU64::new(0),
    };
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let story = &story;
            scope.spawn(move || story.act(Random(seed ^ thread << 56)));
        }
        thread::sleep(STORY / 2);
        if ending == Ending::Shutdown {
            story.shutdown_begins.store(true, Ordering::SeqCst);
            story.engine.shutdown();
        }
        thread::sleep(STORY / 2);
        story.end.store(true, Ordering::SeqCst);
    });
    story.pool.lock().unwrap().clear();
    // A timer that is counted as fired may not have woken its task yet: the driver does that after it has left the shard.
    support::eventually("every fire has its wake-up", || {
        let stats = story.engine.stats();
        story.wakes.load(Ordering::SeqCst) == stats.fired + stats.stopped
    });
    let stats = story.engine.stats();
    let name = format!("{slack:?}, {queue:?}, {ending:?}: {stats:?}");
    assert_eq!(stats.pending, 0, "{name}");
    assert_eq!(stats.armed, stats.fired + stats.cancelled + stats.stopped, "{name}");
    assert_eq!(stats.lateness.count(), stats.fired, "{name}");
    let (fires_seen, stops_seen) = (story.fires_seen.into_inner(), story.stops_seen.into_inner());
    assert!(fires_seen <= stats.fired, "{fires_seen} fires seen; {name}");
    assert!(stops_seen <= stats.stopped, "{stops_seen} stops seen; {name}");
    assert!(stats.fired > 0 && stats.cancelled > 0, "nothing happened: {name}");
    assert_eq!(stats.stopped > 0, ending == Ending::Shutdown, "{name}");
    assert_eq!(stats.waker_panics, 0, "{name}");
}

impl Story {
    fn act(&self, mut random: Random) {
        // All wakers share one counter; but each is a different waker.
        let wakers = [(); 3].map(|()| {
            let wakes = Arc::clone(&self.wakes);
            waker(move || _ = wakes.fetch_add(1, Ordering::SeqCst))
        });
        while !self.end.load(Ordering::SeqCst) {
            let sleep = match random.below(3) {
                0 => None,
                _ => self.take(&mut random),
            };
            let mut sleep = sleep.unwrap_or_else(|| Box::pin(self.engine.sleep(self.duration(&mut random))));
            for _ in 0..=random.below(3) {
                self.change(&mut sleep, &mut random, &wakers);
            }
            // Some are dropped here, the others may go to another thread.
            if random.below(4) > 0 {
                self.put(sleep);
            }
            match random.below(1000) {
                // Any thread may turn the engine and read its counts, beside its driver.
                0 => drop(self.engine.turn()),
                1 => drop(self.engine.stats()),
                2 => thread::sleep(Duration::from_micros(100)),
                _ => {}
            }
        }
    }

    fn change(&self, sleep: &mut Pin<Box<Sleep>>, random: &mut Random, wakers: &[Waker; 3]) {
        match random.below(10) {
            0..5 => {
                // Polled twice: if it is pending after the second poll, it has been armed.
                let waker = &wakers[random.below(3) as usize];
                let _ = poll_with(sleep.as_mut(), waker);
                self.check(sleep);
                if poll_with(sleep.as_mut(), waker).is_pending() && random.below(4) == 0 {
                    self.wait_and_check(sleep);
                }
            }
            5..8 => {
                let from_now = self.duration(random);
                let past = random.duration(Duration::from_millis(2));
                let now = Instant::now();
                sleep.as_mut().reset(if random.below(4) == 0 { now - past } else { now + from_now });
            }
            8 => sleep.as_mut().disarm(),
            _ => sleep.as_mut().arm(),
        }
        self.check(sleep);
    }

    /// Waits a little for an armed timer, and counts its outcome.
    fn wait_and_check(&self, sleep: &mut Pin<Box<Sleep>>) {
        let start = StdInstant::now();
        while start.elapsed() < Duration::from_micros(300) && sleep.outcome().is_none() {
            std::hint::spin_loop();
        }
        match sleep.outcome() {
            Some(Outcome::Fired) => _ = self.fires_seen.fetch_add(1, Ordering::SeqCst),
            Some(Outcome::Stopped) => _ = self.stops_seen.fetch_add(1, Ordering::SeqCst),
            other => assert_eq!(other, None),
        }
    }

    /// Checks the invariants that hold for a timer at any time.
    fn check(&self, sleep: &Sleep) {
        match sleep.outcome() {
            Some(Outcome::Fired) => {
                let now = StdInstant::now();
                assert!(sleep.deadline().into_std() <= now, "early by {:?}", sleep.deadline().into_std() - now);
            }
            Some(Outcome::Stopped) => {
                assert!(self.shutdown_begins.load(Ordering::SeqCst), "stopped, but the engine has not been shut down");
            }
            other => assert_eq!(other, None),
        }
    }

    fn duration(&self, random: &mut Random) -> Duration {
        match random.below(10) {
            0..3 => years(1 + random.below(10)),
            3 => Duration::MAX,
            4..7 => random.duration(Duration::from_micros(200)),
            _ => random.duration(Duration::from_millis(5)),
        }
    }

    fn take(&self, random: &mut Random) -> Option<Pin<Box<Sleep>>> {
        let mut pool = self.pool.lock().unwrap();
        if pool.is_empty() {
            return None;
        }
        let index = random.below(pool.len() as u64) as usize;
        Some(pool.swap_remove(index))
    }

    fn put(&self, sleep: Pin<Box<Sleep>>) {
        let mut pool = self.pool.lock().unwrap();
        if pool.len() < POOL {
            pool.push(sleep);
        }
    }
}

#[test]
fn p2_a_timer_that_migrates_while_its_engine_is_shut_down_is_stopped_and_counted() {
    for round in 0..200 {
        let engine = Engine::builder().shards(4).build().unwrap();
        let (give, take) = mpsc::channel::<Pin<Box<Sleep>>>();
        thread::scope(|scope| {
            let mover = scope.spawn(move || {
                take.into_iter().all(|mut sleep| {
                    // Another waker on another thread: the timer migrates here.
                    let _ = poll_with(sleep.as_mut(), &waker(|| {}));
                    sleep.outcome() != Some(Outcome::Fired)
                })
            });
            let stopper = scope.spawn(|| {
                thread::sleep(Duration::from_micros(10 * round));
                engine.shutdown();
            });
            while !engine.is_shutdown() {
                let mut sleep = Box::pin(engine.sleep(years(1)));
                let _ = poll_with(sleep.as_mut(), Waker::noop());
                let _ = give.send(sleep);
            }
            drop(give);
            stopper.join().unwrap();
            assert!(mover.join().unwrap(), "a timer of a year has fired");
        });
        let stats = engine.stats();
        assert_eq!((stats.pending, stats.fired), (0, 0), "{stats:?}");
        assert_eq!(stats.armed, stats.cancelled + stats.stopped, "{stats:?}");
    }
}
