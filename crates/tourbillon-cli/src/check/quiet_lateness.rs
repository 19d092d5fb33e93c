//! P4 without load: how late exact timers are when the engine has nothing else to do.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tourbillon::{Engine, Slack};

use super::audit::{Findings, idle_phase};
use super::check_run::CheckRun;
use super::tally::{SurfaceTally, histogram};
use crate::clock::{monotonic, nanos};

/// A waker that sends the time of its call.
struct TimestampWaker(Sender<u64>);

impl Wake for TimestampWaker {
    fn wake(self: Arc<Self>) {
        // An error means that the receiver is gone.
        let _ = self.0.send(monotonic());
    }
}

/// Runs one sleep after the other.
pub(crate) fn run(check: &CheckRun, engine: &Engine) -> Findings {
    let mut random = check.random("quiet", 0);
    let (mut tally, mut late) = (SurfaceTally::new("sleeps, alone"), histogram());
    let (sender, receiver) = channel();
    let waker = Waker::from(Arc::new(TimestampWaker(sender)));
    let ends = monotonic() + nanos(idle_phase(check.lasts));
    while monotonic() < ends {
        let duration = Duration::from_micros(200) + random.duration(Duration::from_millis(4));
        let due = monotonic() + nanos(duration);
        let mut sleep = Box::pin(engine.sleep(duration).slack(Slack::exact()));
        if sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            tally.check(due, monotonic());
            continue;
        }
        tally.armed += 1;
        let wait_limit = check.reference.wait_limit();
        let seen = loop {
            match receiver.recv_timeout(duration + Duration::from_millis(100)) {
                Ok(seen) => break Some(seen),
                Err(_) if wait_limit.is_over() => break None,
                Err(_) => {}
            }
        };
        match seen {
            Some(seen) => {
                tally.fired += 1;
                tally.check(due, seen);
                late.saturating_record(seen.saturating_sub(due));
            }
            None => tally.cancelled += 1,
        }
        let seen_at = seen.unwrap_or_else(monotonic);
        if check.reference.is_stall(due, seen_at) {
            tally.stalled(due, seen_at);
        }
        if seen.is_none() {
            break;
        }
    }
    tally.balance();
    Findings { tallies: vec![tally], quiet: Some(late), ..Findings::default() }
}
