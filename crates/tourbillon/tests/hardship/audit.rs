//! Armed timers and their outcomes, counted outside the engine and compared with the counts of the engine.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use tourbillon::time::Sleep;
use tourbillon::{Clock, Engine, Span, Stats, Time};

use crate::support::{eventually, poll_with};

/// The timers of one engine, from now on. Only this code arms timers of that engine.
pub(crate) struct TimerAudit {
    engine: Engine,
    /// The counts of the engine at the start.
    before: Stats,
    /// The number of timers armed; a timer that was due before it could be armed is not counted.
    armed: u64,
    held: Vec<Pin<Box<Sleep>>>,
    /// The first this many of `held` were there when some were last cancelled.
    kept: usize,
    seen: Arc<Seen>,
}

/// The observations of the wakers.
#[derive(Default)]
struct Seen {
    woken: AtomicU64,
    twice: AtomicU64,
    early: AtomicU64,
    on_time: AtomicU64,
    latest: AtomicU64,
}

/// The waker of one timer.
struct TimerWaker {
    clock: Clock,
    due: Time,
    is_woken: AtomicBool,
    seen: Arc<Seen>,
}

/// The result of arming a timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Armed {
    Pending,
    /// Its deadline had passed before it could be armed.
    Past,
}

/// The final counts.
#[derive(Debug)]
#[expect(dead_code, reason = "all fields are printed with their names")]
pub(crate) struct AuditResult {
    pub(crate) armed: u64,
    pub(crate) fired: u64,
    pub(crate) cancelled: u64,
    pub(crate) stopped: u64,
    pub(crate) on_time: u64,
    pub(crate) latest: Duration,
}

/// A timer that is no later than this is on time: far more than the promise, and far less than any fault here lasts.
pub(crate) const ON_TIME: Duration = Duration::from_millis(50);

impl TimerAudit {
    pub(crate) fn new(engine: &Engine) -> TimerAudit {
        TimerAudit {
            engine: engine.clone(),
            before: engine.stats(),
            armed: 0,
            held: Vec::new(),
            kept: 0,
            seen: Arc::default(),
        }
    }

    /// Arms a timer that is due this long from now.
    pub(crate) fn arm(&mut self, after: Duration) -> Armed {
        let (clock, seen) = (self.engine.clock().clone(), Arc::clone(&self.seen));
        let due = clock.now() + Span::from(after);
        let witness = TimerWaker { clock, due, is_woken: AtomicBool::new(false), seen };
        let mut sleep = Box::pin(self.engine.sleep(after));
        if poll_with(sleep.as_mut(), &Waker::from(Arc::new(witness))).is_pending() {
            self.armed += 1;
            self.held.push(sleep);
            return Armed::Pending;
        }
        assert!(self.engine.clock().now() >= due, "early at the first poll");
        Armed::Past
    }

    /// Cancels every third of the timers that were armed since the last call.
    pub(crate) fn cancel_some(&mut self) {
        let new = self.held.split_off(self.kept);
        let stay = new.into_iter().enumerate().filter_map(|(number, sleep)| (number % 3 != 0).then_some(sleep));
        self.held.extend(stay);
        self.kept = self.held.len();
    }

    /// Cancels the timer that was armed last.
    pub(crate) fn cancel_last(&mut self) {
        self.held.pop();
        self.kept = self.kept.min(self.held.len());
    }

    pub(crate) fn last_has_fired(&self) -> bool {
        self.held.last().is_some_and(|sleep| sleep.is_elapsed())
    }

    /// Drops the sleeps that have fired.
    pub(crate) fn forget_fired(&mut self) {
        self.held.retain(|sleep| sleep.outcome().is_none());
        self.kept = self.held.len();
    }

    pub(crate) fn armed(&self) -> u64 {
        self.armed
    }

    pub(crate) fn woken(&self) -> u64 {
        self.seen.woken.load(Ordering::SeqCst)
    }

    /// Arms batches of timers until nine of ten in a batch are on time. Returns how many batches were not.
    pub(crate) fn recovers(&mut self) -> u32 {
        let start = Instant::now();
        for late_batches in 0.. {
            let (woken, on_time) = (self.woken(), self.seen.on_time.load(Ordering::SeqCst));
            (1..=100).for_each(|number| _ = self.arm(Duration::from_micros(200 * number)));
            self.all_fire();
            let (woken, on_time) = (self.woken() - woken, self.seen.on_time.load(Ordering::SeqCst) - on_time);
            // A thread that is kept from running finds most deadlines past when it arms.
            if woken >= 50 && on_time * 10 >= woken * 9 {
                return late_batches;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "timers stay late: {on_time} of {woken} on time");
        }
        unreachable!("the loop has no end")
    }

    /// Waits until no timer is pending.
    pub(crate) fn all_fire(&mut self) {
        eventually("all timers fire", || self.engine.stats().pending == 0);
        self.settle();
        self.held.clear();
        self.kept = 0;
    }

    /// Checks that all counts agree, to the last timer, and reports them.
    pub(crate) fn check(mut self, what: &str) -> AuditResult {
        self.all_fire();
        let (stats, before) = (self.engine.stats(), &self.before);
        let result = AuditResult {
            armed: stats.armed - before.armed,
            fired: stats.fired - before.fired,
            cancelled: stats.cancelled - before.cancelled,
            stopped: stats.stopped - before.stopped,
            on_time: self.seen.on_time.load(Ordering::SeqCst),
            latest: Duration::from_nanos(self.seen.latest.load(Ordering::SeqCst)),
        };
        assert_eq!(result.armed, self.armed, "{what}: {result:?}");
        assert_eq!(result.armed, result.fired + result.cancelled + result.stopped, "{what}: {result:?}");
        assert_eq!(self.woken(), result.fired + result.stopped, "{what}: {result:?}");
        assert_eq!(self.seen.twice.load(Ordering::SeqCst), 0, "{what}: woken twice");
        assert_eq!(self.seen.early.load(Ordering::SeqCst), 0, "{what}: early");
        crate::child::report(&format!("{what}: 0 early, 0 lost; {result:?}"));
        result
    }

    /// Waits for the last wakers: the driver wakes them after it has left the shard, so after they are counted.
    fn settle(&self) {
        eventually("the wakers of fired timers are woken", || {
            let (stats, before) = (self.engine.stats(), &self.before);
            self.woken() == stats.fired + stats.stopped - before.fired - before.stopped
        });
    }
}

impl Wake for TimerWaker {
    fn wake(self: Arc<Self>) {
        let now = self.clock.now();
        if self.is_woken.swap(true, Ordering::SeqCst) {
            self.seen.twice.fetch_add(1, Ordering::SeqCst);
        }
        if now < self.due {
            self.seen.early.fetch_add(1, Ordering::SeqCst);
        }
        let late = now - self.due;
        if late <= Span::from(ON_TIME) {
            self.seen.on_time.fetch_add(1, Ordering::SeqCst);
        }
        self.seen.latest.fetch_max(late.as_nanos(), Ordering::SeqCst);
        self.seen.woken.fetch_add(1, Ordering::SeqCst);
    }
}
