//! The clocks of a node, and the alarms that wake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tourbillon::{Clock, Engine, Outcome, Timer};

use super::TimersError;
use super::node_loop::{Mailbox, Message};
use crate::core::{Now, Wakeup};
use crate::time::StoreTime;

/// The clocks of a node.
pub(super) struct NodeClocks {
    pub(super) origin: Instant,
    /// What is added to the system's clock to have the store's, in microseconds. Only the node's thread changes it.
    pub(super) offset: Arc<AtomicI64>,
    pub(super) max_skew: Duration,
}

/// Two timers that wake the node: by the store's clock, which may be set, and by the steady one.
pub(super) struct Alarms {
    by_store: (Timer, Option<StoreTime>),
    steady: (Timer, Option<Duration>),
    shutdown: Option<Timer>,
    _wall: Engine,
}

impl NodeClocks {
    fn offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }

    pub(super) fn now(&self) -> Now {
        let system = StoreTime::try_from(SystemTime::now()).unwrap_or_default();
        let store = StoreTime::from_micros(system.as_micros().saturating_add_signed(self.offset()));
        Now { store, steady: self.origin.elapsed() }
    }

    /// Returns the difference of the clocks, if the store read its clock halfway between `sent` and now.
    pub(super) fn offset_of(&self, store: StoreTime, sent: Duration) -> i64 {
        let system = StoreTime::try_from(SystemTime::now()).unwrap_or_default();
        let half = self.origin.elapsed().saturating_sub(sent) / 2;
        let read_at = system.saturating_sub(half);
        store.as_micros() as i64 - read_at.as_micros() as i64
    }

    /// Returns the time of the system's clock when the store's shows `time`.
    fn system_time(&self, time: StoreTime) -> SystemTime {
        StoreTime::from_micros(time.as_micros().saturating_add_signed(-self.offset())).to_system()
    }
}

impl Alarms {
    pub(super) fn new() -> Result<Alarms, TimersError> {
        let wall = Engine::builder().clock(Clock::wall()).build();
        let wall = wall.map_err(|error| TimersError::Thread(error.to_string()))?;
        Ok(Alarms { by_store: (Timer::on(&wall), None), steady: (Timer::new(), None), shutdown: None, _wall: wall })
    }

    /// Sets the alarms, unless they are set so already.
    pub(super) fn set(&mut self, wakeup: Wakeup, now: Now, clocks: &NodeClocks, mailbox: &Mailbox) {
        if self.by_store.1 != wakeup.store {
            self.by_store.1 = wakeup.store;
            self.by_store.0.cancel();
            if let Some(at) = wakeup.store {
                self.by_store.0.expires_at_wall(clocks.system_time(at));
                ring(&self.by_store.0, mailbox);
            }
        }
        if self.steady.1 != wakeup.steady {
            self.steady.1 = wakeup.steady;
            self.steady.0.cancel();
            if let Some(at) = wakeup.steady {
                self.steady.0.expires_after(at.saturating_sub(now.steady));
                ring(&self.steady.0, mailbox);
            }
        }
    }

    /// Has both alarms set again: one of them has gone off.
    pub(super) fn forget(&mut self) {
        (self.by_store.1, self.steady.1) = (None, None);
        self.by_store.0.cancel();
        self.steady.0.cancel();
    }

    /// Keeps the timer of a shutdown: a timer that is dropped cancels its waits.
    pub(super) fn keep(&mut self, timer: Timer) {
        self.shutdown = Some(timer);
    }
}

fn ring(timer: &Timer, mailbox: &Mailbox) {
    let mailbox = mailbox.clone();
    timer.on_expiry(move |outcome| {
        if outcome == Outcome::Fired {
            mailbox.tell(Message::Alarm);
        }
    });
}
